// The cryptography of the platform, as `src/runtime/webcrypto.js` asks for it: run by workerd, judged by Node.
import assert from "node:assert/strict";
import { createCipheriv, createPublicKey, generateKeyPairSync, randomBytes, verify } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { inRoot } from "./support/paths.mjs";
import { startWorker } from "./support/worker.mjs";

// Bytes are `{ base64 }` in JSON, on both sides.
const HANDLER = `
const calls = { sign, generateKey, seal, open };
const decoded = (value) => value.base64 === undefined ? value : Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0));
const encoded = (value) =>
  typeof value === "string" ? value : { base64: btoa(String.fromCharCode(...new Uint8Array(value))) };
export default {
  async fetch(request) {
    const [name, ...args] = await request.json();
    try {
      return Response.json({ value: encoded(await calls[name](...args.map(decoded))) });
    } catch (error) {
      return Response.json({ failed: error.name, isError: error instanceof Error });
    }
  },
};`;

let worker;
before(async () => {
  const source = await readFile(inRoot("src/runtime/webcrypto.js"), "utf8");
  // What a Worker's main module exports is taken for its handlers.
  worker = await startWorker({ script: source.replaceAll("export async", "async") + HANDLER, objects: {} });
});
after(() => worker?.dispose());

const encoded = (value) => (typeof value === "string" ? value : { base64: Buffer.from(value).toString("base64") });

async function outcome(...call) {
  const answer = await worker.fetch("/", { method: "POST", body: JSON.stringify(call.map(encoded)) });
  return answer.json();
}

async function call(...args) {
  const { value, failed } = await outcome(...args);
  assert.equal(failed, undefined);
  return typeof value === "string" ? value : Buffer.from(value.base64, "base64");
}

const MESSAGE = Buffer.from("header.claims");

const KEYS = {
  ES256: generateKeyPairSync("ec", { namedCurve: "P-256" }),
  RS256: generateKeyPairSync("rsa", { modulusLength: 2048 }),
};

for (const [algorithm, { privateKey, publicKey }] of Object.entries(KEYS)) {
  const forms = {
    "PKCS#8": privateKey.export({ format: "der", type: "pkcs8" }),
    "a JWK": JSON.stringify(privateKey.export({ format: "jwk" })),
  };
  for (const [form, key] of Object.entries(forms)) {
    test(`${algorithm} signs with ${form}, in the form of a JWS`, async () => {
      const signature = await call("sign", algorithm, key, MESSAGE);
      // 2048 bits, or R and S.
      assert.equal(signature.length, algorithm === "RS256" ? 256 : 64);
      assert.ok(verify("sha256", MESSAGE, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature));
    });
  }
}

test("a new key is a JWK with the members of the key and no others, and signs", async () => {
  const text = await call("generateKey");
  const { d, ...jwk } = JSON.parse(text);
  assert.deepEqual(Object.keys(jwk), ["kty", "crv", "x", "y"]);
  assert.deepEqual([jwk.kty, jwk.crv], ["EC", "P-256"]);
  for (const number of [d, jwk.x, jwk.y]) assert.match(number, /^[\w-]{43}$/);
  const signature = await call("sign", "ES256", text, MESSAGE);
  const key = createPublicKey({ key: jwk, format: "jwk" });
  assert.ok(verify("sha256", MESSAGE, { key, dsaEncoding: "ieee-p1363" }, signature));
  assert.notEqual(await call("generateKey"), text);
});

for (const [what, context, plain] of [
  ["a text", Buffer.from("/gull/pier/c1/token"), Buffer.from('{"access_token":"Möwe"}')],
  ["nothing, without a context", Buffer.alloc(0), Buffer.alloc(0)],
]) {
  test(`sealing ${what} is AES-256-GCM with the tag at the end`, async () => {
    const [key, nonce] = [randomBytes(32), randomBytes(12)];
    const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(context);
    const expected = Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
    const sealed = await call("seal", key, nonce, context, plain);
    assert.deepEqual(sealed, expected);
    assert.deepEqual(await call("open", key, nonce, context, sealed), plain);
  });
}

test("what cannot be done is rejected with an error that has a name", async () => {
  const [key, nonce, context] = [randomBytes(32), randomBytes(12), Buffer.from("here")];
  const sealed = await call("seal", key, nonce, context, MESSAGE);
  const { privateKey } = KEYS.ES256;
  const { d, ...publicJwk } = privateKey.export({ format: "jwk" });
  for (const failing of [
    ["open", key, nonce, Buffer.from("elsewhere"), sealed],
    ["open", randomBytes(32), nonce, context, sealed],
    ["open", key, nonce, context, sealed.subarray(0, 3)],
    ["seal", key.subarray(1), nonce, context, MESSAGE],
    ["sign", "ES256", "{", MESSAGE],
    ["sign", "ES256", Buffer.from("no key"), MESSAGE],
    ["sign", "RS256", privateKey.export({ format: "der", type: "pkcs8" }), MESSAGE],
    ["sign", "ES256", JSON.stringify({ ...publicJwk, d: "AAAA" }), MESSAGE],
  ]) {
    const { failed, isError } = await outcome(...failing);
    assert.match(`${failed}`, /^(Data|Operation|Syntax)Error$/);
    assert.ok(isError);
  }
});
