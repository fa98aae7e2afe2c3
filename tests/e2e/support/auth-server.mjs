// An authorization server and a protected MCP server in the test's own process, each on an origin of its own.
// They follow the rules (OAuth 2.1, RFC 8414, 7591, 7636, 7009, 9207, 9728; MCP 2025-11-25), write down every
// request, and misbehave on demand: what is a field of them may be changed at any time.
import { createHash, createPublicKey, randomBytes, randomUUID, verify } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { handshake, sendJson } from "./scripted-server.mjs";

const OAUTH_DOCUMENT = "/.well-known/oauth-authorization-server";
const OPENID_DOCUMENT = "/.well-known/openid-configuration";
const RESOURCE_DOCUMENT = "/.well-known/oauth-protected-resource";

// What OpenID Connect Discovery requires beyond RFC 8414; nobody here looks at it.
const OPENID_MEMBERS = {
  jwks_uri: "http://127.0.0.1:9/jwks",
  subject_types_supported: ["public"],
  id_token_signing_alg_values_supported: ["RS256"],
};

/** A server on loopback that writes down what it is asked. */
class LoopbackServer {
  /** Every request, oldest first: `{ at, kind, http, path, query, headers, body, json, form, status, gone }`. */
  log = [];
  /** Set it to take requests over: `(entry, response) => true` when it has answered, or means never to. */
  intercept = undefined;
  #http;

