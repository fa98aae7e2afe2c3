//! Where users come back to after a sign-in. Pure.

use url::Url;

use crate::mcp::{AddMcpServer, Callback};
use crate::routing::{AgentPath, agent_path, decode_segment};
use crate::{Error, Result};

/// What the default callback path begins with.
const PREFIX: &str = "agents";

/// What is known where a server is added.
pub(super) struct Situation<'a> {
    /// The class of the object, in kebab case.
    pub(super) class: &'a str,
    /// The name of the object.
    pub(super) name: &'a str,
    /// The URL of the request, or of the WebSocket, that is being handled.
    pub(super) current: Option<&'a Url>,
    /// Whether browsers are told what the object is called.
    pub(super) sends_identity: bool,
}

/// The callback of a server, where a host is known.
///
/// The path is the one by which the object is being used, where that can be told; so it fits a
/// router that knows the class by another name. Headers such as `X-Forwarded-Host` say nothing here:
/// anybody can send them.
pub(super) fn callback_of(
    server: &AddMcpServer,
    situation: &Situation<'_>,
) -> Result<Option<Callback>> {
    let origin = match &server.callback_host {
        Some(host) => Some(given_origin(host)?),
        None => situation.current.and_then(origin_of),
    };
    let Some(origin) = origin else {
        return Ok(None);
    };
    let is_said = server.callback_host.is_some() || server.callback_path.is_some();
    let path = match &server.callback_path {
        Some(path) => path.strip_prefix('/').unwrap_or(path).to_owned(),
        None if !situation.sends_identity => {
            return Err(Error::InvalidOption(
                "a callback path is required where the identity of the object is not sent: without \
                 one, the URL would hold the object's name"
                    .into(),
            ));
        }
        None => default_path(server, situation)?,
    };
    let url = format!("{origin}/{path}");
    Ok(Some(Callback { url, is_said }))
}

fn default_path(server: &AddMcpServer, situation: &Situation<'_>) -> Result<String> {
    let prefix = server.agents_prefix.as_deref().unwrap_or(PREFIX);
    let used = situation.current.and_then(|url| {
        let path = AgentPath::parse(url.path(), prefix)?;
        let name = decode_segment(path.name).ok()?;
        let is_it = name == situation.name || path.name == situation.name;
        let prefix = prefix.trim_matches('/');
        is_it.then(|| format!("{prefix}/{}/{}/callback", path.class, path.name))
    });
    match used {
        Some(path) => Ok(path),
        None => agent_path(prefix, situation.class, situation.name)
            .map(|path| format!("{}/callback", path.trim_start_matches('/')))
            .map_err(|error| Error::InvalidOption(format!("the callback path: {error}"))),
    }
}

/// Scheme and host that somebody named. A path is kept, for Workers below one.
fn given_origin(host: &str) -> Result<String> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let fits = |url: &Url| url.query().is_none() && url.fragment().is_none();
    match Url::parse(host) {
        Ok(url) if is_web(&url) && fits(&url) && url.username().is_empty() => Ok(url
            .as_str()
            .strip_suffix('/')
            .unwrap_or(url.as_str())
            .to_owned()),
        _ => Err(Error::InvalidOption(
            "the callback host is no URL such as https://example.com".into(),
        )),
    }
}

fn origin_of(url: &Url) -> Option<String> {
    let scheme = match url.scheme() {
        "http" | "ws" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback(
        change: impl FnOnce(AddMcpServer) -> AddMcpServer,
        current: Option<&str>,
        sends_identity: bool,
    ) -> Result<Option<(String, bool)>> {
        let server = change(AddMcpServer::new("S", "https://mcp.example/mcp"));
        let current = current.map(|url| Url::parse(url).unwrap());
        let situation = Situation {
            class: "my-agent",
            name: "a b/ü",
            current: current.as_ref(),
            sends_identity,
        };
        let callback = callback_of(&server, &situation)?;
        Ok(callback.map(|callback| (callback.url, callback.is_said)))
    }

    fn url(
        change: impl FnOnce(AddMcpServer) -> AddMcpServer,
        current: Option<&str>,
    ) -> (String, bool) {
        callback(change, current, true).unwrap().unwrap()
    }

    #[test]
    fn it_is_at_the_host_that_is_being_used() {
        let path = "agents/my-agent/a%20b%2F%C3%BC/callback";
        for (current, origin) in [
            ("https://a.example/agents/x/y", "https://a.example"),
            ("http://127.0.0.1:8787/", "http://127.0.0.1:8787"),
            ("wss://b.example/x", "https://b.example"),
            ("ws://localhost:1/x", "http://localhost:1"),
            ("http://[::1]:8/x", "http://[::1]:8"),
        ] {
            let expected = (format!("{origin}/{path}"), false);
            assert_eq!(url(|server| server, Some(current)), expected, "{current}");
        }
        assert_eq!(callback(|server| server, None, true).unwrap(), None);
    }

    #[test]
    fn the_path_by_which_the_object_is_used_counts() {
        let current = "https://a.example/agents/other-binding/a%20b%2f%C3%BC/deep";
        let expected = "https://a.example/agents/other-binding/a%20b%2f%C3%BC/callback";
        assert_eq!(url(|server| server, Some(current)).0, expected);
        let current = "https://a.example/api/v1/my-agent/a%20b%2F%C3%BC";
        let expected = "https://a.example/api/v1/my-agent/a%20b%2F%C3%BC/callback";
        assert_eq!(
            url(|server| server.agents_prefix("/api/v1"), Some(current)).0,
            expected
        );
        let expected = "https://a.example/api/v1/my-agent/a%20b%2F%C3%BC/callback";
        assert_eq!(
            url(
                |server| server.agents_prefix("api/v1"),
                Some("https://a.example/")
            )
            .0,
            expected
        );
    }

    #[test]
    fn what_is_said_counts() {
        let current = Some("https://a.example/");
        let host = |server: AddMcpServer| server.callback_host("https://b.example/");
        let expected = "https://b.example/agents/my-agent/a%20b%2F%C3%BC/callback";
        assert_eq!(url(host, current), (expected.into(), true));
        let both = |server| host(server).callback_path("/mcp/back");
        assert_eq!(url(both, None), ("https://b.example/mcp/back".into(), true));
        let path = |server: AddMcpServer| server.callback_path("back");
        assert_eq!(url(path, current), ("https://a.example/back".into(), true));
        for bad in [
            "b.example",
            "ftp://b.example",
            "https://",
            "https://u@b.example",
            "https://b/?x",
        ] {
            assert!(
                callback(|server| server.callback_host(bad), None, true).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_object_that_hides_its_name_needs_a_path() {
        let current = Some("https://a.example/");
        let given = |server: AddMcpServer| server.callback_host("https://b.example");
        assert!(callback(given, None, false).is_err());
        // A host that is derived would give the name away as well.
        assert!(callback(|server| server, current, false).is_err());
        assert!(callback(|server| server.callback_path("x"), current, false).is_ok());
        // Nothing to come back to, nothing to hide.
        assert_eq!(callback(|server| server, None, false).unwrap(), None);
    }
}
