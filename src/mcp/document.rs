//! The document about the client (2026-07-28, client id metadata documents): its place is its id.

use serde_json::Value;
use url::Url;

use super::McpClientManager;
use crate::Result;
use crate::oauth::ClientMetadata;

/// The last segment of its path.
const DOCUMENT: &str = "client-metadata.json";

impl McpClientManager {
    /// The document about this object's client, where `url` is its place: beside the callback of one
    /// of its servers.
    ///
    /// # Errors
    /// Storage errors.
    pub fn client_metadata_document(&self, url: &Url) -> Result<Option<Value>> {
        if url.path_segments().and_then(Iterator::last) != Some(DOCUMENT) {
            return Ok(None);
        }
        for stored in self.list_servers()? {
            let context = self.inner.common.provider_context(&stored);
            let Some(callback) = context.callback_url else {
                continue;
            };
            // Also where it is no id, for want of `https`: to be looked at.
            let id = context
                .client_metadata_url
                .or_else(|| beside(&callback).map(String::from));
            // By its path: behind a proxy the origin is another one.
            let is_here = |id: &String| Url::parse(id).is_ok_and(|id| id.path() == url.path());
            if let Some(id) = id.filter(is_here) {
                let metadata = ClientMetadata::new(context.client_name, callback);
                return Ok(Some(metadata.client_id_document(&id)));
            }
        }
        Ok(None)
    }
}

fn beside(callback: &str) -> Option<Url> {
    let mut url = Url::parse(callback).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().ok()?.pop().push(DOCUMENT);
    Some(url)
}

/// The client id that a callback's object can serve: `https`, and below a path that is routed to the
/// object. A callback at a place of the host's own says nothing of what is beside it.
pub(super) fn document_beside(callback: &str) -> Option<String> {
    let url = Url::parse(callback).ok()?;
    let segments: Vec<&str> = url.path_segments()?.collect();
    let is_routed = segments.len() >= 4
        && segments.first() == Some(&"agents")
        && segments.last() == Some(&"callback");
    (url.scheme() == "https" && is_routed)
        .then(|| beside(callback))?
        .map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_beside_a_callback_that_is_routed_to_the_object() {
        for (callback, document) in [
            (
                "https://a.example/agents/my-agent/n%20m/callback",
                Some("https://a.example/agents/my-agent/n%20m/client-metadata.json"),
            ),
            ("http://a.example/agents/my-agent/n/callback", None),
            ("https://a.example/mcp-oauth-callback", None),
            ("https://a.example/agents/my-agent/n/other", None),
            ("not a url", None),
        ] {
            assert_eq!(document_beside(callback).as_deref(), document, "{callback}");
        }
    }
}
