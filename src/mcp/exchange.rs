//! One request on its way: the POST, what comes before the response, and further rounds when the
//! server requires input.

use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::asked::{Asker, answer};
use super::client::{Client, How, Line};
use super::deadline::Life;
use super::inbox::OwnQuestions;
use super::session::Session;
use super::within::within;
use crate::protocol::bounded::{is_object, member_text, raw_member};
use crate::protocol::request::{self, Additions, Call, Envelope};
use crate::protocol::{Message, ProtocolError, RequestId, Revision, RpcError, clip};
use crate::transport::{Answer, Incoming, Outgoing, SessionHeader, TransportError};
use crate::{Error, Result};

/// How often a server may require input for one call.
const MAX_ROUNDS: u32 = 10;
/// The pause before a round that the server asked for without requiring any input.
const STATE_ONLY_PAUSE: Duration = Duration::from_millis(250);
/// The longest map of input requests that is read, in bytes.
const MAX_REQUESTS: usize = 1 << 20;
/// The most inputs that one result may require.
const MAX_INPUTS: usize = 16;
/// How long telling a server that a request is given up may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a result is (2026-07-28, index).
enum Kind {
    Complete,
    InputRequired,
    Task,
}

/// What is added to a request within an agreement.
pub(super) struct Within<'a> {
    pub(super) revision: Option<Revision>,
    pub(super) how: Option<&'a How<'a>>,
    pub(super) life: Option<&'a Rc<Life>>,
    pub(super) members: &'a [(&'static str, Box<RawValue>)],
}

impl Within<'_> {
    /// A request that is none of the host's: nothing is added but what the revision demands.
    pub(super) fn plain(revision: Option<Revision>) -> Self {
        Self {
            revision,
            how: None,
            life: None,
            members: &[],
        }
    }
}

impl Client {
    pub(super) async fn within_session(
        self: &Rc<Self>,
        call: &Call,
        how: &How<'_>,
        session: &Rc<Session>,
        life: &Rc<Life>,
    ) -> Result<Box<RawValue>> {
        let mut way = Line::of(session)?;
        self.listen_for(call, session).await;
        way.headers
            .extend(call.headers(Some(session.agreed.revision)));
        if way.is_modern {
            way.offers = self.offers();
            way.headers.extend(how.mirrored.clone());
        }
        let mut members = Vec::new();
        for _ in 0..=MAX_ROUNDS {
            let within = Within {
                revision: Some(session.agreed.revision),
                how: Some(how),
                life: Some(life),
                members: &members,
            };
            let (result, _) = match self.exchange(call, &way, within).await {
                // The user has to visit a page first (2025-11-25, elicitation).
                Err(error) => match visit_required(&error) {
                    Some(refusal) if self.visit(&way, refusal).await => continue,
                    _ => return Err(error),
                },
                Ok(answered) => answered,
            };
            match kind(call.method, &result, way.is_modern, how.tasks)? {
                Kind::Complete | Kind::Task => return Ok(result),
                Kind::InputRequired => members = self.inputs(call.method, &way, &result).await?,
            }
        }
        Err(ProtocolError::TooManyRounds {
            method: call.method,
            rounds: MAX_ROUNDS,
        }
        .into())
    }

    /// Produces every input that a result requires, for the next round (2026-07-28, mrtr).
    ///
    /// The state goes back as the text it was. Nothing of a round outlives it.
    async fn inputs(
        &self,
        method: &'static str,
        line: &Line,
        result: &RawValue,
    ) -> Result<Vec<(&'static str, Box<RawValue>)>> {
        let mut members = Vec::new();
        let requests = raw_member(result, "inputRequests").filter(|value| value.get() != "null");
        let state = raw_member(result, "requestState").filter(|value| value.get() != "null");
        match requests {
            Some(requests) => {
                let responses = self.input_responses(method, line, requests).await?;
                members.push(("inputResponses", responses));
            }
            None if state.is_some() => self.ports.clock.sleep(STATE_ONLY_PAUSE).await,
            None => {
                return Err(ProtocolError::MalformedResult {
                    method,
                    reason: "it requires input and names none".into(),
                }
                .into());
            }
        }
        if let Some(state) = state {
            members.push(("requestState", state.to_owned()));
        }
        Ok(members)
    }

