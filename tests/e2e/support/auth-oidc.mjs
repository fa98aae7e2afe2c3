// npm `oidc-provider` as the authorization server of an MCP server on the official SDK, both in the test's own
// process and on loopback. People sign in on the pages that oidc-provider brings for development.
import { createPublicKey, verify } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  OAuthError,
  OAuthErrorCode,
  createMcpHandler,
  fromJsonSchema,
  getOAuthProtectedResourceMetadataUrl,
  oauthMetadataResponse,
  requireBearerAuth,
} from "@modelcontextprotocol/server";
import Provider from "oidc-provider";

// How the MCP server signs in to ask about tokens.
const RESOURCE_SERVER = { client_id: "resource-server", client_secret: "introspection-secret-of-the-tests" };

async function listenOnLoopback(handler) {
  const server = createServer(handler);
  server.listen(0, "127.0.0.1");
  server.unref();
  await once(server, "listening");
  const close = async () => {
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return { origin: `http://127.0.0.1:${server.address().port}`, close };
}

/**
 * Starts both. Gives `{ issuer, url, log, grants, presented, approve, expire, close }`:
 *
 * - `url`: of the MCP server, which has the tools `whoami` and `echo`
 * - `log`: what the authorization server was asked, oldest first: `{ http, path, form, status, error }`
 * - `grants`: token requests that succeeded, by grant type
 * - `approve(authUrl, login)`: signs in and consents as a browser would; gives the callback URL
 * - `presented`: access tokens that the MCP server was shown
 * - `expire()`: none of those works any longer
 *
 * Options: `accessTokenSeconds`; `format` of access tokens, "opaque" or "jwt"; `alwaysRefresh` gives refresh tokens
 * also to who does not ask for `offline_access`; `metadata` chooses the only metadata document there is:
 * "oauth-authorization-server" or "openid-configuration".
 */
export async function startOidcProtected({
  accessTokenSeconds = 3600,
  format = "opaque",
  alwaysRefresh = false,
  metadata,
} = {}) {
  const log = [];
  const grants = {};
  const presented = new Set();
  const expired = new Set();
  let provider;
  let callback;
  const serveAs = (request, response) => {
    const { pathname } = new URL(request.url, "http://as");
    const entry = { http: request.method, path: pathname };
    response.once("finish", () => (entry.status = response.statusCode));
    log.push(entry);
    request.entry = entry;
    const document = /^\/\.well-known\/(oauth-authorization-server|openid-configuration)$/.exec(pathname)?.[1];
    if (document && metadata && metadata !== document) return response.writeHead(404).end();
    callback(request, response);
  };
  const as = await listenOnLoopback(serveAs);
  const mcp = await listenOnLoopback((request, response) => serveMcp(request, response));
  const issuer = as.origin;
  const url = `${mcp.origin}/mcp`;

  provider = new Provider(issuer, {
    clients: [{ ...RESOURCE_SERVER, grant_types: [], redirect_uris: [], response_types: [] }],
    scopes: ["openid", "offline_access", "mcp:read", "mcp:write"],
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === RESOURCE_SERVER.client_id },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => {
          if (resource !== url) throw new Error(`unknown resource ${resource}`);
          return {
            scope: "mcp:read mcp:write",
            audience: resource,
            accessTokenTTL: accessTokenSeconds,
            accessTokenFormat: format,
          };
        },
      },
    },
    pkce: { required: () => true },
    rotateRefreshToken: () => true,
    ...(alwaysRefresh && { issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token") }),
    cookies: { keys: ["cookie-key-of-the-tests"] },
    jwks: { keys: [await signingKey()] },
    ttl: {
      Interaction: 600,
      Session: 600,
      Grant: 3600,
      RefreshToken: 3600,
      AccessToken: accessTokenSeconds,
      AuthorizationCode: 60,
      IdToken: 600,
    },
  });
  provider.on("grant.success", ({ req, oidc }) => {
    req.entry.form = oidc.params;
    grants[oidc.params.grant_type] = (grants[oidc.params.grant_type] ?? 0) + 1;
  });
  for (const event of ["grant.error", "registration_create.error", "authorization.error", "server_error"]) {
    provider.on(event, ({ req }, error) => (req.entry.error = error));
  }
  callback = provider.callback();

  /** What the authorization server says about a token (RFC 7662), asked over HTTP as any resource server would. */
  async function introspect(token) {
    const credentials = Buffer.from(`${RESOURCE_SERVER.client_id}:${RESOURCE_SERVER.client_secret}`).toString("base64");
    const response = await fetch(`${issuer}/token/introspection`, {
      method: "POST",
      headers: { authorization: `Basic ${credentials}` },
      body: new URLSearchParams({ token }),
    });
    return response.json();
  }

  /** The claims of a token that is a JWT (RFC 9068), with the same names as an introspection answer. */
  async function verifyJwt(token) {
    const [header, payload, signature] = token.split(".");
    const read = (part) => JSON.parse(Buffer.from(part, "base64url"));
    const { kid } = read(header);
    const { keys } = await (await fetch(`${issuer}/jwks`)).json();
    const key = createPublicKey({ key: keys.find((key) => key.kid === kid), format: "jwk" });
    const isSigned = verify("sha256", Buffer.from(`${header}.${payload}`), key, Buffer.from(signature, "base64url"));
    const claims = read(payload);
    return { ...claims, active: isSigned && claims.iss === issuer && claims.exp * 1000 > Date.now() };
  }

  const verifier = {
    async verifyAccessToken(token) {
      presented.add(token);
      const found = await (token.split(".").length === 3 ? verifyJwt(token) : introspect(token));
      const audience = [found.aud].flat();
      if (!found.active || !audience.includes(url) || expired.has(token)) {
        throw new OAuthError(OAuthErrorCode.InvalidToken, "the token is not valid here");
      }
      const scopes = (found.scope ?? "").split(" ").filter(Boolean);
      return { token, clientId: found.client_id, scopes, expiresAt: found.exp, extra: { user: found.sub } };
    },
  };

  function library({ authInfo }) {
    const server = new McpServer({ name: "protected", version: "1.0.0" });
    const say = (text) => ({ content: [{ type: "text", text }] });
    server.registerTool("whoami", { description: "Names the user" }, (_, context) =>
      say(`${(context?.http?.authInfo ?? authInfo)?.extra?.user ?? "nobody"}`),
    );
    const inputSchema = fromJsonSchema({
      type: "object",
      properties: { message: { type: "string" } },
      required: ["message"],
    });
    server.registerTool("echo", { description: "Says it again", inputSchema }, ({ message }) => say(message));
    return server;
  }

  const gate = requireBearerAuth({
    verifier,
    requiredScopes: ["mcp:read"],
    resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(new URL(url)),
  });
  const handler = createMcpHandler(library);
  const documents = {
    resourceServerUrl: new URL(url),
    oauthMetadata: {
      issuer,
      authorization_endpoint: `${issuer}/auth`,
      token_endpoint: `${issuer}/token`,
      response_types_supported: ["code"],
    },
    scopesSupported: ["mcp:read"],
    resourceName: "Protected",
  };
  const serveMcp = toNodeHandler({
    async fetch(request) {
      const { pathname } = new URL(request.url);
      // The authorization server publishes its own metadata, better than the resource server could.
      const document = pathname.includes("oauth-protected-resource") && oauthMetadataResponse(request, documents);
      if (document) return document;
      if (pathname !== "/mcp") return new Response("not found", { status: 404 });
      const authInfo = await gate(request);
      return authInfo instanceof Response ? authInfo : handler.fetch(request, { authInfo });
    },
  });

  return {
    issuer,
    url,
    log,
    grants,
    presented,
    approve: (authUrl, login = "ada") => signInOnPages(issuer, authUrl, login),
    expire: () => presented.forEach((token) => expired.add(token)),
    close: () => Promise.all([as.close(), mcp.close()]),
  };
}

