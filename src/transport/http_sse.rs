//! HTTP+SSE, the transport of revision 2024-11-05: one event stream carries everything the server
//! says, and names the endpoint to which every message is posted.
//!
//! A stream that is gone takes its session along: a new one is a new transport, so nothing here
//! reconnects.

use std::cell::RefCell;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{AbortHandle, Abortable, Either, select};
use futures::{FutureExt as _, StreamExt, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use super::answer::{EVENT_STREAM, Events, JSON, StreamLimits, event_messages};
use super::delivery::{Delivery, QueueLimits, Waiting};
use super::exchange::Exchanger;
use super::failure::{failure, media_type, unexpected_type};
use super::{
    Answer, Incoming, NoEndpoint, Outgoing, Permission, SessionHeader, Transport, TransportError,
};
use crate::ports::{Clock, Http, Spawn};
use crate::url_guard::GuardedUrl;

/// The name of the event that names the endpoint.
const ENDPOINT: &str = "endpoint";

/// What an [`HttpSse`] may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSseLimits {
    /// Most bytes of one event. The stream as a whole has no limit.
    pub event_bytes: usize,
    /// How long opening may take: until the server has named its endpoint.
    pub endpoint_timeout: Duration,
    /// Messages that may wait for the listener, together not larger than one event may be. Those
    /// that come on top are dropped.
    pub queued_messages: usize,
}

impl HttpSseLimits {
    /// Ten seconds until the endpoint is known, and 256 messages in the queue.
    pub const fn new(event_bytes: usize) -> Self {
        Self {
            event_bytes,
            endpoint_timeout: Duration::from_secs(10),
            queued_messages: 256,
        }
    }
}

/// The transport over one open event stream.
///
/// Responses go to the requests they belong to; everything else goes to whoever
/// [listens](Transport::listen): one at a time, a second one gets `None`. Until somebody does, it
/// waits in a bounded queue.
///
/// The stream closes when this and the answers that are still awaited are dropped.
pub struct HttpSse {
    exchanger: Exchanger,
    clock: Rc<dyn Clock>,
    channel: Rc<Channel>,
}

impl HttpSse {
    /// Opens the stream at `url` and waits for the endpoint. `headers` go with every request, below
    /// the protocol's own; those that only the protocol may send are left out. `permission` is shown
    /// with every request.
    ///
    /// # Errors
    /// [`TransportError::NoEndpoint`], [`EndpointOrigin`](TransportError::EndpointOrigin) and
    /// [`EndpointBlocked`](TransportError::EndpointBlocked) besides the usual ones.
    pub async fn open(
        http: Rc<dyn Http>,
        clock: Rc<dyn Clock>,
        spawn: Rc<dyn Spawn>,
        url: GuardedUrl,
        headers: HeaderMap,
        permission: Option<Rc<dyn Permission>>,
        limits: HttpSseLimits,
    ) -> Result<Self, TransportError> {
        let exchanger = Exchanger::new(http, headers).with_permission(permission);
        let opening = begin(&exchanger, &*clock, &url, limits.event_bytes);
        let patience = clock.sleep(limits.endpoint_timeout);
        let (events, base, endpoint) = match select(pin!(opening), patience).await {
            Either::Left((begun, _)) => begun?,
            Either::Right(_) => {
                let reason = NoEndpoint::Timeout(limits.endpoint_timeout);
                return Err(TransportError::NoEndpoint(reason));
            }
        };
        let delivery = Delivery::new(QueueLimits {
            messages: limits.queued_messages,
            bytes: limits.event_bytes,
        });
        let endpoint = Rc::new(RefCell::new(endpoint));
        let pump = pump(events, base, endpoint.clone(), delivery.clone());
        let (abort, registration) = AbortHandle::new_pair();
        let pump = Abortable::new(pump, registration).map(drop);
        spawn.spawn(pump.boxed_local());
        let channel = Rc::new(Channel {
            delivery,
            endpoint,
            pump: abort,
        });
        Ok(Self {
            exchanger,
            clock,
            channel,
        })
    }

    async fn post(&self, message: &Outgoing) -> Result<(), TransportError> {
        let endpoint = self.channel.endpoint.borrow().clone();
        let mut headers = message.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        let sent = self
            .exchanger
            .send(Method::POST, &endpoint, &headers, Some(&message.body));
        let (response, _) = sent.await?;
        match response.status {
            200..300 => Ok(()),
            _ => Err(failure(&*self.clock, response).await),
        }
    }

