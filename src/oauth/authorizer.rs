//! Holds the tokens of one server: hands them out, and gets new ones ahead of their end or when the
//! server refuses them. One at a time, whoever waits.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, Shared, select};
use http::Method;

use super::callback::CallbackQuery;
use super::client::{AuthMethod, ClientInformation};
use super::dpop::{DpopKey, Proof};
use super::gate::Gate;
use super::provider::{Credentials, OAuthProvider, PendingSignIn, SignInFlow};
use super::sign_in::{Asked, Asker};
use super::stored_provider::same_issuer;
use super::token_endpoint::{Request, TokenEndpoint};
use super::tokens::Tokens;
use super::{Challenge, Net, OAuthError, discover};
use crate::ports::{Clock, Crypto, Http, Spawn, Timestamp};
use crate::url_guard::GuardedUrl;

/// How often a refresh is tried while the authorization server is in trouble, and the first pause.
const ATTEMPTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause that a server may ask for while somebody waits.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a token that is still good is not replaced after that has failed, in milliseconds.
const COOL_DOWN: Timestamp = 30_000;
/// For how long a failure speaks for those who ask next, in milliseconds.
const JUST_FAILED: Timestamp = 1_000;
/// After how long an authorization server in trouble counts as gone, in milliseconds: then the user
/// may sign in anew. What there is stays stored until that has succeeded.
const GONE: Timestamp = 600_000;

type Outcome = Result<Option<Rc<Tokens>>, OAuthError>;
type Flight = Shared<LocalBoxFuture<'static, Outcome>>;

/// What a refusal by the server comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is another token, or another proof: the request may be sent once more.
    Again,
    /// Nothing to be done without a user.
    Final,
}

/// What is held of the stored tokens.
#[derive(Clone, Default)]
enum Held {
    /// Storage was not asked yet.
    #[default]
    Unknown,
    Known(Option<Rc<Tokens>>),
}

/// Gets and keeps permission for one server, as long as that is registered.
pub(crate) struct Authorizer {
    ports: AuthorizerPorts,
    provider: RefCell<Rc<dyn OAuthProvider>>,
    server: GuardedUrl,
    server_url: String,
    server_id: String,
    gate: Gate,
    tokens: RefCell<Held>,
    flight: RefCell<Option<Flight>>,
    /// A refresh token that was refused for good, and why, if only the host can help.
    dead: RefCell<Option<(String, Option<OAuthError>)>>,
    /// The last renewal that failed for want of an authorization server.
    failed: RefCell<Option<(Timestamp, OAuthError)>>,
    /// Tokens of a sign-in that the server has not accepted yet.
    fresh: RefCell<Option<String>>,
    /// A token that the server has refused.
    rejected: RefCell<Option<String>>,
    /// A token that came in the place of a refused one, and that the server has not accepted yet.
    unproven: RefCell<Option<String>>,
    /// Since when the authorization server is in trouble, and until when it is left alone.
    trouble: Cell<Option<Timestamp>>,
    next_try: Cell<Timestamp>,
    /// Until when it counts that renewing came to nothing.
    in_vain_until: Cell<Timestamp>,
    key: RefCell<Option<Rc<DpopKey>>>,
    /// What the authorization server, and the server, want to see in the next proof.
    issuer_nonce: RefCell<Option<String>>,
    server_nonce: RefCell<Option<String>>,
}

/// The ports that an authorizer needs.
#[derive(Clone)]
pub(crate) struct AuthorizerPorts {
    pub(crate) http: Rc<dyn Http>,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) crypto: Rc<dyn Crypto>,
    pub(crate) spawn: Rc<dyn Spawn>,
}

impl Authorizer {
    pub(crate) fn new(
        ports: AuthorizerPorts,
        provider: Rc<dyn OAuthProvider>,
        server: GuardedUrl,
        server_url: String,
        server_id: String,
    ) -> Rc<Self> {
        Rc::new(Self {
            ports,
            provider: RefCell::new(provider),
            server,
            server_url,
            server_id,
            gate: Gate::default(),
            tokens: RefCell::default(),
            flight: RefCell::default(),
            dead: RefCell::default(),
            failed: RefCell::default(),
            fresh: RefCell::default(),
            rejected: RefCell::default(),
            unproven: RefCell::default(),
            trouble: Cell::new(None),
            next_try: Cell::new(0),
            in_vain_until: Cell::new(0),
            key: RefCell::default(),
            issuer_nonce: RefCell::default(),
            server_nonce: RefCell::default(),
        })
    }

