//! Requests with the host's headers, and redirects followed by hand.

use std::rc::Rc;

use http::header::LOCATION;
use http::{HeaderMap, Method};

use super::{Permission, Ticket, TransportError, Verdict};
use crate::ports::{Http, HttpRequest, HttpResponse};
use crate::protocol::request;
use crate::url_guard::GuardedUrl;

/// Redirects followed for one message.
const MAX_REDIRECTS: u32 = 5;
/// How often one message is sent again because its form was wrong.
const MAX_REFORMS: u32 = 2;

/// Sends requests to one server.
#[derive(Clone)]
pub(super) struct Exchanger {
    http: Rc<dyn Http>,
    /// What the host wants to be sent with every request.
    headers: HeaderMap,
    permission: Option<Rc<dyn Permission>>,
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
            permission: None,
            max_response_bytes: 0,
        }
    }

    /// Shows this permission with every request.
    pub(super) fn with_permission(self, permission: Option<Rc<dyn Permission>>) -> Self {
        Self { permission, ..self }
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
        let Some(permission) = &self.permission else {
            return self
                .follow(&mut request)
                .await
                .map(|(response, _)| (response, request.url));
        };
        let mut may_renew = true;
        let mut reforms = 0;
        loop {
            request.url = url.clone();
            let (response, ticket) = self.follow(&mut request).await?;
            if response.status != 401 {
                return Ok((response, request.url));
            }
            let verdict = permission.refused(&ticket, &response.headers, may_renew);
            match verdict.await? {
                Verdict::Again if may_renew => may_renew = false,
                Verdict::Reformed if reforms < MAX_REFORMS => reforms += 1,
                _ => return Ok((response, request.url)),
            }
        }
    }

    /// Sends a request, and again where redirects lead.
    async fn follow(
        &self,
        request: &mut HttpRequest<'_>,
    ) -> Result<(HttpResponse, Ticket), TransportError> {
        for _ in 0..=MAX_REDIRECTS {
            let ticket = match &self.permission {
                Some(permission) => {
                    let HttpRequest {
                        method,
                        url,
                        headers,
                        ..
                    } = request;
                    permission.apply(method, url, headers).await?
                }
                None => Ticket::default(),
            };
            let response = self.http.send(request).await?;
            if let Some(permission) = &self.permission {
                permission.heard(&ticket, response.status, &response.headers);
            }
            let location = response
                .headers
                .get(LOCATION)
                .filter(|_| (300..400).contains(&response.status));
            let Some(location) = location else {
                return Ok((response, ticket));
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
