//! One object, and how requests reach it.

use js_sys::{ArrayBuffer, Function, Object, Reflect};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use worker::{Delay, Env, Method, ObjectNamespace, Request, Response, Result, Stub, web_sys};

use super::class::choose;
use super::kebab_case;
use super::place::{Jurisdiction, LocationHint};
use super::retry::{Failure, RoutingRetry};

/// The longest body that is kept in order to be sent once more.
const MAX_REPLAY: u64 = 1024 * 1024;

/// An object by its name.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) namespace: ObjectNamespace,
    pub(super) name: String,
    pub(super) hint: Option<LocationHint>,
}

impl Target {
    /// A way to the object. A new one each time: one that has failed may go on failing.
    pub(super) fn stub(&self) -> Result<Stub> {
        match self.hint {
            None => self.namespace.get_by_name(&self.name),
            Some(hint) => self
                .namespace
                .get_by_name_with_location_hint(&self.name, hint.as_str()),
        }
    }

    /// Sends a request, and sends it again as long as that may help.
    pub(super) async fn fetch(
        &self,
        request: Request,
        retry: Option<&RoutingRetry>,
    ) -> Result<Response> {
        let Some(retry) = retry.filter(|retry| retry.may_repeat()) else {
            return self.stub()?.fetch_with_request(request).await;
        };
        let mut parcel = Parcel::of(request).await?;
        let mut sent = 0;
        loop {
            let request = parcel.next()?;
            sent += 1;
            let error = match self.stub()?.fetch_with_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let random = getrandom::u64().unwrap_or(u64::MAX);
            let next = retry.next(sent, failure(&error), random);
            let Some(delay) = next.filter(|_| parcel.is_left()) else {
                return Err(error);
            };
            Delay::from(delay).await;
        }
    }
}

/// A request that is sent, perhaps more than once.
enum Parcel {
    /// Without a body: one and the same each time.
    Bare(Request),
    /// With a body that has been read.
    Kept(Request, ArrayBuffer),
    /// With a body that passes by only once.
    Once(Option<Request>),
}

impl Parcel {
    async fn of(request: Request) -> Result<Self> {
        let inner = request.inner();
        if inner.body().is_none() {
            return Ok(Self::Bare(request));
        }
        // A body that came with one of these cannot be given to another request.
        let is_odd = matches!(request.method(), Method::Get | Method::Head);
        let length = request.headers().get("content-length")?;
        let length = length.and_then(|length| length.parse::<u64>().ok());
        if is_odd || length.is_none_or(|length| length > MAX_REPLAY) {
            return Ok(Self::Once(Some(request)));
        }
        let bytes = JsFuture::from(inner.array_buffer()?).await?;
        Ok(Self::Kept(request, bytes.unchecked_into()))
    }

    fn next(&mut self) -> Result<Request> {
        match self {
            Self::Bare(request) => Ok(Clone::clone(request.inner()).into()),
            Self::Kept(request, bytes) => {
                let init = web_sys::RequestInit::new();
                init.set_body(bytes);
                let copy = web_sys::Request::new_with_request_and_init(request.inner(), &init)?;
                Ok(copy.into())
            }
            Self::Once(request) => request
                .take()
                .ok_or_else(|| "the request has been sent".into()),
        }
    }

    fn is_left(&self) -> bool {
        !matches!(self, Self::Once(None))
    }
}

/// What the platform says about an error.
pub(super) fn failure(error: &worker::Error) -> Failure {
    let worker::Error::UnknownJsError { original, .. } = error else {
        return Failure::default();
    };
    let says =
        |key| Reflect::get(original, &JsValue::from_str(key)).is_ok_and(|value| value.is_truthy());
    Failure {
        is_retryable: says("retryable"),
        is_overloaded: says("overloaded"),
    }
}

/// The name of the Durable Object binding that a class in a URL means.
pub(super) fn binding_of(env: &Env, class: &str) -> Option<String> {
    let names = Object::keys(env.unchecked_ref::<Object>());
    let alike = names
        .iter()
        .filter_map(|name| name.as_string())
        .filter(|name| kebab_case(name) == class && namespace(env, name).is_some());
    choose(alike, class)
}

/// The namespace that is bound to a name: an object that makes ids from names.
pub(super) fn namespace(env: &Env, binding: &str) -> Option<ObjectNamespace> {
    let binding = Reflect::get(env, &JsValue::from_str(binding)).ok()?;
    if !binding.is_object() {
        return None;
    }
    let method = Reflect::get(&binding, &JsValue::from_str("idFromName")).ok()?;
    method.is_function().then(|| binding.unchecked_into())
}

/// The part of a namespace that lies in a jurisdiction.
pub(super) fn within(
    namespace: &ObjectNamespace,
    jurisdiction: Jurisdiction,
) -> Result<ObjectNamespace> {
    let method = Reflect::get(namespace.as_ref(), &JsValue::from_str("jurisdiction"))?;
    let method: Function = method
        .dyn_into()
        .map_err(|_| worker::Error::from("this runtime has no jurisdictions"))?;
    let part = method.call1(
        namespace.as_ref(),
        &JsValue::from_str(jurisdiction.as_str()),
    )?;
    Ok(part.unchecked_into())
}