    /// Answers a map of input requests, all at once; one that cannot be answered fails the call.
    pub(super) async fn input_responses(
        &self,
        method: &'static str,
        line: &Line,
        requests: &RawValue,
    ) -> Result<Box<RawValue>> {
        let malformed = |reason: &str| ProtocolError::MalformedResult {
            method,
            reason: reason.into(),
        };
        let requests: Vec<(String, InputRequest)> =
            inputs_of(requests).ok_or_else(|| malformed("its input requests are none"))?;
        if requests.len() > MAX_INPUTS {
            return Err(malformed("it requires too many inputs at once").into());
        }
        let _question = self.inbox.questions.open(&self.ports.clock);
        let answers = requests.into_iter().map(|(key, request)| {
            let asker = Asker {
                server: self.server.clone(),
                offers: line.offers,
                handlers: self.handlers.clone(),
                place: self.dial.place().clone(),
            };
            async move {
                let InputRequest { method, params } = request;
                match answer(asker, &method, params).await {
                    Ok(answer) => Ok((key, answer)),
                    Err(refusal) => Err(Error::InputRefused {
                        method: clip(&method, 60),
                        reason: refusal.to_string(),
                    }),
                }
            }
        });
        let answers = try_join_all(answers).await?;
        // One by one: collecting into a map is sorting first, and its code is long.
        let mut map = std::collections::BTreeMap::new();
        for (key, answer) in answers {
            map.insert(key, answer);
        }
        serde_json::value::to_raw_value(&map).map_err(|error| Error::Runtime(error.to_string()))
    }

    /// One POST and the response to it, with the session header that came along.
    pub(super) async fn exchange(
        self: &Rc<Self>,
        call: &Call,
        line: &Line,
        within: Within<'_>,
    ) -> Result<(Box<RawValue>, SessionHeader)> {
        let number = self.next_id();
        let id = RequestId::Number(number);
        let hearing = within
            .life
            .filter(|_| reports_progress(call.method))
            .map(|life| {
                let on_progress = within.how.and_then(|how| how.options.on_progress.clone());
                self.inbox.hear(number, life.clone(), on_progress)
            });
        let declared = within.revision.filter(|_| line.is_modern).map(|revision| {
            let tasks = within.how.is_some_and(|how| how.tasks);
            (revision, line.offers.declare(true, tasks))
        });
        let options = within.how.map(|how| how.options);
        let add = Additions {
            members: within.members,
            meta: options.and_then(|options| options.meta.as_ref()),
            progress_token: hearing.is_some().then_some(number),
            log_level: options
                .and_then(|options| options.log_level)
                .filter(|_| line.is_modern)
                .map(super::LogLevel::as_str),
            envelope: declared.as_ref().map(|(revision, capabilities)| Envelope {
                protocol_version: revision.as_str(),
                client_info: &self.identity.info,
                client_capabilities: capabilities,
            }),
        };
        let message = Outgoing {
            body: call
                .body(&id, &add)
                .map_err(|error| Error::InvalidOption(error.to_string()))?,
            headers: line.headers.clone(),
            id: Some(id.clone()),
            resumable: !line.is_modern,
        };
        let given_up = GivenUp {
            client: self,
            line,
            id: Some(number).filter(|_| !line.is_modern && is_cancellable(call.method)),
        };
        let outcome = async {
            let Answer { session, messages } = line.transport.send(&message).await?;
            let result = self.response(&id, messages, line).await?;
            Ok((result, session))
        };
        let outcome = outcome.await;
        given_up.no();
        outcome
    }

    /// Reads messages until the response to `id`.
    async fn response(
        self: &Rc<Self>,
        id: &RequestId,
        mut messages: Incoming,
        line: &Line,
    ) -> Result<Box<RawValue>> {
        let mut questions = OwnQuestions::default();
        while let Some(message) = messages.next().await {
            match message? {
                Message::Response {
                    id: Some(found),
                    outcome,
                } if found == *id => return Ok(outcome?),
                // A server that could not read the request answers without an id.
                Message::Response {
                    id: None,
                    outcome: Err(error),
                } => return Err(error.into()),
                // Nobody else's response belongs on this stream, and ours will not come any more.
                Message::Response { .. } => return Err(ProtocolError::WrongResponseId.into()),
                Message::Request { id, method, params } => {
                    questions.add(self.asked(line, id, method, params));
                }
                Message::Notification { method, params } => {
                    self.notified(&method, params.as_deref());
                }
            }
        }
        Err(TransportError::Ended.into())
    }

