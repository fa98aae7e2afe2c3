use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::*;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn compile(text: &str) -> Result<Schema, Uncheckable> {
    Schema::compile(&raw(text))
}

fn validate(schema: &str, value: &str) -> Result<(), Violation> {
    compile(schema).unwrap().validate(&raw(value))
}

fn keyword(schema: &str, value: &str) -> &'static str {
    match validate(schema, value) {
        Ok(()) => "",
        Err(Violation::Mismatch { keyword, .. }) => keyword,
        Err(Violation::GaveUp(limit)) => panic!("gave up: {limit}"),
    }
}

#[test]
fn each_keyword_refuses_what_it_should_and_nothing_else() {
    for (schema, good, bad, fails) in CASES {
        if !good.is_empty() {
            assert_eq!(keyword(schema, good), "", "{schema} on {good}");
        }
        if !bad.is_empty() {
            assert_eq!(keyword(schema, bad), fails, "{schema} on {bad}");
        }
    }
}

#[test]
fn tl_25_a_violation_says_where_and_why_but_shows_no_value() {
    let schema = r#"{"properties":{"a/b":{"items":{"maxLength":3}}}}"#;
    let violation = validate(schema, r#"{"a/b":["x","secret"]}"#).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "/a~1b/1 has 6 characters, the limit is 3 (maxLength)"
    );
    let names = "n".repeat(5000);
    let deep = format!(r#"{{"{names}":{{"{names}":{{"{names}":1}}}}}}"#);
    let schema = r##"{"type":"object","additionalProperties":{"$ref":"#"}}"##;
    let text = validate(schema, &deep).unwrap_err().to_string();
    assert!(text.chars().count() <= 200, "{text}");
    assert!(
        text.ends_with("... is number instead of object (type)"),
        "{text}"
    );
}

#[test]
fn tl_26_definitions_recursion_and_older_drafts_are_checked() {
    let tree = r##"{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/tree",
        "definitions":{"tree":{"type":"object","properties":{"children":{"type":"array",
        "items":{"$ref":"#/definitions/tree"}}},"additionalProperties":false}}}"##;
    let nested = |inner: &str| {
        let mut text = inner.to_owned();
        for _ in 0..50 {
            text = format!(r#"{{"children":[{text},{{}}]}}"#);
        }
        text
    };
    assert_eq!(validate(tree, &nested("{}")), Ok(()));
    assert_eq!(keyword(tree, &nested(r#"{"x":1}"#)), "false");
    // Beside a `$ref` nothing counted in draft-07; now it does.
    let siblings = |schema: &str| {
        format!(
            r##"{{"$schema":"{schema}","definitions":{{"a":{{}}}},"$ref":"#/definitions/a","type":"null"}}"##
        )
    };
    assert_eq!(
        keyword(&siblings("http://json-schema.org/draft-07/schema"), "1"),
        ""
    );
    assert_eq!(
        keyword(
            &siblings("https://json-schema.org/draft/2020-12/schema"),
            "1"
        ),
        "type"
    );
}

#[test]
fn tl_26_what_cannot_be_checked_says_why() {
    for (schema, why) in [
        (
            r#"{"$ref":"http://m2.example/s.json"}"#,
            Uncheckable::RemoteReference("http://m2.example/s.json".into()),
        ),
        (
            r#"{"items":{"$dynamicRef":"x.json#a"}}"#,
            Uncheckable::RemoteReference("x.json#a".into()),
        ),
        (
            r##"{"$ref":"#/$defs/none"}"##,
            Uncheckable::DanglingReference("#/$defs/none".into()),
        ),
        (
            r#"{"$schema":"http://json-schema.org/draft-04/schema#"}"#,
            Uncheckable::UnknownDialect("http://json-schema.org/draft-04/schema#".into()),
        ),
        (
            r#"{"properties":{"a":{"pattern":"^(?=a)"}}}"#,
            Uncheckable::BadPattern("^(?=a)".into()),
        ),
        (r#"{"required":true}"#, Uncheckable::Malformed("required")),
        (r#"{"type":"any"}"#, Uncheckable::Malformed("type")),
        (r#"{"items":3}"#, Uncheckable::Malformed("schema")),
        ("[]", Uncheckable::Malformed("schema")),
    ] {
        assert_eq!(compile(schema).err(), Some(why), "{schema}");
    }
    let deep = format!("{}{}{}", r#"{"not":"#.repeat(5000), "{}", "}".repeat(5000));
    assert_eq!(compile(&deep).err(), Some(Uncheckable::TooDeep));
    let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(MAX_SCHEMA));
    assert_eq!(compile(&long).err(), Some(Uncheckable::TooLarge));
    let many = format!(r#"{{"enum":[{}0]}}"#, "0,".repeat(MAX_SCHEMA_VALUES));
    assert_eq!(compile(&many).err(), Some(Uncheckable::TooLarge));
}

#[test]
fn tl_26_a_huge_enum_is_fast() {
    let values: Vec<String> = (0..5000).map(|i| format!("\"value-{i}\"")).collect();
    let schema = format!(r#"{{"items":{{"enum":[{}]}}}}"#, values.join(","));
    let started = Instant::now();
    let all = format!("[{}]", values.join(","));
    assert_eq!(validate(&schema, &all), Ok(()));
    assert_eq!(keyword(&schema, r#"["value-5000"]"#), "enum");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn tl_26_no_schema_and_no_value_makes_a_check_run_on() {
    let doubling = |keyword: &str| {
        let mut definitions = String::from(r#""d0":{"type":"string"}"#);
        for i in 1..60 {
            let below = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, i - 1);
            write!(definitions, r#","d{i}":{{"{keyword}":[{below},{below}]}}"#).unwrap();
        }
        format!(r##"{{"$ref":"#/$defs/d59","$defs":{{{definitions}}}}}"##)
    };
    let long = format!("\"{}!\"", "a".repeat(200_000));
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let wide = format!("[{}0]", "0,".repeat(MAX_VALUES));
    let started = Instant::now();
    for (schema, value, limit) in [
        (doubling("allOf"), r#""a""#, Limit::Work),
        (doubling("anyOf"), "1", Limit::Work),
        (r##"{"$ref":"#"}"##.to_owned(), "1", Limit::Depth),
        (
            r##"{"allOf":[{"$ref":"#"}]}"##.to_owned(),
            "1",
            Limit::Depth,
        ),
        (r##"{"not":{"$ref":"#"}}"##.to_owned(), "1", Limit::Depth),
        (
            r#"{"pattern":"(a|a)*b{1,500}$"}"#.to_owned(),
            &long,
            Limit::Work,
        ),
        ("{}".to_owned(), &deep, Limit::Depth),
        ("{}".to_owned(), &wide, Limit::Size),
    ] {
        let schema = compile(&schema).unwrap();
        let result = schema.validate_within(&raw(value), 200_000);
        assert_eq!(result, Err(Violation::GaveUp(limit)));
    }
    // Catastrophic for an engine that backtracks.
    let long = format!("\"{}!\"", "a".repeat(20_000));
    assert_eq!(keyword(r#"{"pattern":"^(a+)+$"}"#, &long), "pattern");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn dynamic_references_lead_to_the_outermost_anchor() {
    let strict = r##"{"$id":"https://x.example/strict","$dynamicAnchor":"node","$ref":"tree",
        "unevaluatedProperties":false,"$defs":{"tree":{"$id":"https://x.example/tree",
        "$dynamicAnchor":"node","properties":{"data":true,"children":{"items":{"$dynamicRef":"#node"}}}}}}"##;
    assert_eq!(validate(strict, r#"{"children":[{"data":1}]}"#), Ok(()));
    assert_eq!(keyword(strict, r#"{"children":[{"daat":1}]}"#), "false");
}

/// A schema, a value that fits, one that does not, and the keyword that says so.
const CASES: [(&str, &str, &str, &str); 41] = [
    ("false", "", "1", "false"),
    (r#"{"type":"integer"}"#, "1.0", "1.5", "type"),
    (r#"{"type":["string","null"]}"#, "null", "true", "type"),
    (
        r#"{"enum":[1,{"a":[2.0]}]}"#,
        r#"{"a":[2]}"#,
        r#"{"a":["2"]}"#,
        "enum",
    ),
    (
        r#"{"const":9007199254740993}"#,
        "9007199254740993",
        "9007199254740992",
        "const",
    ),
    (r#"{"minimum":1}"#, "1", "0.9", "minimum"),
    (r#"{"exclusiveMinimum":1}"#, "1.1", "1", "exclusiveMinimum"),
    (r#"{"maximum":1}"#, "\"2\"", "2", "maximum"),
    (r#"{"exclusiveMaximum":1}"#, "0", "1", "exclusiveMaximum"),
    (r#"{"multipleOf":0.1}"#, "0.3", "0.35", "multipleOf"),
    (
        r#"{"minLength":2}"#,
        r#""ab""#,
        "\"\u{1f600}\"",
        "minLength",
    ),
    (
        r#"{"maxLength":1}"#,
        "\"\u{1f600}\"",
        r#""ab""#,
        "maxLength",
    ),
    (r#"{"pattern":"^a"}"#, r#""ab""#, r#""ba""#, "pattern"),
    (r#"{"minItems":1}"#, "[1]", "[]", "minItems"),
    (r#"{"maxItems":1}"#, "{}", "[1,2]", "maxItems"),
    (
        r#"{"uniqueItems":true}"#,
        r#"[1,true,"1"]"#,
        "[1,2,1.0]",
        "uniqueItems",
    ),
    (
        r#"{"minProperties":1}"#,
        r#"{"a":1}"#,
        "{}",
        "minProperties",
    ),
    (
        r#"{"maxProperties":0}"#,
        "{}",
        r#"{"a":1}"#,
        "maxProperties",
    ),
    (r#"{"required":["a"]}"#, r#"{"a":null}"#, "{}", "required"),
    (
        r#"{"dependentRequired":{"a":["b"]}}"#,
        r#"{"b":1}"#,
        r#"{"a":1}"#,
        "dependentRequired",
    ),
    (
        r#"{"dependentSchemas":{"a":{"maxProperties":1}}}"#,
        r#"{"b":1,"c":1}"#,
        r#"{"a":1,"b":1}"#,
        "maxProperties",
    ),
    (
        r#"{"properties":{"a":{"type":"null"}}}"#,
        r#"{"a":null,"b":1}"#,
        r#"{"a":1}"#,
        "type",
    ),
    (
        r#"{"patternProperties":{"^x-":false}}"#,
        r#"{"y":1}"#,
        r#"{"x-a":1}"#,
        "false",
    ),
    (
        r#"{"properties":{"a":{}},"additionalProperties":false}"#,
        r#"{"a":1}"#,
        r#"{"b":1}"#,
        "false",
    ),
    (
        r#"{"propertyNames":{"maxLength":1}}"#,
        r#"{"a":1}"#,
        r#"{"ab":1}"#,
        "propertyNames",
    ),
    (r#"{"items":{"type":"string"}}"#, r#"["a"]"#, "[1]", "type"),
    (
        r#"{"prefixItems":[true],"items":false}"#,
        "[1]",
        "[1,2]",
        "false",
    ),
    (
        r#"{"items":[true],"additionalItems":false}"#,
        "[1]",
        "[1,2]",
        "false",
    ),
    (r#"{"contains":{"const":1}}"#, "[2,1]", "[2]", "contains"),
    (
        r#"{"contains":{"const":1},"minContains":0,"maxContains":1}"#,
        "[]",
        "[1,1]",
        "maxContains",
    ),
    (
        r#"{"allOf":[{"type":"number"},{"minimum":1}]}"#,
        "1",
        "0",
        "minimum",
    ),
    (
        r#"{"anyOf":[{"type":"null"},{"const":1}]}"#,
        "1",
        "2",
        "anyOf",
    ),
    (
        r#"{"oneOf":[{"type":"number"},{"minimum":1}]}"#,
        "0",
        "1",
        "oneOf",
    ),
    (r#"{"not":{"type":"null"}}"#, "1", "null", "not"),
    (
        r#"{"if":{"type":"string"},"then":{"maxLength":0},"else":{"const":1}}"#,
        "1",
        r#""a""#,
        "maxLength",
    ),
    (
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"const":1}}}"##,
        "1",
        "2",
        "const",
    ),
    (
        r##"{"$ref":"#a","$defs":{"a":{"$anchor":"a","const":1}}}"##,
        "1",
        "2",
        "const",
    ),
    (
        r#"{"$id":"https://x.example/","$ref":"b","$defs":{"a":{"$id":"/b","const":1}}}"#,
        "1",
        "2",
        "const",
    ),
    (
        r#"{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}"#,
        r#"{"a":1}"#,
        r#"{"b":1}"#,
        "false",
    ),
    (
        r#"{"anyOf":[{"prefixItems":[true]}],"unevaluatedItems":false}"#,
        "[1]",
        "[1,2]",
        "false",
    ),
    (r#"{"format":"email","x-foo":1}"#, r#""no mail""#, "", ""),
];
