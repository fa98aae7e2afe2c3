//! What arrives besides responses: notifications, and requests of the server.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use futures::future::{AbortHandle, Abortable, select};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::asked::{Asker, Refusal, answer};
use super::call::{LogLevel, OnProgress, Progress};
use super::catalog::ListKind;
use super::client::{Client, Line};
use super::deadline::{Life, Questions};
use super::pages::Pages;
use super::within::within;
use crate::protocol::bounded::{raw_member, small_member};
use crate::protocol::{RequestId, request};
use crate::transport::Outgoing;

/// Answers that may be on their way at once. What comes on top is not answered: a server that asks
/// faster than it listens gets no say in our memory.
const MAX_ANSWERS: usize = 8;
/// Questions of one server that may be open at once. What comes on top is refused.
const MAX_QUESTIONS: usize = 16;
/// The longest text that is read from a notification, in bytes of JSON.
const MAX_TEXT: usize = 8 << 10;
/// The longest log message that is passed on, in bytes of JSON.
const MAX_LOG: usize = 64 << 10;

/// Something a server has told us.
pub(crate) enum Notice {
    ListChanged(ListKind),
    /// A stream was interrupted, so list changes may have been missed.
    Missed,
    ResourceUpdated(String),
    Log {
        level: Option<LogLevel>,
        logger: Option<String>,
        data: Box<RawValue>,
    },
    ElicitationCompleted(String),
    /// With the task's id.
    TaskChanged(String),
}

#[derive(Default)]
pub(crate) struct Inbox {
    /// Requests of ours that want to hear of progress, by token.
    waiting: RefCell<BTreeMap<i64, Waiting>>,
    /// Requests of the server that are being answered.
    asked: RefCell<HashMap<RequestId, AbortHandle>>,
    pub(super) questions: Rc<Questions>,
    pub(super) pages: Pages,
    answers: Cell<usize>,
}

#[derive(Clone)]
struct Waiting {
    life: Rc<Life>,
    on_progress: Option<OnProgress>,
}

/// While it lives, progress under its token is heard.
pub(super) struct Hearing<'a> {
    inbox: &'a Inbox,
    token: i64,
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        self.inbox.waiting.borrow_mut().remove(&self.token);
    }
}

impl Inbox {
    pub(super) fn hear(
        &self,
        token: i64,
        life: Rc<Life>,
        on_progress: Option<OnProgress>,
    ) -> Hearing<'_> {
        let waiting = Waiting { life, on_progress };
        self.waiting.borrow_mut().insert(token, waiting);
        Hearing { inbox: self, token }
    }

    /// Gives up every answer that is being worked on.
    pub(super) fn close(&self) {
        for (_, asked) in self.asked.take() {
            asked.abort();
        }
    }

    fn withdraw(&self, id: &RequestId) {
        let asked = self.asked.borrow_mut().remove(id);
        if let Some(asked) = asked {
            asked.abort();
        }
    }
}

/// The questions that came on the stream of one request: they are over when it is.
#[derive(Default)]
pub(super) struct OwnQuestions(Vec<AbortHandle>);

impl Drop for OwnQuestions {
    fn drop(&mut self) {
        for asked in &self.0 {
            asked.abort();
        }
    }
}

impl OwnQuestions {
    pub(super) fn add(&mut self, asked: Option<AbortHandle>) {
        self.0.extend(asked);
    }
}

impl Client {
    /// Takes note of a notification, whichever stream it came on.
    pub(super) fn notified(&self, method: &str, params: Option<&RawValue>) {
        let text = |name: &str| small_member::<String>(params?, name, MAX_TEXT);
        let notice = match method {
            "notifications/progress" => return self.progressed(params),
            "notifications/cancelled" => {
                let id = params.and_then(|params| raw_member(params, "requestId"));
                let id = id.and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
                if let Some(id) = id {
                    self.inbox.withdraw(&id);
                }
                return;
            }
            "notifications/tools/list_changed" => Some(Notice::ListChanged(ListKind::Tools)),
            "notifications/prompts/list_changed" => Some(Notice::ListChanged(ListKind::Prompts)),
            "notifications/resources/list_changed" => {
                Some(Notice::ListChanged(ListKind::Resources))
            }
            "notifications/resources/updated" => text("uri").map(Notice::ResourceUpdated),
            "notifications/message" => params.and_then(log),
            "notifications/elicitation/complete" => {
                if let Some(id) = text("elicitationId") {
                    self.page_completed(id);
                }
                return;
            }
            "notifications/tasks" | "notifications/tasks/status" => {
                text("taskId").map(Notice::TaskChanged)
            }
            _ => None,
        };
        if let Some(notice) = notice {
            (self.hooks.on_notice)(notice);
        }
    }

