//! Selecting servers.

use super::{ConnectionState, ServerId};

/// Selects servers by id, name and state: values of one kind are alternatives, kinds are conjoined.
///
/// A kind that was never named restricts nothing; one that was named with no values
/// ([`server_ids`](Self::server_ids) of an empty list, say) matches nothing.
#[derive(Debug, Clone, Default)]
pub struct ServerFilter {
    ids: Option<Vec<String>>,
    names: Option<Vec<String>>,
    states: Option<Vec<ConnectionState>>,
}

impl ServerFilter {
    /// Selects every server.
    pub fn all() -> Self {
        Self::default()
    }

    /// Also selects the server of this id.
    #[must_use]
    pub fn server_id(self, id: impl Into<String>) -> Self {
        self.server_ids([id.into()])
    }

    /// Also selects the servers of these ids.
    #[must_use]
    pub fn server_ids(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        self.ids.get_or_insert_default().extend(ids);
        self
    }

    /// Also selects the servers of this display name. Several may share one.
    #[must_use]
    pub fn server_name(self, name: impl Into<String>) -> Self {
        self.server_names([name.into()])
    }

    /// Also selects the servers of these display names.
    #[must_use]
    pub fn server_names(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names.get_or_insert_default().extend(names);
        self
    }

    /// Also selects servers in this state.
    #[must_use]
    pub fn state(self, state: ConnectionState) -> Self {
        self.states([state])
    }

    /// Also selects servers in these states.
    #[must_use]
    pub fn states(mut self, states: impl IntoIterator<Item = ConnectionState>) -> Self {
        self.states.get_or_insert_default().extend(states);
        self
    }

    pub(crate) fn matches(&self, id: &ServerId, name: &str, state: ConnectionState) -> bool {
        fn admits<T>(values: Option<&Vec<T>>, test: impl Fn(&T) -> bool) -> bool {
            values.is_none_or(|values| values.iter().any(test))
        }
        admits(self.ids.as_ref(), |wanted| wanted == id.as_str())
            && admits(self.names.as_ref(), |wanted| wanted == name)
            && admits(self.states.as_ref(), |wanted| *wanted == state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState::{Failed, Ready};

    #[test]
    fn values_are_alternatives_and_kinds_are_conjoined() {
        let matches = |filter: &ServerFilter, id: &str, name: &str, state| {
            filter.matches(&ServerId::verbatim(id), name, state)
        };
        let all = ServerFilter::all();
        assert!(matches(&all, "a", "A", Ready));

        let two = ServerFilter::all()
            .server_id("a")
            .server_id("b")
            .state(Ready);
        assert!(matches(&two, "a", "A", Ready) && matches(&two, "b", "B", Ready));
        assert!(!matches(&two, "a", "A", Failed) && !matches(&two, "c", "C", Ready));

        let named = ServerFilter::all().server_name("A");
        assert!(matches(&named, "x", "A", Ready) && matches(&named, "y", "A", Failed));

        let none = ServerFilter::all().server_ids([]);
        assert!(!matches(&none, "a", "A", Ready));
    }
}
