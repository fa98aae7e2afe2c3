//! Agreeing on a session: over which transport, in which era, at which revision.

use std::rc::Rc;

use super::client::{Client, Line, prefer_rpc};
use super::exchange::Within;
use super::session::{Agreement, Session, Wire};
use super::within::within;
use crate::protocol::request::{self, Call, Params};
use crate::protocol::version::{self, ProbeAnswer, Verdict};
use crate::protocol::{Era, ProtocolError, Revision};
use crate::transport::{
    HttpFailure, NoEndpoint, Outgoing, Transport, TransportError, TransportKind,
};
use crate::{Error, Result};

/// What is believed about a server before it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    Nothing,
    /// It is of the legacy era.
    Legacy,
    /// It speaks HTTP+SSE.
    HttpSse,
}

/// Agrees on a session. A hint that proves wrong costs a request.
///
/// # Errors
/// Whatever kept the server from answering; an answer without evidence is never taken for one.
pub(super) async fn agree(client: &Rc<Client>, hint: Hint) -> Result<Session> {
    let limit = client.options.connect_timeout;
    let agreement = async {
        match &client.kind {
            TransportKind::StreamableHttp => streamable_http(client, hint, false).await,
            TransportKind::Sse => http_sse(client, true).await,
            TransportKind::Auto if hint == Hint::HttpSse => match http_sse(client, true).await {
                Err(error) if is_no_http_sse(&error) => {
                    streamable_http(client, Hint::Nothing, false).await
                }
                outcome => outcome,
            },
            TransportKind::Auto => streamable_http(client, hint, true).await,
            TransportKind::Rpc => rpc(client, hint).await,
            TransportKind::Other(name) => Err(Error::UnsupportedTransport(name.clone())),
        }
    };
    within(&*client.ports.clock, limit, "connecting", agreement).await
}

/// Streamable HTTP, and HTTP+SSE where the server turns out to speak that.
///
/// A refusal by 400, 404 or 405 is how servers of HTTP+SSE answer a POST (2025-11-25, "Backwards
/// Compatibility"). Where the probe already meets one without a JSON-RPC body, nothing on this URL
/// reads JSON-RPC, so the stream is tried before a second POST.
async fn streamable_http(client: &Rc<Client>, hint: Hint, may_fall_back: bool) -> Result<Session> {
    let transport = client.dial.streamable_http()?;
    let legacy = newest(client, Era::Legacy);
    let probed = match newest(client, Era::Modern) {
        Some(modern) if hint != Hint::Legacy || legacy.is_none() => {
            probe(client, &transport, modern, Wire::StreamableHttp).await?
        }
        _ => Probed::Legacy(None),
    };
    let refusal = match probed {
        Probed::Modern(session) => return Ok(*session),
        Probed::Legacy(refusal) => refusal,
    };
    let Some(revision) = legacy else {
        return Err(ProtocolError::NoCommonVersion(Vec::new()).into());
    };
    let mut no_stream = None;
    if may_fall_back && refusal.as_ref().is_some_and(is_plain_refusal) {
        match http_sse(client, false).await {
            Err(error) if is_no_http_sse(&error) => no_stream = Some(error),
            outcome => return outcome,
        }
    }
    let error = match initialize(client, &transport, revision, Wire::StreamableHttp).await {
        Ok(session) => return Ok(session),
        Err(error) => error,
    };
    if hint == Hint::Legacy && is_refusal(&error) {
        // It may have become a modern server since.
        if let Some(modern) = newest(client, Era::Modern)
            && let Probed::Modern(session) =
                probe(client, &transport, modern, Wire::StreamableHttp).await?
        {
            return Ok(*session);
        }
    }
    if !may_fall_back || !is_refusal(&error) {
        return Err(prefer_rpc(error));
    }
    let no_stream = match no_stream {
        Some(no_stream) if !is_slow(&no_stream) => no_stream,
        _ => match http_sse(client, true).await {
            Err(error) if is_no_http_sse(&error) => error,
            outcome => return outcome,
        },
    };
    match prefer_rpc(error) {
        // It does read JSON-RPC, and has said what it thinks of ours.
        error @ Error::Rpc(_) => Err(error),
        error => Err(Error::NoTransport {
            streamable_http: Box::new(error),
            http_sse: Box::new(no_stream),
        }),
    }
}

/// HTTP+SSE of 2024-11-05. Of the legacy era by its nature, so nothing is probed.
async fn http_sse(client: &Rc<Client>, is_known: bool) -> Result<Session> {
    let revision = newest(client, Era::Legacy).unwrap_or(Revision::NEWEST_LEGACY);
    let slot = client.channel_slot().await;
    let transport = client.dial.http_sse(is_known).await?;
    let session = initialize(client, &transport, revision, Wire::HttpSse).await?;
    Ok(session.holding(slot))
}

/// An object behind a binding. Those of the TypeScript package are of the legacy era and refuse the
/// probe; that is remembered.
async fn rpc(client: &Rc<Client>, hint: Hint) -> Result<Session> {
    let transport = client.dial.rpc(client.offers().any()).await?;
    let legacy = newest(client, Era::Legacy);
    if let Some(modern) = newest(client, Era::Modern)
        && (hint != Hint::Legacy || legacy.is_none())
        && let Probed::Modern(session) = probe(client, &transport, modern, Wire::Rpc).await?
    {
        return Ok(*session);
    }
    let Some(revision) = legacy else {
        return Err(ProtocolError::NoCommonVersion(Vec::new()).into());
    };
    initialize(client, &transport, revision, Wire::Rpc).await
}

/// The newest revision of an era that this server may be offered.
fn newest(client: &Client, era: Era) -> Option<Revision> {
    let offered = client.revisions.iter().copied();
    offered.filter(|revision| revision.era() == era).max()
}