  async listen(port = 0) {
    this.#http = createServer((request, response) => this.#serve(request, response));
    this.#http.listen(port, "127.0.0.1");
    // A test that failed half-way must not be kept alive by its server.
    this.#http.unref();
    await once(this.#http, "listening");
    this.port = this.#http.address().port;
    this.origin = `http://127.0.0.1:${this.port}`;
  }

  /** Cuts every connection and stops listening; `listen(server.port)` brings it back. */
  async close() {
    if (!this.#http.listening) return;
    const closed = once(this.#http, "close");
    this.#http.close();
    this.#http.closeAllConnections();
    await closed;
  }

  /** Cuts every connection that is open. */
  cut() {
    this.#http.closeAllConnections();
  }

  /** Starts a new page of the log; gives the old one. */
  takeLog() {
    return this.log.splice(0);
  }

  /** The requests of a kind, oldest first. */
  requests(kind) {
    return this.log.filter((entry) => entry.kind === kind);
  }

  count(kind) {
    return this.requests(kind).length;
  }

  async #serve(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.origin);
    const { method: http, headers } = request;
    const entry = { at: Date.now(), http, path: pathname, url: request.url, query: searchParams, headers, gone: false };
    response.once("finish", () => (entry.status = response.statusCode));
    response.once("close", () => (entry.gone = !response.writableFinished));
    entry.body = await text(request).catch(() => "");
    const type = headers["content-type"] ?? "";
    if (type.startsWith("application/json")) entry.json = parsed(entry.body);
    if (type.startsWith("application/x-www-form-urlencoded")) entry.form = new URLSearchParams(entry.body);
    entry.kind = this.kindOf(entry);
    this.log.push(entry);
    try {
      if (await this.intercept?.(entry, response)) return;
      await this.answer(entry, response);
    } catch (error) {
      entry.error = error;
      if (!response.headersSent) sendText(response, 500, `${error.stack}`);
    }
  }
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

export function sendText(response, status, body, type = "text/plain") {
  response.writeHead(status, { "content-type": type }).end(body);
}

const sendOAuthError = (response, status, error, error_description, headers) =>
  sendJson(response, status, { error, error_description }, { "cache-control": "no-store", ...headers });

const secret = (prefix) => `${prefix}-${randomBytes(18).toString("base64url")}`;
const scopeList = (scope) => (scope ?? "").split(" ").filter(Boolean);

/** Decodes one half of Basic credentials (RFC 6749 §2.3.1). */
const formDecoded = (part) => new URLSearchParams(`x=${part}`).get("x");

/**
 * Starts an authorization server. Options are initial values of the fields of {@link AuthServer}; `port` puts it
 * where an earlier one was.
 */
export async function startAuthServer({ port = 0, ...options } = {}) {
  const server = new AuthServer();
  Object.assign(server, options);
  await server.listen(port);
  return server;
}

class AuthServer extends LoopbackServer {
  /** Path of the issuer, such as `/tenant`. */
  issuerPath = "";
  /** Paths at which the metadata document is; by default those of RFC 8414 alone. */
  metadataAt = undefined;
  /** Members that replace those of the metadata document; `undefined` takes one away. */
  metadata = {};
  /** Whether clients may register. */
  registers = true;
  /** Takes registrations over: `(document) => ({ status, body } | undefined)`. `body` is remembered as a client. */
  onRegister = undefined;
  /** `token_endpoint_auth_method` given to clients that ask for none. */
  authMethod = undefined;
  /** Takes token requests over: `(form, entry) => reply | undefined`, before anything else is done. */
  onToken = undefined;
  /** The same after a code was used up or a refresh token replaced: the client does not learn of it. */
  afterToken = undefined;
  /** `expires_in` of answers, of any shape; `undefined` leaves it out. */
  expiresIn = 3600;
  /** Whether `scope` is in token answers. */
  tellsScope = true;
  /** Members added to token answers. */
  extra = {};
  /** How token answers are written: "json", or "form". */
  tokenFormat = "json";
  /** Whether a refresh token is replaced when it is used; a second use then ends the whole grant. */
  rotates = true;
  /** Whether refresh tokens are given at all. */
  refreshes = true;
  /** `iss` of callbacks: true is the issuer, false none, or a string. */
  iss = true;
  /** Who signs in when the request does not say. */
  user = "user";
  /** Serves a page with a button instead of approving at once. */
  consent = false;
  endpoints = { authorize: "/authorize", token: "/token", register: "/register", revoke: "/revoke" };

  clients = new Map();
  codes = new Map();
  /** Access tokens: token → `{ grant, scope, user, clientId, resource, dead }`. */
  tokens = new Map();
  refreshTokens = new Map();

  get issuer() {
    return this.origin + this.issuerPath;
  }

  get document() {
    const { authorize, token, register, revoke } = this.endpoints;
    const document = {
      issuer: this.issuer,
      authorization_endpoint: this.origin + authorize,
      token_endpoint: this.origin + token,
      registration_endpoint: this.registers ? this.origin + register : undefined,
      revocation_endpoint: this.origin + revoke,
      response_types_supported: ["code"],
      grant_types_supported: ["authorization_code", "refresh_token"],
      token_endpoint_auth_methods_supported: ["none", "client_secret_basic", "client_secret_post"],
      code_challenge_methods_supported: ["S256"],
      authorization_response_iss_parameter_supported: this.iss === true || undefined,
    };
    return { ...document, ...this.metadata };
  }

  kindOf({ path }) {
    if (path.startsWith("/.well-known/") || path.endsWith(OPENID_DOCUMENT)) return "metadata";
    return Object.keys(this.endpoints).find((name) => this.endpoints[name] === path) ?? "other";
  }

  /** Token requests, of one grant type where it is given: `"authorization_code"`, `"refresh_token"`, … */
  tokenRequests(grant) {
    return this.requests("token").filter((entry) => grant === undefined || entry.form?.get("grant_type") === grant);
  }

  /** How many token requests there were by grant type. */
  get grants() {
    const counts = {};
    for (const { form } of this.requests("token")) {
      const grant = form?.get("grant_type") ?? "none";
      counts[grant] = (counts[grant] ?? 0) + 1;
    }
    return counts;
  }

  /** Makes a client known as an administrator would. */
  addClient({ client_id = secret("client"), redirect_uris, ...client } = {}) {
    this.clients.set(client_id, { client_id, redirect_uris, token_endpoint_auth_method: "none", ...client });
    return client_id;
  }

  /** Access tokens stop working; refresh tokens stay. */
  expireAccessTokens() {
    for (const token of this.tokens.values()) token.dead = true;
  }

  /** All tokens stop working. */
  revokeEverything() {
    this.expireAccessTokens();
    this.refreshTokens.clear();
  }

  forgetClients() {
    this.clients.clear();
  }

  /** Whose an access token is, or undefined when it is not valid. */
  check(token) {
    const known = this.tokens.get(token);
    return known && !known.dead ? known : undefined;
  }

  /** Everything that must never be seen anywhere else: tokens, codes, secrets of clients. */
  get secrets() {
    const clients = [...this.clients.values()].map((client) => client.client_secret).filter(Boolean);
    const refresh = [...this.refreshTokens.keys(), ...this.#usedRefresh.keys()];
    return [...this.tokens.keys(), ...refresh, ...this.codes.keys(), ...clients];
  }

  /**
   * What the user's browser does: opens the URL, says yes, and is sent back. Gives the URL it is sent to.
   * `user` is who signs in, `scope` what is granted instead of what was asked for.
   */
  async approve(authUrl, { user, scope } = {}) {
    const headers = { "x-approve": "yes", connection: "close" };
    if (user !== undefined) headers["x-user"] = user;
    if (scope !== undefined) headers["x-scope"] = scope;
    const response = await fetch(authUrl, { redirect: "manual", headers });
    const body = await response.text();
    const location = response.headers.get("location");
    if (!location) throw new Error(`the authorization request was refused: ${response.status} ${body}`);
    return new URL(location);
  }

  /** The same, but the user says no. */
  async deny(authUrl, error = "access_denied", description = "The user said no") {
    const query = new URL(authUrl).searchParams;
    const back = new URL(query.get("redirect_uri"));
    const parameters = { error, error_description: description, state: query.get("state") };
    for (const [name, value] of Object.entries(parameters)) back.searchParams.set(name, value);
    this.#addIssuer(back);
    return back;
  }

  #addIssuer(url) {
    if (this.iss) url.searchParams.set("iss", this.iss === true ? this.issuer : this.iss);
  }

  async answer(entry, response) {
    if (entry.kind === "metadata") return this.#metadata(entry, response);
    if (entry.kind === "authorize") return this.#authorize(entry, response);
    if (entry.kind === "token") return this.#token(entry, response);
    if (entry.kind === "register") return this.#register(entry, response);
    if (entry.kind === "revoke") return this.#revoke(entry, response);
    sendText(response, 404, "Not Found");
  }

  /** The document, with `issuer` and endpoints; the OpenID one has some members more. */
  #metadata({ path }, response) {
    const places = this.metadataAt ?? [OAUTH_DOCUMENT + this.issuerPath];
    if (!places.includes(path)) return sendText(response, 404, "Not Found");
    sendJson(response, 200, path.includes(OPENID_DOCUMENT) ? { ...OPENID_MEMBERS, ...this.document } : this.document);
  }

  #register({ http, json }, response) {
    if (!this.registers || http !== "POST") return sendText(response, 404, "Not Found");
    const taken = this.onRegister?.(json);
    if (taken) {
      if (taken.body?.client_id) this.clients.set(taken.body.client_id, { ...json, ...taken.body });
      return typeof taken.body === "string"
        ? sendText(response, taken.status, taken.body, taken.type)
        : sendJson(response, taken.status, taken.body, taken.headers);
    }
    if (!Array.isArray(json?.redirect_uris)) return sendOAuthError(response, 400, "invalid_redirect_uri");
    const method = this.authMethod ?? json.token_endpoint_auth_method ?? "client_secret_basic";
    const client = { ...json, client_id: secret("client"), token_endpoint_auth_method: method };
    if (method.startsWith("client_secret")) {
      Object.assign(client, { client_secret: secret("secret"), client_secret_expires_at: 0 });
    }
    this.clients.set(client.client_id, client);
    sendJson(response, 201, { ...client, client_id_issued_at: Math.floor(Date.now() / 1000) });
  }

  #authorize({ query, headers, http, form }, response) {
    const client = this.clients.get(query.get("client_id"));
    const redirectUri = query.get("redirect_uri");
    // No redirect to a place that nobody vouched for.
    if (!client) return sendJson(response, 422, { error: "unrecognized client id" });
    const registered = client.redirect_uris;
    if (registered && !registered.includes(redirectUri)) return sendText(response, 400, "unknown redirect_uri");
    if (this.consent && http === "GET" && !headers["x-approve"]) return sendText(response, 200, CONSENT, "text/html");
    const back = new URL(redirectUri);
    if (query.has("state")) back.searchParams.set("state", query.get("state"));
    this.#addIssuer(back);
    const problem = this.#problemOf(query);
    if (problem) {
      back.searchParams.set("error", "invalid_request");
      back.searchParams.set("error_description", problem);
    } else {
      const code = secret("code");
      this.codes.set(code, {
        clientId: client.client_id,
        redirectUri,
        challenge: query.get("code_challenge"),
        resource: query.get("resource") ?? undefined,
        scope: headers["x-scope"] ?? query.get("scope") ?? "",
        user: headers["x-user"] ?? form?.get("user") ?? this.user,
      });
      back.searchParams.set("code", code);
    }
    response.writeHead(302, { location: back.href }).end();
  }