    fn progressed(&self, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        let waiting = Progress::token(params)
            .and_then(|token| self.inbox.waiting.borrow().get(&token).cloned());
        let Some(Waiting { life, on_progress }) = waiting else {
            return;
        };
        life.sign(self.ports.clock.now());
        if let Some(on_progress) = on_progress
            && let Some(progress) = Progress::read(params)
        {
            on_progress(&progress);
        }
    }

    /// Answers a request of the server, in the background and by a POST of its own.
    ///
    /// In the modern era servers must not ask like this (2026-07-28, streamable-http), so nothing
    /// is answered there.
    pub(super) fn asked(
        self: &Rc<Self>,
        line: &Line,
        id: RequestId,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Option<AbortHandle> {
        if line.is_modern || self.inbox.asked.borrow().contains_key(&id) {
            return None;
        }
        if method == "ping" {
            let pong = RawValue::from_string("{}".to_owned()).unwrap_or_default();
            self.reply(line, &id, &Ok(pong));
            return None;
        }
        if !line.offers.cover(&method) {
            self.reply(line, &id, &Err(Refusal::NotOffered));
            return None;
        }
        if self.inbox.questions.count() >= MAX_QUESTIONS {
            let refusal = Refusal::Failed("too many questions are open".into());
            self.reply(line, &id, &Err(refusal));
            return None;
        }
        if let Some(page) = params.as_deref().filter(|_| method == "elicitation/create")
            && let Some(id) = small_member::<String>(page, "elicitationId", MAX_TEXT)
        {
            self.inbox.pages.announce(&id);
        }
        let asker = Asker {
            server: self.server.clone(),
            offers: line.offers,
            handlers: self.handlers.clone(),
            place: self.dial.place().clone(),
        };
        let (abort, registration) = AbortHandle::new_pair();
        self.inbox
            .asked
            .borrow_mut()
            .insert(id.clone(), abort.clone());
        let question = self.inbox.questions.open(&self.ports.clock);
        let (this, line) = (Rc::downgrade(self), line.clone());
        self.ports.spawn.spawn(Box::pin(async move {
            let answer = async { answer(asker, &method, params).await };
            // Withdrawn: the server gets no response (2025-11-25, cancellation).
            let outcome = Abortable::new(answer, registration).await;
            drop(question);
            let Some(this) = this.upgrade() else { return };
            this.inbox.asked.borrow_mut().remove(&id);
            if let Ok(outcome) = outcome {
                this.reply(&line, &id, &outcome);
            }
        }));
        Some(abort)
    }

    fn reply(
        self: &Rc<Self>,
        line: &Line,
        id: &RequestId,
        outcome: &Result<Box<RawValue>, Refusal>,
    ) {
        let outcome = outcome.as_deref().map_err(Refusal::to_rpc);
        let Ok(body) = request::answer_to_server(id, outcome) else {
            return;
        };
        if self.inbox.answers.get() >= MAX_ANSWERS {
            return;
        }
        self.inbox.answers.set(self.inbox.answers.get() + 1);
        let message = Outgoing {
            body,
            headers: line.headers.clone(),
            id: None,
            resumable: false,
        };
        let (this, transport) = (self.clone(), line.transport.clone());
        self.ports.spawn.spawn(Box::pin(async move {
            let sent = async { Ok(transport.send(&message).await.map(drop)?) };
            let limit = this.options.request_timeout;
            let sent = within(&*this.ports.clock, limit, "an answer", sent);
            // If the answer is lost, the server's own request times out.
            let _ = select(std::pin::pin!(sent), this.ended.clone()).await;
            this.inbox.answers.set(this.inbox.answers.get() - 1);
        }));
    }
}

fn log(params: &RawValue) -> Option<Notice> {
    #[derive(Deserialize)]
    struct Log<'a> {
        #[serde(default)]
        level: Option<String>,
        #[serde(default)]
        logger: Option<String>,
        #[serde(borrow)]
        data: &'a RawValue,
    }
    if params.get().len() > MAX_LOG {
        return None;
    }
    let Log {
        level,
        logger,
        data,
    } = serde_json::from_str(params.get()).ok()?;
    Some(Notice::Log {
        level: level.as_deref().and_then(LogLevel::parse),
        logger,
        data: data.to_owned(),
    })
}
