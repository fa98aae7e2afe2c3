//! Servers that are objects behind a binding: how they are registered, stored and addressed.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::register::RegisterServer;
use super::server::StoredServer;
use crate::ports::ObjectAddress;
use crate::transport::TransportKind;
use crate::{Error, Result};

/// What the URL of such a server begins with, and the name of the object.
pub(crate) const RPC_SCHEME: &str = "rpc:";
/// The longest name of a binding, in bytes.
const MAX_BINDING: usize = 256;
/// The most that props may take, in bytes of JSON.
const MAX_PROPS: usize = 64 << 10;
/// Stands between the server's name and the caller in the name of an object that is not shared. No
/// name of a server has capital letters there, so nobody can name a server after the object of
/// somebody else.
const CALLER: &str = ":Caller:";

/// What a host says of a server behind a binding.
#[derive(Clone, Default)]
pub(crate) struct RegisterRpc {
    pub(crate) binding: String,
    /// `Err`: it cannot be written as JSON.
    pub(crate) props: Option<Result<Value, String>>,
    pub(crate) isolated: bool,
}

impl RegisterServer {
    /// A server that is a Durable Object, such as an `McpAgent` of the npm package `agents`: it is
    /// called over its `binding`, the name in `wrangler.toml`, and no HTTP takes place.
    ///
    /// The object is named after the server: `rpc:` and the name in lower case, with a hyphen for
    /// white space. **All callers of the same name share it**, with its state and whatever a user
    /// has told it: [`isolated`](Self::isolated) gives each its own. Headers, sign-in and
    /// [`UrlPolicy`](crate::url_guard::UrlPolicy) are for HTTP alone.
    ///
    /// ```
    /// use workers_agents::RegisterServer;
    /// let counter = RegisterServer::rpc("Counter", "COUNTER")
    ///     .props(&serde_json::json!({"user": "ada"}))
    ///     .isolated();
    /// ```
    pub fn rpc(name: impl Into<String>, binding: impl Into<String>) -> Self {
        let name = name.into();
        let url = url_of(&name);
        Self {
            rpc: Some(RegisterRpc {
                binding: binding.into(),
                ..RegisterRpc::default()
            }),
            ..Self::new(name, url)
        }
        .transport(TransportKind::Rpc)
    }

    /// What the object is started with: the `props` of an `McpAgent`. Anything that serialises to
    /// JSON. Stored in the clear in this object's database and in the other one's; an object that
    /// runs already takes no notice. For [`rpc`](Self::rpc) only.
    #[must_use]
    pub fn props(mut self, props: &impl Serialize) -> Self {
        let props = serde_json::to_value(props).map_err(|error| error.to_string());
        self.rpc.get_or_insert_default().props = Some(props);
        self
    }

    /// Gives this object an instance of the server for itself, whose name ends with this object's
    /// id. Default: shared, as in the TypeScript package, which does not know this option and would
    /// find the shared one. For [`rpc`](Self::rpc) only.
    #[must_use]
    pub fn isolated(mut self) -> Self {
        self.rpc.get_or_insert_default().isolated = true;
        self
    }

    /// Checks a server behind a binding. Says whether it is one.
    pub(super) fn validate_rpc(&self) -> Result<bool> {
        let refuse = |what: &str| Err(Error::InvalidOption(what.to_owned()));
        let Some(RegisterRpc { binding, props, .. }) = &self.rpc else {
            if self.transport == TransportKind::Rpc {
                return refuse("a server behind a binding is registered by its binding");
            }
            return Ok(false);
        };
        if self.transport != TransportKind::Rpc || self.url != url_of(&self.name) {
            return refuse("props and isolation are for servers behind a binding");
        }
        if !(1..=MAX_BINDING).contains(&binding.len()) {
            return refuse(&format!("the binding must have 1 to {MAX_BINDING} bytes"));
        }
        match props {
            Some(Err(error)) => return refuse(&format!("the props are no JSON: {error}")),
            Some(Ok(props)) if props.to_string().len() > MAX_PROPS => {
                return refuse(&format!("the props are larger than {MAX_PROPS} bytes"));
            }
            Some(Ok(_)) | None => {}
        }
        if !self.headers.is_empty() || self.oauth.is_some() {
            return refuse("a server behind a binding takes neither headers nor a sign-in");
        }
        Ok(true)
    }
}

