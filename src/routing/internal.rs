//! What routers and objects of this system tell each other beside the request: internal headers,
//! which nobody outside may set.

use worker::{Method, Request, Response, ResponseBuilder, Result};

/// What the object is started with; see `props.rs`.
const PROPS: &str = "x-agents-lifecycle-props";
/// Asks for nothing but that the object starts, and says that it has.
const START: &str = "x-agents-lifecycle-start";
/// No request from outside has this host: `.invalid` is nobody's (RFC 6761).
const START_URL: &str = "https://agents-lifecycle.invalid/start";

/// What a request said beside itself.
#[derive(Debug, Default)]
pub(crate) struct Internal {
    /// The value of the header with the props.
    pub(crate) props: Option<String>,
    /// Nothing is asked but that the object starts.
    pub(crate) is_start: bool,
}

/// Whether a header is internal to this system or to the TypeScript package.
fn is_internal(name: &str) -> bool {
    ["x-agents-lifecycle-", "x-cf-agents-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The request without internal headers, and what they said.
pub(crate) fn take_internal(request: Request) -> Result<(Request, Internal)> {
    let headers = request.headers();
    let internal = Internal {
        props: headers.get(PROPS)?,
        is_start: headers.get(START)?.is_some() && request.inner().url() == START_URL,
    };
    Ok((with_props(request, None)?, internal))
}

/// The request without internal headers, but for these props.
pub(super) fn with_props(request: Request, props: Option<&str>) -> Result<Request> {
    // Lower case, as the platform gives them.
    let internal: Vec<String> = request
        .headers()
        .keys()
        .filter(|name| is_internal(name))
        .collect();
    if internal.is_empty() && props.is_none() {
        return Ok(request);
    }
    let mut request = request.clone_mut()?;
    let headers = request.headers_mut()?;
    for name in internal {
        headers.delete(&name)?;
    }
    if let Some(props) = props {
        headers.set(PROPS, props)?;
    }
    Ok(request)
}

/// Asks an object to start.
pub(super) fn start_request(props: Option<&str>) -> Result<Request> {
    let mut request = with_props(Request::new(START_URL, Method::Get)?, props)?;
    request.headers_mut()?.set(START, "1")?;
    Ok(request)
}

/// The answer of an object that has started.
pub(crate) fn started() -> Result<Response> {
    let response = ResponseBuilder::new().with_status(204);
    Ok(response.with_header(START, "1")?.empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_headers_are_known() {
        for (name, internal) in [
            (PROPS, true),
            (START, true),
            ("x-agents-lifecycle-", true),
            ("x-cf-agents-subagent-url", true),
            ("x-agents-lifecycle", false),
            ("x-agent-id", false),
            ("authorization", false),
        ] {
            assert_eq!(is_internal(name), internal, "{name}");
        }
    }
}
