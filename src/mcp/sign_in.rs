//! When a server does not let us in: asking for permission, and what is remembered of that.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;

use super::connection::{Common, Connection};
use super::joined::Running;
use super::server::StoredServer;
use super::state::{ConnectionState, Event};
use crate::oauth::{
    Asked, AuthorizationUrl, Authorizer, AuthorizerPorts, Challenge, Member, OAuthError,
    OAuthProvider, SIGN_IN_LIFETIME, StoredOAuthProvider, record,
};
use crate::ports::Timestamp;
use crate::transport::TransportError;
use crate::{Error, Result};

/// How often in a row more scopes are asked for because of one operation. With the sign-in before
/// them that makes three.
const MAX_STEP_UPS: u32 = 2;
/// For how long that counts, in milliseconds: a day.
const STEP_UPS_COUNT_FOR: Timestamp = 86_400_000;
/// How many operations are kept account of.
const MAX_OPERATIONS: usize = 16;
/// How many sign-ins in a row may come to nothing because the authorization server refuses its own
/// code, and for how long that counts.
const MAX_FAILURES: u64 = 2;
const REFUSED_AT_ONCE: &str = "invalid_token";

/// What a request was for, as far as it says which scopes it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) method: &'static str,
    pub(super) target: Option<&'a str>,
}

impl<'a> Operation<'a> {
    /// Opening a connection, whatever requests that takes.
    pub(super) const CONNECT: Self = Self {
        method: "connect",
        target: None,
    };

    /// Loading lists.
    pub(super) const LIST: Self = Self {
        method: "list",
        target: None,
    };

    /// A request without a target.
    pub(super) const fn of(method: &'static str) -> Self {
        Self {
            method,
            target: None,
        }
    }

    /// A request with a target.
    pub(super) const fn on(method: &'static str, target: &'a str) -> Self {
        Self {
            method,
            target: Some(target),
        }
    }

    fn key(&self) -> String {
        let target = self.target.unwrap_or_default();
        let target: String = target.chars().take(100).collect();
        format!("{} {target}", self.method)
    }
}

/// What is remembered of sign-ins, with the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SignInRecord {
    /// The scopes that operations have needed so far.
    pub(super) scope: Option<String>,
    /// The operation that the sign-in under way is for, if it is for more scopes.
    pub(super) operation: Option<String>,
    /// How often more was granted because of each operation, since it last succeeded.
    pub(super) step_ups: BTreeMap<String, u32>,
    /// When that was last done. A day later the account begins anew.
    pub(super) stepped_up_at: Option<Timestamp>,
    /// Until when the authorization URL can be used.
    pub(super) until: Option<Timestamp>,
    /// Sign-ins that came to nothing, and what the authorization server said last.
    pub(super) failed: Option<FailedSignIns>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailedSignIns {
    pub(super) count: u64,
    pub(super) at: Timestamp,
    pub(super) code: String,
}

record! { SignInRecord {
    scope: "scope",
    operation: "operation",
    step_ups: "stepUps",
    stepped_up_at: "steppedUpAt",
    until: "until",
    failed: "failed",
}}

record! { FailedSignIns {
    count: "count",
    at: "at",
    code: "code",
}}

impl Member for Option<FailedSignIns> {
    fn read(value: Option<Value>) -> Self {
        value
            .filter(Value::is_object)
            .map(|value| FailedSignIns::read(Some(value)))
    }

    fn write(&self) -> Option<Value> {
        self.as_ref()?.write()
    }
}

/// Why permission is asked for.
enum Lack {
    /// Of any permission: 401.
    Permission,
    /// Of scopes, for an operation: 403.
    Scope(String),
}

