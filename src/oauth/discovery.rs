//! Finding out who gives permission for a server.
//!
//! ```text
//! resource metadata                       authorization server metadata
//!   where the challenge says, or else       of the issuer that it names, in two or three places;
//!   below the server's path,       ──►      without resource metadata, or where it names nobody,
//!   at the root                             of the server's own origin
//! ```
//!
//! A document is *absent* if the answer says so: a status below 500, a redirect elsewhere, or
//! something that is no such document. Anything else is *trouble*. Both lead to the next place, but
//! in the end trouble is an error and absence is a fact.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use super::error::one_line;
use super::metadata::{Parsed, plain_http_url};
use super::net::{Ask, Reply};
use super::{Challenge, Net, OAuthError, ResourceMetadata, ServerMetadata};
use crate::url_guard::{BlockReason, GuardedUrl};

/// The time for one place, redirects included.
const PATIENCE: Duration = Duration::from_secs(5);

const RESOURCE_METADATA: &str = "the resource metadata";
const SERVER_METADATA: &str = "the authorization server metadata";
const AUTHORIZATION_SERVER: &str = "the authorization server";

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";
const RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// Who gives permission for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// The issuer, to the letter; validated.
    pub issuer: String,
    /// What to send as `resource`, to the letter (RFC 8707).
    pub resource: String,
    /// Where the resource metadata was found, if it was.
    pub resource_metadata_url: Option<String>,
    /// The resource metadata, if there is any.
    pub resource_metadata: Option<ResourceMetadata>,
    /// What the authorization server publishes. Where it publishes nothing, the endpoints of
    /// 2025-03-26.
    pub server: ServerMetadata,
    /// Whether `server` was published.
    pub is_published: bool,
}

impl Discovered {
    /// [`ServerMetadata::check_pkce`] of what was published. Nobody says anything about the
    /// endpoints of 2025-03-26, which requires PKCE.
    ///
    /// # Errors
    /// [`OAuthError::Unsupported`].
    pub fn check_pkce(&self, allow_missing: bool) -> Result<(), OAuthError> {
        self.server.check_pkce(allow_missing || !self.is_published)
    }
}

/// Finds the authorization server of `server` (2026-07-28, authorization server discovery; with the
/// fallbacks of 2025-03-26).
///
/// # Errors
/// See [`OAuthError`]. A server in trouble is never taken for one that publishes nothing.
pub async fn discover(
    net: &Net,
    server: &GuardedUrl,
    challenge: Option<&Challenge>,
) -> Result<Discovered, OAuthError> {
    discover_preferring(net, server, challenge, None).await
}

/// [`discover`], with `preferred` as the issuer if the resource metadata lists it among others
/// (RFC 9728 §7.6): one that has registered this client before.
pub(super) fn discover_preferring<'a>(
    net: &'a Net,
    server: &'a GuardedUrl,
    challenge: Option<&'a Challenge>,
    preferred: Option<&'a str>,
) -> LocalBoxFuture<'a, Result<Discovered, OAuthError>> {
    let search = Search { net, server };
    async move {
        match search.resource_metadata(challenge).await? {
            Resource::Published { url, document } => search.named(url, document, preferred).await,
            Resource::Absent { doubt } => search.unnamed(doubt).await,
        }
    }
    .boxed_local()
}

struct Search<'a> {
    net: &'a Net,
    server: &'a GuardedUrl,
}

/// What one place has.
enum Place<T> {
    Document(T),
    /// Why there is none.
    Absent(String),
    Trouble(OAuthError),
}

/// What is known about the resource.
enum Resource {
    Published {
        url: GuardedUrl,
        document: ResourceMetadata,
    },
    Absent {
        /// An answer by which gateways say either that they know no such place or that the server
        /// is down.
        doubt: Option<OAuthError>,
    },
}

/// What is known about an authorization server.
enum Server {
    Published(Box<ServerMetadata>),
    /// Nothing, and why.
    Absent(String),
}