  #problemOf(query) {
    if (query.get("response_type") !== "code") return "response_type";
    if (query.get("code_challenge_method") !== "S256") return "code_challenge_method";
    if (!/^[\w-]{43}$/.test(query.get("code_challenge") ?? "")) return "code_challenge";
    return undefined;
  }

  async #token(entry, response) {
    const { form, http } = entry;
    if (http !== "POST" || !form) return sendOAuthError(response, 400, "invalid_request", "no form");
    const taken = await this.onToken?.(form, entry);
    if (taken) return this.#reply(taken, response);
    const client = this.#client(entry);
    if (!client) {
      const challenge = entry.headers.authorization ? { "www-authenticate": 'Basic realm="token"' } : {};
      return sendOAuthError(response, 401, "invalid_client", "client authentication failed", challenge);
    }
    const { error, description, answer } = this.#grant(client, form);
    const after = await this.afterToken?.(form, answer);
    if (after) return this.#reply(after, response);
    if (error) return sendOAuthError(response, 400, error, description);
    this.#reply({ status: 200, body: answer }, response);
  }

  /** `reply`: `{ status, body, type, headers, delayMs, cut }`. */
  async #reply({ status = 200, body, type, headers, delayMs, cut }, response) {
    if (delayMs) await pause(delayMs);
    if (cut) return response.destroy();
    if (typeof body === "string") return sendText(response, status, body, type);
    if (this.tokenFormat === "form") {
      const form = Object.entries(body).filter(([, value]) => value !== undefined);
      return sendText(response, status, `${new URLSearchParams(form)}`, "application/x-www-form-urlencoded");
    }
    sendJson(response, status, body, { "cache-control": "no-store", ...headers });
  }

  /** The client of a token request, authenticated by the method that it is registered with. */
  #client({ form, headers }) {
    const basic = /^Basic (.+)$/i.exec(headers.authorization ?? "")?.[1];
    if (basic) {
      const [id, password = ""] = Buffer.from(basic, "base64").toString().split(":").map(formDecoded);
      const client = this.clients.get(id);
      const right = client?.token_endpoint_auth_method === "client_secret_basic" && client.client_secret === password;
      return right && !form.has("client_secret") ? client : undefined;
    }
    if (form.has("client_assertion")) return this.#assertedClient(form);
    const client = this.clients.get(form.get("client_id"));
    if (!client) return undefined;
    const method = client.token_endpoint_auth_method || "none";
    if (method === "client_secret_post") return form.get("client_secret") === client.client_secret ? client : undefined;
    return method === "none" && !form.has("client_secret") ? client : undefined;
  }

  #usedAssertions = new Set();

  /** The client that signed an assertion (RFC 7523 §2.2); it is known with a `jwk`, its public key. */
  #assertedClient(form) {
    const [header, payload, signature] = form.get("client_assertion").split(".");
    const read = (part) => JSON.parse(Buffer.from(part, "base64url"));
    const { alg } = read(header);
    const { iss, sub, aud, exp, iat, jti } = read(payload);
    const client = this.clients.get(iss);
    if (client?.token_endpoint_auth_method !== "private_key_jwt" || sub !== iss) return undefined;
    const key = { key: createPublicKey({ key: client.jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" };
    const isSigned = verify("sha256", Buffer.from(`${header}.${payload}`), key, Buffer.from(signature, "base64url"));
    const now = Date.now() / 1000;
    const isFresh = exp > now && exp <= now + 310 && iat <= now + 5 && jti && !this.#usedAssertions.has(jti);
    this.#usedAssertions.add(jti);
    const isRight = isSigned && isFresh && ["ES256", "RS256"].includes(alg) && [aud].flat().includes(this.issuer);
    return isRight ? client : undefined;
  }

  #grant(client, form) {
    const grant = form.get("grant_type");
    if (grant === "authorization_code") return this.#redeem(client, form);
    if (grant === "refresh_token") return this.#refresh(client, form);
    if (grant === "client_credentials" && (client.client_secret || client.jwk)) {
      const scope = form.get("scope") ?? "";
      const base = { clientId: client.client_id, user: client.client_id, resource: form.get("resource"), scope };
      return { answer: this.#issue({ ...base, grant: randomUUID() }, { withRefresh: false }) };
    }
    return { error: "unsupported_grant_type" };
  }

  #redeem(client, form) {
    const code = this.codes.get(form.get("code"));
    if (!code) return { error: "invalid_grant", description: "unknown code" };
    if (code.grant) {
      this.#endGrant(code.grant);
      return { error: "invalid_grant", description: "the code was used before" };
    }
    const challenge = createHash("sha256")
      .update(form.get("code_verifier") ?? "")
      .digest("base64url");
    if (code.clientId !== client.client_id) return { error: "invalid_grant", description: "code of another client" };
    if (code.redirectUri !== form.get("redirect_uri")) return { error: "invalid_grant", description: "redirect_uri" };
    if (code.challenge !== challenge) return { error: "invalid_grant", description: "code_verifier" };
    code.grant = randomUUID();
    return { answer: this.#issue({ ...code, code: undefined }) };
  }

  #usedRefresh = new Map();

  #refresh(client, form) {
    const token = form.get("refresh_token");
    const used = this.#usedRefresh.get(token);
    if (used) {
      this.#endGrant(used.grant);
      return { error: "invalid_grant", description: "the refresh token was used before" };
    }
    const known = this.refreshTokens.get(token);
    if (known?.clientId !== client.client_id) return { error: "invalid_grant", description: "unknown refresh token" };
    const asked = scopeList(form.get("scope"));
    const granted = scopeList(known.scope);
    if (!asked.every((scope) => granted.includes(scope))) return { error: "invalid_scope" };
    if (this.rotates) {
      this.refreshTokens.delete(token);
      this.#usedRefresh.set(token, known);
    }
    return {
      answer: this.#issue(
        { ...known, scope: asked.length ? asked.join(" ") : known.scope },
        { withRefresh: this.rotates },
      ),
    };
  }

  #endGrant(grant) {
    for (const token of this.tokens.values()) if (token.grant === grant) token.dead = true;
    for (const [token, known] of this.refreshTokens) if (known.grant === grant) this.refreshTokens.delete(token);
  }

  #issue({ grant, clientId, user, resource, scope }, { withRefresh = true } = {}) {
    const known = { grant, clientId, user, resource, scope };
    const access_token = secret("access");
    this.tokens.set(access_token, { ...known });
    const answer = { access_token, token_type: "Bearer", ...this.extra };
    if (this.expiresIn !== undefined) answer.expires_in = this.expiresIn;
    if (this.tellsScope && scope) answer.scope = scope;
    if (withRefresh && this.refreshes) {
      answer.refresh_token = secret("refresh");
      this.refreshTokens.set(answer.refresh_token, known);
    }
    return answer;
  }

  #revoke({ form }, response) {
    const token = form?.get("token");
    const known = this.tokens.get(token) ?? this.refreshTokens.get(token);
    if (known) this.#endGrant(known.grant);
    response.writeHead(200).end();
  }
}