impl Common {
    /// Who gets permission for a server: the same one as long as it is registered, whatever becomes
    /// of connections. `None` where nobody can: there is neither a callback URL nor a provider of the
    /// host's own, or tokens would go there in the clear.
    pub(super) fn authorizer(&self, server: &StoredServer) -> Result<Option<Rc<Authorizer>>> {
        let known = self.authorizers.borrow().get(server.id.as_str()).cloned();
        if let Some(known) = known.filter(|known| known.server_url() == server.url) {
            return Ok(Some(known));
        }
        if server.is_rpc() {
            return Ok(None);
        }
        let Some(provider) = self.provider(server)? else {
            return Ok(None);
        };
        let url = self.options.url_policy.guard(&server.url)?;
        if !url.is_private() {
            return Ok(None);
        }
        let ports = AuthorizerPorts {
            http: self.ports.http.clone(),
            clock: self.ports.clock.clone(),
            crypto: self.ports.crypto.clone(),
            spawn: self.ports.spawn.clone(),
        };
        let (server_url, id) = (server.url.clone(), server.id.to_string());
        let authorizer = Authorizer::new(ports, provider, url, server_url, id);
        self.authorizers
            .borrow_mut()
            .insert(server.id.clone(), authorizer.clone());
        Ok(Some(authorizer))
    }

    /// Who keeps what is granted for a server.
    pub(super) fn provider(&self, server: &StoredServer) -> Result<Option<Rc<dyn OAuthProvider>>> {
        let given = self.providers.borrow().get(server.id.as_str()).cloned();
        if given.is_some() || server.is_rpc() {
            return Ok(given);
        }
        let context = self.provider_context(server);
        if let Some(create) = &self.options.create_auth_provider {
            return Ok(Some(create.0(context)?));
        }
        // Without a callback only grants that need no user come to anything.
        if context.callback_url.is_none() && context.grant.needs_user() {
            return Ok(None);
        }
        Ok(Some(Rc::new(StoredOAuthProvider::new(context))))
    }
}

impl Connection {
    /// Who gets permission for this server.
    pub(super) fn authorizer(&self) -> Result<Option<Rc<Authorizer>>> {
        self.common.authorizer(&self.server())
    }

    /// Whether something has been granted that is still good, or can be made so.
    pub(super) async fn has_permission(&self) -> bool {
        match self.authorizer() {
            Ok(Some(authorizer)) => authorizer.has_permission().await,
            _ => false,
        }
    }

    /// An error of a request: where the server did not let us in, what came of asking for
    /// permission stands in its place.
    pub(super) async fn seek_permission(
        self: &Rc<Self>,
        error: Error,
        operation: Operation<'_>,
    ) -> Error {
        let Some((challenge, lack)) = lack(&error, operation) else {
            return self.seek_elsewhere(error, operation).await;
        };
        if self.is_closed() {
            // Whoever has signed out, or removed the server, is not asked to sign in again.
            return error;
        }
        let authorizer = match self.authorizer() {
            Ok(Some(authorizer)) => authorizer,
            Ok(None) => {
                if !matches!(lack, Lack::Permission) {
                    return error;
                }
                let error = self.in_the_clear().unwrap_or(error);
                self.lock_out(&error);
                return error;
            }
            Err(error) => return error,
        };
        if !authorizer.provider().grant().needs_user() {
            // Whatever could be done without a user has been done.
            if matches!(lack, Lack::Permission) {
                self.lock_out(&error);
            }
            return error;
        }
        let running = self.signing_in.borrow().as_ref().map(Running::join);
        let asking = running.unwrap_or_else(|| {
            let this = self.clone();
            let attempt = self.attempt();
            let running = Running::start(&*self.common.ports.spawn, async move {
                let outcome = this.ask(&authorizer, challenge, lack, attempt).await;
                this.signing_in.take();
                outcome
            });
            let asking = running.join();
            self.signing_in.replace(Some(running));
            asking
        });
        match asking.await {
            Ok(()) => error,
            Err(outcome) => outcome,
        }
    }

