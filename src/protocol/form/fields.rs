//! The fields of a form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::super::schema::number::Decimal;
use super::super::schema::order::sorted;
use super::super::schema::pattern::{MAX_STATES, Pattern, Stopped};
use super::{FieldProblem, formats};

/// One field.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Field {
    /// Its name in the answer.
    pub name: String,
    /// The text for people, where the server gave one. Untrusted.
    pub title: Option<String>,
    /// More for people, where the server gave it. Untrusted.
    pub description: Option<String>,
    /// Whether an answer must have it.
    pub is_required: bool,
    /// What it is when the answer lacks it. Only a value that fits the kind.
    pub default: Option<Value>,
    /// What it takes.
    pub kind: FieldKind,
}

/// What a field takes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text.
    Text {
        /// The least number of characters.
        min_length: Option<u64>,
        /// The greatest number of characters.
        max_length: Option<u64>,
        /// The format, if it is one of the specification's.
        format: Option<Format>,
        /// What it must match.
        pattern: Option<TextPattern>,
    },
    /// A number.
    Number {
        /// Whether it must be whole.
        is_integer: bool,
        /// The least value.
        minimum: Option<Number>,
        /// The greatest value.
        maximum: Option<Number>,
    },
    /// Yes or no.
    Boolean,
    /// One of some texts.
    SingleChoice(Vec<Choice>),
    /// Any of some texts.
    MultipleChoice {
        /// The texts.
        choices: Vec<Choice>,
        /// The least number to choose.
        min_items: Option<u64>,
        /// The greatest number to choose.
        max_items: Option<u64>,
    },
    /// A construct that forms do not have. Show an error, or decline; do not guess.
    Unsupported,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What the answer has.
    pub value: String,
    /// What people see; often the value itself. Untrusted.
    pub title: String,
}

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `email`
    Email,
    /// `uri`
    Uri,
    /// `date`
    Date,
    /// `date-time`
    DateTime,
}

/// A pattern that an answer must match.
#[derive(Debug, Clone)]
pub struct TextPattern(Pattern);

/// The work of one pattern on one answer.
const MAX_STEPS: usize = 1_000_000;

impl FieldKind {
    pub(super) fn check(&self, value: &Value) -> Result<(), FieldProblem> {
        match self {
            Self::Text {
                min_length,
                max_length,
                format,
                pattern,
            } => {
                let text = value.as_str().ok_or(FieldProblem::WrongType)?;
                within(text.chars().count(), *min_length, *max_length)?;
                if format.is_some_and(|format| !format.fits(text)) {
                    return Err(FieldProblem::BadFormat);
                }
                match pattern {
                    Some(pattern) if !pattern.fits(text) => Err(FieldProblem::PatternMismatch),
                    _ => Ok(()),
                }
            }
            Self::Number {
                is_integer,
                minimum,
                maximum,
            } => {
                let Value::Number(number) = value else {
                    return Err(FieldProblem::WrongType);
                };
                let number = exact(number);
                if *is_integer && !number.is_integer() {
                    return Err(FieldProblem::WrongType);
                }
                if minimum
                    .as_ref()
                    .is_some_and(|minimum| number < exact(minimum))
                {
                    return Err(FieldProblem::TooSmall);
                }
                if maximum
                    .as_ref()
                    .is_some_and(|maximum| number > exact(maximum))
                {
                    return Err(FieldProblem::TooGreat);
                }
                Ok(())
            }
            Self::Boolean if value.is_boolean() => Ok(()),
            Self::Boolean => Err(FieldProblem::WrongType),
            Self::SingleChoice(choices) => {
                let text = value.as_str().ok_or(FieldProblem::WrongType)?;
                let is_known = choices.iter().any(|choice| choice.value == text);
                if is_known {
                    Ok(())
                } else {
                    Err(FieldProblem::NotAChoice)
                }
            }
            Self::MultipleChoice {
                choices,
                min_items,
                max_items,
            } => {
                let texts = texts(value).ok_or(FieldProblem::WrongType)?;
                within(texts.len(), *min_items, *max_items)?;
                // Both can be long, and the default of a field is the server's too.
                let known = choices.iter().map(|choice| choice.value.as_str());
                let known = sorted(known.collect(), Ord::cmp);
                let are_known = texts.iter().all(|text| known.binary_search(text).is_ok());
                if are_known {
                    Ok(())
                } else {
                    Err(FieldProblem::NotAChoice)
                }
            }
            Self::Unsupported => match value {
                Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(()),
                other if texts(other).is_some() => Ok(()),
                _ => Err(FieldProblem::WrongType),
            },
        }
    }
}

impl Format {
    fn named(name: &str) -> Option<Self> {
        match name {
            "email" => Some(Self::Email),
            "uri" => Some(Self::Uri),
            "date" => Some(Self::Date),
            "date-time" => Some(Self::DateTime),
            _ => None,
        }
    }

    fn fits(self, text: &str) -> bool {
        match self {
            Self::Email => formats::is_email(text),
            Self::Uri => formats::is_uri(text),
            Self::Date => formats::is_date(text),
            Self::DateTime => formats::is_date_time(text),
        }
    }
}

