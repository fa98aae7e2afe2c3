//! The JSON Schema validator: a schema on the first line, a value on the second.

use serde_json::value::RawValue;
use workers_agents::protocol::schema::Schema;

use crate::lines;

pub fn check(input: &[u8]) {
    let Some([schema, value]) = lines(input) else {
        return;
    };
    let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).ok();
    let (Some(schema), Some(value)) = (raw(schema), raw(value)) else {
        return;
    };
    match Schema::compile(&schema) {
        // Reasons are for people, and say nothing long.
        Err(reason) => assert!(reason.to_string().chars().count() <= 500),
        Ok(schema) => {
            let first = schema.validate(&value);
            assert_eq!(first.is_ok(), schema.validate(&value).is_ok());
            if let Err(violation) = first {
                assert!(violation.to_string().chars().count() <= 1_000);
            }
        }
    }
}