/** Fills in the forms that come up, keeping cookies, until a redirect leads away from the issuer. */
async function signInOnPages(issuer, authUrl, login) {
  const cookies = new Map();
  let next = { url: authUrl };
  for (let step = 0; step < 20; step++) {
    const { url, ...init } = next;
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { ...init, redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    const page = await response.text();
    const location = response.headers.get("location");
    if (location) {
      const target = new URL(location, url);
      if (target.origin !== issuer) return target;
      next = { url: target };
      continue;
    }
    const action = /<form[^>]*action="([^"]+)"/.exec(page)?.[1];
    if (!action) throw new Error(`${url}: ${response.status} ${page}`);
    const prompt = /name="prompt" value="([^"]+)"/.exec(page)?.[1];
    const fields = prompt === "login" ? { prompt, login, password: "x" } : { prompt };
    next = { url: new URL(action, url), method: "POST", body: new URLSearchParams(fields) };
  }
  throw new Error(`the sign-in at ${issuer} does not end`);
}

// Made once: RSA keys take a while.
let keys;

/** RS256 is what ID tokens are signed with by default. */
function signingKey() {
  keys ??= (async () => {
    const algorithm = {
      name: "RSASSA-PKCS1-v1_5",
      modulusLength: 2048,
      publicExponent: Uint8Array.of(1, 0, 1),
      hash: "SHA-256",
    };
    const { privateKey } = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const { kty, n, e, d, p, q, dp, dq, qi } = await crypto.subtle.exportKey("jwk", privateKey);
    return { kty, n, e, d, p, q, dp, dq, qi, use: "sig", alg: "RS256" };
  })();
  return keys;
}