impl TextPattern {
    /// A pattern that would take too much work does not match.
    fn fits(&self, text: &str) -> bool {
        let mut left = MAX_STEPS;
        let matched = self.0.is_match(text, &mut |steps| {
            left = left.checked_sub(steps).ok_or(Stopped)?;
            Ok(())
        });
        matched.unwrap_or(false)
    }
}

fn within(count: usize, min: Option<u64>, max: Option<u64>) -> Result<(), FieldProblem> {
    let count = count as u64;
    if min.is_some_and(|min| count < min) {
        return Err(FieldProblem::TooShort);
    }
    if max.is_some_and(|max| count > max) {
        return Err(FieldProblem::TooLong);
    }
    Ok(())
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

fn exact(number: &Number) -> Decimal {
    Decimal::read(&number.to_string())
}

/// The members of a form that mean something here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireForm<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) properties: Properties<'a>,
    #[serde(default)]
    required: Value,
    #[serde(default)]
    pub(super) additional_properties: Option<Value>,
}

impl WireForm<'_> {
    pub(super) fn fields(&self) -> Vec<Field> {
        let required = texts(&self.required).unwrap_or_default();
        let mut states = MAX_STATES;
        let read = |(name, text): &(String, &RawValue)| {
            let property: Map<String, Value> = serde_json::from_str(text.get()).unwrap_or_default();
            let kind = kind(&property, &mut states).unwrap_or(FieldKind::Unsupported);
            let string = |member| Some(property.get(member)?.as_str()?.to_owned());
            Field {
                is_required: required.contains(&name.as_str()),
                name: name.clone(),
                title: string("title"),
                description: string("description"),
                // A default of another kind would make an answer that the server must refuse.
                default: (property.get("default"))
                    .filter(|default| kind.check(default).is_ok())
                    .cloned(),
                kind,
            }
        };
        let mut fields: Vec<Field> = Vec::new();
        for field in self.properties.0.iter().map(read) {
            // The last one of a name counts, as in JavaScript.
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => *known = field,
                None => fields.push(field),
            }
        }
        fields
    }
}

/// The kind of a property; `None` when it is not one of the specification's.
fn kind(property: &Map<String, Value>, states: &mut usize) -> Option<FieldKind> {
    let declared = match property.get("type") {
        Some(declared) => Some(declared.as_str()?),
        None => None,
    };
    let nested = ["$ref", "allOf", "not", "if", "const"];
    if nested.iter().any(|keyword| property.contains_key(*keyword)) {
        return None;
    }
    let has_choices = ["enum", "oneOf", "anyOf"]
        .iter()
        .any(|keyword| property.contains_key(*keyword));
    match declared {
        Some("string") | None if has_choices => Some(FieldKind::SingleChoice(choices(property)?)),
        _ if has_choices => None,
        Some("string") => Some(FieldKind::Text {
            min_length: optional(property, "minLength", count).ok()?,
            max_length: optional(property, "maxLength", count).ok()?,
            format: property
                .get("format")
                .and_then(Value::as_str)
                .and_then(Format::named),
            pattern: optional(property, "pattern", |text| {
                Pattern::compile(text.as_str()?, states)
                    .ok()
                    .map(TextPattern)
            })
            .ok()?,
        }),
        Some(kind @ ("number" | "integer")) => Some(FieldKind::Number {
            is_integer: kind == "integer",
            minimum: optional(property, "minimum", |value| value.as_number().cloned()).ok()?,
            maximum: optional(property, "maximum", |value| value.as_number().cloned()).ok()?,
        }),
        Some("boolean") => Some(FieldKind::Boolean),
        Some("array") => Some(FieldKind::MultipleChoice {
            choices: choices(property.get("items")?.as_object()?)?,
            min_items: optional(property, "minItems", count).ok()?,
            max_items: optional(property, "maxItems", count).ok()?,
        }),
        _ => None,
    }
}

/// Plain (`enum`), with titles beside them (`enumNames`), or with titles of their own.
fn choices(schema: &Map<String, Value>) -> Option<Vec<Choice>> {
    if let Some(values) = schema.get("enum") {
        let titles = schema.get("enumNames").and_then(Value::as_array);
        let title = |at: usize| titles?.get(at)?.as_str();
        let choice = |(at, value): (usize, &str)| Choice {
            value: value.to_owned(),
            title: title(at).unwrap_or(value).to_owned(),
        };
        return Some(texts(values)?.into_iter().enumerate().map(choice).collect());
    }
    let titled = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
    let choice = |option: &Value| {
        let value = option.get("const")?.as_str()?;
        let title = option.get("title").and_then(Value::as_str);
        Some(Choice {
            value: value.to_owned(),
            title: title.unwrap_or(value).to_owned(),
        })
    };
    titled.as_array()?.iter().map(choice).collect()
}

/// The value of a keyword that may be absent, but not be something else.
fn optional<T>(
    property: &Map<String, Value>,
    keyword: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, Malformed> {
    property
        .get(keyword)
        .map(|value| read(value).ok_or(Malformed))
        .transpose()
}

struct Malformed;

fn count(value: &Value) -> Option<u64> {
    exact(value.as_number()?).as_count()
}

/// Members in the order of the text.
#[derive(Default)]
pub(super) struct Properties<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Properties<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Properties<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(String, &RawValue)> = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Properties(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
