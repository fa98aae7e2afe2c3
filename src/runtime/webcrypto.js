// Cryptography over `crypto.subtle`. A failure is a rejected promise; its `name` is all that may be shown of it, because
// the platform's messages can quote the key.

const IMPORT = {
  ES256: { name: "ECDSA", namedCurve: "P-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
};
const SIGN = { ES256: { name: "ECDSA", hash: "SHA-256" }, RS256: { name: "RSASSA-PKCS1-v1_5" } };

// `key` is the text of a JWK, or PKCS#8 as bytes.
export async function sign(algorithm, key, message) {
  const [format, data] = typeof key === "string" ? ["jwk", JSON.parse(key)] : ["pkcs8", key];
  const imported = await crypto.subtle.importKey(format, data, IMPORT[algorithm], false, ["sign"]);
  return crypto.subtle.sign(SIGN[algorithm], imported, message);
}

// Resolves to the text of a private JWK for ES256.
export async function generateKey() {
  const { privateKey } = await crypto.subtle.generateKey(IMPORT.ES256, true, ["sign", "verify"]);
  const { kty, crv, x, y, d } = await crypto.subtle.exportKey("jwk", privateKey);
  return JSON.stringify({ kty, crv, x, y, d });
}

export async function seal(key, iv, additionalData, plain) {
  const imported = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
  return crypto.subtle.encrypt({ name: "AES-GCM", iv, additionalData }, imported, plain);
}

export async function open(key, iv, additionalData, sealed) {
  const imported = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["decrypt"]);
  return crypto.subtle.decrypt({ name: "AES-GCM", iv, additionalData }, imported, sealed);
}
