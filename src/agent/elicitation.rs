//! Questions of servers, put to the browsers of an agent.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{Either, select};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Agent;
use crate::mcp::{
    ElicitRequest, ElicitResult, ElicitationHandlers, OpenQuestions, Question, ServerId,
};
use crate::websockets::{CallError, WeakWebSockets, WebSockets};

/// How long a question waits for an answer: less than the minute after which servers give up.
const PATIENCE: Duration = Duration::from_secs(55);
/// The method by which browsers answer.
const ANSWER: &str = "respondToElicitation";

impl Agent {
    /// Puts the questions of servers to the browsers that are connected, and gives their answers
    /// back. Call it while the object is made, or in [`Hooks::on_start`](crate::Hooks::on_start).
    ///
    /// Every connection that takes frames is sent
    /// `{"type": "mcp-elicitation", "id", "serverId", "params"}`, also one that is opened while the
    /// question is open, and `{"type": "mcp-elicitation-closed", "id"}` once it is not. A browser
    /// answers by `agent.call("respondToElicitation", [id, {action, content}])`; the first answer
    /// that fits counts, and one that does not fit is an error of the call.
    ///
    /// A question is cancelled after 55 s, when the last such connection ends, and at once when
    /// there is none.
    pub fn ask_browsers(&self) -> OpenQuestions {
        let questions = OpenQuestions::new();
        self.mcp
            .configure_elicitation_handlers(handlers(&self.sockets, &questions));
        tell_browsers(&self.sockets, &questions);
        cancel_for_nobody(&self.sockets, &questions);
        questions
    }
}

fn handlers(sockets: &WebSockets, questions: &OpenQuestions) -> ElicitationHandlers {
    let ask = |sockets: WeakWebSockets, questions: OpenQuestions| {
        async move |request: ElicitRequest, server: ServerId| {
            if !sockets.upgrade().is_some_and(|all| all.has_listeners()) {
                return Ok(ElicitResult::Cancel);
            }
            let answer = Box::pin(questions.ask(request, server));
            Ok(
                match select(answer, crate::runtime::clock().sleep(PATIENCE)).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => ElicitResult::Cancel,
                },
            )
        }
    };
    ElicitationHandlers::new()
        .form(ask(sockets.downgrade(), questions.clone()))
        .url(ask(sockets.downgrade(), questions.clone()))
}

/// Sends what opens and closes to the browsers, and takes their answers.
pub(crate) fn tell_browsers(sockets: &WebSockets, questions: &OpenQuestions) {
    // Nothing here owns its owner: an object that leaves memory leaves nothing behind.
    let (all, told) = (sockets.downgrade(), questions.downgrade());
    let shown = RefCell::new(BTreeSet::new());
    questions.on_change(move || {
        let (Some(all), Some(told)) = (all.upgrade(), told.upgrade()) else {
            return;
        };
        let open = told.list();
        let mut shown = shown.borrow_mut();
        let mut frames = Vec::new();
        shown.retain(|id: &String| {
            let is_open = open.iter().any(|question| question.id == *id);
            if !is_open {
                frames.push(closed(id));
            }
            is_open
        });
        for question in &open {
            if shown.insert(question.id.clone()) {
                frames.push(opened(question));
            }
        }
        for frame in frames {
            all.send_where(&frame, crate::Connection::is_sent_protocol_messages);
        }
    });
    let open = questions.clone();
    sockets.also_greet(move |connection| {
        for question in open.list() {
            connection.send(&opened(&question));
        }
    });
    let answered = questions.clone();
    sockets.handle(ANSWER, move |call| {
        let (id, result): (String, ElicitResult) = call.args()?;
        match answered.answer(&id, result) {
            Ok(()) => call.reply(&true),
            Err(error) => Err(CallError::Failed(error.describe())),
        }
    });
}

/// Cancels what is open when nobody is there any more to answer it.
fn cancel_for_nobody(sockets: &WebSockets, questions: &OpenQuestions) {
    let (all, open) = (sockets.downgrade(), questions.clone());
    sockets
        .on_closed(move |_| {
            if all.upgrade().is_some_and(|all| !all.has_listeners()) {
                open.cancel_all();
            }
        })
        .detach();
}

fn opened(question: &Question) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Opened<'a> {
        r#type: &'static str,
        id: &'a str,
        server_id: &'a ServerId,
        params: &'a RawValue,
    }
    let frame = Opened {
        r#type: "mcp-elicitation",
        id: &question.id,
        server_id: &question.server_id,
        params: question.request.params(),
    };
    // Nothing here can fail to be JSON.
    serde_json::to_string(&frame).unwrap_or_default()
}

fn closed(id: &str) -> String {
    serde_json::json!({"type": "mcp-elicitation-closed", "id": id}).to_string()
}
