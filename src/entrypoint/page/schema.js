// What of a JSON Schema can be filled in as a form. Pure. Anything else is left to a field that takes JSON.

const MAX_DEPTH = 5;
const MAX_FIELDS = 100;
const MAX_OPTIONS = 500;
const MAX_REFS = 16;

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const has = (object, name) => isObject(object) && Object.hasOwn(object, name);
export const own = (object, name) => (has(object, name) ? object[name] : undefined);
const text = (value) => (typeof value === "string" ? value : undefined);
const finite = (value) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);

/**
 * The form of a schema: `{kind, label, help, initial, …}`. Kinds: `string` (with `input`, the type of the field), `number`,
 * `boolean`, `choice` and `choices` (with `options`: `{value, label}`), `list` (with `item`), `object` (with `fields`:
 * `{name, required, form}`), `json`.
 */
export const formOf = (schema) => build(schema, schema, 0, undefined);

function build(given, root, depth, name) {
  const schema = simplify(given, root);
  const base = {
    label: text(schema.title) ?? name,
    help: text(schema.description),
    initial: has(schema, "default") ? schema.default : undefined,
  };
  const json = { ...base, kind: "json" };
  if (depth > MAX_DEPTH) return json;
  const choices = optionsOf(schema);
  if (choices) return { ...base, kind: "choice", options: choices };
  switch (typeOf(schema)) {
    case "string":
      return { ...base, kind: "string", ...stringOf(schema) };
    case "number":
    case "integer":
      return { ...base, kind: "number", ...numberOf(schema) };
    case "boolean":
      return { ...base, kind: "boolean" };
    case "array":
      return { ...base, ...arrayOf(schema, root, depth) };
    case "object":
      return { ...base, ...objectOf(schema, root, depth) };
    default:
      return json;
  }
}

/** Follows local references, and takes alternatives that only allow null out. */
function simplify(given, root) {
  let schema = isObject(given) ? given : {};
  for (let i = 0; i < MAX_REFS; i += 1) {
    const { $ref, ...rest } = schema;
    if (typeof $ref === "string") {
      const target = pointedAt(root, $ref);
      if (!isObject(target)) return {};
      schema = { ...target, ...rest };
      continue;
    }
    const alternatives = schema.anyOf ?? schema.oneOf;
    const real = Array.isArray(alternatives) ? alternatives.filter((one) => own(one, "type") !== "null") : [];
    if (real.length === 1 && real.length < alternatives.length) {
      const { anyOf, oneOf, ...others } = schema;
      schema = { ...real[0], ...others };
      continue;
    }
    if (Array.isArray(schema.allOf) && schema.allOf.length === 1 && isObject(schema.allOf[0])) {
      const { allOf, ...others } = schema;
      schema = { ...allOf[0], ...others };
      continue;
    }
    return schema;
  }
  return {};
}

function pointedAt(root, ref) {
  if (ref !== "#" && !ref.startsWith("#/")) return undefined;
  try {
    const steps = decodeURIComponent(ref).split("/").slice(1);
    return steps.reduce((at, step) => own(at, step.replaceAll("~1", "/").replaceAll("~0", "~")), root);
  } catch {
    return undefined;
  }
}

function typeOf(schema) {
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    return types.length === 1 ? types[0] : undefined;
  }
  if (schema.type === undefined && isObject(schema.properties)) return "object";
  return schema.type;
}

/** The values to choose from, or undefined where they are not listed one by one. */
function optionsOf(schema) {
  const listed = schema.enum;
  if (Array.isArray(listed) && listed.length > 0 && listed.length <= MAX_OPTIONS) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return listed.map((value, i) => option(value, names[i]));
  }
  if (has(schema, "const")) return [option(schema.const, schema.title)];
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(alternatives) || alternatives.length === 0 || alternatives.length > MAX_OPTIONS) return undefined;
  if (!alternatives.every((one) => has(one, "const"))) return undefined;
  return alternatives.map((one) => option(one.const, one.title));
}

const option = (value, label) => ({ value, label: text(label) ?? (typeof value === "string" ? value : JSON.stringify(value)) });

/** Formats that a browser has fields for and that it writes as JSON Schema does. */
const INPUTS = { email: "email", uri: "url", date: "date" };

function stringOf(schema) {
  const format = text(schema.format);
  const limits = { minLength: finite(schema.minLength), maxLength: finite(schema.maxLength) };
  const isLong = !format && (limits.maxLength ?? 0) > 200;
  return { input: INPUTS[format] ?? "text", format, pattern: text(schema.pattern), isLong, ...limits };
}

function numberOf(schema) {
  const isInteger = typeOf(schema) === "integer";
  return { isInteger, min: finite(schema.minimum), max: finite(schema.maximum) };
}

function arrayOf(schema, root, depth) {
  const items = simplify(schema.items, root);
  const limits = { minItems: finite(schema.minItems), maxItems: finite(schema.maxItems) };
  const options = optionsOf(items);
  if (options) return { kind: "choices", options, ...limits };
  const item = build(items, root, depth + 1, undefined);
  // A list of whatever is written more easily as a whole.
  return item.kind === "json" ? { kind: "json" } : { kind: "list", item, ...limits };
}

function objectOf(schema, root, depth) {
  const properties = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  const isOpen = schema.additionalProperties !== undefined && schema.additionalProperties !== false;
  const isMore = ["oneOf", "anyOf", "allOf", "patternProperties"].some((name) => name in schema);
  if (properties.length > MAX_FIELDS || (properties.length === 0 && (isOpen || isMore || depth > 0))) return { kind: "json" };
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = properties.map(([name, property]) => ({
    name,
    required: required.has(name),
    form: build(property, root, depth + 1, name),
  }));
  return { kind: "object", fields };
}

/** What a form begins with: the defaults, and what is there whether the user does anything or not. */
export function initialOf(form, required = true) {
  if (form.initial !== undefined) return form.initial;
  if (form.kind === "object") {
    const entries = form.fields.map(({ name, required, form }) => [name, initialOf(form, required)]);
    const known = entries.filter(([, value]) => value !== undefined);
    return known.length > 0 || required ? Object.fromEntries(known) : undefined;
  }
  if (!required) return undefined;
  if (form.kind === "boolean") return false;
  if (form.kind === "choices" || form.kind === "list") return [];
  return undefined;
}

/** The object with one member changed; without it, where the value is undefined. */
export function changed(object, name, value) {
  const { [name]: _, ...others } = isObject(object) ? object : {};
  return value === undefined ? others : { ...object, [name]: value };
}