const CONSENT = `<!doctype html><title>Consent</title><form method="post">
<label>User <input name="user" value="user"></label> <button>Allow</button></form>`;

/**
 * Starts an MCP server that lets in whoever brings a token of `as`. Options are initial values of the fields of
 * {@link ProtectedServer}; `port` puts it where an earlier one was.
 */
export async function startProtectedServer({ port = 0, ...options }) {
  const server = new ProtectedServer();
  Object.assign(server, options);
  await server.listen(port);
  return server;
}

const TOOLS = {
  echo: ({ args }) => JSON.stringify(args ?? {}),
  whoami: ({ user }) => user,
  read: () => "read",
  write: () => "written",
};

class ProtectedServer extends LoopbackServer {
  /** The authorization server, or several of which the first is published. */
  as = undefined;
  path = "/mcp";
  /** Paths of the resource metadata; by default the one that belongs to `path`. `[]` publishes none. */
  metadataAt = undefined;
  /** Members that replace those of the resource metadata; `undefined` takes one away. */
  metadata = {};
  /** Whether a 401 carries a challenge at all. */
  challenges = true;
  /** `resource_metadata` of the challenge: true is the first of `metadataAt`, false none, or a string. */
  pointsTo = true;
  /** `scope` of the challenge of a 401. */
  scope = undefined;
  /** Scopes that tools need: `{ write: "write" }`. Whoever lacks one gets 403 `insufficient_scope`. */
  needs = {};
  /** Refuses tokens beyond their validity: `(token, known) => true` answers 401. */
  refuses = undefined;
  /** Gives sessions. */
  sessions = false;
  /** Asks for no token at all. */
  open = false;
  #sessions = new Set();

