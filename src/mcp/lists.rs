//! What a connection knows of its server's lists: loaded since the object woke, or stored before.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::CatalogCounts;
use super::CatalogFreshness;
use super::catalog::{Catalog, ListKind, ListProblem};
use super::connection::Connection;
use super::options::MAX_STORED_CATALOG;
use crate::ports::{CatalogHead, Timestamp};

/// The lists of one server. What is stored is read when somebody asks for it.
#[derive(Default)]
pub(super) struct Lists {
    known: RefCell<Known>,
    freshness: Cell<CatalogFreshness>,
    loaded_at: Cell<Option<Timestamp>>,
    /// Whether storage has them as they are.
    is_stored: Cell<bool>,
}

enum Known {
    Loaded(Rc<Catalog>),
    Stored(CatalogHead),
}

impl Default for Known {
    fn default() -> Self {
        Self::Loaded(Rc::default())
    }
}

impl Lists {
    /// Storage has lists of this server.
    pub(super) fn are_stored(&self, head: CatalogHead) {
        self.loaded_at.set(Some(head.loaded_at));
        self.freshness.set(CatalogFreshness::Stored);
        self.is_stored.set(true);
        self.known.replace(Known::Stored(head));
    }

    pub(super) fn freshness(&self) -> CatalogFreshness {
        self.freshness.get()
    }

    pub(super) fn loaded_at(&self) -> Option<Timestamp> {
        self.loaded_at.get()
    }

    pub(super) fn counts(&self) -> CatalogCounts {
        match &*self.known.borrow() {
            Known::Loaded(catalog) => CatalogCounts::from(&**catalog),
            Known::Stored(head) => head.counts.into(),
        }
    }

    /// What kept lists from being loaded, as far as that is in memory.
    pub(super) fn problems(&self) -> Vec<ListProblem> {
        let catalog = self.loaded();
        catalog.map_or_else(Vec::new, |catalog| catalog.problems.clone())
    }

    fn loaded(&self) -> Option<Rc<Catalog>> {
        match &*self.known.borrow() {
            Known::Loaded(catalog) => Some(catalog.clone()),
            Known::Stored(_) => None,
        }
    }
}

impl Connection {
    /// The lists, read from storage if need be.
    pub(crate) fn catalog(&self) -> Rc<Catalog> {
        if let Some(catalog) = self.lists.loaded() {
            return catalog;
        }
        let catalogs = &self.common.ports.catalogs;
        let Ok(row) = catalogs.get(self.id().as_str()) else {
            // It may be there again when somebody asks next.
            return Rc::default();
        };
        let catalog = row.and_then(Catalog::from_row);
        if catalog.is_none() {
            // It was there a moment ago, so it is damaged: the next wake does not count on it.
            let _ = catalogs.delete(self.id().as_str());
            self.lists.freshness.set(CatalogFreshness::Unknown);
            self.lists.is_stored.set(false);
        }
        let catalog = Rc::new(catalog.unwrap_or_default());
        self.lists.known.replace(Known::Loaded(catalog.clone()));
        catalog
    }

    /// Whether the lists are known.
    pub(crate) fn is_listed(&self) -> bool {
        self.lists.freshness() != CatalogFreshness::Unknown
    }

    /// Puts the lists that were loaded anew in the place of the old ones, and stores them. Says which
    /// differ. The others stay as they are by now: they may have been loaded meanwhile.
    pub(super) fn take_over(&self, mut catalog: Catalog, loaded: &[ListKind]) -> Vec<ListKind> {
        let before = self.catalog();
        catalog.keep_others(&before, loaded);
        let after = Rc::new(catalog);
        let differs = |kind: &ListKind| !after.lists_the_same(&before, *kind);
        let changed: Vec<ListKind> = ListKind::ALL.into_iter().filter(differs).collect();
        let lists = &self.lists;
        lists.known.replace(Known::Loaded(after.clone()));
        if ListKind::ALL.iter().all(|kind| loaded.contains(kind)) {
            lists.freshness.set(CatalogFreshness::Fresh);
        }
        lists.loaded_at.set(Some(self.common.ports.clock.now()));
        let is_as_stored = changed.is_empty() && after.drops_the_same(&before);
        if !is_as_stored || !lists.is_stored.get() {
            self.store(&after);
        }
        changed
    }

    /// Stores the lists, unless they are too large.
    fn store(&self, catalog: &Catalog) {
        let ports = &self.common.ports;
        let max = self.common.options.max_stored_catalog_bytes;
        let max = max.min(MAX_STORED_CATALOG);
        let (server, now) = (self.server(), ports.clock.now());
        // A list that failed and was known before is kept as it was; one that was never known is not
        // to be taken for empty.
        let is_whole = catalog.is_complete() || self.lists.is_stored.get();
        let row = is_whole.then(|| {
            let of = (
                server.url.clone(),
                server.peer_fingerprint(self.common.vault.is_none()),
            );
            catalog.to_row(self.id(), of, now, max)
        });
        let stored = match row {
            Some(Ok(Some(row))) => ports.catalogs.put(&row).is_ok(),
            _ => false,
        };
        if !stored {
            // What storage may have is out of date. Without it, the next wake loads the lists.
            let _ = ports.catalogs.delete(self.id().as_str());
        }
        self.lists.is_stored.set(stored);
    }
}
