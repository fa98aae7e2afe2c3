//! The dashboard's files, packed by the build script.

use worker::{EncodeBody, Headers, Method, Request, Response, ResponseBuilder, Result};

use super::problem::Problem;

struct Asset {
    path: &'static str,
    kind: &'static str,
    etag: &'static str,
    gzip: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The page runs only its own script, talks only to its own origin, and is framed by nobody.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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
    // Cached, but asked for every time: a deploy shows at once.
    headers.set("cache-control", "no-cache")?;
    headers.set("content-security-policy", POLICY)?;
    headers.set("x-content-type-options", "nosniff")?;
    headers.set("referrer-policy", "no-referrer")?;
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
