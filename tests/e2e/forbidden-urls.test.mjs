// Every URL of tests/forbidden-urls.json, wherever it may come from: it is refused, and no request leaves.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, beforeEach, describe, test } from "node:test";
import { Response } from "miniflare";
import { freshAgent } from "./support/api.mjs";
import { challenge } from "./support/auth-server.mjs";
import { inRoot } from "./support/paths.mjs";
import { startToolAgent } from "./support/worker.mjs";

const FORBIDDEN = JSON.parse(await readFile(inRoot("tests/forbidden-urls.json"), "utf8"));

const MCP = "https://mcp.example";
const AS = "https://as.example";
const AT_ONCE = 8;
const CLIENT = { client_id: "c", redirect_uris: ["http://127.0.0.1/callback"], token_endpoint_auth_method: "none" };

/** A refused URL must be found quickly, so that a long list is no long wait. */
async function eachOf(urls, action) {
  const left = urls.entries();
  const problems = [];
  const work = async () => {
    for (const [index, url] of left) {
      await action(url, index).catch((error) => problems.push(`${JSON.stringify(url)}: ${error.message}`));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  assert.deepEqual(problems, []);
}

const json = (body, status = 200, headers = {}) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } });

/** What the network answers: a server that wants authorization, with `url` at a place where it names others. */
function network(url, place) {
  const at = (name, otherwise) => (place === name ? url : otherwise);
  const pointer = at("resource_metadata", `${MCP}/metadata`);
  const refusal = { "www-authenticate": challenge({ resource_metadata: pointer.replace(/["\\]/g, "\\$&") }) };
  const redirect = (name) => place === name && new Response(null, { status: 307, headers: { location: url } });
  const documents = {
    [`${MCP}/mcp`]: () => redirect("redirect of the server") || json({ error: "unauthorized" }, 401, refusal),
    [`${MCP}/metadata`]: () =>
      redirect("redirect of metadata") ||
      json({ resource: `${MCP}/mcp`, authorization_servers: [at("authorization_servers", AS)] }),
    [`${AS}/.well-known/oauth-authorization-server`]: () =>
      json({
        issuer: AS,
        authorization_endpoint: at("authorization_endpoint", `${AS}/authorize`),
        token_endpoint: at("token_endpoint", `${AS}/token`),
        registration_endpoint: at("registration_endpoint", `${AS}/register`),
        response_types_supported: ["code"],
        code_challenge_methods_supported: ["S256"],
        token_endpoint_auth_methods_supported: ["none"],
      }),
    [`${AS}/register`]: () => redirect("redirect of registration") || json(CLIENT, 201),
  };
  return ({ origin, pathname }) => documents[origin + pathname]?.() ?? new Response("not found", { status: 404 });
}

let worker;
/** Requests to hosts that nobody should ask. */
let strays = [];
/** What the network answers to the server with this number in its query. */
const networks = new Map();

/** Every server has a host name of its own, so that many can be tried at once. */
function answer(request) {
  const url = new URL(request.url);
  const [, index, host] = /^n(\d+)\.(mcp\.example|as\.example)$/.exec(url.hostname) ?? [];
  const found = networks.get(Number(index));
  if (!found) {
    strays.push(request.url);
    return new Response("a stray request", { status: 404 });
  }
  return found({ origin: `https://${host}`, pathname: url.pathname });
}

/** The same documents, under the host names of one server. */
const numbered = (index, respond) => async (asked) => {
  const response = respond(asked);
  const rename = (text) => text.replaceAll(/https:\/\/(mcp|as)\.example/g, `https://n${index}.$1.example`);
  const headers = Object.fromEntries([...response.headers].map(([name, value]) => [name, rename(value)]));
  return new Response(response.body && rename(await response.text()), { status: response.status, headers });
};

before(async () => {
  // Loopback counts as forbidden here: the list is about servers on the internet.
  worker = await startToolAgent({ REQUEST_TIMEOUT_MS: "5000", ALLOW_LOOPBACK: "0" }, { outbound: answer });
});
after(() => worker?.dispose());
beforeEach(() => {
  strays = [];
  networks.clear();
});

test("the list is one", () => {
  assert.ok(Array.isArray(FORBIDDEN) && FORBIDDEN.length > 50, "too short");
  assert.ok(FORBIDDEN.every((url) => typeof url === "string"));
});

test("as the URL of a server: 422, and nothing is stored", async () => {
  const agent = freshAgent(worker);
  await eachOf(FORBIDDEN, async (url) => {
    const { status, body } = await agent.tryAdd({ name: "x", url });
    // A text of nothing is no URL at all.
    const kinds = url.trim() ? ["blocked-url"] : ["blocked-url", "invalid-option"];
    assert.ok(status === 422 && kinds.includes(body.kind), `${status} ${body.kind}`);
  });
  assert.deepEqual((await agent.get("servers")).servers, []);
  assert.deepEqual(strays, []);
});

/** Whether a text can be in a header at all. */
const fitsHeader = (text) => /^[\x20-\x7e\x80-\xff]*$/.test(text);

describe("named by a server that wants authorization", () => {
  test("the network of these tests lets a sign-in begin where it names nothing forbidden", async () => {
    networks.set(0, numbered(0, network(undefined, "nowhere")));
    const { status, body } = await freshAgent(worker).tryAdd({ id: "x", name: "x", url: "https://n0.mcp.example/mcp" });
    assert.equal(status, 201, JSON.stringify(body));
    assert.equal(new URL(body.authUrl).href.split("?")[0], "https://n0.as.example/authorize");
    assert.deepEqual(strays, []);
  });

  for (const place of [
    "resource_metadata",
    "authorization_servers",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "redirect of the server",
    "redirect of metadata",
    "redirect of registration",
  ]) {
    test(`${place}: nobody is asked, and nobody is sent there`, async () => {
      const inHeader = place === "resource_metadata" || place.startsWith("redirect");
      const urls = inHeader ? FORBIDDEN.filter(fitsHeader) : FORBIDDEN;
      const agent = freshAgent(worker);
      await eachOf(urls, async (url, index) => {
        networks.set(index, numbered(index, network(url, place)));
        const host = `https://n${index}.mcp.example`;
        const server = { id: `n${index}`, name: "x", url: `${host}/mcp`, retry: { maxAttempts: 1 } };
        const { status, body } = await agent.tryAdd(server);
        const shown = `${status} ${JSON.stringify(body)}`;
        assert.ok([201, 422, 502].includes(status), shown);
        if (body.authUrl) {
          // Where the URL was ignored, as one that is none, the rest may go on.
          assert.equal(new URL(body.authUrl).origin, `https://n${index}.as.example`, shown);
          const back = `callback?state=${encodeURIComponent(new URL(body.authUrl).searchParams.get("state"))}&code=c`;
          const callback = await agent.request("GET", back);
          assert.equal(callback.status, 400, `the code was redeemed: ${callback.status}`);
        } else {
          assert.notEqual(status, 201, shown);
        }
        await agent.remove(server.id);
      });
      assert.deepEqual(strays, []);
    });
  }
});