impl RegisterRpc {
    /// What has been said of a stored server.
    pub(super) fn again(stored: &StoredServer) -> Option<Self> {
        stored.is_rpc().then(|| Self {
            binding: stored.binding().unwrap_or_default().to_owned(),
            props: stored.options.props.clone().map(Ok),
            isolated: stored.is_isolated(),
        })
    }

    /// Writes it where the TypeScript package does.
    pub(super) fn store(rpc: Option<Self>, stored: &mut StoredServer) {
        let options = &mut stored.options;
        let rpc = rpc.unwrap_or_default();
        let binding = Some(rpc.binding).filter(|binding| !binding.is_empty());
        options.binding_name = binding.map(Value::String);
        options.props = rpc.props.and_then(Result::ok);
        options.isolated = rpc.isolated.then_some(true);
        if stored.is_rpc() {
            // Nothing that belongs to HTTP stays of what was registered before.
            stored.options.transport = None;
            stored.options.oauth = None;
            stored.callback_url = String::new();
            stored.client_id = None;
        }
    }
}

impl StoredServer {
    /// Whether it is an object behind a binding.
    pub(crate) fn is_rpc(&self) -> bool {
        self.url.starts_with(RPC_SCHEME)
    }

    /// The binding by which the object is reached, where the server is one.
    pub fn binding(&self) -> Option<&str> {
        self.options.binding_name.as_ref()?.as_str()
    }

    /// Whether the object is this one's alone: see [`RegisterServer::isolated`].
    pub fn is_isolated(&self) -> bool {
        self.options.isolated == Some(true)
    }

    /// What only servers behind a binding have, to tell two of them apart.
    pub(super) fn behind(&self) -> (Option<&str>, bool, Option<&Value>) {
        let props = self.options.props.as_ref();
        (self.binding(), self.is_isolated(), props)
    }

    /// The object to call. `caller` is the id of the object that calls.
    pub(super) fn address(&self, caller: &str) -> ObjectAddress {
        let name = if self.is_isolated() {
            format!("{}{CALLER}{caller}", self.url)
        } else {
            self.url.clone()
        };
        ObjectAddress {
            // An empty name is that of no binding.
            binding: self.binding().unwrap_or_default().to_owned(),
            name,
            props: self.options.props.as_ref().map(Value::to_string),
        }
    }
}

/// As the TypeScript package makes it: JavaScript's lower case, and its idea of white space.
fn url_of(name: &str) -> String {
    let mut url = RPC_SCHEME.to_owned();
    let mut after_space = false;
    for letter in name.to_lowercase().chars() {
        let is_space = letter == '\u{feff}' || letter != '\u{85}' && letter.is_whitespace();
        if !is_space {
            url.push(letter);
        } else if !after_space {
            url.push('-');
        }
        after_space = is_space;
    }
    url
}

