//! Requests with the host's headers, and redirects followed by hand.

use std::rc::Rc;

use http::header::LOCATION;
use http::{HeaderMap, Method};

use super::TransportError;
use crate::ports::{Http, HttpRequest, HttpResponse};
use crate::protocol::request;
use crate::url_guard::GuardedUrl;

/// Redirects followed for one message.
const MAX_REDIRECTS: u32 = 5;

/// Sends requests to one server.
#[derive(Clone)]
pub(super) struct Exchanger {
    http: Rc<dyn Http>,
    /// What the host wants to be sent with every request.
    headers: HeaderMap,
    /// The longest body that is read in one piece.
    max_response_bytes: usize,
}

impl Exchanger {
    /// Headers that only the protocol may send are left out.
    pub(super) fn new(http: Rc<dyn Http>, mut headers: HeaderMap) -> Self {
        let reserved: Vec<_> = headers
            .keys()
            .filter(|name| request::is_reserved(name))
            .cloned()
            .collect();
        for name in reserved {
            headers.remove(name);
        }
        Self {
            http,
            headers,
            max_response_bytes: 0,
        }
    }

    /// Reads bodies of up to so many bytes in one piece.
    pub(super) fn reading_at_once(self, max_response_bytes: usize) -> Self {
        Self {
            max_response_bytes,
            ..self
        }
    }

    /// Sends and follows redirects that keep method, body and origin. Returns where the response
    /// came from as well.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &GuardedUrl,
        headers: &HeaderMap,
        body: Option<&str>,
    ) -> Result<(HttpResponse, GuardedUrl), TransportError> {
        self.send_owned(method, url, headers.clone(), body).await
    }

    /// As [`send`](Self::send), with headers that nobody else needs.
    pub(super) async fn send_owned(
        &self,
        method: Method,
        url: &GuardedUrl,
        headers: HeaderMap,
        body: Option<&str>,
    ) -> Result<(HttpResponse, GuardedUrl), TransportError> {
        let mut request = HttpRequest {
            method,
            url: url.clone(),
            headers: self.merged(headers),
            body,
            max_response_bytes: self.max_response_bytes,
        };
        for _ in 0..=MAX_REDIRECTS {
            let response = self.http.send(&request).await?;
            let location = response
                .headers
                .get(LOCATION)
                .filter(|_| (300..400).contains(&response.status));
            let Some(location) = location else {
                return Ok((response, request.url));
            };
            let location = String::from_utf8_lossy(location.as_bytes());
            request.url = request.url.redirect_target(
                response.status,
                &location,
                request.method == Method::GET,
            )?;
        }
        Err(TransportError::TooManyRedirects(MAX_REDIRECTS))
    }
    /// The host's headers lie lowest: none of them may replace what the protocol needs.
    fn merged(&self, headers: HeaderMap) -> HeaderMap {
        if self.headers.is_empty() {
            return headers;
        }
        let mut merged = self.headers.clone();
        for (name, value) in &headers {
            merged.insert(name.clone(), value.clone());
        }
        merged
    }
}
