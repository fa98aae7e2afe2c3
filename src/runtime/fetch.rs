//! HTTP over `fetch`.

use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use wasm_bindgen::prelude::*;
use worker::{
    AbortSignal, ByteStream, Delay, Fetch, Headers, Method, Request, RequestInit, RequestRedirect,
};

use crate::ports::{Body, Http, HttpError, HttpRequest, HttpResponse};

/// How many chunks of a body are read in a row before others get their turn.
const CHUNKS_PER_TURN: usize = 32;

pub(super) struct Fetcher;

#[async_trait(?Send)]
impl Http for Fetcher {
    async fn send(&self, request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        let broken = |error: worker::Error| HttpError(text(&error));
        let headers = Headers::new();
        for (name, value) in &request.headers {
            let value = value
                .to_str()
                .map_err(|_| HttpError(format!("header {name} is not ASCII")))?;
            headers.append(name.as_str(), value).map_err(broken)?;
        }
        let mut init = RequestInit::new();
        init.with_method(Method::from(request.method.as_str().to_owned()))
            .with_headers(headers)
            .with_redirect(RequestRedirect::Manual)
            .with_body(request.body.as_deref().map(JsValue::from_str));
        let outgoing = Request::new_with_init(request.url.as_str(), &init).map_err(broken)?;

        let abort = AbortOnDrop(Aborter::new());
        let signal = AbortSignal::from(abort.0.signal());
        let mut response = Fetch::Request(outgoing)
            .send_with_signal(&signal)
            .await
            .map_err(broken)?;

        let body = match response.stream() {
            Ok(stream) => paced(stream, abort),
            Err(_) => futures::stream::empty().boxed_local(),
        };
        Ok(HttpResponse {
            status: response.status_code(),
            headers: received(response.headers()),
            body,
        })
    }
}

/// Gives up the exchange when the request or its body is dropped.
struct AbortOnDrop(Aborter);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        // The object may be freed long after its eviction, when the platform has no use for this.
        let _ = self.0.abort();
    }
}

#[wasm_bindgen]
extern "C" {
    /// That of `worker` throws through Wasm where this returns an error.
    #[wasm_bindgen(js_name = AbortController)]
    type Aborter;
    #[wasm_bindgen(constructor, js_class = "AbortController")]
    fn new() -> Aborter;
    #[wasm_bindgen(method, getter)]
    fn signal(this: &Aborter) -> worker::web_sys::AbortSignal;
    #[wasm_bindgen(method, catch)]
    fn abort(this: &Aborter) -> Result<(), JsValue>;
}

/// The chunks of a body. The exchange is given up when this is dropped.
///
/// A body whose chunks are always there already would be read in one turn of the event loop, and
/// neither timers nor other objects would get theirs. So the loop is let turn every so often.
fn paced(stream: ByteStream, abort: AbortOnDrop) -> Body {
    stream
        .enumerate()
        .then(move |(number, chunk)| {
            let _guard = &abort;
            async move {
                if number % CHUNKS_PER_TURN == CHUNKS_PER_TURN - 1 {
                    Delay::from(Duration::ZERO).await;
                }
                chunk.map_err(|error| HttpError(text(&error)))
            }
        })
        .boxed_local()
}

/// Headers that are not legal, or too many, are left out; nothing here depends on such.
fn received(headers: &Headers) -> HeaderMap {
    let mut received = HeaderMap::new();
    for (name, value) in headers.entries() {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(&value),
        ) {
            // An error is a full map. Its other methods panic then.
            let _ = received.try_append(name, value);
        }
    }
    received
}

/// The platform's message alone: the error's other parts can hold the URL.
fn text(error: &worker::Error) -> String {
    match error {
        worker::Error::UnknownJsError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