/// An authorization server to look up.
struct Issuer {
    /// To the letter.
    text: String,
    url: GuardedUrl,
    /// Whether the text was made here out of the server's origin.
    is_made_up: bool,
}

impl Issuer {
    /// Its metadata decides where secrets go, so nobody on the way may write it.
    fn new(text: String, url: GuardedUrl, is_made_up: bool) -> Result<Self, OAuthError> {
        if !url.is_private() {
            return Err(OAuthError::Insecure {
                what: AUTHORIZATION_SERVER,
                url: url.to_string(),
            });
        }
        Ok(Self {
            text,
            url,
            is_made_up,
        })
    }

    /// RFC 8414 §3.3: letter by letter. What was made up may lack a slash.
    fn is(&self, found: &str) -> bool {
        let same = |text: &str| text == self.text;
        same(found) || (self.is_made_up && found.strip_suffix('/').is_some_and(same))
    }
}

impl Search<'_> {
    async fn resource_metadata(
        &self,
        challenge: Option<&Challenge>,
    ) -> Result<Resource, OAuthError> {
        let what = RESOURCE_METADATA;
        let given = challenge.and_then(|challenge| challenge.resource_metadata.as_deref());
        let places = match given {
            Some(url) => vec![self.related(what, url)?],
            None => self.resource_places()?,
        };
        let (mut doubt, mut trouble) = (None, None);
        for url in places {
            match self.look(what, &url, ResourceMetadata::parse).await? {
                Place::Document(document) if document.is_about(self.server) => {
                    return Ok(Resource::Published { url, document });
                }
                Place::Document(document) => {
                    return Err(OAuthError::ResourceMismatch {
                        expected: self.server.to_string(),
                        found: one_line(&document.resource),
                    });
                }
                Place::Absent(_) => {}
                // A place that the server has named exists.
                Place::Trouble(error @ OAuthError::Status { status: 502, .. })
                    if given.is_none() =>
                {
                    doubt.get_or_insert(error);
                }
                Place::Trouble(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        trouble.map_or(Ok(Resource::Absent { doubt }), Err)
    }

    /// Asks the authorization server that the resource metadata names.
    async fn named(
        &self,
        url: GuardedUrl,
        document: ResourceMetadata,
        preferred: Option<&str>,
    ) -> Result<Discovered, OAuthError> {
        let chosen = self.choose(&document.authorization_servers, preferred)?;
        let is_listed = chosen.is_some();
        // Older servers are their own authorization servers and do not list themselves.
        let issuer = match chosen {
            Some(issuer) => issuer,
            None => self.origin()?,
        };
        let server = match self.server_metadata(&issuer).await? {
            Server::Published(server) => *server,
            Server::Absent(reason) if is_listed => {
                return Err(OAuthError::Unusable {
                    what: AUTHORIZATION_SERVER,
                    url: issuer.url.to_string(),
                    reason: format!("it publishes no metadata: {reason}"),
                });
            }
            Server::Absent(_) => {
                let reason = "authorization_servers names no authorization server";
                return Err(unusable(RESOURCE_METADATA, &url, reason));
            }
        };
        Ok(Discovered {
            issuer: server.issuer.clone(),
            resource: document.resource.clone(),
            resource_metadata_url: Some(url.as_str().to_owned()),
            resource_metadata: Some(document),
            server,
            is_published: true,
        })
    }

    /// The procedure of 2025-03-26.
    async fn unnamed(&self, doubt: Option<OAuthError>) -> Result<Discovered, OAuthError> {
        let issuer = self.origin()?;
        let (server, is_published) = match (self.server_metadata(&issuer).await?, doubt) {
            (Server::Published(server), _) => (*server, true),
            // Nothing was found, and it is not known that there is nothing.
            (Server::Absent(_), Some(doubt)) => return Err(doubt),
            (Server::Absent(_), None) => (ServerMetadata::of_origin(&issuer.text), false),
        };
        Ok(Discovered {
            issuer: server.issuer.clone(),
            resource: canonical(self.server.url()),
            resource_metadata_url: None,
            resource_metadata: None,
            server,
            is_published,
        })
    }

    /// The authorization server to go to: the preferred one if it is listed, else the first that
    /// can be used. `None` if the list names nobody.
    fn choose(
        &self,
        listed: &[String],
        preferred: Option<&str>,
    ) -> Result<Option<Issuer>, OAuthError> {
        let is_preferred = |issuer: &&String| Some(issuer.as_str()) == preferred;
        let first = listed.iter().filter(is_preferred);
        let mut refusal = None;
        for text in first.chain(listed) {
            match self.listed(text) {
                Ok(issuer) => return Ok(Some(issuer)),
                Err(error) if is_no_url(&error) => {}
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        refusal.map_or(Ok(None), Err)
    }

    fn listed(&self, text: &str) -> Result<Issuer, OAuthError> {
        // RFC 8414 §2: without query and fragment.
        let is_plain = plain_http_url(text)
            .is_some_and(|url| url.query().is_none() && url.fragment().is_none());
        // What is no URL gets the guard's word for it.
        let url = self.related(AUTHORIZATION_SERVER, text)?;
        if !is_plain {
            return Err(unusable(
                AUTHORIZATION_SERVER,
                &url,
                "its name has a query or a fragment, or is written in an odd way",
            ));
        }
        Issuer::new(text.to_owned(), url, false)
    }

    /// The server's origin as an authorization server.
    fn origin(&self) -> Result<Issuer, OAuthError> {
        let text = self.server.url().origin().ascii_serialization();
        let url = self.related(AUTHORIZATION_SERVER, &text)?;
        Issuer::new(text, url, true)
    }

    async fn server_metadata(&self, issuer: &Issuer) -> Result<Server, OAuthError> {
        let what = SERVER_METADATA;
        let (mut trouble, mut absence) = (None, None);
        for url in self.server_places(issuer)? {
            match self.look(what, &url, ServerMetadata::parse).await? {
                // No other place is asked: another document could not make this one right.
                Place::Document(document) if !issuer.is(&document.issuer) => {
                    let found = match document.issuer.as_str() {
                        "" => "nobody (no issuer)".to_owned(),
                        found => one_line(found),
                    };
                    return Err(OAuthError::IssuerMismatch {
                        expected: one_line(&issuer.text),
                        found,
                    });
                }
                Place::Document(document) => {
                    document.check_endpoints(self.server)?;
                    if document.token_endpoint.is_none() {
                        return Err(unusable(what, &url, "it names no token_endpoint"));
                    }
                    return Ok(Server::Published(Box::new(document)));
                }
                Place::Absent(reason) => {
                    absence.get_or_insert_with(|| format!("{reason} at {url}"));
                }
                Place::Trouble(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        match trouble {
            Some(error) => Err(error),
            None => Ok(Server::Absent(absence.unwrap_or_default())),
        }
    }

    /// RFC 9728 §3.1, then the root.
    fn resource_places(&self) -> Result<Vec<GuardedUrl>, OAuthError> {
        let server = self.server.url();
        let path = format!("{RESOURCE}{}", inserted(server));
        let mut places = vec![
            self.place(RESOURCE_METADATA, server, &path, server.query())?,
            self.place(RESOURCE_METADATA, server, RESOURCE, None)?,
        ];
        places.dedup();
        Ok(places)
    }

    /// RFC 8414 §3.1, the same for `OpenID` documents, and where `OpenID` Connect Discovery puts
    /// them (§4).
    fn server_places(&self, issuer: &Issuer) -> Result<Vec<GuardedUrl>, OAuthError> {
        let base = issuer.url.url();
        let path = inserted(base);
        let mut places = vec![
            format!("{OAUTH}{path}"),
            format!("{OPENID}{path}"),
            format!("{path}{OPENID}"),
        ];
        places.dedup();
        places
            .iter()
            .map(|path| self.place(SERVER_METADATA, base, path, None))
            .collect()
    }

    fn place(
        &self,
        what: &'static str,
        base: &Url,
        path: &str,
        query: Option<&str>,
    ) -> Result<GuardedUrl, OAuthError> {
        let mut url = base.clone();
        url.set_path(path);
        url.set_query(query);
        url.set_fragment(None);
        self.related(what, url.as_str())
    }

    fn related(&self, what: &'static str, url: &str) -> Result<GuardedUrl, OAuthError> {
        let url = self
            .server
            .related(url)
            .map_err(|reason| OAuthError::Blocked { what, reason })?;
        if self.server.is_private() && !url.is_private() {
            let url = url.to_string();
            return Err(OAuthError::Insecure { what, url });
        }
        Ok(url)
    }

    /// Asks one place. Errors are final.
    async fn look<T>(
        &self,
        what: &'static str,
        url: &GuardedUrl,
        parse: impl Fn(&str) -> Parsed<T>,
    ) -> Result<Place<T>, OAuthError> {
        let ask = Ask {
            what,
            method: Method::GET,
            url,
            headers: headers(),
            body: None,
            timeout: PATIENCE,
        };
        let reply = match self.net.ask(ask).await {
            Ok(reply) => reply,
            Err(OAuthError::Redirect { .. }) => {
                return Ok(Place::Absent("a redirect elsewhere".into()));
            }
            // Too large for such a document.
            Err(OAuthError::Unusable { reason, .. }) => return Ok(Place::Absent(reason)),
            Err(error) => return Ok(Place::Trouble(error)),
        };
        if !reply.is_success() {
            return Ok(refused(what, url, &reply));
        }
        match parse(&reply.body) {
            Parsed::Document(document) => Ok(Place::Document(document)),
            Parsed::Other(reason) => {
                let kind = one_line(&reply.media_type());
                let kind = if kind.is_empty() { "no type" } else { &kind };
                Ok(Place::Absent(format!("{reason} ({kind})")))
            }
            Parsed::Unusable(reason) => Err(unusable(what, url, reason)),
        }
    }
}

/// What a status other than 2xx says. One that asks for patience does not say that nothing is there.
fn refused<T>(what: &'static str, url: &GuardedUrl, reply: &Reply) -> Place<T> {
    let status = reply.status;
    if status < 500 && !matches!(status, 408 | 425 | 429) {
        return Place::Absent(format!("HTTP status {status}"));
    }
    Place::Trouble(OAuthError::Status {
        what,
        url: url.to_string(),
        status,
        retry_after: reply.retry_after(),
    })
}

fn unusable(what: &'static str, url: &GuardedUrl, reason: &str) -> OAuthError {
    OAuthError::Unusable {
        what,
        url: url.to_string(),
        reason: reason.to_owned(),
    }
}

fn is_no_url(error: &OAuthError) -> bool {
    matches!(error, OAuthError::Blocked { reason, .. } if reason.reason() == BlockReason::Malformed)
}

fn headers() -> HeaderMap {
    // 2025-03-26 asks for the revision, and later ones do not mind. Which one is spoken need not be
    // known yet; this is the last that is agreed on by a handshake.
    const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json")),
        (VERSION, HeaderValue::from_static("2025-11-25")),
    ])
}

/// The path that goes behind a well-known one: without one slash at its end.
fn inserted(url: &Url) -> &str {
    let path = url.path();
    path.strip_suffix('/').unwrap_or(path)
}

/// The canonical URI of a server (2026-07-28, resource parameter).
fn canonical(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    let text = url.as_str();
    if url.path() == "/" && url.query().is_none() {
        return text.strip_suffix('/').unwrap_or(text).to_owned();
    }
    text.to_owned()
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
