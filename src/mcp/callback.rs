//! The user comes back from an authorization server: which server it is about, what becomes of it,
//! and what the user's browser is told.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use http::Response;
use url::Url;

use super::browser::{failure_page, origin_of, redirect};
use super::connection::Connection;
use super::joined::Running;
use super::permits::Permits;
use super::sign_in::FailedSignIns;
use super::state::Event;
use super::within::within;
use super::{McpClientManager, ServerId};
use crate::oauth::{Authorizer, CallbackQuery, OAuthError, PendingSignIn, Used, check_issuer};
use crate::{Error, Result};

/// How long the user waits for the server to be connected and listed before going on.
const PATIENCE: Duration = Duration::from_secs(5);
const NOT_BEGUN: &str = "this sign-in is over, or was never begun here: start again";
const USED: &str = "this sign-in has been used: start again";
/// The longest text that goes into a redirect, in characters.
const MAX_SHOWN: usize = 300;

/// What came of a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignInOutcome {
    /// The server.
    pub server_id: ServerId,
    /// Why it failed, if it did. May hold text of others: escape it.
    pub auth_error: Option<String>,
}

impl SignInOutcome {
    /// Whether the user is signed in.
    pub fn auth_success(&self) -> bool {
        self.auth_error.is_none()
    }
}

type Handler = dyn Fn(SignInOutcome) -> LocalBoxFuture<'static, Response<String>>;

/// What the user's browser is told when the user comes back. Configure it whenever the object
/// starts: it is not stored.
///
/// Targets come from here alone, never from the request, and are resolved against its origin.
/// Without any: after success the application's origin, after a failure a page that says why.
///
/// ```
/// use workers_agents::{OAuthCallback, SignInOutcome};
///
/// let redirects = OAuthCallback::new().success_redirect("/connected").error_redirect("/failed");
/// // For a window of its own. The reason may hold text of others: it is not shown here.
/// let closes = OAuthCallback::new().custom_handler(async |outcome: SignInOutcome| {
///     let text = if outcome.auth_success() { "Signed in." } else { "That did not work." };
///     http::Response::new(format!("{text} You can close this window."))
/// });
/// # drop((redirects, closes));
/// ```
#[derive(Clone, Default)]
pub struct OAuthCallback {
    success_redirect: Option<String>,
    error_redirect: Option<String>,
    handler: Option<Rc<Handler>>,
}

impl OAuthCallback {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where to go after success.
    #[must_use]
    pub fn success_redirect(mut self, url: impl Into<String>) -> Self {
        self.success_redirect = Some(url.into());
        self
    }

    /// Where to go after a failure; the reason is added as the query parameter `error`.
    #[must_use]
    pub fn error_redirect(mut self, url: impl Into<String>) -> Self {
        self.error_redirect = Some(url.into());
        self
    }

    /// Answers in place of everything else. The answer is sent as it is.
    #[must_use]
    pub fn custom_handler(
        mut self,
        handler: impl AsyncFn(SignInOutcome) -> Response<String> + 'static,
    ) -> Self {
        let handler = Rc::new(handler);
        self.handler = Some(Rc::new(move |outcome| {
            let handler = handler.clone();
            Box::pin(async move { handler(outcome).await })
        }));
        self
    }
}

impl fmt::Debug for OAuthCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthCallback")
            .field("success_redirect", &self.success_redirect)
            .field("error_redirect", &self.error_redirect)
            .field("has_handler", &self.handler.is_some())
            .finish()
    }
}

impl McpClientManager {
    /// Says what the user's browser is told when the user comes back.
    pub fn configure_oauth_callback(&self, callback: OAuthCallback) {
        self.inner.callback.replace(Rc::new(callback));
    }

    /// Whether a GET of this URL is a user who comes back: its `state` names a server whose callback
    /// has the same origin and path.
    pub fn is_callback_request(&self, url: &Url) -> bool {
        let Some(query) = CallbackQuery::read(url) else {
            return false;
        };
        match self.server(&self.present_id(&query.server_id)) {
            Ok(Some(stored)) => stored
                .callback_url()
                .and_then(|callback| Url::parse(callback).ok())
                .is_some_and(|callback| same_place(&callback, url)),
            _ => false,
        }
    }

