//! Which request waits for what: pure bookkeeping of calls and questions.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use futures::channel::oneshot;
use futures::future::AbortHandle;
use serde_json::value::RawValue;

use crate::protocol::{RequestId, RpcError};

/// Notifications that wait to be told, for one request. What comes on top is dropped.
const MAX_NOTIFICATIONS: usize = 1_000;

pub(super) type Outcome = Result<Box<RawValue>, RpcError>;
/// What one call of the object returns, in order.
pub(super) type Said = Vec<String>;

/// One request that is worked on.
pub(super) struct Served {
    pub(super) id: RequestId,
    /// What is told before the next message that somebody waits for.
    notifications: RefCell<Said>,
    /// Questions that wait for the one before to be answered.
    questions: RefCell<VecDeque<String>>,
    waiter: Cell<Option<oneshot::Sender<Said>>>,
    work: AbortHandle,
}

impl Served {
    pub(super) fn new(id: RequestId, work: AbortHandle) -> Rc<Self> {
        Rc::new(Self {
            id,
            notifications: RefCell::default(),
            questions: RefCell::default(),
            waiter: Cell::default(),
            work,
        })
    }

    pub(super) fn notify(&self, message: String) {
        let mut notifications = self.notifications.borrow_mut();
        if notifications.len() < MAX_NOTIFICATIONS {
            notifications.push(message);
        }
    }

    pub(super) fn ask(&self, message: String) {
        self.questions.borrow_mut().push_back(message);
        self.ask_next();
    }

    /// Waits for the next message. Who waited before waits no longer.
    pub(super) fn wait(&self) -> oneshot::Receiver<Said> {
        let (sender, receiver) = oneshot::channel();
        drop(self.waiter.replace(Some(sender)));
        receiver
    }

    /// Asks what is to be asked, if somebody is there to be asked.
    pub(super) fn ask_next(&self) {
        let Some(waiter) = self.waiter.take() else {
            return;
        };
        let question = self.questions.borrow_mut().pop_front();
        match question {
            Some(question) => self.say(waiter, question),
            None => self.waiter.set(Some(waiter)),
        }
    }

    /// Whoever waits is told the last message.
    pub(super) fn end(&self, message: String) {
        if let Some(waiter) = self.waiter.take() {
            self.say(waiter, message);
        }
    }

    /// Whoever waits is told nothing.
    pub(super) fn cancel(&self) {
        self.work.abort();
        drop(self.waiter.take());
    }

    fn say(&self, waiter: oneshot::Sender<Said>, message: String) {
        let mut said = self.notifications.take();
        said.push(message);
        let _ = waiter.send(said);
    }
}

struct Question {
    served: Rc<Served>,
    answer: oneshot::Sender<Outcome>,
}

#[derive(Default)]
pub(super) struct Desk {
    served: RefCell<HashMap<RequestId, Rc<Served>>>,
    questions: RefCell<HashMap<RequestId, Question>>,
    /// What the last caller said in its handshake.
    pub(super) greeting: RefCell<Option<Rc<RawValue>>>,
}

impl Desk {
    pub(super) fn count(&self) -> usize {
        self.served.borrow().len()
    }

    /// Says whether the id was free.
    pub(super) fn begin(&self, served: &Rc<Served>) -> bool {
        let mut all = self.served.borrow_mut();
        let is_free = !all.contains_key(&served.id);
        if is_free {
            all.insert(served.id.clone(), served.clone());
        }
        is_free
    }

    /// The request is over, with whatever was asked for it.
    pub(super) fn end(&self, id: &RequestId) -> Option<Rc<Served>> {
        let served = self.served.borrow_mut().remove(id);
        let mut questions = self.questions.borrow_mut();
        let over = questions.extract_if(|_, question| question.served.id == *id);
        let over: Vec<Question> = over.map(|(_, question)| question).collect();
        drop(questions);
        drop(over);
        served
    }

    pub(super) fn expect(&self, id: RequestId, served: Rc<Served>) -> oneshot::Receiver<Outcome> {
        let (answer, receiver) = oneshot::channel();
        let question = Question { served, answer };
        let earlier = self.questions.borrow_mut().insert(id, question);
        drop(earlier);
        receiver
    }

    /// An answer has come. Gives back for which request, and who waits for what comes of it.
    pub(super) fn answer(
        &self,
        id: &RequestId,
        outcome: Outcome,
    ) -> Option<(Rc<Served>, oneshot::Receiver<Said>)> {
        let Question { served, answer } = self.questions.borrow_mut().remove(id)?;
        let receiver = served.wait();
        let _ = answer.send(outcome);
        served.ask_next();
        Some((served, receiver))
    }
}