    /// Posts a request. The response may overtake the answer to the POST.
    async fn request(
        &self,
        message: &Outgoing,
        mut waiting: Waiting,
    ) -> Result<Incoming, TransportError> {
        let overtaking = match select(&mut waiting, pin!(self.post(message))).await {
            Either::Left((outcome, _)) => Some(outcome?),
            Either::Right((posted, _)) => {
                posted?;
                None
            }
        };
        if let Some(response) = overtaking {
            return Ok(stream::iter([Ok(response)]).boxed_local());
        }
        let channel = self.channel.clone();
        let response = async move {
            let outcome = waiting.await;
            drop(channel);
            outcome
        };
        Ok(stream::once(response).boxed_local())
    }
}

#[async_trait(?Send)]
impl Transport for HttpSse {
    async fn send(&self, message: &Outgoing) -> Result<Answer, TransportError> {
        let messages = match &message.id {
            Some(id) => {
                // Before the POST: the response may be quicker than the answer to that.
                let waiting = self.channel.delivery.wait_for(id.clone())?;
                self.request(message, waiting).await?
            }
            None if self.is_open() => {
                self.post(message).await?;
                stream::empty().boxed_local()
            }
            None => return Err(TransportError::Closed),
        };
        Ok(Answer {
            session: SessionHeader::None,
            messages,
        })
    }

    /// What came before is delivered first. The headers are those of a request, and no request is
    /// made.
    async fn listen(&self, _: HeaderMap) -> Result<Option<Incoming>, TransportError> {
        let listener = self.channel.delivery.listen()?;
        Ok(listener.map(StreamExt::boxed_local))
    }

    /// The session ends with the stream.
    async fn end_session(&self, _: HeaderMap) -> Result<(), TransportError> {
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.channel.delivery.is_open()
    }
}

/// What the transport and its answers share. The stream closes with it.
struct Channel {
    delivery: Rc<Delivery>,
    endpoint: Rc<RefCell<GuardedUrl>>,
    pump: AbortHandle,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.pump.abort();
        self.delivery.close(None);
    }
}

/// The stream, where it came from, and its endpoint.
async fn begin(
    exchanger: &Exchanger,
    clock: &dyn Clock,
    url: &GuardedUrl,
    event_bytes: usize,
) -> Result<(Events, GuardedUrl, GuardedUrl), TransportError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
    let sent = exchanger.send(Method::GET, url, &headers, None);
    let (response, base) = sent.await?;
    match response.status {
        200 if media_type(&response.headers) == EVENT_STREAM => {}
        200..300 => return Err(unexpected_type(clock, response).await),
        _ => return Err(failure(clock, response).await),
    }
    let limits = StreamLimits {
        event_bytes,
        total_bytes: None,
    };
    let mut events = Events::new(response.body, limits);
    while let Some(event) = events.next().await {
        let event = event?;
        // Without data it is no event.
        let Some(data) = event.data.filter(|data| !data.is_empty()) else {
            continue;
        };
        if event.name.as_deref() != Some(ENDPOINT) {
            return Err(TransportError::NoEndpoint(NoEndpoint::OtherEvent));
        }
        let endpoint = endpoint_at(&base, &data)?;
        return Ok((events, base, endpoint));
    }
    Err(TransportError::NoEndpoint(NoEndpoint::Ended))
}

/// The endpoint that an event named, without fragment. Credentials go there, so it must be where
/// the stream came from.
fn endpoint_at(base: &GuardedUrl, reference: &str) -> Result<GuardedUrl, TransportError> {
    let blocked = TransportError::EndpointBlocked;
    let endpoint = base.join(reference).map_err(blocked)?;
    if !base.same_origin(&endpoint) {
        let origin = endpoint.url().origin().ascii_serialization();
        return Err(TransportError::EndpointOrigin { origin });
    }
    Ok(endpoint.without_fragment())
}

/// Reads the stream to its end.
async fn pump(
    mut events: Events,
    base: GuardedUrl,
    endpoint: Rc<RefCell<GuardedUrl>>,
    delivery: Rc<Delivery>,
) {
    let fault = loop {
        let event = match events.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => break Some(error),
            None => break None,
        };
        match (event.name.as_deref(), event.data.as_deref()) {
            // A server may move its endpoint, within the same rules.
            (Some(ENDPOINT), Some(data)) if !data.is_empty() => match endpoint_at(&base, data) {
                Ok(moved) => drop(endpoint.replace(moved)),
                Err(error) => break Some(error),
            },
            _ => {
                for message in event_messages(&event) {
                    delivery.deliver(message);
                }
            }
        }
    };
    // The exchange ends before anybody hears of it.
    events.close();
    delivery.close(fault);
}

impl fmt::Debug for HttpSse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSse")
            .field("endpoint", &self.channel.endpoint.borrow())
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