    pub(crate) fn provider(&self) -> Rc<dyn OAuthProvider> {
        self.provider.borrow().clone()
    }

    /// The URL that permission is for, to the letter.
    pub(crate) fn server_url(&self) -> &str {
        &self.server_url
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    fn net(&self) -> Net {
        let http = self.provider.borrow().http();
        Net {
            http: http.unwrap_or_else(|| self.ports.http.clone()),
            clock: self.ports.clock.clone(),
        }
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            net: self.net(),
            crypto: &*self.ports.crypto,
            provider: self.provider(),
            server: &self.server,
            server_url: &self.server_url,
            server_id: &self.server_id,
            nonce: &self.issuer_nonce,
            gate: &self.gate,
            epoch: self.gate.epoch(),
        }
    }

    // ---- tokens

    /// The tokens there are, without a look at their age.
    pub(crate) async fn known(&self) -> Outcome {
        let cached = self.tokens.borrow().clone();
        match cached {
            Held::Known(tokens) => Ok(tokens),
            Held::Unknown => self.reload().await,
        }
    }

    async fn reload(&self) -> Outcome {
        let _entered = self.gate.enter_anyway().await;
        self.read().await
    }

    /// Reads what is stored. For those who have entered.
    async fn read(&self) -> Outcome {
        let stored = self.provider().tokens().await?.map(Rc::new);
        self.tokens.replace(Held::Known(stored.clone()));
        Ok(stored)
    }

    fn keep(&self, tokens: Rc<Tokens>) -> Rc<Tokens> {
        self.tokens.replace(Held::Known(Some(tokens.clone())));
        tokens
    }

    /// The tokens to send. Those that are over are replaced first, if that can be done without a
    /// user; those that end soon are replaced while they are still used.
    pub(crate) async fn current(self: &Rc<Self>) -> Outcome {
        let Some(tokens) = self.known().await? else {
            return Ok(None);
        };
        let now = self.now();
        if !tokens.is_stale(now) {
            return Ok(Some(tokens));
        }
        if tokens.is_over(now)
            && let Some(fault) = self.fault(&tokens)
        {
            return Err(fault);
        }
        if !self.can_renew(&tokens) {
            return Ok(Some(tokens));
        }
        if !tokens.is_over(now) {
            if now >= self.next_try.get() && self.flight.borrow().is_none() {
                // It runs by itself.
                drop(self.take_off(self.renewal(&tokens, None)));
            }
            return Ok(Some(tokens));
        }
        match self.fly(self.renewal(&tokens, None)).await {
            Ok(Some(renewed)) => Ok(Some(renewed)),
            Ok(None) => self.known().await,
            Err(error @ OAuthError::ConfiguredClient { .. }) => Err(error),
            Err(error) if error.is_transient() => Err(error),
            // The server will say whether the old one is still good, and who gives new ones.
            Err(_) => Ok(Some(tokens)),
        }
    }

    /// Whether there is something to be let in with, now or after a refresh.
    pub(crate) async fn has_permission(&self) -> bool {
        let Ok(Some(tokens)) = self.known().await else {
            return false;
        };
        !tokens.is_over(self.now()) || self.can_renew(&tokens)
    }

    /// What the host must do before anything can be renewed.
    fn fault(&self, tokens: &Tokens) -> Option<OAuthError> {
        let dead = self.dead.borrow();
        let (token, fault) = dead.as_ref()?;
        let is_it = tokens.refresh_token.as_ref() == Some(token);
        fault.clone().filter(|_| is_it)
    }

