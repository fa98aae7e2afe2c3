//! The official JSON Schema test suite, where `JSON_SCHEMA_TEST_SUITE` names a copy of it:
//! <https://github.com/json-schema-org/JSON-Schema-Test-Suite>.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use serde_json::value::RawValue;
use workers_agents::protocol::schema::{Schema, Uncheckable, Violation};

const DIALECTS: [(&str, &str); 4] = [
    ("draft6", "http://json-schema.org/draft-06/schema#"),
    ("draft7", "http://json-schema.org/draft-07/schema#"),
    (
        "draft2019-09",
        "https://json-schema.org/draft/2019-09/schema",
    ),
    (
        "draft2020-12",
        "https://json-schema.org/draft/2020-12/schema",
    ),
];

/// Optional files that are about `format` as an assertion, or other things not offered.
const LEFT_OUT: [&str; 2] = ["optional/format", "optional/content"];

#[test]
fn no_test_of_the_official_suite_is_answered_wrongly() {
    let Some(suite) = std::env::var_os("JSON_SCHEMA_TEST_SUITE") else {
        eprintln!("left out: JSON_SCHEMA_TEST_SUITE names no copy of the suite");
        return;
    };
    let mut wrong = Vec::new();
    for (folder, dialect) in DIALECTS {
        let root = Path::new(&suite).join("tests").join(folder);
        let (mut right, mut unchecked) = (0, BTreeMap::<String, usize>::new());
        for file in files(&root) {
            let name = file.strip_prefix(&root).unwrap().display().to_string();
            if LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
                continue;
            }
            let cases: Vec<Value> =
                serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            for case in cases {
                let mut schema = case["schema"].clone();
                if let Some(object) = schema.as_object_mut() {
                    object.entry("$schema").or_insert_with(|| dialect.into());
                }
                let compiled = Schema::compile(&raw(&schema));
                for test in case["tests"].as_array().unwrap() {
                    let label = format!(
                        "{folder}/{name}: {}: {}",
                        case["description"], test["description"]
                    );
                    let wanted = test["valid"].as_bool().unwrap();
                    match &compiled {
                        Err(error) => {
                            let kind = match error {
                                Uncheckable::RemoteReference(_) => "remote reference",
                                Uncheckable::UnknownDialect(_) => "unknown dialect",
                                Uncheckable::BadPattern(_) => "pattern",
                                _ => "OTHER",
                            };
                            *unchecked.entry(kind.into()).or_default() += 1;
                            if kind == "OTHER" {
                                wrong.push(format!("{label}: {error}"));
                            }
                        }
                        Ok(schema) => match schema.validate(&raw(&test["data"])) {
                            Ok(()) if wanted => right += 1,
                            Err(Violation::Mismatch { .. }) if !wanted => right += 1,
                            other => wrong.push(format!("{label}: {other:?}")),
                        },
                    }
                }
            }
        }
        println!("{folder}: {right} right, not checkable: {unchecked:?}");
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ext| ext == "json") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}
