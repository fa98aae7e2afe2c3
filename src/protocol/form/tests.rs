use serde_json::json;

use super::*;

fn form(schema: &Value) -> Form {
    Form::read(&raw(&schema.to_string())).unwrap()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn content(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Every kind there is, with a default.
fn every_kind() -> Value {
    json!({"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "x-order": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 4, "default": "Ann"},
            "code": {"type": "string", "pattern": "^[A-Z]\\d$", "default": "A1"},
            "mail": {"type": "string", "format": "email", "default": "a@b.example"},
            "page": {"type": "string", "format": "uri", "default": "https://a.example/"},
            "day": {"type": "string", "format": "date", "default": "2024-02-29"},
            "when": {"type": "string", "format": "date-time", "default": "2024-02-29T00:00:00Z"},
            "other": {"type": "string", "format": "ipv4", "default": "x"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
            "score": {"type": "number", "minimum": 0.5, "default": 95.5},
            "agreed": {"type": "boolean", "default": false},
            "plain": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}], "default": "b"},
            "named": {"type": "string", "enum": ["a", "b"], "enumNames": ["A"], "default": "b"},
            "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2, "default": ["a", "b"]},
            "many-titled": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": ["a"]},
            "many-one-of": {"type": "array", "items": {"oneOf": [{"const": "a", "title": "A"}]}, "default": []},
        },
        "required": ["name", "agreed"]})
}

#[test]
fn defaults_fill_what_is_missing_and_leave_what_was_answered() {
    let schema = every_kind();
    let form = form(&schema);
    let filled = form.with_defaults(content(&json!({"name": "Bo", "extra": 1})));
    assert_eq!(form.check(&filled), Ok(()));
    assert_eq!(filled["name"], "Bo");
    assert_eq!(filled["extra"], 1);
    for (name, property) in schema["properties"].as_object().unwrap() {
        if name != "name" {
            assert_eq!(filled[name], property["default"], "{name}");
        }
    }
}

#[test]
fn el_11_an_answer_that_breaks_the_form_is_refused_and_the_field_named() {
    let form = form(&every_kind());
    for (field, bad, reason) in [
        ("name", json!(null), FieldProblem::WrongType),
        ("name", json!(3), FieldProblem::WrongType),
        ("name", json!("\u{1f600}"), FieldProblem::TooShort),
        ("name", json!("abcde"), FieldProblem::TooLong),
        ("code", json!("A11"), FieldProblem::PatternMismatch),
        ("mail", json!("nobody"), FieldProblem::BadFormat),
        ("page", json!("/x"), FieldProblem::BadFormat),
        ("day", json!("2023-02-29"), FieldProblem::BadFormat),
        ("when", json!("2023-02-28"), FieldProblem::BadFormat),
        ("age", json!(1.5), FieldProblem::WrongType),
        ("age", json!("30"), FieldProblem::WrongType),
        ("age", json!(-1), FieldProblem::TooSmall),
        ("age", json!(151), FieldProblem::TooGreat),
        ("score", json!(0.4), FieldProblem::TooSmall),
        ("agreed", json!("true"), FieldProblem::WrongType),
        ("plain", json!("c"), FieldProblem::NotAChoice),
        ("titled", json!("A"), FieldProblem::NotAChoice),
        ("named", json!("A"), FieldProblem::NotAChoice),
        ("many", json!("a"), FieldProblem::WrongType),
        ("many", json!([1]), FieldProblem::WrongType),
        ("many", json!([]), FieldProblem::TooShort),
        ("many", json!(["a", "b", "a"]), FieldProblem::TooLong),
        ("many", json!(["c"]), FieldProblem::NotAChoice),
        ("many-titled", json!(["A"]), FieldProblem::NotAChoice),
        ("extra", json!({}), FieldProblem::WrongType),
        ("extra", json!(null), FieldProblem::WrongType),
    ] {
        let mut answer = form.with_defaults(Map::new());
        answer.insert(field.to_owned(), bad.clone());
        let problem = form.check(&answer).unwrap_err();
        assert_eq!(
            (problem.field.as_str(), problem.reason),
            (field, reason),
            "{bad}"
        );
    }
    let problem = form.check(&content(&json!({"name": "Bo"}))).unwrap_err();
    assert_eq!(problem.to_string(), "the field \"agreed\" is missing");
}

#[test]
fn el_05_fields_keep_the_order_of_the_text() {
    let text = r#"{"type":"object","properties":{"z":{"type":"boolean","title":"Z"},
        "a":{"type":"string","enum":["x","y"],"enumNames":["X","Y"]},"m":{"type":"number","description":"M"}}}"#;
    let form = Form::read(&raw(text)).unwrap();
    let names: Vec<&str> = form
        .fields()
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["z", "a", "m"]);
    assert_eq!(form.fields()[0].title.as_deref(), Some("Z"));
    assert_eq!(form.fields()[2].description.as_deref(), Some("M"));
    let FieldKind::SingleChoice(choices) = &form.fields()[1].kind else {
        panic!("not a choice");
    };
    assert_eq!(
        (choices[1].value.as_str(), choices[1].title.as_str()),
        ("y", "Y")
    );
}

#[test]
fn constructs_that_forms_do_not_have_are_unsupported() {
    for property in [
        json!({"type": "object", "properties": {}}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "array"}),
        json!({"type": ["string", "null"]}),
        json!({"type": "number", "enum": [1]}),
        json!({"enum": ["a", 1]}),
        json!({"type": "string", "oneOf": [{"type": "string"}]}),
        json!({"type": "string", "pattern": "(?=a)"}),
        json!({"type": "string", "minLength": "1"}),
        json!({"$ref": "#/x", "type": "string"}),
        json!({}),
        json!(true),
    ] {
        let form = form(&json!({"type": "object", "properties": {"a": property}}));
        assert!(
            matches!(form.fields()[0].kind, FieldKind::Unsupported),
            "{property}"
        );
        assert_eq!(form.check(&content(&json!({"a": ["x"]}))), Ok(()));
        assert!(form.check(&content(&json!({"a": {}}))).is_err());
    }
}

#[test]
fn a_default_that_does_not_fit_its_field_is_no_default() {
    let form = form(&json!({"properties": {"a": {"type": "boolean", "default": "yes"}}}));
    assert!(form.with_defaults(Map::new()).is_empty());
}

#[test]
fn other_fields_are_refused_where_the_form_says_so() {
    let form = form(&json!({"type": "object", "properties": {}, "additionalProperties": false}));
    let problem = form.check(&content(&json!({"a": 1}))).unwrap_err();
    assert_eq!(problem.reason, FieldProblem::Unknown);
}

#[test]
fn what_is_no_form_is_refused() {
    let deep = format!(
        "{}{}",
        r#"{"properties":"#.repeat(200),
        "1".to_owned() + &"}".repeat(200)
    );
    let long = format!(r#"{{"properties":{{}},"x":"{}"}}"#, "x".repeat(MAX_FORM));
    for (text, error) in [
        ("true", FormError::NotAForm),
        ("[]", FormError::NotAForm),
        (r#"{"type":"array","properties":{}}"#, FormError::NotAForm),
        (r#"{"type":"object","properties":[]}"#, FormError::NotAForm),
        (r#"["object",{}]"#, FormError::NotAForm),
        (&deep, FormError::TooLarge),
        (&long, FormError::TooLarge),
    ] {
        assert_eq!(Form::read(&raw(text)).err(), Some(error), "{text:.60}");
    }
}
