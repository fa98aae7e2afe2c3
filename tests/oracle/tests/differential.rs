//! Generated schemas and values, judged by this validator and by another one.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use workers_agents::protocol::schema::{Schema, Violation};

/// How many schemas, and how many values for each.
const SCHEMAS: u32 = 5_000;
const VALUES: u32 = 10;

#[test]
fn both_validators_agree() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut valid, mut invalid, mut wrong) = (0, 0, Vec::new());
    for number in 0..SCHEMAS {
        let dialect = DIALECTS[random.below(DIALECTS.len())];
        let mut schema = random.schema(3);
        if let Some(object) = schema.as_object_mut() {
            object.insert("$schema".into(), dialect.into());
            object.insert(
                "$defs".into(),
                json!({"a": random.schema(1), "b": random.schema(1)}),
            );
            object.insert(
                "definitions".into(),
                json!({"a": random.schema(1), "b": random.schema(1)}),
            );
        }
        if is_read_differently(&schema) {
            continue;
        }
        let Ok(theirs) = jsonschema::validator_for(&schema) else {
            panic!("schema {number} is no schema to the other: {schema}");
        };
        let ours = match Schema::compile(&raw(&schema)) {
            Ok(ours) => ours,
            Err(error) => panic!("schema {number}: {error}: {schema}"),
        };
        for _ in 0..VALUES {
            let value = random.value(3);
            let expected = theirs.is_valid(&value);
            let found = match ours.validate(&raw(&value)) {
                Ok(()) => true,
                Err(Violation::Mismatch { .. }) => false,
                Err(other) => panic!("schema {number}: {other}: {schema} on {value}"),
            };
            if found != expected {
                wrong.push(format!("{found} for {schema} on {value}"));
            }
            if found { valid += 1 } else { invalid += 1 }
        }
    }
    wrong.sort_by_key(String::len);
    wrong.truncate(5);
    assert!(
        wrong.is_empty(),
        "the shortest of those that differ:\n{}",
        wrong.join("\n")
    );
    println!("{valid} valid, {invalid} not");
    assert!(valid > 10_000 && invalid > 10_000);
}

/// In 2019-09 `unevaluatedItems` does not look at `contains`; that of the other validator does.
fn is_read_differently(schema: &Value) -> bool {
    let text = schema.to_string();
    text.contains("2019-09") && text.contains("\"contains\"") && text.contains("unevaluatedItems")
}

const DIALECTS: [&str; 4] = [
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Few names, numbers and texts, so that schemas and values meet often.
const NAMES: [&str; 5] = ["a", "b", "ab", "x-1", "c"];
const NUMBERS: [&str; 12] = [
    "0", "1", "2", "3", "1.5", "2.0", "-1", "0.3", "1e2", "100", "4.5", "-0.0",
];
const TEXTS: [&str; 8] = ["", "a", "ab", "aab", "x-1", "é", "\u{1f600}", "A1"];
const PATTERNS: [&str; 10] = [
    "^a",
    "b$",
    "^[a-c]+$",
    r"^x-\d$",
    "^.{2}$",
    "(a|é)+",
    r"^\w*$",
    r"^\S{1,2}$",
    "^(?:a{2})?b",
    r"\d",
];
const TYPES: [&str; 7] = [
    "null", "boolean", "number", "integer", "string", "array", "object",
];

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).unwrap() % limit
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    fn number(&mut self) -> Value {
        serde_json::from_str(self.pick(&NUMBERS)).unwrap()
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 6 } else { 12 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 | 3 => self.number(),
            4 | 5 => self.pick(&TEXTS).into(),
            6..=8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(4, |random| random.value(depth - 1)),
        }
    }

    fn object(&mut self, most: usize, value: impl Fn(&mut Self) -> Value) -> Value {
        let members: Map<String, Value> = (0..self.below(most))
            .map(|_| (self.pick(&NAMES).to_owned(), value(self)))
            .collect();
        members.into()
    }

    fn schema(&mut self, depth: u32) -> Value {
        if self.below(12) == 0 {
            return json!(self.below(3) > 0);
        }
        let mut schema = Map::new();
        for _ in 0..=self.below(4) {
            self.keyword(&mut schema, depth);
        }
        schema.into()
    }

    fn schemas(&mut self, depth: u32) -> Value {
        (0..=self.below(3)).map(|_| self.schema(depth)).collect()
    }

    fn names(&mut self) -> Value {
        let mut names: Vec<&str> = (0..self.below(3)).map(|_| self.pick(&NAMES)).collect();
        names.sort_unstable();
        names.dedup();
        json!(names)
    }

    fn keyword(&mut self, schema: &mut Map<String, Value>, depth: u32) {
        let deeper = depth.saturating_sub(1);
        let (keyword, value) = match self.below(if depth == 0 { 17 } else { 39 }) {
            0 | 1 => ("type", self.pick(&TYPES).into()),
            2 => ("type", json!(["null", self.pick(&TYPES[1..])])),
            3 => ("enum", json!([self.value(1), [self.value(0)]])),
            4 => ("const", self.value(1)),
            5 => ("minimum", self.number()),
            6 => ("exclusiveMinimum", self.number()),
            7 => ("maximum", self.number()),
            8 => ("exclusiveMaximum", self.number()),
            9 => (
                "multipleOf",
                [json!(2), json!(1.5), json!(0.1)][self.below(3)].clone(),
            ),
            10 => (
                ["minLength", "maxLength"][self.below(2)],
                json!(self.below(4)),
            ),
            11 => ("pattern", self.pick(&PATTERNS).into()),
            12 => (
                ["minItems", "maxItems"][self.below(2)],
                json!(self.below(4)),
            ),
            13 => ("uniqueItems", json!(self.below(4) > 0)),
            14 => (
                ["minProperties", "maxProperties"][self.below(2)],
                json!(self.below(4)),
            ),
            15 => ("required", self.names()),
            16 => ("dependentRequired", self.object(3, Self::names)),
            17..=19 => ("properties", self.object(4, |random| random.schema(deeper))),
            20 => ("patternProperties", {
                let pattern = self.pick(&PATTERNS).to_owned();
                json!({ pattern: self.schema(deeper) })
            }),
            21 | 22 => ("additionalProperties", self.schema(deeper)),
            23 => ("propertyNames", self.schema(deeper)),
            24 => ("items", self.schema(deeper)),
            25 => ("prefixItems", self.schemas(deeper)),
            26 => ("contains", {
                if self.below(2) == 0 {
                    schema.insert("minContains".into(), json!(self.below(3)));
                    schema.insert("maxContains".into(), json!(self.below(4)));
                }
                self.schema(deeper)
            }),
            27 | 28 => ("allOf", self.schemas(deeper)),
            29 | 30 => ("anyOf", self.schemas(deeper)),
            31 | 32 => ("oneOf", self.schemas(deeper)),
            33 => ("not", self.schema(deeper)),
            34 => ("if", {
                schema.insert("then".into(), self.schema(deeper));
                schema.insert("else".into(), self.schema(deeper));
                self.schema(deeper)
            }),
            35 => (
                "dependentSchemas",
                self.object(3, |random| random.schema(deeper)),
            ),
            // The definitions refer to nothing, so these end.
            36 if depth > 1 => (
                "$ref",
                ["#/$defs/a", "#/definitions/b"][self.below(2)].into(),
            ),
            37 => ("unevaluatedProperties", self.schema(deeper)),
            _ => ("unevaluatedItems", self.schema(deeper)),
        };
        schema.insert(keyword.to_owned(), value);
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}