    /// Answers a user who comes back; see [`is_callback_request`](Self::is_callback_request).
    pub async fn handle_callback(&self, url: &Url) -> Response<String> {
        let outcome = match CallbackQuery::read(url) {
            Some(query) => {
                let auth_error = self.complete_sign_in(&query).await.err();
                SignInOutcome {
                    server_id: ServerId::verbatim(self.present_id(&query.server_id)),
                    auth_error: auth_error.map(|error| shown(&error)),
                }
            }
            None => SignInOutcome {
                server_id: ServerId::verbatim(""),
                auth_error: Some("the address names no sign-in".into()),
            },
        };
        let callback = self.inner.callback.borrow().clone();
        if let Some(handler) = &callback.handler {
            return handler(outcome).await;
        }
        // Where the user's browser is, whatever stands between it and the object.
        let base = self.server(outcome.server_id.as_str()).ok().flatten();
        let base = base.and_then(|stored| Url::parse(stored.callback_url()?).ok());
        let base = base.unwrap_or_else(|| url.clone());
        let resolve = |target: &Option<String>| base.join(target.as_deref()?).ok();
        match (&outcome.auth_error, resolve(&callback.error_redirect)) {
            (None, _) => {
                let target = resolve(&callback.success_redirect);
                redirect(&target.unwrap_or_else(|| origin_of(&base)))
            }
            (Some(reason), Some(mut target)) => {
                let kept: Vec<(String, String)> = target
                    .query_pairs()
                    .filter(|(name, _)| name != "error")
                    .map(|(name, value)| (name.into_owned(), value.into_owned()))
                    .collect();
                target
                    .query_pairs_mut()
                    .clear()
                    .extend_pairs(kept)
                    .append_pair("error", reason);
                redirect(&target)
            }
            (Some(reason), None) => failure_page(reason),
        }
    }

    async fn complete_sign_in(&self, query: &CallbackQuery) -> Result<()> {
        let over = |reason| Err(OAuthError::SignInOver(reason).into());
        if query.is_ambiguous {
            return over("the answer of the authorization server cannot be read: start again");
        }
        if query.code.is_none() && query.error.is_none() {
            // Neither uses the sign-in up nor ends it. Said whether there is such a server or not.
            return over("the answer of the authorization server has neither a code nor an error");
        }
        // Not kept yet: anybody can send a state that names a server.
        let server_id = self.present_id(&query.server_id);
        let connection = self.connection_of(&server_id)?;
        let Some(authorizer) = connection.authorizer()? else {
            return over(NOT_BEGUN);
        };
        let provider = authorizer.provider();
        let now = self.inner.common.ports.clock.now();
        let pending = match provider.pending(&query.nonce).await? {
            Some(pending) if pending.server_id != query.server_id => None,
            pending => pending,
        };
        let Some(pending) = pending else {
            return match provider.used(&query.nonce).await? {
                Some(Used::Successfully) => Ok(()),
                Some(Used::InVain) => repeated(self.live(&server_id)).await,
                None => over(NOT_BEGUN),
            };
        };
        if pending.is_over(now) {
            return over("this sign-in took too long: start again");
        }
        // Before it is used up: whoever sends another's answer must not spoil the true one.
        check_issuer(&pending, query)?;
        let connection = self.live_or_stored(&server_id)?;
        let running = connection.exchanging.borrow().as_ref().map(Running::join);
        if let Some(exchange) = running
            && exchange.await.is_ok()
        {
            // Another tab has done it; this one is used up all the same.
            return Ok(authorizer.discard(&query.nonce).await?);
        }
        if is_stale(&authorizer, &connection, &pending).await? {
            return Ok(authorizer.discard(&query.nonce).await?);
        }
        let usable = connection.is_usable();
        self.exchange(&connection, &authorizer, query.clone(), usable)
            .await?;
        if self.is_live(&connection) {
            self.settle_in(&connection).await;
        }
        Ok(())
    }

    /// Uses the sign-in up and exchanges its code, once, whoever waits.
    async fn exchange(
        &self,
        connection: &Rc<Connection>,
        authorizer: &Rc<Authorizer>,
        query: CallbackQuery,
        usable: bool,
    ) -> Result<()> {
        let (this, authorizer) = (connection.clone(), authorizer.clone());
        let attempt = connection.attempt();
        if !usable {
            connection.apply(attempt, Event::Returned);
        }
        let running = Running::start(&*self.inner.common.ports.spawn, async move {
            // Its URL is used up, whatever comes of it: one that stays is offered after an eviction.
            // If that cannot be stored, it is offered once more, and says that it is over.
            let _ = this.change_row(|stored| stored.auth_url = None);
            let outcome = async {
                let taken = authorizer.take(&query.nonce).await?;
                let pending = taken.ok_or(OAuthError::SignInOver(USED))?;
                authorizer.finish(&pending, &query).await?;
                Ok(pending.flow.scope)
            };
            let outcome: Result<_, OAuthError> = outcome.await;
            this.exchanging.take();
            let is_closed = matches!(this.error(), Some(Error::Closed));
            match outcome {
                Ok(scope) => {
                    this.signed_in(&authorizer, scope.as_deref(), usable, attempt)?;
                    if !is_closed && !this.is_usable() {
                        // Whoever has waited for this joins the one attempt.
                        drop(this.connect_anew());
                    }
                    Ok(())
                }
                // The row may be that of another server by now.
                Err(error) if is_closed => Err(error.into()),
                Err(error) => Err(this.sign_in_failed(error, usable, attempt)),
            }
        });
        let exchange = running.join();
        connection.exchanging.replace(Some(running));
        exchange.await
    }

