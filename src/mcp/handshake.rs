//! Agreeing on a session: first as a modern client, then by the legacy handshake.

use http::HeaderMap;

use super::client::{Client, Replies, prefer_rpc};
use super::session::Session;
use super::within::within;
use crate::protocol::request::{self, Call, Params};
use crate::protocol::version::{self, ProbeAnswer, Verdict};
use crate::protocol::{ProtocolError, Revision};
use crate::transport::{HttpFailure, Outgoing, TransportError};
use crate::{Error, Result};

/// Finds the server's era and agrees on a session with it.
///
/// # Errors
/// Whatever kept the server from answering; an answer without evidence is never taken for one.
pub(super) async fn agree(client: &Client) -> Result<Session> {
    let limit = client.options.connect_timeout;
    let agreement = async {
        match probe_era(client).await? {
            Some(session) => Ok(session),
            None => initialize(client).await,
        }
    };
    within(&*client.ports.clock, limit, "connecting", agreement).await
}

/// `None` when the server belongs to the legacy era.
async fn probe_era(client: &Client) -> Result<Option<Session>> {
    let mut revision = Revision::NEWEST_MODERN;
    // One more probe after a refusal, even if it names the revision that was just refused.
    for _ in 0..2 {
        let call = Call::new("server/discover");
        let headers = call.headers(Some(revision));
        let exchange = client.exchange(&call, Some(revision), headers, Replies::None);
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
        let error = || {
            outcome
                .as_ref()
                .err()
                .cloned()
                .map_or(Error::Closed, prefer_rpc)
        };
        match verdict {
            Verdict::Modern(revision, card) => {
                return Ok(Some(Session {
                    revision,
                    id: None,
                    card: *card,
                    resumed: false,
                    is_replacement: false,
                }));
            }
            Verdict::Legacy => return Ok(None),
            Verdict::ProbeAgain(next) => revision = next,
            Verdict::Refused(error) => return Err(error.into()),
            Verdict::NoEvidence | Verdict::RefusedRequest => return Err(error()),
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
async fn initialize(client: &Client) -> Result<Session> {
    let broken = |error: serde_json::Error| Error::InvalidOption(error.to_string());
    let params = Params::default()
        .with("protocolVersion", &Revision::NEWEST_LEGACY.as_str())
        .and_then(|params| params.with("capabilities", &client.identity.capabilities))
        .and_then(|params| params.with("clientInfo", &client.identity.info))
        .map_err(broken)?;
    let call = Call {
        method: "initialize",
        target: None,
        params,
    };
    // A server may ping already (2025-11-25, ping); there are no session headers yet to answer with.
    let exchange = client.exchange(
        &call,
        None,
        HeaderMap::new(),
        Replies::With(HeaderMap::new()),
    );
    let limit = client.options.request_timeout;
    let exchange = within(&*client.ports.clock, limit, call.method, exchange);
    let (result, session) = exchange.await.map_err(prefer_rpc)?;
    let id = session.into_id()?;
    let (revision, card) = version::read_initialize(&result)?;
    let session = Session {
        revision,
        id,
        card,
        resumed: false,
        is_replacement: false,
    };
    let method = "notifications/initialized";
    let message = Outgoing {
        body: request::notification(method),
        headers: session.headers(),
        id: None,
        resumable: false,
    };
    let sent = async { Ok(client.transport.send(&message).await.map(drop)?) };
    let unsettled = Unsettled {
        client,
        session: Some(&session),
    };
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