    fn can_renew(&self, tokens: &Tokens) -> bool {
        let is_dead = |token: &String| {
            let dead = self.dead.borrow();
            dead.as_ref().is_some_and(|(dead, _)| dead == token)
        };
        if self.now() < self.in_vain_until.get() {
            return false;
        }
        let token = tokens.refresh_token.as_ref();
        !self.provider.borrow().grant().needs_user() || token.is_some_and(|token| !is_dead(token))
    }

    /// The server has refused the token `used`, or a request without one.
    pub(crate) async fn refused(
        self: &Rc<Self>,
        used: Option<&str>,
        challenge: Option<&Challenge>,
    ) -> Result<Refused, OAuthError> {
        let known = match self.known().await? {
            // Whoever keeps the tokens may have newer ones.
            Some(tokens) if Some(&*tokens.access_token) == used => self.reload().await?,
            known => known,
        };
        let is_other = |tokens: &Rc<Tokens>| Some(&*tokens.access_token) != used;
        if known.as_ref().is_some_and(is_other) {
            return Ok(Refused::Again);
        }
        self.rejected.replace(used.map(str::to_owned));
        if self.unproven.borrow().as_deref() == used && used.is_some() {
            // It is as new as can be: another one would be refused as well.
            return Ok(Refused::Final);
        }
        if let Some(fault) = known.as_ref().and_then(|tokens| self.fault(tokens)) {
            return Err(fault);
        }
        if used.is_some() && self.fresh.borrow().as_deref() == used {
            // The authorization server has just said that it is good.
            return Ok(Refused::Final);
        }
        let renewed = match known {
            Some(tokens) if self.can_renew(&tokens) => {
                self.fly(self.renewal(&tokens, challenge)).await?
            }
            None if !self.provider().grant().needs_user() => {
                let work = self.clone().obtain(challenge.cloned());
                self.fly(work.boxed_local()).await?
            }
            _ => None,
        };
        Ok(match renewed {
            Some(tokens) => {
                self.unproven.replace(Some(tokens.access_token.clone()));
                Refused::Again
            }
            None => Refused::Final,
        })
    }

    /// The server has answered a request with this token otherwise than by refusing it.
    pub(crate) fn accepted(&self, used: Option<&str>) {
        for held in [&self.unproven, &self.fresh] {
            if held.borrow().as_deref() == used && used.is_some() {
                held.take();
            }
        }
    }

