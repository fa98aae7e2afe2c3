//! A place for questions that are answered from elsewhere: by another request, or a browser.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use futures::channel::oneshot;

use super::ServerId;
use super::elicitation::{ElicitRequest, ElicitResult, ElicitationHandlers};
use crate::{Error, Result};

/// Keeps the questions of servers until somebody answers them.
///
/// ```
/// use workers_agents::OpenQuestions;
/// let questions = OpenQuestions::new();
/// let handlers = questions.handlers();
/// // mcp.configure_elicitation_handlers(handlers);
/// for question in questions.list() {
///     println!("{} asks: {}", question.server_id, question.request.message);
/// }
/// # drop(handlers);
/// ```
///
/// A question is open until it is answered, until the server withdraws it, or until the call that
/// led to it is over; and it does not survive an eviction of the object. Cheap to clone.
#[derive(Clone, Default)]
pub struct OpenQuestions {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    open: RefCell<Vec<Entry>>,
    next: Cell<u64>,
    changed: RefCell<Option<Rc<dyn Fn()>>>,
}

struct Entry {
    question: Question,
    answer: oneshot::Sender<ElicitResult>,
}

/// An open question.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Question {
    /// Names it in [`OpenQuestions::answer`]. Never used twice.
    pub id: String,
    /// The server that asks.
    pub server_id: ServerId,
    /// What it asks.
    pub request: ElicitRequest,
}

/// A handle that keeps nothing in memory.
#[derive(Clone)]
pub(crate) struct WeakQuestions(Weak<Inner>);

impl WeakQuestions {
    /// `None` once nobody asks any more.
    pub(crate) fn upgrade(&self) -> Option<OpenQuestions> {
        let inner = self.0.upgrade()?;
        Some(OpenQuestions { inner })
    }
}

impl OpenQuestions {
    /// A handle for what the questions themselves hold.
    pub(crate) fn downgrade(&self) -> WeakQuestions {
        WeakQuestions(Rc::downgrade(&self.inner))
    }

    /// No questions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handlers that put questions of both modes here.
    pub fn handlers(&self) -> ElicitationHandlers {
        let (forms, urls) = (self.clone(), self.clone());
        ElicitationHandlers::new()
            .form(async move |request, server| Ok(forms.ask(request, server).await))
            .url(async move |request, server| Ok(urls.ask(request, server).await))
    }

    /// The open questions, oldest first.
    pub fn list(&self) -> Vec<Question> {
        let open = self.inner.open.borrow();
        open.iter().map(|entry| entry.question.clone()).collect()
    }

    /// Answers a question. The first answer that fits counts.
    ///
    /// # Errors
    /// [`Error::QuestionClosed`] when it is not open any more; [`Error::InvalidOption`] when the
    /// content does not fit the form, and the question stays open.
    pub fn answer(&self, id: &str, answer: ElicitResult) -> Result<()> {
        let question = self.list().into_iter().find(|question| question.id == id);
        let question = question.ok_or(Error::QuestionClosed)?;
        let complete = question.request.complete(answer);
        let complete = complete.map_err(Error::InvalidOption)?;
        let entry = self.take(id).ok_or(Error::QuestionClosed)?;
        self.changed();
        entry
            .answer
            .send(complete)
            .map_err(|_| Error::QuestionClosed)
    }

    /// Calls `listener` whenever a question opens or closes. Replaces the listener before.
    pub fn on_change(&self, listener: impl Fn() + 'static) {
        self.inner.changed.replace(Some(Rc::new(listener)));
    }

    /// Opens a question, and waits for its answer. Closes it when the future is dropped.
    pub(crate) async fn ask(&self, request: ElicitRequest, server_id: ServerId) -> ElicitResult {
        let number = self.inner.next.replace(self.inner.next.get() + 1);
        // Random, so that an answer meant for a question before a wake fits none after it.
        let id = format!("{:08x}-{number}", getrandom::u32().unwrap_or_default());
        let (answer, answered) = oneshot::channel();
        let question = Question {
            id: id.clone(),
            server_id,
            request,
        };
        self.inner
            .open
            .borrow_mut()
            .push(Entry { question, answer });
        let _closes = Closes {
            questions: self.clone(),
            id,
        };
        self.changed();
        answered.await.unwrap_or(ElicitResult::Cancel)
    }

    /// Cancels every open question.
    pub fn cancel_all(&self) {
        let open = std::mem::take(&mut *self.inner.open.borrow_mut());
        let any = !open.is_empty();
        for entry in open {
            // Nobody may be waiting any more.
            let _ = entry.answer.send(ElicitResult::Cancel);
        }
        if any {
            self.changed();
        }
    }

    fn take(&self, id: &str) -> Option<Entry> {
        let mut open = self.inner.open.borrow_mut();
        let at = open.iter().position(|entry| entry.question.id == id)?;
        Some(open.remove(at))
    }

    fn changed(&self) {
        let listener = self.inner.changed.borrow().clone();
        if let Some(listener) = listener {
            listener();
        }
    }
}

/// Takes a question off the list when nobody waits for the answer any more.
struct Closes {
    questions: OpenQuestions,
    id: String,
}

impl Drop for Closes {
    fn drop(&mut self) {
        if self.questions.take(&self.id).is_some() {
            self.questions.changed();
        }
    }
}

impl fmt::Debug for OpenQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenQuestions")
            .field("open", &self.inner.open.borrow().len())
            .finish_non_exhaustive()
    }
}
