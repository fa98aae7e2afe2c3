//! What modules above this one keep with a manager, and ask of it.

use std::any::Any;
use std::rc::Rc;

use super::{McpClientManager, ServerFilter, ServerId};
use crate::ports::{Clock, Http};
use crate::protocol::Tool;
use crate::url_guard::UrlPolicy;

/// Values of modules above, one of each type.
pub(super) type Attached = Vec<Rc<dyn Any>>;

impl McpClientManager {
    /// The one value of this type that lives as long as the manager.
    pub(crate) fn attachment<T: Default + 'static>(&self) -> Rc<T> {
        let mut attached = self.inner.attached.borrow_mut();
        let mut known = attached.iter().cloned();
        if let Some(known) = known.find_map(|known| known.downcast().ok()) {
            return known;
        }
        let new = Rc::new(T::default());
        attached.push(new.clone());
        new
    }

    /// The lists of tools of the selected live servers. A list is the same allocation for as long
    /// as it has not been loaded anew.
    pub(crate) fn tool_lists(&self, filter: &ServerFilter) -> Vec<(ServerId, Rc<[Tool]>)> {
        let connections = self.inner.connections.borrow();
        let selected = connections
            .iter()
            .filter(|live| filter.matches(live.id(), &live.server().name, live.state()));
        selected
            .map(|live| (live.id().clone(), live.catalog().tools.clone()))
            .collect()
    }

    /// The time, and timers.
    pub(crate) fn clock(&self) -> Rc<dyn Clock> {
        self.inner.common.ports.clock.clone()
    }

    /// What may be requested.
    pub(crate) fn url_policy(&self) -> &UrlPolicy {
        &self.inner.common.options.url_policy
    }

    /// Outbound HTTP.
    pub(crate) fn http(&self) -> Rc<dyn Http> {
        self.inner.common.ports.http.clone()
    }
}