/// Whether an error says that there is no such transport at this URL.
fn is_refusal(error: &Error) -> bool {
    matches!(error.http_status(), Some(400 | 404 | 405))
}

fn is_plain_refusal(error: &Error) -> bool {
    let is_plain = matches!(
        error,
        Error::Transport(TransportError::Status(failure)) if failure.rpc.is_none()
    );
    is_plain && is_refusal(error)
}

/// Whether what came back for the GET is no HTTP+SSE, rather than a server in trouble, out of reach
/// or asking for authorization.
fn is_no_http_sse(error: &Error) -> bool {
    match error {
        Error::Transport(TransportError::Status(failure)) => version::is_evidence(failure.status),
        Error::Transport(
            TransportError::NoEndpoint(_) | TransportError::Unusable(_) | TransportError::Ended,
        ) => true,
        _ => false,
    }
}

/// Whether a stream was given up before it had all the time there is.
fn is_slow(error: &Error) -> bool {
    matches!(
        error,
        Error::Transport(TransportError::NoEndpoint(NoEndpoint::Timeout(_)))
    )
}

enum Probed {
    Modern(Box<Session>),
    /// With the error that came back, if one did.
    Legacy(Option<Error>),
}

/// Finds the server's era.
async fn probe(
    client: &Rc<Client>,
    transport: &Rc<dyn Transport>,
    newest: Revision,
    wire: Wire,
) -> Result<Probed> {
    let mut revision = newest;
    // One more probe after a refusal, even if it names the revision that was just refused.
    for _ in 0..2 {
        let call = Call::new("server/discover");
        let mut line = Line::bare(transport, true);
        line.offers = client.offers();
        line.headers = call.headers(Some(revision));
        let exchange = client.exchange(&call, &line, Within::plain(Some(revision)));
        let limit = client.options.request_timeout;
        let outcome = within(&*client.ports.clock, limit, call.method, exchange).await;
        let verdict = match &outcome {
            Ok((result, _)) => version::judge(&ProbeAnswer::Result(result)),
            Err(Error::Rpc(error)) => version::judge(&ProbeAnswer::Error(200, error)),
            Err(Error::Transport(TransportError::Status(failure))) => {
                version::judge(&probe_answer(failure))
            }
            Err(_) => Verdict::NoEvidence,
        };
        let error = outcome.err();
        match verdict {
            Verdict::Modern(revision, card) => {
                let agreed = Agreement {
                    revision,
                    wire,
                    id: None,
                    card: *card,
                    offers: line.offers,
                };
                return Ok(Probed::Modern(Box::new(Session::new(
                    agreed,
                    transport.clone(),
                ))));
            }
            Verdict::Legacy => return Ok(Probed::Legacy(error)),
            Verdict::ProbeAgain(next) => revision = next,
            Verdict::Refused(error) => return Err(error.into()),
            Verdict::NoEvidence | Verdict::RefusedRequest => {
                return Err(error.map_or(Error::Closed, prefer_rpc));
            }
        }
    }
    Err(ProtocolError::NoCommonVersion(vec![revision.as_str().to_owned()]).into())
}

fn probe_answer(failure: &HttpFailure) -> ProbeAnswer<'_> {
    match &failure.rpc {
        Some(error) => ProbeAnswer::Error(failure.status, error),
        None => ProbeAnswer::Status(failure.status),
    }
}

/// The legacy handshake. The session id is taken from here and from nowhere else.
async fn initialize(
    client: &Rc<Client>,
    transport: &Rc<dyn Transport>,
    revision: Revision,
    wire: Wire,
) -> Result<Session> {
    let broken = |error: serde_json::Error| Error::InvalidOption(error.to_string());
    let offers = client.offers();
    let params = Params::default()
        .with("protocolVersion", &revision.as_str())
        .and_then(|params| params.with("capabilities", &offers.declare(false, false)))
        .and_then(|params| params.with("clientInfo", &client.identity.info))
        .map_err(broken)?;
    let call = Call {
        method: "initialize",
        target: None,
        params,
    };
    // A server may ping already (2025-11-25, ping); there are no session headers yet to answer with.
    let line = Line::bare(transport, false);
    let exchange = client.exchange(&call, &line, Within::plain(None));
    let limit = client.options.request_timeout;
    let exchange = within(&*client.ports.clock, limit, call.method, exchange);
    let (result, header) = exchange.await?;
    let (revision, card) = version::read_initialize(&result)?;
    let id = header.into_id()?;
    let agreed = Agreement {
        revision,
        wire,
        id: id.filter(|_| wire == Wire::StreamableHttp),
        card,
        offers,
    };
    let session = Session::new(agreed, transport.clone());
    let unsettled = Unsettled {
        client,
        session: Some(&session),
    };
    if !client.revisions.contains(&revision) {
        return Err(ProtocolError::UnsupportedVersion(revision.as_str().to_owned()).into());
    }
    let method = "notifications/initialized";
    let message = Outgoing {
        body: request::notification(method, None::<&()>).map_err(broken)?,
        headers: session.agreed.headers(),
        id: None,
        resumable: false,
    };
    let sent = async { Ok(transport.send(&message).await.map(drop)?) };
    within(&*client.ports.clock, limit, method, sent).await?;
    unsettled.settle();
    Ok(session)
}

/// A session that the server has begun and that may come to nothing: dropped, it is ended there.
struct Unsettled<'a> {
    client: &'a Client,
    session: Option<&'a Session>,
}

impl Unsettled<'_> {
    fn settle(mut self) {
        self.session = None;
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            self.client.end_at_server(session);
        }
    }
}
