//! The state that an object shares with its browsers. Pure.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::ports::StateStore;
use crate::protocol::bounded::is_shallow;
use crate::{Error, Result};

/// How deep a state may be nested.
const MAX_DEPTH: usize = 100;

/// One JSON value, stored when it changes and read when it is first asked for.
#[derive(Clone)]
pub(crate) struct SharedState {
    inner: Rc<Inner>,
}

struct Inner {
    store: Rc<dyn StateStore>,
    max_bytes: usize,
    known: RefCell<Known>,
    /// What it is until somebody sets it.
    initial: RefCell<Option<Rc<str>>>,
}

#[derive(Clone, Default)]
enum Known {
    #[default]
    NotRead,
    Nothing,
    Stored(Rc<str>),
}

impl SharedState {
    pub(super) fn new(store: Rc<dyn StateStore>, max_bytes: usize) -> Self {
        Self {
            inner: Rc::new(Inner {
                store,
                max_bytes,
                known: RefCell::default(),
                initial: RefCell::default(),
            }),
        }
    }

    /// Says what it is until somebody sets it.
    pub(crate) fn set_initial(&self, initial: Option<&Value>) {
        let text = initial.map(|value| Rc::from(value.to_string()));
        self.inner.initial.replace(text);
    }

    /// The state as JSON.
    pub(crate) fn text(&self) -> Result<Option<Rc<str>>> {
        if matches!(&*self.inner.known.borrow(), Known::NotRead) {
            let stored = self.inner.store.get()?;
            // Written by somebody else, it may be anything.
            let stored = stored.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
            let known = stored.map_or(Known::Nothing, |text| Known::Stored(text.into()));
            self.inner.known.replace(known);
        }
        Ok(match &*self.inner.known.borrow() {
            Known::Stored(text) => Some(text.clone()),
            Known::NotRead | Known::Nothing => self.inner.initial.borrow().clone(),
        })
    }

    /// The state as a value.
    pub(crate) fn get<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let text = self.text()?;
        text.map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| Error::InvalidOption(format!("the state: {error}")))
    }

    /// Reads a state that is about to be set.
    pub(crate) fn parse(&self, text: &str) -> Result<Value> {
        if text.len() > self.inner.max_bytes {
            let max = self.inner.max_bytes;
            return Err(Error::InvalidOption(format!(
                "the state is larger than {max} bytes"
            )));
        }
        if !is_shallow(text, MAX_DEPTH) {
            return Err(Error::InvalidOption("the state is nested too deep".into()));
        }
        serde_json::from_str(text)
            .map_err(|error| Error::InvalidOption(format!("the state: {error}")))
    }

    /// Replaces the state by a text that [`parse`](Self::parse) takes. Says whether that changes
    /// anything; if it does not, nothing is written.
    pub(crate) fn set(&self, text: &str) -> Result<bool> {
        if self.text()?.as_deref() == Some(text) && self.is_stored() {
            return Ok(false);
        }
        self.inner.store.put(text)?;
        self.inner.known.replace(Known::Stored(text.into()));
        Ok(true)
    }

    fn is_stored(&self) -> bool {
        matches!(&*self.inner.known.borrow(), Known::Stored(_))
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ports::StoreError;

    #[derive(Default)]
    struct Memory {
        text: RefCell<Option<String>>,
        log: RefCell<Vec<&'static str>>,
    }

    impl StateStore for Memory {
        fn get(&self) -> Result<Option<String>, StoreError> {
            self.log.borrow_mut().push("get");
            Ok(self.text.borrow().clone())
        }

        fn put(&self, text: &str) -> Result<(), StoreError> {
            self.log.borrow_mut().push("put");
            self.text.replace(Some(text.to_owned()));
            Ok(())
        }
    }

    fn state(stored: Option<&str>) -> (Rc<Memory>, SharedState) {
        let memory = Rc::new(Memory::default());
        memory.text.replace(stored.map(str::to_owned));
        (memory.clone(), SharedState::new(memory, 1000))
    }

    #[test]
    fn the_initial_state_counts_until_one_is_set_and_is_not_written() {
        let (memory, state) = state(None);
        assert_eq!(state.text().unwrap(), None);
        state.set_initial(Some(&json!({"n": 0})));
        assert_eq!(state.get::<Value>().unwrap(), Some(json!({"n": 0})));
        assert_eq!(*memory.log.borrow(), ["get"]);
        // The same as the initial one, but it has been said.
        assert!(state.set(r#"{"n":0}"#).unwrap());
        assert!(!state.set(r#"{"n":0}"#).unwrap());
        assert!(state.set(r#"{"n":1}"#).unwrap());
        assert_eq!(*memory.log.borrow(), ["get", "put", "put"]);
        assert_eq!(state.get::<Value>().unwrap(), Some(json!({"n": 1})));
    }

    #[test]
    fn what_cannot_be_a_state_is_refused() {
        let (_, state) = state(None);
        assert!(state.parse("{").is_err());
        assert!(state.parse(&format!("\"{}\"", "x".repeat(1000))).is_err());
        let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
        assert!(state.parse(&deep).is_err());
        assert_eq!(state.parse("null").unwrap(), Value::Null);
    }

    #[test]
    fn a_stored_state_that_is_no_json_counts_as_none() {
        let (_, state) = state(Some("{oops"));
        state.set_initial(Some(&json!(1)));
        assert_eq!(state.get::<Value>().unwrap(), Some(json!(1)));
        assert!(state.set("2").unwrap());
    }

    #[test]
    fn a_state_of_another_type_is_an_error() {
        let (_, state) = state(Some(r#"{"n":1}"#));
        assert!(state.get::<Vec<u32>>().is_err());
    }
}
