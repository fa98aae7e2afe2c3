//! HTTP over `fetch`.

use std::rc::Rc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use worker::js_sys::Promise;

use crate::ports::{Body, Http, HttpError, HttpRequest, HttpResponse};

/// Fetches by the platform, or by a binding.
pub(super) struct Fetcher(JsValue);

impl Fetcher {
    pub(super) fn platform() -> Self {
        Self(JsValue::UNDEFINED)
    }
}

/// HTTP over a binding, such as one with a client certificate (mTLS) or another Worker: for
/// [`StoredOAuthProvider::with_http`](crate::oauth::StoredOAuthProvider::with_http).
pub fn binding_http(binding: worker::Fetcher) -> Rc<dyn Http> {
    Rc::new(Fetcher(binding.into()))
}

#[async_trait(?Send)]
impl Http for Fetcher {
    async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
        let exchange = AbandonOnDrop(Exchange::new(&self.0));
        let head = exchange.0.send(
            request.method.as_str(),
            request.url.as_str(),
            &lines(&request.headers)?,
            request.body,
            request.max_response_bytes,
        );
        let head = JsFuture::from(head).await.map_err(thrown)?;
        let (status, headers) = received(&head.as_string().unwrap_or_default())
            .ok_or_else(|| HttpError("a response without a status".into()))?;
        Ok(HttpResponse {
            status,
            headers,
            body: chunks(exchange),
        })
    }
}

/// The chunks of a body. The exchange is given up when this is dropped.
fn chunks(exchange: AbandonOnDrop) -> Body {
    stream::unfold(exchange, async |exchange| {
        let mut chunk = exchange.0.take();
        if chunk.is_none() && !exchange.0.ended() {
            if let Err(error) = JsFuture::from(exchange.0.read()).await {
                return Some((Err(thrown(error)), exchange));
            }
            chunk = exchange.0.take();
        }
        Some((Ok(chunk?), exchange))
    })
    .boxed_local()
}

/// Names and values, a line each.
fn lines(headers: &HeaderMap) -> Result<String, HttpError> {
    let mut lines = String::new();
    for (name, value) in headers {
        let value = value
            .to_str()
            .map_err(|_| HttpError(format!("header {name} is not ASCII")))?;
        for line in [name.as_str(), value] {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    Ok(lines)
}

/// The status, and a line each for every name and value. Headers that are not legal, or too many,
/// are left out; nothing here depends on such.
fn received(head: &str) -> Option<(u16, HeaderMap)> {
    let mut lines = head.split('\n');
    let status = lines.next()?.parse().ok()?;
    let mut headers = HeaderMap::new();
    while let (Some(name), Some(value)) = (lines.next(), lines.next()) {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) {
            // An error is a full map. Its other methods panic then.
            let _ = headers.try_append(name, value);
        }
    }
    Some((status, headers))
}

/// The platform's message alone: the error's other parts can hold the URL.
fn thrown(error: JsValue) -> HttpError {
    HttpError(match worker::Error::from(error) {
        worker::Error::UnknownJsError { message, .. } => message,
        other => other.to_string(),
    })
}

/// Gives up the exchange, unless it has ended, when the request or its body is dropped.
struct AbandonOnDrop(Exchange);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[wasm_bindgen(module = "/src/runtime/exchange.js")]
extern "C" {
    type Exchange;
    #[wasm_bindgen(constructor)]
    fn new(via: &JsValue) -> Exchange;
    #[wasm_bindgen(method)]
    fn send(
        this: &Exchange,
        method: &str,
        url: &str,
        headers: &str,
        body: Option<&str>,
        most: usize,
    ) -> Promise;
    #[wasm_bindgen(method, getter)]
    fn ended(this: &Exchange) -> bool;
    #[wasm_bindgen(method)]
    fn read(this: &Exchange) -> Promise;
    #[wasm_bindgen(method)]
    fn take(this: &Exchange) -> Option<Vec<u8>>;
    #[wasm_bindgen(method)]
    fn abandon(this: &Exchange);
}
