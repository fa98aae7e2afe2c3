//! Pages that a server sends the user to, and when the user is done with them (2025-11-25,
//! elicitation in URL mode).

use std::cell::RefCell;
use std::rc::Rc;

use futures::channel::oneshot;
use futures::future::join_all;
use serde_json::value::RawValue;

use super::asked::{Asker, answer};
use super::client::{Client, Line};
use super::elicitation::ElicitResult;
use super::inbox::Notice;
use crate::protocol::RpcError;
use crate::protocol::bounded::{list, raw_member, small_member};

/// The most pages that are kept in mind.
const MAX_PAGES: usize = 64;
/// The most pages that one refusal may name.
const MAX_AT_ONCE: usize = 8;
/// The longest id, in bytes of JSON.
const MAX_ID: usize = 512;

/// Oldest first.
#[derive(Default)]
pub(super) struct Pages(RefCell<Vec<(String, Page)>>);

enum Page {
    /// With those who wait for the user to be done.
    Open(Vec<oneshot::Sender<()>>),
    Done,
}

impl Pages {
    /// From now on its completion counts.
    pub(super) fn announce(&self, id: &str) {
        let mut pages = self.0.borrow_mut();
        if pages.iter().any(|(known, _)| known == id) {
            return;
        }
        if pages.len() >= MAX_PAGES {
            // The oldest makes way, one that the user is done with before others.
            let is_done = |(_, page): &(String, Page)| matches!(page, Page::Done);
            let at = pages.iter().position(is_done).unwrap_or(0);
            pages.remove(at);
        }
        pages.push((id.to_owned(), Page::Open(Vec::new())));
    }

    /// The user is done. Says whether anybody expected it: completion of what is unknown or done
    /// already is to be ignored (2025-11-25, elicitation).
    fn complete(&self, id: &str) -> bool {
        let mut pages = self.0.borrow_mut();
        let page = pages.iter_mut().find(|(known, _)| known == id);
        match page {
            Some((_, page @ Page::Open(_))) => {
                *page = Page::Done;
                true
            }
            _ => false,
        }
    }

    fn wait(&self, id: &str) -> Option<oneshot::Receiver<()>> {
        let mut pages = self.0.borrow_mut();
        match &mut pages.iter_mut().find(|(known, _)| known == id)?.1 {
            Page::Done => None,
            Page::Open(waiting) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Some(receiver)
            }
        }
    }

    fn forget(&self, id: &str) {
        self.0.borrow_mut().retain(|(known, _)| known != id);
    }
}

impl Client {
    pub(super) fn page_completed(&self, id: String) {
        if self.inbox.pages.complete(&id) {
            (self.hooks.on_notice)(Notice::ElicitationCompleted(id));
        }
    }

    /// Sends the user to the pages that a refusal names, and waits until all are done with. Says
    /// whether the request is worth repeating.
    ///
    /// Without a stream on which the server can say that the user is done, nobody can know; then
    /// the refusal stands, and the caller repeats the call when the user says so.
    pub(super) async fn visit(self: &Rc<Self>, line: &Line, refusal: &RpcError) -> bool {
        if !line.offers.url || line.is_modern {
            return false;
        }
        let pages = refusal
            .data
            .as_deref()
            .and_then(|data| raw_member(data, "elicitations"));
        let pages =
            pages.and_then(|pages| list::<Box<RawValue>>(pages.get().as_bytes(), MAX_AT_ONCE).ok());
        let Some((pages, false)) = pages else {
            return false;
        };
        let ids: Vec<Option<String>> = pages
            .iter()
            .map(|page| small_member(page, "elicitationId", MAX_ID))
            .collect();
        for id in ids.iter().flatten() {
            self.inbox.pages.announce(id);
        }
        let _question = self.inbox.questions.open(&self.ports.clock);
        let asked = pages.into_iter().map(|page| {
            let asker = Asker {
                server: self.server.clone(),
                offers: line.offers,
                handlers: self.handlers.clone(),
                place: self.dial.place().clone(),
            };
            async move { answer(asker, "elicitation/create", Some(page)).await }
        });
        let answers = join_all(asked).await;
        let agreed = answers.iter().all(|answer| {
            let answer = answer.as_deref().ok();
            let answer = answer.and_then(|answer| serde_json::from_str(answer.get()).ok());
            matches!(answer, Some(ElicitResult::Accept { .. }))
        });
        let has_all = !ids.is_empty() && ids.iter().all(Option::is_some);
        let done = agreed && has_all && self.listening.is_on();
        if done {
            let waiting = ids
                .iter()
                .flatten()
                .filter_map(|id| self.inbox.pages.wait(id));
            join_all(waiting.collect::<Vec<_>>()).await;
        }
        for id in ids.iter().flatten() {
            self.inbox.pages.forget(id);
        }
        done
    }
}