  get url() {
    return this.origin + this.path;
  }

  get servers() {
    return [this.as].flat().filter(Boolean);
  }

  get metadataPlaces() {
    return this.metadataAt ?? [RESOURCE_DOCUMENT + (this.path === "/" ? "" : this.path)];
  }

  get document() {
    const document = {
      resource: this.url,
      authorization_servers: this.servers.slice(0, 1).map((server) => server.issuer),
      bearer_methods_supported: ["header"],
    };
    return { ...document, ...this.metadata };
  }

  kindOf({ path, json }) {
    if (path === this.path) return "mcp";
    if (this.metadataPlaces.includes(path) || path.startsWith(RESOURCE_DOCUMENT)) return "resource-metadata";
    if (path.includes("/.well-known/")) return "metadata";
    return json?.method ? "mcp" : "other";
  }

  /** JSON-RPC requests of a method, oldest first: also those that were refused. */
  rpc(method) {
    return this.log.filter((entry) => entry.json?.method === method);
  }

  /** Tokens that were presented, each once, oldest first. */
  get presented() {
    return [...new Set(this.log.map((entry) => bearer(entry)).filter(Boolean))];
  }

  answer(entry, response) {
    const { path } = entry;
    if (this.metadataPlaces.includes(path)) return sendJson(response, 200, this.document);
    if (path !== this.path) return sendText(response, 404, "Not Found");
    const token = bearer(entry);
    const known = this.servers.map((server) => server.check(token)).find(Boolean);
    if (!this.open && (!known || this.refuses?.(token, known))) return this.refuse(response, { token });
    entry.user = known?.user;
    this.#mcp(entry, known, response);
  }

