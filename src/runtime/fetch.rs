//! HTTP over `fetch`.

use async_trait::async_trait;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use wasm_bindgen::JsValue;
use worker::{AbortController, Fetch, Headers, Method, Request, RequestInit, RequestRedirect};

use crate::ports::{Http, HttpError, HttpRequest, HttpResponse};

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

        let controller = AbortController::default();
        let signal = controller.signal();
        let abort = AbortOnDrop(Some(controller));
        let mut response = Fetch::Request(outgoing)
            .send_with_signal(&signal)
            .await
            .map_err(broken)?;

        let body = match response.stream() {
            // The guard lives as long as the body is read.
            Ok(stream) => stream
                .map(move |chunk| {
                    let _guard = &abort;
                    chunk.map_err(broken)
                })
                .boxed_local(),
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
struct AbortOnDrop(Option<AbortController>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            controller.abort();
        }
    }
}

/// Headers that are not legal are left out; nothing here depends on such.
fn received(headers: &Headers) -> HeaderMap {
    headers
        .entries()
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                HeaderValue::from_str(&value).ok()?,
            ))
        })
        .collect()
}

/// The platform's message alone: the error's other parts can hold the URL.
fn text(error: &worker::Error) -> String {
    match error {
        worker::Error::UnknownJsError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