    /// The authorization server is in trouble. When somebody asks to connect, it is looked whether
    /// the server has another one by now.
    async fn seek_elsewhere(self: &Rc<Self>, error: Error, operation: Operation<'_>) -> Error {
        let is_trouble = matches!(error, Error::Transport(TransportError::Permission(_)));
        if !is_trouble || operation.method != Operation::CONNECT.method || !error.is_transient() {
            return error;
        }
        let Ok(Some(authorizer)) = self.authorizer() else {
            return error;
        };
        if !authorizer.provider().grant().needs_user() || !authorizer.has_moved().await {
            return error;
        }
        let attempt = self.attempt();
        match self.ask(&authorizer, None, Lack::Permission, attempt).await {
            Ok(()) => error,
            Err(outcome) => outcome,
        }
    }

    /// Why nobody is asked for permission, where that is because anybody on the way could read it.
    fn in_the_clear(&self) -> Option<Error> {
        let server = self.server();
        let url = self.common.options.url_policy.guard(&server.url).ok()?;
        let has_way = matches!(self.common.provider(&server), Ok(Some(_)));
        (has_way && !url.is_private()).then(|| {
            let url = url.url().origin().ascii_serialization();
            OAuthError::Insecure {
                what: "the server",
                url,
            }
            .into()
        })
    }

    /// Begins a sign-in. The outcome is an error in any case: the user must act, or it failed.
    async fn ask(
        self: &Rc<Self>,
        authorizer: &Rc<Authorizer>,
        challenge: Option<Challenge>,
        lack: Lack,
        attempt: u64,
    ) -> Result<()> {
        let exchange = self.exchanging.borrow().as_ref().map(Running::join);
        if let Some(exchange) = exchange {
            // The user has just come back.
            return exchange.await;
        }
        let now = self.common.ports.clock.now();
        let record = self.sign_in_record();
        // What the user was asked for and has not answered yet is asked for again.
        let is_asked = record.operation.is_some();
        let asked = is_asked.then(|| self.server().auth_url(now)).flatten();
        let asked = asked.and_then(|auth_url| auth_url.scope());
        let mut floor = joined([record.scope.clone(), asked]);
        if matches!(lack, Lack::Permission) && authorizer.is_fresh() {
            self.refused_at_once(now)?;
        }
        if let Some(failed) = &self.sign_in_record().failed
            && failed.count >= MAX_FAILURES
            && now.saturating_sub(failed.at) <= SIGN_IN_LIFETIME
        {
            let refusal = OAuthError::Refused {
                code: failed.code.clone(),
                description: Some("sign-ins come to nothing, though they are granted".into()),
            };
            return Err(self.not_let_in(refusal.into(), attempt));
        }
        let is_waiting = self.state() == ConnectionState::Authenticating;
        if matches!(lack, Lack::Permission)
            && (is_waiting || self.is_unasked.get())
            && let Some(auth_url) = self.server().auth_url(now)
        {
            // The user is asked already: another request met the same refusal, or nobody has asked to
            // connect, and renewed tokens have made no difference.
            self.apply(attempt, Event::SignIn { usable: false });
            return Err(self.sign_in_required(auth_url));
        }
        if let Lack::Scope(operation) = &lack {
            let usable = self.is_usable();
            if let Some(auth_url) = self.offered(challenge.as_ref(), now).filter(|_| usable) {
                // The user has not answered yet.
                self.apply(attempt, Event::SignIn { usable });
                return Err(self.sign_in_required(auth_url));
            }
            if record.so_far(operation, now) >= MAX_STEP_UPS {
                let error = Error::from(OAuthError::TooManySignIns(MAX_STEP_UPS + 1));
                // What was granted stays good for everything else.
                return Err(if self.is_open() {
                    error
                } else {
                    self.not_let_in(error, attempt)
                });
            }
            let tokens = authorizer.known().await?;
            let granted = tokens.as_ref().and_then(|tokens| tokens.scope.clone());
            let origin = tokens.as_ref().and_then(|tokens| tokens.origin.as_ref());
            let requested = origin.and_then(|origin| origin.requested_scope.clone());
            floor = joined([floor, requested, granted]);
        }
        match authorizer.ask(challenge.as_ref(), floor.as_deref()).await {
            Ok(Asked::Granted(_)) => Ok(()),
            Ok(Asked::User(auth_url)) => {
                self.park(&auth_url, authorizer, lack, attempt).await?;
                Err(self.sign_in_required(auth_url))
            }
            Err(error) => Err(self.not_let_in(error.into(), attempt)),
        }
    }

