//! From URLs to objects: `/agents/<class>/<name>/…`.

mod path;

use wasm_bindgen::{JsCast as _, JsValue};
use worker::{Env, Request, Response, ResponseBuilder, Result};

pub use path::{AgentPath, kebab_case};

/// Internal to routers of this system: what they hand to an object.
const PROPS_HEADER: &str = "x-agents-lifecycle-props";
const PREFIX: &str = "agents";

/// Hands a request for `/agents/<class>/<name>/…` to the object of that name.
///
/// `<class>` is the name of a Durable Object binding in kebab case: `MyAgent` is `my-agent`.
/// `<name>` is taken as it stands in the URL, without percent-decoding, so that different names
/// reach different objects. The object receives the request unchanged, except that internal
/// headers are removed.
///
/// `None` when the path is no agent path. A class that does not exist is answered with status 404
/// (the TypeScript package says 400).
///
/// # Errors
/// When the object cannot be reached, or throws.
pub async fn route_agent_request(request: Request, env: &Env) -> Result<Option<Response>> {
    let path = request.path();
    let Some(AgentPath { class, name }) = AgentPath::parse(&path, PREFIX) else {
        return Ok(None);
    };
    let Some(binding) = binding_of(env, class) else {
        return problem(404, "Not Found", "no such agent class").map(Some);
    };
    let stub = env.durable_object(&binding)?.get_by_name(name)?;
    stub.fetch_with_request(without_props(request)?)
        .await
        .map(Some)
}

/// A problem document (RFC 9457).
pub(crate) fn problem(status: u16, title: &str, detail: &str) -> Result<Response> {
    let body = serde_json::json!({"type": "about:blank", "title": title, "status": status, "detail": detail});
    let response = ResponseBuilder::new().with_status(status);
    Ok(response
        .with_header("content-type", "application/problem+json")?
        .fixed(body.to_string().into()))
}

/// The name of the Durable Object binding that reads `class` in kebab case.
fn binding_of(env: &Env, class: &str) -> Option<String> {
    let names = js_sys::Object::keys(env.unchecked_ref::<js_sys::Object>());
    names
        .iter()
        .filter_map(|name| name.as_string())
        .find(|name| kebab_case(name) == class && is_namespace(env, name))
}

fn is_namespace(env: &JsValue, name: &str) -> bool {
    let member =
        |object: &JsValue, key: &str| js_sys::Reflect::get(object, &JsValue::from_str(key)).ok();
    member(env, name)
        .filter(JsValue::is_object)
        .and_then(|binding| member(&binding, "idFromName"))
        .is_some_and(|method| method.is_function())
}

/// The request without the internal header, which no outside request may carry.
fn without_props(request: Request) -> Result<Request> {
    Ok(take_props(request)?.0)
}

/// The request without the internal header, and what the header said.
pub(crate) fn take_props(request: Request) -> Result<(Request, Option<String>)> {
    let Some(props) = request.headers().get(PROPS_HEADER)? else {
        return Ok((request, None));
    };
    let mut request = request.clone_mut()?;
    request.headers_mut()?.delete(PROPS_HEADER)?;
    Ok((request, Some(props)))
}
