// The page at `/` and its two files: compressed, small, kept by browsers, and able to load nothing from elsewhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { rawRequest } from "./support/raw-http.mjs";
import { startToolAgent } from "./support/worker.mjs";

let worker;
before(async () => (worker = await startToolAgent()));
after(() => worker?.dispose());

const BROWSER = { "accept-encoding": "gzip, deflate, br" };
const get = (headers = BROWSER) => rawRequest(worker, "/", { headers });

function decoded({ headers, bytes }) {
  const decode = { gzip: gunzipSync, br: brotliDecompressSync }[headers["content-encoding"]];
  return (decode ? decode(bytes) : bytes).toString();
}

test("the page comes compressed, and is smaller that way", async () => {
  const page = await get();
  assert.equal(page.status, 200);
  assert.match(page.headers["content-type"], /^text\/html/);
  assert.match(page.headers["content-encoding"], /^(gzip|br)$/);
  assert.match(decoded(page), /^<!doctype html>/i);
  assert.ok(page.bytes.length < decoded(page).length);
});

test("a client that accepts no compression can read it as well", async () => {
  for (const headers of [{ "accept-encoding": "identity" }, {}]) {
    const page = await get(headers);
    assert.equal(page.status, 200);
    assert.match(decoded(page), /^<!doctype html>/i);
  }
  assert.equal((await get({ "accept-encoding": "identity" })).headers["content-encoding"] ?? "identity", "identity");
});

test("it may run only its own scripts and talk only to its own origin", async () => {
  for (const path of ["/", "/page.js", "/page.css"]) {
    const { headers } = await rawRequest(worker, path, { headers: BROWSER });
    assert.deepEqual(headers["content-security-policy"].split("; ").sort(), [
      "base-uri 'none'",
      "connect-src 'self'",
      "default-src 'none'",
      "form-action 'self'",
      "frame-ancestors 'none'",
      "img-src 'self' data:",
      "media-src data:",
      "script-src 'self'",
      "style-src 'self'",
    ]);
    assert.equal(headers["x-content-type-options"], "nosniff");
    assert.equal(headers["x-frame-options"], "DENY");
    assert.equal(headers["referrer-policy"], "no-referrer");
    assert.equal(headers["cross-origin-resource-policy"], "same-origin");
    assert.match(headers["permissions-policy"], /camera=\(\)/);
  }
});

test("all of it is less than 40 KB, compressed", async () => {
  const pages = await Promise.all(["/", "/page.js", "/page.css"].map((path) => rawRequest(worker, path, { headers: { "accept-encoding": "gzip" } })));
  const sizes = pages.map(({ bytes }) => bytes.length);
  assert.ok(sizes[1] > 10_000, "the dashboard was not built");
  assert.ok(sizes.reduce((sum, size) => sum + size) < 40_000, `${sizes}`);
});

test("its script writes no markup", async () => {
  const script = decoded(await rawRequest(worker, "/page.js", { headers: BROWSER }));
  assert.doesNotMatch(script, /insertAdjacentHTML|document\.write|outerHTML|\beval\(|new Function/);
});

test("it loads nothing from other origins", async () => {
  const loads = /<(?:script|link|img|iframe|form)\b[^>]*(?:src|href|action)\s*=\s*["']?(?:https?:)?\/\/[^>]*>/gi;
  assert.deepEqual(decoded(await get()).match(loads) ?? [], []);
});

test("a browser that has it gets 304 and no body", async () => {
  const { headers } = await get();
  assert.ok(headers.etag);
  for (const known of [headers.etag, `W/${headers.etag.replace(/^W\//, "")}`, `"other", ${headers.etag}`]) {
    const again = await get({ ...BROWSER, "if-none-match": known });
    assert.equal(again.status, 304, known);
    assert.equal(again.bytes.length, 0);
    assert.equal(again.headers.etag?.replace(/^W\//, ""), headers.etag.replace(/^W\//, ""));
  }
  assert.equal((await get({ ...BROWSER, "if-none-match": '"other"' })).status, 200);
});

test("HEAD is answered like GET without the body, other methods are not", async () => {
  const head = await rawRequest(worker, "/", { method: "HEAD", headers: BROWSER });
  assert.deepEqual([head.status, head.bytes.length], [200, 0]);
  assert.equal((await rawRequest(worker, "/", { method: "POST" })).status, 405);
});
