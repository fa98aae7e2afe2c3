//! What providers take, as their documentation and the errors of their APIs say, written down on
//! its own: a schema that breaks a rule is refused by the provider.

use serde_json::{Map, Value};
use workers_agents::ai::{Converted, Dialect};

/// Every rule of the dialect that a schema breaks, each with where.
pub(crate) fn broken(converted: &Converted, dialect: Dialect) -> Vec<String> {
    let schema: Value = serde_json::from_str(&converted.json).expect("a schema is JSON");
    let mut found = Vec::new();
    let mut say = |at: &str, what: &str| found.push(format!("{at}: {what}"));
    if schema["type"] != "object" {
        say("#", "the root is no object");
    }
    for keyword in ["anyOf", "oneOf", "allOf", "enum", "not", "$ref"] {
        if schema.get(keyword).is_some() {
            say("#", &format!("{keyword} at the root"));
        }
    }
    if !schema["properties"].is_object() {
        say("#", "the root has no properties");
    }
    each(&schema, "#", 0, &mut |schema, at, _| {
        for keyword in [
            "$ref",
            "$defs",
            "definitions",
            "$id",
            "$schema",
            "if",
            "nullable",
        ] {
            if schema.contains_key(keyword) {
                say(at, keyword);
            }
        }
        for fault in malformed(schema) {
            say(at, &fault);
        }
        if let Some(text) = schema.get("description").and_then(Value::as_str)
            && text
                .chars()
                .any(|letter| ('\u{e0000}'..='\u{e01ef}').contains(&letter))
        {
            say(at, "hidden characters");
        }
    });
    match dialect {
        Dialect::OpenAiStrict if converted.is_strict => found.extend(strict(&schema)),
        Dialect::OpenAi | Dialect::OpenAiStrict => found.extend(open_ai(&schema)),
        Dialect::Anthropic => found.extend(anthropic(&schema)),
        Dialect::WorkersAi => found.extend(workers_ai(&schema)),
    }
    found
}

type Visit<'a> = dyn FnMut(&Map<String, Value>, &str, usize) + 'a;

/// Visits every subschema.
fn each(schema: &Value, at: &str, depth: usize, visit: &mut Visit<'_>) {
    let Some(members) = schema.as_object() else {
        assert!(schema.is_boolean(), "{at} is no schema: {schema}");
        return;
    };
    visit(members, at, depth);
    for (keyword, value) in members {
        let at = format!("{at}/{keyword}");
        match keyword.as_str() {
            "properties" | "patternProperties" => {
                for (name, schema) in value.as_object().expect("properties are an object") {
                    each(schema, &format!("{at}/{name}"), depth + 1, visit);
                }
            }
            "items" | "additionalProperties" | "not" | "contains" | "propertyNames" => {
                each(value, &at, depth + 1, visit);
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let list = value.as_array().expect("a list of schemas");
                assert!(!list.is_empty(), "{at} is empty");
                for schema in list {
                    each(schema, &at, depth + 1, visit);
                }
            }
            _ => {}
        }
    }
}

/// What the metaschema of 2020-12 refuses.
fn malformed(schema: &Map<String, Value>) -> Vec<String> {
    let mut faults = Vec::new();
    for (keyword, value) in schema {
        let is_fine = match keyword.as_str() {
            "type" => {
                let kinds = value
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![value.clone()]);
                let known = |kind: &Value| {
                    let kinds = [
                        "null", "boolean", "integer", "number", "string", "array", "object",
                    ];
                    kind.as_str().is_some_and(|kind| kinds.contains(&kind))
                };
                let mut once = kinds.clone();
                once.dedup();
                !kinds.is_empty() && kinds.iter().all(known) && once.len() == kinds.len()
            }
            "enum" => value.is_array(),
            "required" => value
                .as_array()
                .is_some_and(|names| names.iter().all(Value::is_string)),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
            "multipleOf" => value.as_f64().is_some_and(|value| value > 0.0),
            "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
            "uniqueItems" => value.is_boolean(),
            "items" => value.is_object() || value.is_boolean(),
            "title" | "description" | "format" | "pattern" => value.is_string(),
            _ => true,
        };
        if !is_fine {
            faults.push(format!("{keyword} is {value}"));
        }
    }
    faults
}

fn kinds(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(kind) => kind.as_str().into_iter().collect(),
        None => Vec::new(),
    }
}

fn open_ai(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    each(schema, "#", 0, &mut |schema, at, _| {
        if kinds(schema).contains(&"array") && !schema.get("items").is_some_and(Value::is_object) {
            found.push(format!("{at}: an array without items"));
        }
        if kinds(schema).contains(&"object") && !schema.contains_key("properties") {
            found.push(format!("{at}: an object without properties"));
        }
    });
    found
}

fn strict(schema: &Value) -> Vec<String> {
    const KEYWORDS: [&str; 18] = [
        "type",
        "title",
        "description",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "anyOf",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    ];
    const FORMATS: [&str; 9] = [
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
    ];
    let mut found = open_ai(schema);
    let mut properties_in_all = 0;
    let mut values = 0;
    each(schema, "#", 0, &mut |schema, at, _| {
        let mut say = |what: String| found.push(format!("{at}: {what}"));
        for keyword in schema.keys() {
            if !KEYWORDS.contains(&keyword.as_str()) {
                say(format!("{keyword} is not permitted"));
            }
        }
        if !["type", "enum", "anyOf"]
            .iter()
            .any(|keyword| schema.contains_key(*keyword))
        {
            say("a schema must have a type".into());
        }
        if let Some(format) = schema.get("format").and_then(Value::as_str)
            && !FORMATS.contains(&format)
        {
            say(format!("the format {format}"));
        }
        if schema
            .get("pattern")
            .and_then(Value::as_str)
            .is_some_and(|text| text.contains("(?"))
        {
            say("a pattern that looks around".into());
        }
        values += schema
            .get("enum")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        if kinds(schema).contains(&"object") {
            let properties = schema["properties"].as_object().unwrap();
            properties_in_all += properties.len();
            let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
            let required = schema.get("required").and_then(Value::as_array).unwrap();
            let mut required: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            required.sort_unstable();
            if names != required {
                say("required must list every property".into());
            }
            if schema.get("additionalProperties") != Some(&Value::Bool(false)) {
                say("additionalProperties must be false".into());
            }
        }
    });
    if properties_in_all > 5_000 || values > 1_000 {
        found.push("too large".into());
    }
    found
}

fn anthropic(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    each(schema, "#", 0, &mut |schema, at, _| {
        for name in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
        {
            let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            if !(1..=64).contains(&name.len()) || !name.bytes().all(is_legal) {
                found.push(format!("{at}: the name {name}"));
            }
        }
    });
    found
}

fn workers_ai(schema: &Value) -> Vec<String> {
    let mut found = open_ai(schema);
    for (name, schema) in schema["properties"].as_object().unwrap() {
        if !schema["type"].is_string() || !schema["description"].is_string() {
            found.push(format!("{name} has no type or no description"));
        }
    }
    each(schema, "#", 0, &mut |schema, at, _| {
        if schema.get("type").is_some_and(|kind| !kind.is_string()) {
            found.push(format!("{at}: several types"));
        }
    });
    found
}