    /// Lets the connection come back in the background, with its lists, by the server's retry policy,
    /// and waits a while. One that was usable goes on, and is listed anew: there may be more to see.
    async fn settle_in(&self, connection: &Rc<Connection>) {
        let number = self.inner.pending.begin(connection.id());
        let (this, connection) = (self.clone(), connection.clone());
        let spawn = self.inner.common.ports.spawn.clone();
        let work = Running::start(&*spawn, async move {
            // The outcome is in the connection's state, for whoever looks.
            let _ = this.come_back(&connection, &Permits::new(1)).await;
            this.inner.pending.settle(connection.id(), number);
            Ok(())
        });
        let clock = &*self.inner.common.ports.clock;
        let _ = within(clock, PATIENCE, "connecting", work.join()).await;
    }
}

/// A callback that has come already and has not led to anything yet. It may be about to.
async fn repeated(connection: Option<Rc<Connection>>) -> Result<()> {
    let running = connection.and_then(|connection| {
        let exchanging = connection.exchanging.borrow();
        exchanging.as_ref().map(Running::join)
    });
    match running {
        Some(exchange) => exchange.await,
        None => Err(OAuthError::SignInOver(USED).into()),
    }
}

/// Whether a sign-in has become needless: another one, begun in another tab, has ended since.
async fn is_stale(
    authorizer: &Authorizer,
    connection: &Connection,
    pending: &PendingSignIn,
) -> Result<bool> {
    if !connection.is_open() {
        return Ok(false);
    }
    let tokens = authorizer.known().await?;
    // Tokens that do not say how old they are may be older: to use up what the user has consented to
    // would be worse than one exchange too many.
    Ok(tokens.is_some_and(|tokens| {
        let origin = tokens.origin.as_ref();
        origin.is_some_and(|origin| origin.signed_in_at > pending.created_at)
    }))
}

impl Connection {
    /// The tokens are there.
    fn signed_in(
        &self,
        authorizer: &Authorizer,
        scope: Option<&str>,
        usable: bool,
        attempt: u64,
    ) -> Result<()> {
        let client_id = authorizer.provider().client_id();
        let now = self.common.ports.clock.now();
        self.change_row(|stored| {
            stored.auth_url = None;
            stored.client_id = client_id;
            if let Some(record) = &mut stored.options.authorization {
                record.granted(scope, now);
            }
        })?;
        if usable {
            self.answered(attempt);
        }
        Ok(())
    }

    fn answered(&self, attempt: u64) {
        let listed = self.is_listed();
        self.apply(attempt, Event::Answered { listed });
    }

    fn sign_in_failed(&self, error: OAuthError, usable: bool, attempt: u64) -> Error {
        let refusal = match &error {
            OAuthError::Refused { code, .. }
                if ["invalid_grant", "invalid_client", "unauthorized_client"]
                    .contains(&code.as_str()) =>
            {
                Some(code.clone())
            }
            _ => None,
        };
        let error = Error::from(error);
        let now = self.common.ports.clock.now();
        // If it cannot be stored, the old URL is offered once more, and says that it is over.
        let _ = self.change_row(|stored| {
            stored.auth_url = None;
            let record = stored.options.authorization.get_or_insert_default();
            record.until = None;
            record.operation = None;
            if let Some(code) = refusal {
                let before = record.failed.take().unwrap_or_default();
                record.failed = Some(FailedSignIns {
                    count: before.count.saturating_add(1),
                    at: now,
                    code,
                });
            }
        });
        self.failed(&error);
        if usable {
            self.answered(attempt);
        } else {
            self.apply(attempt, Event::Failed(error.clone()));
        }
        error
    }
}

/// The same origin and path; queries differ by their nature.
fn same_place(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin() && one.path() == other.path()
}

/// An error as the user may see it, before it is escaped.
fn shown(error: &Error) -> String {
    let text = match error {
        // The id comes from the address, so anybody may have chosen it.
        Error::UnknownServer(_) | Error::DamagedRow { .. } => NOT_BEGUN.to_owned(),
        // What the storage says is for the log.
        Error::Storage(_) | Error::Runtime(_) => "the sign-in could not be stored".to_owned(),
        Error::Authorization(error) => error.to_string(),
        error => error.to_string(),
    };
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
