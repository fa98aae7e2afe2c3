// An OAuth client of a few lines on plain fetch, which knows nothing of the Worker: shows that the servers of these
// tests do what they should.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";

const base64url = (bytes) => Buffer.from(bytes).toString("base64url");

async function readJson(url, init) {
  const response = await fetch(url, init);
  const body = await response.text();
  assert.ok(response.ok, `${url}: ${response.status} ${body}`);
  return JSON.parse(body);
}

/** Where an authorization server's metadata may be, in the order in which it is looked for. */
export function metadataPlaces(issuer) {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  const inserted = ["oauth-authorization-server", "openid-configuration"].map(
    (name) => `${origin}/.well-known/${name}${path}`,
  );
  return path ? [...inserted, `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`] : inserted;
}

async function firstDocument(urls) {
  for (const url of urls) {
    const response = await fetch(url);
    if (response.ok) return response.json();
    await response.body?.cancel();
  }
  throw new Error(`no document at ${urls.join(", ")}`);
}

/** From a server's 401 to a client: `{ prm, asm, client, resource }`. */
export async function discover(url, redirectUri) {
  const refused = await fetch(url, { method: "POST", headers: mcpHeaders(), body: rpcBody("initialize", {}, 0) });
  assert.equal(refused.status, 401, await refused.text());
  const challenge = refused.headers.get("www-authenticate") ?? "";
  const pointer = /resource_metadata="([^"]+)"/.exec(challenge)?.[1];
  const { origin, pathname } = new URL(url);
  const prmUrls = pointer
    ? [pointer]
    : ["", pathname].map((path) => `${origin}/.well-known/oauth-protected-resource${path}`);
  const prm = await firstDocument(prmUrls.reverse());
  const [issuer] = prm.authorization_servers;
  const asm = await firstDocument(metadataPlaces(issuer));
  assert.equal(asm.issuer, issuer);
  assert.ok(asm.code_challenge_methods_supported.includes("S256"));
  const client = await readJson(asm.registration_endpoint, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      client_name: "Plain client",
      redirect_uris: [redirectUri],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
      application_type: "native",
    }),
  });
  return { prm, asm, client, resource: prm.resource, redirectUri };
}

/** An authorization URL and what is needed when the user is back. */
export function begin({ asm, client, resource, redirectUri }, scope) {
  const verifier = base64url(randomBytes(32));
  const url = new URL(asm.authorization_endpoint);
  const query = {
    response_type: "code",
    client_id: client.client_id,
    redirect_uri: redirectUri,
    code_challenge: base64url(createHash("sha256").update(verifier).digest()),
    code_challenge_method: "S256",
    state: base64url(randomBytes(16)),
    resource,
    scope,
    prompt: scope?.includes("offline_access") ? "consent" : undefined,
  };
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return { url: url.href, verifier, state: query.state };
}

const tokenRequest = ({ asm }, form) =>
  readJson(asm.token_endpoint, {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams(form),
  });

/** Tokens for the code of a callback URL. */
export function exchange(found, { verifier, state }, callback) {
  assert.equal(callback.searchParams.get("state"), state);
  assert.ok(callback.searchParams.get("code"), callback.href);
  return tokenRequest(found, {
    grant_type: "authorization_code",
    code: callback.searchParams.get("code"),
    redirect_uri: found.redirectUri,
    client_id: found.client.client_id,
    code_verifier: verifier,
    resource: found.resource,
  });
}

export const refresh = (found, refreshToken) =>
  tokenRequest(found, {
    grant_type: "refresh_token",
    refresh_token: refreshToken,
    client_id: found.client.client_id,
    resource: found.resource,
  });

const mcpHeaders = (token) => ({
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
  ...(token && { authorization: `Bearer ${token}` }),
});

const rpcBody = (method, params, id) => JSON.stringify({ jsonrpc: "2.0", id, method, params });

/** One JSON-RPC request with a token; gives `{ status, result, session }`. */
export async function ask(url, token, method, params = {}, headers = {}) {
  const init = { method: "POST", headers: { ...mcpHeaders(token), ...headers }, body: rpcBody(method, params, 1) };
  const response = await fetch(url, init);
  const body = await response.text();
  const data = /^data: (\{.*)$/m.exec(body)?.[1] ?? body;
  const result = response.ok ? JSON.parse(data).result : undefined;
  return { status: response.status, result, body, session: response.headers.get("mcp-session-id") };
}

/** The parameters of `initialize`. */
export const HELLO = {
  protocolVersion: "2025-11-25",
  capabilities: {},
  clientInfo: { name: "plain", version: "1" },
};