/// Props may say who the user is.
impl fmt::Debug for RegisterRpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterRpc")
            .field("binding", &self.binding)
            .field("isolated", &self.isolated)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::ServerId;
    use crate::mcp::server::tests::row;
    use crate::ports::ServerRow;
    use crate::url_guard::UrlPolicy;
    use serde_json::json;

    fn stored(server: RegisterServer) -> StoredServer {
        let id = ServerId::verbatim("c");
        server.validate(&id, &UrlPolicy::default()).unwrap();
        server.into_stored(id, None).unwrap()
    }

    fn options(server: &StoredServer) -> Value {
        let row = server.encode().unwrap();
        serde_json::from_str(&row.server_options.unwrap()).unwrap()
    }

    #[test]
    fn the_url_is_made_as_javascript_makes_it() {
        for (name, url) in [
            ("Counter", "rpc:counter"),
            ("My  Big\tCounter ", "rpc:my-big-counter-"),
            ("a\u{a0}\u{feff}b\u{85}c", "rpc:a-b\u{85}c"),
            ("ÄÖ:X", "rpc:äö:x"),
        ] {
            assert_eq!(url_of(name), url, "{name:?}");
        }
    }

    #[test]
    fn a_row_holds_what_the_package_writes_and_nothing_else() {
        let props = json!({"user": "ada", "n": 1.5});
        let shared = stored(RegisterServer::rpc("My Counter", "COUNTER").props(&props));
        assert_eq!(shared.url, "rpc:my-counter");
        assert_eq!(shared.transport(), TransportKind::Rpc);
        assert_eq!(
            options(&shared),
            json!({"bindingName": "COUNTER", "props": props})
        );
        let own = stored(RegisterServer::rpc("My Counter", "COUNTER").isolated());
        assert_eq!(
            options(&own),
            json!({"bindingName": "COUNTER", "isolated": true})
        );
        assert!(!shared.same_peer(&own));
        assert_ne!(shared.peer_fingerprint(false), own.peer_fingerprint(false));
    }

    #[test]
    fn an_object_is_shared_or_has_a_name_that_no_server_can_have() {
        let shared = stored(RegisterServer::rpc("Counter", "C").props(&1));
        let address = shared.address("0a1b");
        assert_eq!(
            (address.name.as_str(), address.props.as_deref()),
            ("rpc:counter", Some("1"))
        );
        let own = stored(RegisterServer::rpc("Counter", "C").isolated());
        let name = own.address("0a1b").name;
        assert_eq!(name, "rpc:counter:Caller:0a1b");
        let thief = stored(RegisterServer::rpc("Counter:Caller:0a1b", "C"));
        assert_ne!(thief.address("ffff").name, name);
        assert!(!format!("{address:?}").contains("props"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let id = ServerId::verbatim("c");
        let rpc = || RegisterServer::rpc("Counter", "C");
        let http = || RegisterServer::new("Counter", "https://example.com/mcp");
        for server in [
            RegisterServer::rpc("", "C"),
            RegisterServer::rpc("Counter", ""),
            RegisterServer::rpc("Counter", "C".repeat(300)),
            RegisterServer::new("Counter", "rpc:counter"),
            RegisterServer::new("Counter", "rpc:counter").transport(TransportKind::Rpc),
            RegisterServer::new("Counter", "rpc:counter").isolated(),
            http().transport(TransportKind::Rpc),
            http().props(&1),
            http().isolated(),
            rpc().transport(TransportKind::Sse),
            rpc().header("x-a", "1"),
            rpc().callback_url("https://app.example/callback"),
            rpc().props(&"x".repeat(MAX_PROPS)),
            rpc().props(&std::collections::BTreeMap::from([((1, 2), 3)])),
        ] {
            let shown = format!("{server:?}");
            let refused = server.validate(&id, &UrlPolicy::default());
            assert!(refused.is_err(), "{shown}");
        }
    }

    #[test]
    fn odd_rows_are_rows_without_a_binding() {
        for options in [
            None,
            Some("{}"),
            Some(r#"{"bindingName":7,"isolated":"yes"}"#),
        ] {
            let odd = ServerRow {
                server_url: "rpc:counter".into(),
                ..row(options)
            };
            let odd = StoredServer::decode(odd).unwrap();
            assert_eq!((odd.binding(), odd.is_isolated()), (None, false));
            assert_eq!(odd.address("x").binding, "");
            assert_eq!(odd.transport(), TransportKind::Rpc);
        }
    }

    #[test]
    fn what_was_said_can_be_said_again() {
        let first = stored(RegisterServer::rpc("Counter", "C").props(&[1]).isolated());
        let again = RegisterServer::again(&first);
        let second = again
            .into_stored(first.id.clone(), Some(first.clone()))
            .unwrap();
        assert!(first.same_peer(&second));
        assert_eq!(options(&first), options(&second));
        // An HTTP server of the same id has nothing of it.
        let http = RegisterServer::new("Counter", "https://example.com/mcp");
        let http = http.into_stored(first.id.clone(), Some(first)).unwrap();
        assert_eq!(http.behind(), (None, false, None));
    }
}
