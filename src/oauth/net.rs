//! Requests to authorization servers: small, bounded, impatient, and with redirects followed by hand.

use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{Either, LocalBoxFuture, select};
use futures::{FutureExt as _, StreamExt as _};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method};

use super::OAuthError;
use crate::ports::{Clock, Http, HttpRequest};
use crate::url_guard::GuardedUrl;

/// The longest document that is read, in bytes.
const MAX_BODY: usize = 256 << 10;
/// Redirects followed for one request.
const MAX_REDIRECTS: u32 = 5;

/// Sends the requests of this module.
#[derive(Clone)]
pub struct Net {
    /// Outbound HTTP.
    pub http: Rc<dyn Http>,
    /// The time, and timers.
    pub clock: Rc<dyn Clock>,
}

/// One request.
pub(super) struct Ask<'a> {
    /// What is asked for, for messages.
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) url: &'a GuardedUrl,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<&'a str>,
    pub(super) timeout: Duration,
}

/// An answer, read whole.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Lossless where it is UTF-8.
    pub(super) body: String,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The media type without parameters, in lower case.
    pub(super) fn media_type(&self) -> String {
        let value = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let value = value.unwrap_or_default().split(';').next();
        value.unwrap_or_default().trim().to_ascii_lowercase()
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        value.trim().parse().ok().map(Duration::from_secs)
    }
}

impl Net {
    /// Sends a request, and follows redirects that keep method, body and origin.
    pub(super) fn ask<'a>(&'a self, ask: Ask<'a>) -> LocalBoxFuture<'a, Result<Reply, OAuthError>> {
        async move {
            let (what, after) = (ask.what, ask.timeout);
            let url = ask.url.to_string();
            let exchange = pin!(self.exchange(ask));
            match select(exchange, self.clock.sleep(after)).await {
                Either::Left((outcome, _)) => outcome,
                Either::Right(_) => Err(OAuthError::Timeout { what, url, after }),
            }
        }
        .boxed_local()
    }

    async fn exchange(&self, ask: Ask<'_>) -> Result<Reply, OAuthError> {
        let Ask { what, .. } = ask;
        let mut request = HttpRequest {
            method: ask.method,
            url: ask.url.clone(),
            headers: ask.headers,
            body: ask.body,
            max_response_bytes: MAX_BODY,
        };
        for _ in 0..=MAX_REDIRECTS {
            let unreachable = |reason| OAuthError::Network {
                what,
                url: ask.url.to_string(),
                reason,
            };
            let response = self.http.send(&request).await.map_err(unreachable)?;
            let location = response
                .headers
                .get(LOCATION)
                .filter(|_| (300..400).contains(&response.status));
            if let Some(location) = location {
                let location = String::from_utf8_lossy(location.as_bytes());
                let is_get = request.method == Method::GET;
                let target = request
                    .url
                    .redirect_target(response.status, &location, is_get);
                request.url = target.map_err(|_| OAuthError::Redirect {
                    what,
                    url: ask.url.to_string(),
                })?;
                continue;
            }
            let mut body = response.body;
            let mut text = Vec::new();
            while let Some(chunk) = body.next().await {
                text.extend(chunk.map_err(unreachable)?);
                if text.len() > MAX_BODY {
                    return Err(OAuthError::Unusable {
                        what,
                        url: ask.url.to_string(),
                        reason: format!("it is larger than {MAX_BODY} bytes"),
                    });
                }
            }
            return Ok(Reply {
                status: response.status,
                headers: response.headers,
                body: String::from_utf8_lossy(&text).into_owned(),
            });
        }
        Err(OAuthError::Redirect {
            what,
            url: ask.url.to_string(),
        })
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}
