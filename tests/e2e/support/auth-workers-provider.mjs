// `@cloudflare/workers-oauth-provider` in a Worker of its own, as authorization server and guard of a small MCP
// endpoint. Its authorize page says yes at once.
import { bundle } from "./auth-bundle.mjs";
import { handshake } from "./scripted-server.mjs";
import { startWorker } from "./worker.mjs";

const SOURCE = `
import { OAuthProvider } from "@cloudflare/workers-oauth-provider";

const HANDSHAKE = ${JSON.stringify(handshake("2025-11-25"))};
const TOOLS = ["echo", "whoami"].map((name) => ({ name, inputSchema: { type: "object" } }));
const say = (text) => ({ content: [{ type: "text", text }] });

function result({ method, params }, props) {
  if (method === "initialize") return HANDSHAKE;
  if (method === "tools/list") return { tools: TOOLS };
  if (method === "tools/call" && params.name === "whoami") return say(props.user);
  if (method === "tools/call") return say(JSON.stringify(params.arguments ?? {}));
}

const apiHandler = {
  async fetch(request, env, ctx) {
    if (request.method !== "POST") return new Response(null, { status: 405, headers: { allow: "POST" } });
    const message = await request.json();
    if (message.id === undefined) return new Response(null, { status: 202 });
    const found = result(message, ctx.props);
    const answer = found ? { result: found } : { error: { code: -32601, message: "Method not found" } };
    return Response.json({ jsonrpc: "2.0", id: message.id, ...answer });
  },
};

const log = [];

const defaultHandler = {
  async fetch(request, env) {
    const { pathname, searchParams } = new URL(request.url);
    if (pathname === "/authorize") {
      const asked = await env.OAUTH_PROVIDER.parseAuthRequest(request);
      const user = request.headers.get("x-user") ?? "ada";
      const { redirectTo } = await env.OAUTH_PROVIDER.completeAuthorization({
        request: asked, userId: user, metadata: {}, scope: asked.scope, props: { user },
      });
      return Response.redirect(redirectTo, 302);
    }
    // Cloudflare KV lets nothing expire within a minute; tests cannot wait as long.
    if (pathname === "/test/expire") {
      const { keys } = await env.OAUTH_KV.list({ prefix: "token:" });
      for (const { name } of keys) await env.OAUTH_KV.delete(name);
      return Response.json(keys.length);
    }
    if (pathname === "/test/log") return Response.json(log);
    return new Response("not found", { status: 404 });
  },
};

export default {
  async fetch(request, env, ctx) {
    const { origin, pathname } = new URL(request.url);
    const provider = new OAuthProvider({
      apiRoute: "/mcp",
      apiHandler,
      defaultHandler,
      authorizeEndpoint: "/authorize",
      tokenEndpoint: "/oauth/token",
      clientRegistrationEndpoint: "/oauth/register",
      scopesSupported: ["mcp:read", "offline_access"],
      requiredScopes: ["mcp:read"],
      resourceMetadata: { resource: origin + "/mcp", authorization_servers: [origin] },
    });
    // workerd closes the connection of a request whose body nobody has read, as that of a refused one.
    const body = request.body ? await request.text() : undefined;
    const response = await provider.fetch(new Request(request, { body }), env, ctx);
    const form = pathname === "/oauth/token" ? new URLSearchParams(body) : undefined;
    log.push({ http: request.method, path: pathname, grant: form?.get("grant_type"), status: response.status });
    return response;
  },
};`;

/**
 * Starts it. Gives `{ url, issuer, approve, expire, log, grants, close }`:
 *
 * - `approve(authUrl, user)`: gives the callback URL
 * - `expire()`: no access token given so far works any longer
 * - `log()`: what it was asked, oldest first: `{ http, path, grant, status }`
 * - `grants()`: token requests that succeeded, by grant type
 */
export async function startWorkersProvider() {
  const worker = await startWorker({ script: await bundle(SOURCE), objects: {}, kv: ["OAUTH_KV"] });
  const issuer = worker.origin;
  const json = async (path) => (await worker.fetch(path)).json();
  const log = async () => (await json("/test/log")).filter((entry) => !entry.path.startsWith("/test/"));
  return {
    issuer,
    url: `${issuer}/mcp`,
    log,
    async grants() {
      const counts = {};
      for (const { grant, status } of await log()) {
        if (grant && status === 200) counts[grant] = (counts[grant] ?? 0) + 1;
      }
      return counts;
    },
    async approve(authUrl, user = "ada") {
      const { pathname, search } = new URL(authUrl);
      const answer = await worker.fetch(pathname + search, { headers: { "x-user": user } });
      const location = answer.headers.get("location");
      if (!location) throw new Error(`no redirect: ${answer.status} ${await answer.text()}`);
      await answer.body?.cancel();
      return new URL(location);
    },
    expire: () => json("/test/expire"),
    close: () => worker.dispose(),
  };
}