    /// The server has refused what the user had just consented to.
    fn refused_at_once(&self, now: Timestamp) -> Result<()> {
        self.change_row(|stored| {
            let record = stored.options.authorization.get_or_insert_default();
            let before = record.failed.take().unwrap_or_default();
            record.failed = Some(FailedSignIns {
                count: before.count.saturating_add(1),
                at: now,
                code: REFUSED_AT_ONCE.to_owned(),
            });
        })
    }

    pub(super) fn sign_in_required(&self, auth_url: AuthorizationUrl) -> Error {
        Error::SignInRequired {
            id: self.id().clone(),
            auth_url,
        }
    }

    /// The URL of a sign-in that the user has been asked for, if it brings what a challenge wants.
    fn offered(&self, challenge: Option<&Challenge>, now: Timestamp) -> Option<AuthorizationUrl> {
        let auth_url = self.server().auth_url(now)?;
        let asked = auth_url.scope().unwrap_or_default();
        let is_asked = |word: &str| asked.split_ascii_whitespace().any(|other| other == word);
        let wanted = challenge.and_then(|challenge| challenge.scope.as_deref());
        let mut wanted = wanted.unwrap_or_default().split_ascii_whitespace();
        wanted.all(is_asked).then_some(auth_url)
    }

    /// Permission could not be asked for. What may pass leaves the connection as it is.
    fn not_let_in(&self, error: Error, attempt: u64) -> Error {
        if attempt == self.attempt() && !error.is_transient() {
            self.lock_out(&error);
        }
        error
    }

    /// Stores the authorization URL, and shows that the user is waited for.
    async fn park(
        &self,
        auth_url: &AuthorizationUrl,
        authorizer: &Authorizer,
        lack: Lack,
        attempt: u64,
    ) -> Result<()> {
        let stored_url = self.common.conceal_url(self.id(), auth_url).await?;
        if attempt != self.attempt() {
            return Err(Error::Closed);
        }
        let client_id = authorizer.provider().client_id();
        let until = self
            .common
            .ports
            .clock
            .now()
            .saturating_add(SIGN_IN_LIFETIME);
        let usable = matches!(lack, Lack::Scope(_)) && self.is_usable();
        self.change_row(|stored| {
            stored.auth_url = Some(stored_url);
            stored.client_id = client_id;
            let record = stored.options.authorization.get_or_insert_default();
            record.until = Some(until);
            record.operation = match lack {
                Lack::Scope(operation) => Some(operation),
                Lack::Permission => None,
            };
        })?;
        // In memory it is needed as it is.
        let mut shown = (*self.server()).clone();
        shown.auth_url = Some(auth_url.as_str().to_owned());
        self.update(shown);
        if !usable && let Some(client) = self.client() {
            client.listening.stop();
        }
        self.apply(attempt, Event::SignIn { usable });
        Ok(())
    }

    /// An operation has succeeded: what it needs is granted.
    pub(super) fn forgive(&self, operation: Operation<'_>) {
        let server = self.server();
        let Some(record) = &server.options.authorization else {
            return;
        };
        if record.step_ups.is_empty() {
            return;
        }
        let key = operation.key();
        if !record.step_ups.contains_key(&key) {
            return;
        }
        // If it cannot be stored, it is counted once too often.
        let _ = self.change_row(|stored| {
            if let Some(record) = &mut stored.options.authorization {
                record.step_ups.remove(&key);
            }
        });
    }

    fn sign_in_record(&self) -> SignInRecord {
        self.server()
            .options
            .authorization
            .clone()
            .unwrap_or_default()
    }

