//! Schemas that nobody would write: each dialect takes all of them.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use workers_agents::ai::{Dialect, convert_schema};

use crate::rules::broken;

/// Xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn schema(&mut self, depth: u64) -> Value {
        if depth == 0 || self.below(12) == 0 {
            let odd = [
                json!(true),
                json!(false),
                json!({}),
                json!(null),
                json!(7),
                json!([]),
                json!({"$ref": "#"}),
                json!({"$ref": "#/$defs/a"}),
                json!({"$ref": "#nowhere"}),
            ];
            return self.pick(&odd).clone();
        }
        let mut schema = Map::new();
        for _ in 0..self.below(5) {
            let keyword = *self.pick(&[
                "type",
                "properties",
                "required",
                "items",
                "prefixItems",
                "anyOf",
                "oneOf",
                "allOf",
                "enum",
                "const",
                "not",
                "if",
                "additionalProperties",
                "patternProperties",
                "nullable",
                "minimum",
                "exclusiveMinimum",
                "minLength",
                "pattern",
                "format",
                "default",
                "$defs",
                "description",
                "additionalItems",
                "multipleOf",
                "contains",
                "uniqueItems",
            ]);
            let value = self.value(keyword, depth - 1);
            schema.insert(keyword.to_owned(), value);
        }
        Value::Object(schema)
    }

    fn value(&mut self, keyword: &str, depth: u64) -> Value {
        let odd = [
            json!(null),
            json!(-1),
            json!("x"),
            json!([]),
            json!({}),
            json!(true),
            json!(2.5),
        ];
        if self.below(8) == 0 {
            return self.pick(&odd).clone();
        }
        let list = |random: &mut Self| {
            (0..=random.below(3))
                .map(|_| random.schema(depth))
                .collect()
        };
        match keyword {
            "type" => {
                let kinds = [
                    "object", "array", "string", "number", "integer", "null", "boolean", "any",
                ];
                if self.below(3) == 0 {
                    json!([self.pick(&kinds), self.pick(&kinds), self.pick(&kinds)])
                } else {
                    json!(self.pick(&kinds))
                }
            }
            "properties" | "patternProperties" | "$defs" => {
                let names = ["a", "b", "$x", "ü", ""];
                (0..self.below(4))
                    .map(|_| ((*self.pick(&names)).to_owned(), self.schema(depth)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            "items" if self.below(4) == 0 => list(self),
            "prefixItems" | "anyOf" | "oneOf" | "allOf" => list(self),
            "required" => json!([self.pick(&["a", "b", "z"]), "a", 3]),
            "enum" => json!([self.pick(&odd), self.pick(&odd)]),
            "pattern" => json!(self.pick(&["^a$", "(?=a)"])),
            "format" => json!(self.pick(&["email", "uri"])),
            "minimum" | "minLength" | "multipleOf" => json!(self.below(9) + 1),
            "exclusiveMinimum" => json!(self.below(2) == 0),
            "nullable" | "uniqueItems" => json!(true),
            "description" => json!("a\u{e0041}b"),
            "const" | "default" => self.pick(&odd).clone(),
            _ => self.schema(depth),
        }
    }
}

#[test]
fn no_schema_makes_one_that_a_provider_refuses() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut strict, mut replaced) = (0, 0);
    for number in 0..5_000 {
        let mut schema = random.schema(5);
        if let Some(members) = schema.as_object_mut() {
            members.insert("type".into(), "object".into());
        }
        let raw = RawValue::from_string(schema.to_string()).unwrap();
        for dialect in Dialect::ALL {
            let converted = convert_schema(Some(&raw), dialect);
            let faults = broken(&converted, dialect);
            assert!(
                faults.is_empty(),
                "{number} {dialect:?}: {faults:#?}\n{schema}\n{}",
                converted.json
            );
            strict += u32::from(converted.is_strict);
            replaced += u32::from(converted.replaced.is_some());
        }
    }
    assert!(strict > 500, "only {strict} could be strict");
    assert!(replaced < 500, "{replaced} were given up");
}
