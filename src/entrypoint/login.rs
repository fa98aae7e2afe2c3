//! `/session`: the dashboard trades the token for a cookie, and gives it back.

use serde::Deserialize;
use serde_json::json;
use url::Url;
use worker::{Date, Method, Request, Response, ResponseBuilder, Result};

use super::gate::{Access, Asked, Refusal};
use super::problem::Problem;
use super::{api, explain, session};

/// The path.
pub(super) const PATH: &str = "/session";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Answers a request for the path.
///
/// - `GET`: `{"needed", "signedIn"}`: whether the Worker wants a token, and whether this browser may
///   use it.
/// - `POST {"token"}`: 204 and the cookie; 401 when the token is another one.
/// - `DELETE`: 204, and the cookie is gone.
pub(super) async fn answer(access: &Access, request: Request) -> Result<Response> {
    let outcome = match request.method() {
        Method::Get | Method::Head => tell(access, &request),
        Method::Post => log_in(access, request).await,
        Method::Delete => log_out(access, &request),
        _ => Err(Problem::method_not_allowed("GET, HEAD, POST, DELETE")),
    };
    match outcome {
        Ok(response) => Ok(response),
        Err(problem) => problem.into_response(),
    }
}

/// Whether a request to the Worker comes with a session that is on.
pub(super) fn has_session(access: &Access, request: &Request) -> Result<bool> {
    let cookies = request.headers().get("cookie")?;
    let (Some(token), Some(cookies)) = (&access.token, cookies) else {
        return Ok(false);
    };
    Ok(session::is_valid(token, &cookies, now()))
}

fn tell(access: &Access, request: &Request) -> std::result::Result<Response, Problem> {
    let url = request.url()?;
    let headers = request.headers();
    let admitted = access.admit(&Asked {
        url: &url,
        changes: false,
        is_upgrade: false,
        authorization: headers.get("authorization")?.as_deref(),
        origin: headers.get("origin")?.as_deref(),
        has_session: has_session(access, request)?,
    });
    if let Err(refusal @ (Refusal::NotConfigured | Refusal::NotLocal)) = &admitted {
        return Err(explain(refusal));
    }
    let body = json!({"needed": access.token.is_some(), "signedIn": admitted.is_ok()});
    api::send(200, &body)
}

async fn log_in(access: &Access, request: Request) -> std::result::Result<Response, Problem> {
    let (url, origin) = own(access, &request)?;
    let Some(token) = &access.token else {
        return Err(explain(&Refusal::NotConfigured));
    };
    let Login { token: given } = api::read(request).await?;
    if !access.is_token(&given) {
        let detail = "this is not the AGENT_TOKEN of the Worker";
        return Err(Problem::new(401, "unauthorized", detail));
    }
    let cookie = session::begin(token, now(), is_secure(&url, origin.as_deref()));
    let cookie = cookie.ok_or_else(|| Problem::new(500, "runtime", "no session can be made"))?;
    Ok(with_cookie(&cookie)?)
}

fn log_out(access: &Access, request: &Request) -> std::result::Result<Response, Problem> {
    let (url, origin) = own(access, request)?;
    let secure = is_secure(&url, origin.as_deref());
    Ok(with_cookie(&session::end(secure))?)
}

/// URL and origin of a request that no page of another origin has made.
fn own(access: &Access, request: &Request) -> std::result::Result<(Url, Option<String>), Problem> {
    let url = request.url()?;
    let origin = request.headers().get("origin")?;
    match &origin {
        Some(origin) if !access.is_own_origin(&url, origin) => {
            Err(explain(&Refusal::ForeignOrigin))
        }
        _ => Ok((url, origin)),
    }
}

/// Whether the browser is on https, even where a proxy speaks http to the Worker.
fn is_secure(url: &Url, origin: Option<&str>) -> bool {
    url.scheme() == "https" || origin.is_some_and(|origin| origin.starts_with("https:"))
}

fn with_cookie(cookie: &str) -> Result<Response> {
    let response = ResponseBuilder::new()
        .with_status(204)
        .with_header("cache-control", "no-store")?
        .with_header("set-cookie", cookie)?;
    Ok(response.empty())
}

/// Seconds since 1970.
fn now() -> u64 {
    Date::now().as_millis() / 1000
}
