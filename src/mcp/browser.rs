//! What a browser is answered that comes back from an authorization server. The address it came by
//! holds a code and a state: neither may stay anywhere.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use url::Url;

pub(super) fn origin_of(url: &Url) -> Url {
    let mut origin = url.clone();
    origin.set_path("/");
    origin.set_query(None);
    origin.set_fragment(None);
    origin
}

pub(super) fn redirect(target: &Url) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::FOUND;
    if let Ok(location) = HeaderValue::from_str(target.as_str()) {
        response.headers_mut().insert(LOCATION, location);
    }
    guard(&mut response);
    response
}

/// Hides the code and the state that the address holds from the browser's history.
const CLEAN_HISTORY: &str = "history.replaceState(null,\"\",location.pathname)";
/// The one script that may run is that one.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-CLEAN'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn failure_page(reason: &str) -> Response<String> {
    let reason = escape(reason);
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Sign-in failed</title>\
         <style>:root{{color-scheme:light dark}}body{{font:1rem/1.5 system-ui;margin:15vh auto;\
         max-width:34rem;padding:0 1rem}}</style><script>{CLEAN_HISTORY}</script></head>\
         <body><main><h1>Sign-in failed</h1><p>{reason}</p>\
         <p>Close this page, or <a href=\"/\">go back</a>, and start the sign-in again.</p></main></body></html>"
    );
    let mut response = Response::new(page);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    let policy = PAGE_POLICY.replace("CLEAN", &digest(CLEAN_HISTORY));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    guard(&mut response);
    response
}

fn digest(text: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::Digest as _;
    STANDARD.encode(sha2::Sha256::digest(text))
}

/// The address holds a code: nobody keeps the answer, and nobody is told where it came from.
fn guard(response: &mut Response<String>) {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_runs_nothing_of_others() {
        let page = failure_page("<script>alert('x')</script> & \"y\"");
        assert_eq!(page.status(), 400);
        let body = page.body();
        assert!(!body.contains("<script>alert") && body.contains("&lt;script&gt;alert(&#39;x"));
        let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && policy.contains("'sha256-"));
        assert_eq!(page.headers()[REFERRER_POLICY], "no-referrer");
    }
}
