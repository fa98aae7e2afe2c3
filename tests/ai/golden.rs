//! Each schema in `schemas` is written in every dialect as `golden` has it. To write those files
//! anew, run with `BLESS=1`, and read what has changed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::value::RawValue;
use workers_agents::ai::{Dialect, convert_schema};

use crate::rules::broken;

#[test]
fn every_schema_is_written_as_recorded_and_as_each_provider_takes_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ai");
    let mut checked = 0;
    let mut differing = Vec::new();
    for entry in fs::read_dir(folder.join("schemas")).unwrap() {
        let path = entry.unwrap().path();
        let schema: Box<RawValue> =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut written = String::new();
        for dialect in Dialect::ALL {
            let converted = convert_schema(Some(&schema), dialect);
            let faults = broken(&converted, dialect);
            assert!(
                faults.is_empty(),
                "{path:?} {dialect:?}: {faults:#?}\n{}",
                converted.json
            );
            writeln!(written, "# {dialect:?}").unwrap();
            writeln!(written, "{}", converted.json).unwrap();
            if let Some(reason) = &converted.replaced {
                writeln!(written, "replaced: {reason}").unwrap();
            }
            if let Some(reason) = &converted.not_strict {
                writeln!(written, "not strict: {reason}").unwrap();
            }
            for loss in &converted.losses {
                writeln!(written, "lost: {loss}").unwrap();
            }
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let golden = folder.join("golden").join(format!("{name}.txt"));
        if std::env::var_os("BLESS").is_some() {
            fs::create_dir_all(folder.join("golden")).unwrap();
            fs::write(&golden, &written).unwrap();
        }
        if fs::read_to_string(&golden).unwrap_or_default() != written {
            differing.push(format!("{name}:\n{written}"));
        }
        checked += 1;
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(checked >= 12, "only {checked} schemas were found");
}

#[test]
fn what_cannot_be_read_takes_any_object() {
    let deep = format!("{}{}", r#"{"items":"#.repeat(90), "{}") + &"}".repeat(90);
    let wide = {
        let member = |n: usize| format!(r##""p{n}":{{"$ref":"#/$defs/b"}}"##);
        let members: Vec<String> = (0..100).map(member).collect();
        let fan = |to: &str| {
            let refs: Vec<String> = (0..20)
                .map(|n| format!(r##""q{n}":{{"$ref":"#/$defs/{to}"}}"##))
                .collect();
            format!(r#"{{"type":"object","properties":{{{}}}}}"#, refs.join(","))
        };
        format!(
            r#"{{"type":"object","$defs":{{"b":{},"c":{},"d":{{"type":"string"}}}},"properties":{{{}}}}}"#,
            fan("c"),
            fan("d"),
            members.join(",")
        )
    };
    let long = format!(
        r#"{{"type":"object","description":"{}"}}"#,
        "x".repeat(300_000)
    );
    for text in [deep, wide, long, "[1]".to_owned(), "7".to_owned()] {
        let schema = RawValue::from_string(text).unwrap();
        for dialect in Dialect::ALL {
            let converted = convert_schema(Some(&schema), dialect);
            assert!(broken(&converted, dialect).is_empty());
            assert!(converted.replaced.is_some() || schema.get().len() < 4);
        }
    }
    let absent = convert_schema(None, Dialect::OpenAi);
    assert_eq!(&*absent.json, r#"{"type":"object","properties":{}}"#);
}