    /// Tells a legacy server that was told of roots that they have changed.
    pub(crate) fn tell_roots_changed(self: &Rc<Self>) {
        let Some(session) = self.session() else {
            return;
        };
        let method = "notifications/roots/list_changed";
        if session.is_modern() || !session.agreed.offers.roots {
            return;
        }
        if let (Ok(line), Ok(body)) = (
            Line::of(&session),
            request::notification(method, None::<&()>),
        ) {
            self.tell(&line, body);
        }
    }

    /// Tells a legacy server something, and does not wait.
    pub(super) fn tell(self: &Rc<Self>, line: &Line, body: String) {
        let message = Outgoing {
            body,
            headers: line.headers.clone(),
            id: None,
            resumable: false,
        };
        let (transport, clock) = (line.transport.clone(), self.ports.clock.clone());
        self.ports.spawn.spawn(Box::pin(async move {
            let sent = async { Ok(transport.send(&message).await.map(drop)?) };
            let _ = within(&*clock, CANCEL_TIMEOUT, "a notification", sent).await;
        }));
    }
}

/// Tells a legacy server that a request is given up, when dropped before its answer came. In the
/// modern era dropping the exchange says so by itself (2026-07-28, cancellation).
struct GivenUp<'a> {
    client: &'a Rc<Client>,
    line: &'a Line,
    id: Option<i64>,
}

impl GivenUp<'_> {
    fn no(mut self) {
        self.id = None;
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.filter(|_| !self.client.is_ended()) else {
            return;
        };
        let params = serde_json::json!({"requestId": id, "reason": "given up"});
        if let Ok(body) = request::notification("notifications/cancelled", Some(&params)) {
            self.client.tell(self.line, body);
        }
    }
}

/// `initialize` must not be cancelled (2025-11-25, cancellation), and a probe belongs to no session.
fn is_cancellable(method: &str) -> bool {
    !matches!(method, "initialize" | "server/discover")
}

/// Whether a server may take so long over it that it reports progress.
fn reports_progress(method: &str) -> bool {
    matches!(
        method,
        "tools/call" | "prompts/get" | "resources/read" | "tasks/result"
    )
}

/// The refusal of a request that needs the user to visit a page.
fn visit_required(error: &Error) -> Option<&RpcError> {
    let refusal = match error {
        Error::Rpc(refusal) => refusal,
        Error::Transport(TransportError::Status(failure)) => failure.rpc.as_ref()?,
        _ => return None,
    };
    (refusal.code == RpcError::URL_ELICITATION_REQUIRED).then_some(refusal)
}

/// Whether a result may require input.
fn may_require_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// A result is an object, and in the modern era its `resultType` decides before it is read; absent
/// means complete (2026-07-28, index). Legacy results may use that name for anything.
fn kind(
    method: &'static str,
    result: &RawValue,
    is_modern: bool,
    tasks: bool,
) -> Result<Kind, ProtocolError> {
    if !is_object(result) {
        return Err(ProtocolError::MalformedResult {
            method,
            reason: "not an object".into(),
        });
    }
    // Large results of the legacy era are not walked for nothing.
    if !is_modern {
        return Ok(Kind::Complete);
    }
    let Some(kind) = member_text(result, "resultType") else {
        return Ok(Kind::Complete);
    };
    match serde_json::from_str::<String>(kind).as_deref() {
        Ok("complete") => Ok(Kind::Complete),
        Ok("input_required") if may_require_input(method) => Ok(Kind::InputRequired),
        Ok("task") if tasks && method == "tools/call" => Ok(Kind::Task),
        kind => {
            let kind = clip(kind.unwrap_or("(no text)"), 40);
            Err(ProtocolError::UnexpectedResultType { method, kind })
        }
    }
}

#[derive(Deserialize)]
struct InputRequest {
    method: String,
    #[serde(default)]
    params: Option<Box<RawValue>>,
}

/// The entries of `inputRequests`, in their order.
fn inputs_of(requests: &RawValue) -> Option<Vec<(String, InputRequest)>> {
    if requests.get().len() > MAX_REQUESTS {
        return None;
    }
    let entries: std::collections::BTreeMap<String, InputRequest> =
        serde_json::from_str(requests.get()).ok()?;
    (!entries.is_empty()).then(|| entries.into_iter().collect())
}
