// What the dashboard makes of schemas and URI templates: pure functions of its source.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { hashOf, read } from "../../src/entrypoint/page/place.js";
import { changed, formOf, initialOf } from "../../src/entrypoint/page/schema.js";
import { expand, variablesOf } from "../../src/entrypoint/page/uri-template.js";

const kindOf = (schema, more) => formOf({ type: "object", properties: { x: schema }, ...more }).fields[0].form.kind;

describe("the form of a schema", () => {
  test("has a kind of field for what a browser has fields for", () => {
    for (const [schema, kind] of [
      [{ type: "string" }, "string"],
      [{ type: ["string", "null"] }, "string"],
      [{ anyOf: [{ type: "string" }, { type: "null" }] }, "string"],
      [{ allOf: [{ type: "boolean" }] }, "boolean"],
      [{ type: "integer" }, "number"],
      [{ type: "number" }, "number"],
      [{ enum: ["a", 1, null] }, "choice"],
      [{ const: 7 }, "choice"],
      [{ oneOf: [{ const: "a", title: "A" }, { const: "b" }] }, "choice"],
      [{ type: "array", items: { enum: ["a"] } }, "choices"],
      [{ type: "array", items: { anyOf: [{ const: "a", title: "A" }] } }, "choices"],
      [{ type: "array", items: { type: "object", properties: { y: { type: "string" } } } }, "list"],
      [{ type: "object", properties: { y: {} } }, "object"],
      [{ properties: { y: {} } }, "object"],
      [{ $ref: "#/$defs/a~1b" }, "string"],
    ]) {
      assert.equal(kindOf(schema, { $defs: { "a/b": { type: "string" } } }), kind, JSON.stringify(schema));
    }
  });

  test("leaves everything else to JSON, and ends", () => {
    let deep = { type: "string" };
    for (let i = 0; i < 20; i += 1) deep = { type: "object", properties: { x: deep } };
    const many = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`p${i}`, { type: "string" }]));
    for (const schema of [
      {}, true, false, null, 7, "string", [], undefined,
      { type: ["string", "number"] }, { anyOf: [{ type: "string" }, { type: "number" }] },
      { type: "array" }, { type: "array", items: true }, { type: "array", items: [{ type: "string" }] },
      { type: "object" }, { type: "object", additionalProperties: { type: "string" } },
      { type: "object", properties: many }, { type: "nonsense" },
      { $ref: "#/$defs/none" }, { $ref: "https://example.com/schema" }, { $ref: "#/%" }, { $ref: "#" , type: 7 },
      { enum: [] }, { oneOf: [] }, { oneOf: 7 }, { properties: [] },
    ]) {
      assert.equal(kindOf(schema), "json", JSON.stringify(schema));
    }
    for (const schema of [undefined, null, {}, { $ref: "#" }, { type: "object", properties: { x: { $ref: "#" } } }, deep]) {
      assert.ok(["json", "object"].includes(formOf(schema).kind));
    }
  });

  test("begins with the defaults", () => {
    const form = formOf({
      type: "object",
      required: ["on", "list", "needed"],
      properties: {
        text: { type: "string", default: "" },
        zero: { type: "number", default: 0 },
        on: { type: "boolean" },
        off: { type: "boolean" },
        list: { type: "array", items: { type: "string" } },
        needed: { type: "object", properties: { a: { type: "string" } } },
        inner: { type: "object", properties: { b: { type: "string", default: "c" } } },
        none: { type: "object", properties: { a: { type: "string" } } },
      },
    });
    assert.deepEqual(initialOf(form), { text: "", zero: 0, on: false, list: [], needed: {}, inner: { b: "c" } });
  });

  test("changes nothing but what it is about, whatever it is called", () => {
    assert.deepEqual(changed({ a: 1, b: 2 }, "a", undefined), { b: 2 });
    assert.deepEqual(changed(undefined, "a", 1), { a: 1 });
    const odd = changed({}, "__proto__", { polluted: true });
    assert.equal(JSON.stringify(odd), '{"__proto__":{"polluted":true}}');
    assert.equal({}.polluted, undefined);
    const form = formOf({ type: "object", required: ["constructor"], properties: { constructor: { type: "boolean" } } });
    assert.equal(JSON.stringify(initialOf(form)), '{"constructor":false}');
  });
});

describe("a URI template (RFC 6570)", () => {
  const values = { var: "value", hello: "Hello World!", path: "/foo/bar", empty: "", x: "1024", y: "768", half: "50%", odd: "é'" };
  for (const [template, uri] of [
    ["{var}", "value"],
    ["{hello}", "Hello%20World%21"],
    ["{half}", "50%25"],
    ["{odd}", "%C3%A9%27"],
    ["{+hello}", "Hello%20World!"],
    ["{+path}/here", "/foo/bar/here"],
    ["{+half}", "50%25"],
    ["X{#var}", "X#value"],
    ["map?{x,y}", "map?1024,768"],
    ["{.x,y}", ".1024.768"],
    ["{/var,x}/here", "/value/1024/here"],
    ["{;x,y,empty}", ";x=1024;y=768;empty"],
    ["{?x,y,empty}", "?x=1024&y=768&empty="],
    ["?fixed=yes{&x}", "?fixed=yes&x=1024"],
    ["{var:3}", "val"],
    ["{var*}", "value"],
    ["{?x,none}", "?x=1024"],
    ["{none}", ""],
    ["{/none}", ""],
    ["{toString}", ""],
    ["plain", "plain"],
    ["{", "{"],
  ]) {
    test(`${template} is ${uri}`, () => assert.equal(expand(template, values), uri));
  }

  test("has each variable once", () => {
    assert.deepEqual(variablesOf("a/{x}/{?y,x:3,z*}{+x}{}"), ["x", "y", "z"]);
  });
});

describe("the address of the dashboard", () => {
  test("names an object and a view, and is read as it was written", () => {
    for (const object of ["default", "a/b", "é ü", "100%", "#", "a%2Fb", "tools"]) {
      for (const view of ["servers", "tools", "log"]) assert.deepEqual(read(hashOf({ object, view })), { object, view });
    }
    for (const [hash, object] of [["", "default"], ["#", "default"], ["#100%", "100%"], ["#x/nonsense", "x"], ["#x/tools/y", "x"]]) {
      assert.equal(read(hash).object, object);
    }
  });
});
