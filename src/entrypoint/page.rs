//! The dashboard's files, bundled and packed by the build script.

use worker::{EncodeBody, Headers, Method, Request, Response, ResponseBuilder, Result};

use super::problem::Problem;

struct Asset {
    path: &'static str,
    kind: &'static str,
    etag: &'static str,
    gzip: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The page runs only its own script, talks only to its own origin, and is framed by nobody. Images and
/// sound of servers are part of their answers.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     media-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What else browsers are told.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    // Cached, but asked for every time: a deploy shows at once.
    ("cache-control", "no-cache"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// Answers a request for one of the files; `None` for any other path.
pub(super) fn serve(request: &Request) -> Result<Option<Response>> {
    let path = request.path();
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        return Ok(None);
    };
    if !matches!(request.method(), Method::Get | Method::Head) {
        return Problem::method_not_allowed("GET, HEAD")
            .into_response()
            .map(Some);
    }
    let headers = Headers::new();
    headers.set("content-type", asset.kind)?;
    headers.set("etag", asset.etag)?;
    for (name, value) in HEADERS {
        headers.set(name, value)?;
    }
    let known = request.headers().get("if-none-match")?;
    if known.is_some_and(|tags| {
        tags.split(',')
            .any(|tag| tag.trim().trim_start_matches("W/") == asset.etag)
    }) {
        return Ok(Some(
            ResponseBuilder::new()
                .with_status(304)
                .with_headers(headers)
                .empty(),
        ));
    }
    headers.set("content-encoding", "gzip")?;
    let response = ResponseBuilder::new()
        .with_headers(headers)
        .with_encode_body(EncodeBody::Manual);
    Ok(Some(response.fixed(asset.gzip.to_vec())))
}