    /// Whether the server has not accepted what the user has just consented to.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.borrow().is_some()
    }

    /// Gets new tokens where that was not possible a while ago. Says whether there are some.
    pub(crate) async fn try_again(self: &Rc<Self>) -> bool {
        let Ok(Some(tokens)) = self.known().await else {
            return false;
        };
        if self.now() < self.next_try.get() || !self.can_renew(&tokens) {
            return false;
        }
        let renewed = self.fly(self.renewal(&tokens, None)).await;
        matches!(renewed, Ok(Some(_)))
    }

    /// Whether the server names another authorization server than the one that its tokens are from.
    pub(crate) async fn has_moved(&self) -> bool {
        let Ok(Some(tokens)) = self.known().await else {
            return false;
        };
        let found_at = tokens
            .origin
            .as_ref()
            .and_then(|origin| origin.resource_metadata_url.clone());
        let challenge = found_at.map(Challenge::naming);
        match (
            discover(&self.net(), &self.server, challenge.as_ref()).await,
            &tokens.issuer,
        ) {
            (Ok(found), Some(issuer)) => !same_issuer(issuer, &found.issuer),
            _ => false,
        }
    }

    // ---- renewals

    /// Gets new tokens in place of `old`. Gives `None` when only a user can help.
    fn renewal(
        self: &Rc<Self>,
        old: &Rc<Tokens>,
        challenge: Option<&Challenge>,
    ) -> LocalBoxFuture<'static, Outcome> {
        if self.provider().grant().needs_user() {
            return self.clone().refresh(old.clone()).boxed_local();
        }
        let found_at = old
            .origin
            .as_ref()
            .and_then(|origin| origin.resource_metadata_url.clone());
        // Where the metadata is may have been in the first challenge only.
        let challenge = challenge.cloned();
        let challenge = challenge.or_else(|| found_at.map(Challenge::naming));
        self.clone().obtain(challenge).boxed_local()
    }

    /// Joins the renewal under way, or starts this one.
    async fn fly(self: &Rc<Self>, work: LocalBoxFuture<'static, Outcome>) -> Outcome {
        let running = self.flight.borrow().clone();
        if let Some(running) = running {
            return running.await;
        }
        // Requests that began together are not to try in vain one after the other.
        let failed = self.failed.borrow().clone();
        match failed {
            Some((at, error)) if self.now().saturating_sub(at) < JUST_FAILED => Err(error),
            _ => self.take_off(work).await,
        }
    }

    /// Starts a renewal, which runs to its end even if nobody waits: an answer that is not kept may
    /// hold the only token that is still good.
    fn take_off(self: &Rc<Self>, work: LocalBoxFuture<'static, Outcome>) -> Flight {
        let this = self.clone();
        let flight = async move {
            let outcome = work.await;
            let now = this.now();
            let later = now.saturating_add(COOL_DOWN);
            match outcome {
                Ok(Some(_)) => {}
                // No token endpoint, or none that gives anything.
                Ok(None) => this.in_vain_until.set(later),
                Err(_) => this.next_try.set(later),
            }
            let transient = outcome.clone().err().filter(OAuthError::is_transient);
            this.failed.replace(transient.map(|error| (now, error)));
            this.flight.take();
            outcome
        };
        let flight = flight.boxed_local().shared();
        self.flight.replace(Some(flight.clone()));
        self.ports
            .spawn
            .spawn(flight.clone().map(drop).boxed_local());
        flight
    }

    async fn obtain(self: Rc<Self>, challenge: Option<Challenge>) -> Outcome {
        match self.asker().ask(challenge.as_ref(), None).await? {
            Asked::Granted(tokens) => Ok(Some(self.keep(tokens))),
            Asked::User(_) => Ok(None),
        }
    }

    async fn refresh(self: Rc<Self>, old: Rc<Tokens>) -> Outcome {
        let Some(refresh_token) = old.refresh_token.clone() else {
            return Ok(None);
        };
        let epoch = self.gate.epoch();
        // The user has signed in or out meanwhile: what comes late counts no more.
        let late = || {
            Ok(match &*self.tokens.borrow() {
                Held::Known(tokens) => tokens.clone(),
                Held::Unknown => None,
            })
        };
        let flow = match self.flow_of(&old, epoch).await {
            Ok(Some(flow)) => flow,
            Err(_) if self.gate.epoch() != epoch => return late(),
            other => return other.map(|_| None),
        };
        let outcome = self.request(&flow, &refresh_token, epoch).await;
        let Ok(_entered) = self.gate.enter(epoch).await else {
            return late();
        };
        let error = match outcome {
            Ok(mut tokens) => {
                self.trouble.set(None);
                tokens.refresh_token = tokens.refresh_token.or(Some(refresh_token));
                tokens.scope = tokens.scope.or_else(|| old.scope.clone());
                if let Some(origin) = &mut tokens.origin {
                    let before = old.origin.as_ref();
                    origin.signed_in_at = before.map_or(0, |before| before.signed_in_at);
                }
                for (name, value) in &old.rest {
                    let value = || value.clone();
                    tokens.rest.entry(name.clone()).or_insert_with(value);
                }
                // Held before it is stored: the token that it replaces may be void already.
                let tokens = self.keep(Rc::new(tokens));
                self.provider().save_tokens(&tokens).await?;
                return Ok(Some(tokens));
            }
            Err(error) => error,
        };
        match error {
            error if error.is_transient() => {
                let now = self.now();
                let since = self.trouble.get().unwrap_or(now);
                self.trouble.set(Some(since));
                if now.saturating_sub(since) > GONE {
                    return Ok(None);
                }
                Err(error)
            }
            OAuthError::Refused { code, description } => self
                .refresh_refused(&flow, &refresh_token, &code, description)
                .await
                .map(|()| None),
            error @ (OAuthError::Storage(_) | OAuthError::Crypto(_)) => Err(error),
            // Whatever is there now is no token endpoint. It may be one again.
            _ => Ok(None),
        }
    }

    /// The token endpoint has said no, for good. For those who have entered.
    async fn refresh_refused(
        &self,
        flow: &SignInFlow,
        refresh_token: &str,
        code: &str,
        description: Option<String>,
    ) -> Result<(), OAuthError> {
        self.dead.replace(Some((refresh_token.to_owned(), None)));
        let provider = self.provider();
        // Only what was refused is forgotten, not what has come since.
        let stored = provider.tokens().await?;
        let is_same = |stored: &Tokens| stored.refresh_token.as_deref() == Some(refresh_token);
        let Some(stored) = stored.filter(is_same) else {
            return self.read().await.map(drop);
        };
        match code {
            "invalid_client" | "unauthorized_client" if flow.client.ours.configured => {
                let fault = OAuthError::ConfiguredClient {
                    client_id: flow.client.client_id.clone(),
                    reason: description.unwrap_or_else(|| code.to_owned()),
                };
                let dead = (refresh_token.to_owned(), Some(fault.clone()));
                self.dead.replace(Some(dead));
                return Err(fault);
            }
            "invalid_client" | "unauthorized_client" => {
                provider.invalidate(Credentials::Tokens).await?;
                provider.invalidate(Credentials::Client).await?;
            }
            "invalid_grant" | "invalid_dpop_proof" if self.is_useless(&stored) => {
                provider.invalidate(Credentials::Tokens).await?;
            }
            "invalid_grant" | "invalid_dpop_proof" => {
                // The access token is good for a while yet.
                let tokens = Tokens {
                    refresh_token: None,
                    ..stored
                };
                provider.save_tokens(&tokens).await?;
            }
            // Servers that say `invalid_request` for everything: not asked again, and not forgotten.
            _ => return Ok(()),
        }
        self.read().await.map(drop)
    }

    /// Whether an access token opens nothing any more.
    fn is_useless(&self, tokens: &Tokens) -> bool {
        let rejected = self.rejected.borrow();
        tokens.is_over(self.now()) || rejected.as_ref() == Some(&tokens.access_token)
    }

    async fn request(
        self: &Rc<Self>,
        flow: &SignInFlow,
        refresh_token: &str,
        epoch: u64,
    ) -> Result<Tokens, OAuthError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        let asker = Asker {
            epoch,
            ..self.asker()
        };
        loop {
            let client = Some(&flow.client).filter(|client| !client.client_id.is_empty());
            let request = Request::Refresh(refresh_token);
            let outcome = asker.request_tokens(flow, client, request).await;
            match outcome {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    let wished = error.retry_after().unwrap_or_default().min(MAX_PAUSE);
                    self.ports.clock.sleep(pause.max(wished)).await;
                    if self.gate.epoch() != epoch {
                        return Err(error);
                    }
                    pause *= 4;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Where tokens are refreshed: where they came from. Those of the TypeScript package do not say,
    /// so it is found out, and must be who issued them.
    async fn flow_of(&self, tokens: &Tokens, epoch: u64) -> Result<Option<SignInFlow>, OAuthError> {
        let issuer = tokens.issuer.clone();
        if let Some(origin) = &tokens.origin {
            let issuer = issuer.unwrap_or_default();
            let Some(client) = self.client(&issuer, epoch).await? else {
                return Ok(None);
            };
            if client.client_id != origin.client_id {
                return Ok(None);
            }
            return Ok(Some(SignInFlow {
                server_url: self.server_url.clone(),
                issuer,
                is_published: true,
                token_endpoint: origin.token_endpoint.clone(),
                revocation_endpoint: origin.revocation_endpoint.clone(),
                auth_method: origin.auth_method,
                client,
                resource: origin.resource.clone(),
                scope: origin.requested_scope.clone(),
                resource_metadata_url: origin.resource_metadata_url.clone(),
                dpop: tokens.is_bound_to_key(),
                ..SignInFlow::default()
            }));
        }
        let found = discover(&self.net(), &self.server, None).await?;
        if !issuer.is_none_or(|issuer| same_issuer(&issuer, &found.issuer)) {
            return Ok(None);
        }
        let (Some(client), Some(token_endpoint)) = (
            self.client(&found.issuer, epoch).await?,
            found.server.token_endpoint.clone(),
        ) else {
            return Ok(None);
        };
        let methods = found
            .server
            .token_endpoint_auth_methods_supported
            .as_deref();
        Ok(Some(SignInFlow {
            server_url: self.server_url.clone(),
            issuer: found.issuer,
            is_published: found.is_published,
            revocation_endpoint: found.server.revocation_endpoint.clone(),
            auth_method: AuthMethod::choose(&client, methods),
            token_endpoint,
            client,
            // As the package asked for them.
            resource: found.resource_metadata.is_some().then_some(found.resource),
            dpop: tokens.is_bound_to_key(),
            ..SignInFlow::default()
        }))
    }

    /// The client that an issuer knows. It may be bound to that only now, which is stored.
    async fn client(
        &self,
        issuer: &str,
        epoch: u64,
    ) -> Result<Option<ClientInformation>, OAuthError> {
        let _entered = self.gate.enter(epoch).await?;
        self.provider().client(issuer).await
    }

    // ---- sign-ins

    /// Begins a sign-in, or gets tokens where no user is needed. `floor` are scopes that must be
    /// among those that are asked for.
    pub(crate) async fn ask(
        &self,
        challenge: Option<&Challenge>,
        floor: Option<&str>,
    ) -> Result<Asked, OAuthError> {
        let asked = self.asker().ask(challenge, floor).await?;
        if let Asked::Granted(tokens) = &asked {
            self.keep(tokens.clone());
        }
        Ok(asked)
    }

    /// Uses a sign-in up that another one has made needless.
    pub(crate) async fn discard(&self, nonce: &str) -> Result<(), OAuthError> {
        let _entered = self.gate.enter(self.gate.epoch()).await?;
        let provider = self.provider();
        provider.take_pending(nonce, self.now()).await?;
        provider.save_success(nonce, self.now()).await
    }

    /// Uses a sign-in up. Of several who try, one gets it.
    pub(crate) async fn take(&self, nonce: &str) -> Result<Option<PendingSignIn>, OAuthError> {
        let _entered = self.gate.enter(self.gate.epoch()).await?;
        self.provider().take_pending(nonce, self.now()).await
    }

    /// Ends a sign-in that has been used up.
    pub(crate) async fn finish(
        self: &Rc<Self>,
        pending: &PendingSignIn,
        query: &CallbackQuery,
    ) -> Result<(), OAuthError> {
        let flow = &pending.flow;
        if !flow.server_url.is_empty() && flow.server_url != self.server_url {
            return Err(OAuthError::SignInOver(
                "the server is another one by now: start again",
            ));
        }
        let epoch = self.gate.epoch();
        let (client, tokens) = self.asker().exchange(pending, query).await?;
        let tokens = Rc::new(tokens);
        let entered = match self.gate.enter(epoch).await {
            Ok(entered) => entered,
            Err(error) => {
                // Nobody wants them any more.
                let (this, flow) = (self.clone(), flow.clone());
                let revoked = async move { drop(this.revoke(&flow, &tokens).await) };
                self.ports.spawn.spawn(revoked.boxed_local());
                return Err(error);
            }
        };
        self.gate.advance();
        let provider = self.provider();
        provider.save_client(&client).await?;
        provider.save_tokens(&tokens).await?;
        self.forget();
        self.fresh.replace(Some(tokens.access_token.clone()));
        self.keep(tokens);
        provider.save_success(&pending.nonce, self.now()).await?;
        drop(entered);
        Ok(())
    }

    /// Forgets what is stored and what is held. Whatever is under way stores nothing any more.
    pub(crate) async fn clear(&self, what: Credentials) -> Result<(), OAuthError> {
        self.gate.advance();
        let _entered = self.gate.enter_anyway().await;
        self.forget();
        self.provider().invalidate(what).await
    }

    /// Waits for a renewal that is under way; afterwards nothing is written any more.
    pub(crate) async fn settle(&self) {
        let running = self.flight.borrow().clone();
        if let Some(running) = running {
            let _ = running.await;
        }
        let _entered = self.gate.enter_anyway().await;
        self.gate.close();
    }

    /// The server is removed, or another one by now: nothing of it is kept any more.
    pub(crate) async fn retire(&self) -> Result<(), OAuthError> {
        self.gate.close();
        self.clear(Credentials::All).await
    }

    /// Permission is got in another way from now on. Sign-ins that have begun count no more.
    pub(crate) async fn change_provider(
        &self,
        provider: Rc<dyn OAuthProvider>,
    ) -> Result<(), OAuthError> {
        self.gate.advance();
        let _entered = self.gate.enter_anyway().await;
        self.provider.replace(provider);
        self.forget();
        self.provider().invalidate(Credentials::Attempts).await
    }

    fn forget(&self) {
        self.tokens.take();
        self.dead.take();
        self.unproven.take();
        self.rejected.take();
        self.failed.take();
        self.fresh.take();
        self.trouble.set(None);
        self.next_try.set(0);
        self.in_vain_until.set(0);
        self.key.take();
    }

    /// Takes the tokens back at the authorization server (RFC 7009), as far as it can be told. What
    /// is needed for that is read now, so that it can be forgotten meanwhile.
    pub(crate) async fn revocation(
        self: &Rc<Self>,
    ) -> Result<Option<LocalBoxFuture<'static, ()>>, OAuthError> {
        let running = self.flight.borrow().clone();
        if let Some(running) = running {
            // What it brings is what is to be taken back.
            let _ = select(running, self.ports.clock.sleep(MAX_PAUSE)).await;
        }
        let Some(tokens) = self.known().await? else {
            return Ok(None);
        };
        // Those that do not say where they are from are not worth a discovery.
        if tokens.origin.is_none() {
            return Ok(None);
        }
        let Some(flow) = self.flow_of(&tokens, self.gate.epoch()).await? else {
            return Ok(None);
        };
        let this = self.clone();
        // Nobody is left to be told of a failure.
        let work = async move { drop(this.revoke(&flow, &tokens).await) };
        Ok(Some(work.boxed_local()))
    }

    async fn revoke(&self, flow: &SignInFlow, tokens: &Tokens) -> Result<(), OAuthError> {
        let Some(url) = flow.revocation_endpoint.as_deref() else {
            return Ok(());
        };
        let endpoint = TokenEndpoint {
            net: &self.net(),
            crypto: &*self.ports.crypto,
            what: "the revocation endpoint",
            url,
            server: &self.server,
            issuer: &flow.issuer,
            client: Some(&flow.client),
            method: flow.auth_method,
            resource: None,
            dpop: None,
        };
        // Whoever takes back a refresh token takes back what came of it (RFC 7009 §2.1).
        match &tokens.refresh_token {
            Some(token) => endpoint.revoke(token, "refresh_token").await,
            None => endpoint.revoke(&tokens.access_token, "access_token").await,
        }
    }

    // ---- proofs of possession

    /// The proof of possession for one request (RFC 9449 §7).
    pub(crate) async fn proof(
        &self,
        method: &Method,
        url: &GuardedUrl,
        access_token: &str,
    ) -> Result<String, OAuthError> {
        let held = self.key.borrow().clone();
        let key = if let Some(key) = held {
            key
        } else {
            let key = Rc::new(self.asker().dpop_key().await?);
            self.key.replace(Some(key.clone()));
            key
        };
        let nonce = self.server_nonce.borrow().clone();
        let proof = Proof {
            method: method.as_str(),
            url,
            now: self.now(),
            nonce: nonce.as_deref(),
            access_token: Some(access_token),
        };
        key.proof(&*self.ports.crypto, proof).await
    }

    /// The server wants to see this nonce in the next proof.
    pub(crate) fn note_nonce(&self, nonce: &str) {
        self.server_nonce.replace(Some(nonce.to_owned()));
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer")
            .field("server_id", &self.server_id)
            .finish_non_exhaustive()
    }
}