    /// The server has let us in: a sign-in is needed no more, unless it is for more scopes.
    pub(super) fn let_in(&self) {
        let server = self.server();
        let record = server.options.authorization.as_ref();
        let is_settled = record.is_none_or(|record| record.failed.is_none());
        let waits = server.awaits_sign_in() && !self.asks_for_more();
        if is_settled && !waits {
            return;
        }
        // If it cannot be stored, the server is parked once more after the next wake.
        let _ = self.change_row(|stored| {
            if waits {
                stored.auth_url = None;
            }
            if let Some(record) = &mut stored.options.authorization {
                record.failed = None;
            }
        });
    }

    /// Whether the user has been asked for more scopes and can still answer.
    pub(super) fn asks_for_more(&self) -> bool {
        let now = self.common.ports.clock.now();
        let server = self.server();
        let record = server.options.authorization.as_ref();
        let is_open = |record: &SignInRecord| {
            record.operation.is_some() && record.until.is_some_and(|until| now <= until)
        };
        server.awaits_sign_in() && record.is_some_and(is_open)
    }

    /// Changes the row and the copy in memory. A row that is gone is not written again.
    pub(super) fn change_row(&self, change: impl FnOnce(&mut StoredServer)) -> Result<()> {
        let servers = &*self.common.ports.servers;
        let Some(row) = servers.get(self.id().as_str())? else {
            return Err(Error::Closed);
        };
        let mut stored = StoredServer::decode(row?)?;
        change(&mut stored);
        servers.put(&stored.encode()?)?;
        self.update(stored);
        Ok(())
    }
}

/// Sets of scopes, one after the other.
fn joined<const N: usize>(sets: [Option<String>; N]) -> Option<String> {
    let sets: Vec<String> = sets.into_iter().flatten().collect();
    (!sets.is_empty()).then(|| sets.join(" "))
}

impl SignInRecord {
    /// How often more was granted because of an operation, to no avail.
    fn so_far(&self, operation: &str, now: Timestamp) -> u32 {
        let last = self.stepped_up_at.unwrap_or_default();
        if now.saturating_sub(last) > STEP_UPS_COUNT_FOR {
            return 0;
        }
        self.step_ups.get(operation).copied().unwrap_or_default()
    }

    /// The user has consented, to these scopes.
    pub(super) fn granted(&mut self, scope: Option<&str>, now: Timestamp) {
        self.until = None;
        // Whether it is good for anything shows when it is used.
        self.failed = self
            .failed
            .take()
            .filter(|failed| failed.code == REFUSED_AT_ONCE);
        let Some(operation) = self.operation.take() else {
            return;
        };
        self.scope = scope.map(str::to_owned);
        let count = self.so_far(&operation, now).saturating_add(1);
        let last = self.stepped_up_at.unwrap_or_default();
        if now.saturating_sub(last) > STEP_UPS_COUNT_FOR || self.step_ups.len() >= MAX_OPERATIONS {
            self.step_ups.clear();
        }
        self.step_ups.insert(operation, count);
        self.stepped_up_at = Some(now);
    }
}

/// Whether a server did not let us in, and what it wants.
fn lack(error: &Error, operation: Operation<'_>) -> Option<(Option<Challenge>, Lack)> {
    let failure = match error {
        Error::Transport(TransportError::Status(failure) | TransportError::NotResumed(failure)) => {
            failure
        }
        Error::NoTransport {
            streamable_http, ..
        } => return lack(streamable_http, operation),
        _ => return None,
    };
    let challenge = failure.challenge.as_deref().and_then(Challenge::parse);
    match failure.status {
        401 => Some((challenge, Lack::Permission)),
        // Any other 403 is the server's last word.
        403 => challenge
            .filter(Challenge::is_insufficient_scope)
            .map(|challenge| (Some(challenge), Lack::Scope(operation.key()))),
        _ => None,
    }
}