  /** 401 with the challenge that is set. */
  refuse(response, { token } = {}) {
    const parameters = { error: token ? "invalid_token" : undefined, ...this.#challenge(), scope: this.scope };
    const headers = this.challenges ? { "www-authenticate": challenge(parameters) } : {};
    sendJson(response, 401, { error: "unauthorized" }, headers);
  }

  #challenge() {
    const pointer =
      this.pointsTo === true ? this.metadataPlaces[0] && this.origin + this.metadataPlaces[0] : this.pointsTo;
    return { resource_metadata: pointer || undefined };
  }

  #mcp({ http, json, headers }, known, response) {
    if (http === "DELETE") return response.writeHead(200).end();
    if (http !== "POST") return response.writeHead(405, { allow: "POST, DELETE" }).end();
    const { id, method, params = {} } = json ?? {};
    const reply = (result, extra) => sendJson(response, 200, { jsonrpc: "2.0", id, result }, extra);
    const fail = (code, message) => sendJson(response, 200, { jsonrpc: "2.0", id, error: { code, message } });
    if (method === "initialize") {
      const session = this.sessions ? { "mcp-session-id": randomUUID() } : {};
      this.#sessions.add(session["mcp-session-id"]);
      return reply(handshake("2025-11-25"), session);
    }
    if (this.sessions && !this.#sessions.has(headers["mcp-session-id"])) return sendText(response, 404, "no session");
    if (id === undefined) return response.writeHead(202).end();
    if (method === "ping") return reply({});
    if (method === "tools/list") {
      return reply({ tools: Object.keys(TOOLS).map((name) => ({ name, inputSchema: { type: "object" } })) });
    }
    if (method !== "tools/call") return fail(-32601, "Method not found");
    const tool = TOOLS[params.name];
    if (!tool) return fail(-32602, "Unknown tool");
    const missing = scopeList(this.needs[params.name]).filter((scope) => !scopeList(known?.scope).includes(scope));
    if (missing.length > 0) {
      const scope = missing.join(" ");
      const header = challenge({ error: "insufficient_scope", scope, ...this.#challenge() });
      return sendJson(response, 403, { error: "insufficient_scope" }, { "www-authenticate": header });
    }
    const text = tool({ args: params.arguments, user: known?.user ?? "nobody" });
    reply({ content: [{ type: "text", text }] });
  }
}

const bearer = ({ headers }) => /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1];

/** A `WWW-Authenticate` header of these parameters. */
export function challenge(parameters, scheme = "Bearer") {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return [scheme, given.map(([name, value]) => `${name}="${value}"`).join(", ")].join(" ").trim();
}

/** Both servers: `{ as, mcp, close }`. Options of each under its name. */
export async function startProtected({ as = {}, mcp = {} } = {}) {
  const authServer = await startAuthServer(as);
  const protectedServer = await startProtectedServer({ as: authServer, ...mcp });
  const close = () => Promise.all([authServer.close(), protectedServer.close()]);
  return { as: authServer, mcp: protectedServer, close };
}

export { OAUTH_DOCUMENT, OPENID_DOCUMENT, RESOURCE_DOCUMENT };
