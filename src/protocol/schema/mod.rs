//! JSON Schema: whether what a server returns is what it has promised.
//!
//! ```
//! use serde_json::value::RawValue;
//! use workers_agents::protocol::schema::Schema;
//!
//! let text = RawValue::from_string(r#"{"type":"object","required":["sum"]}"#.into())?;
//! let schema = Schema::compile(&text).unwrap();
//! let value = RawValue::from_string(r#"{"product":6}"#.into())?;
//! let violation = schema.validate(&value).unwrap_err();
//! assert_eq!(violation.to_string(), "the value lacks the member \"sum\" (required)");
//! # Ok::<_, serde_json::Error>(())
//! ```
//!
//! Spoken are 2020-12 (also where a schema does not say) and, declared by `$schema`, 2019-09,
//! draft-07 and draft-06. `format` and the keywords of content are annotations. Keywords that are
//! not known mean nothing, as the specification asks.
//!
//! Schemas and values come from others, so both are bounded: their size, how deep they go, and the
//! work that one validation may take. Nothing is ever fetched: a `$ref` that leads out of the
//! document makes the schema [`Uncheckable`].

mod check;
mod compile;
mod dialect;
mod json;
mod node;
pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod pattern;
mod resources;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::value::RawValue;

use super::clip;
use check::{Mismatch, Step, Stop};
use json::{Json, Unreadable};
use node::{Node, NodeId};

/// A schema, ready to check values.
pub struct Schema {
    nodes: Vec<Node>,
    dynamic: Vec<Box<[(usize, NodeId)]>>,
}

/// Why values cannot be checked against a schema. The texts are the schema's, cut to a sane length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Uncheckable {
    /// `$schema` names a dialect that is not spoken here.
    #[error("the schema's dialect is not supported: {0}")]
    UnknownDialect(String),
    /// A reference leads out of the document. Nothing is fetched.
    #[error("the schema refers to another document: {0}")]
    RemoteReference(String),
    /// A reference leads to nothing within the document.
    #[error("the schema refers to a part that it does not have: {0}")]
    DanglingReference(String),
    /// No regular expression, or one that cannot be matched in linear time.
    #[error("the schema has a pattern that is not supported: {0}")]
    BadPattern(String),
    /// A keyword has a value that it cannot have.
    #[error("the schema is malformed at \"{0}\"")]
    Malformed(&'static str),
    /// The schema is too large.
    #[error("the schema is too large")]
    TooLarge,
    /// The schema is too deeply nested.
    #[error("the schema is too deeply nested")]
    TooDeep,
}

/// Why a value was not accepted. Shows names of members, but no values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The value does not fit the schema.
    Mismatch {
        /// Where, as a JSON pointer; long ones lose their middle.
        path: String,
        /// The keyword that failed.
        keyword: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The check was not finished.
    GaveUp(Limit),
}

/// What a check ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// It took too much work.
    Work,
    /// The value is too deeply nested, or the schema led into itself too often.
    Depth,
    /// The value has too many parts.
    Size,
}

/// The text of a schema. 5 000 values of an `enum` are some 100 KB.
const MAX_SCHEMA: usize = 1024 * 1024;

/// The JSON values in the text of a schema.
const MAX_SCHEMA_VALUES: usize = 100_000;

/// The JSON values in a value to check: tens of bytes each.
const MAX_VALUES: usize = 500_000;

/// The steps that one validation may take: some 100 ns of Wasm each, less in patterns.
const MAX_STEPS: usize = 2_000_000;

impl Schema {
    /// Compiles the text of a schema.
    pub fn compile(text: &RawValue) -> Result<Self, Uncheckable> {
        if text.get().len() > MAX_SCHEMA {
            return Err(Uncheckable::TooLarge);
        }
        let document = Json::read(text, MAX_SCHEMA_VALUES).map_err(|why| match why {
            Unreadable::TooDeep => Uncheckable::TooDeep,
            Unreadable::TooManyValues => Uncheckable::TooLarge,
            Unreadable::NotJson => Uncheckable::Malformed("schema"),
        })?;
        let compiled = compile::compile(&document)?;
        Ok(Self {
            nodes: compiled.nodes,
            dynamic: compiled.dynamic,
        })
    }

    /// Checks a value.
    pub fn validate(&self, value: &RawValue) -> Result<(), Violation> {
        self.validate_within(value, MAX_STEPS)
    }

    fn validate_within(&self, value: &RawValue, max_steps: usize) -> Result<(), Violation> {
        let value = Json::read(value, MAX_VALUES).map_err(|why| {
            Violation::GaveUp(match why {
                Unreadable::TooDeep => Limit::Depth,
                Unreadable::TooManyValues | Unreadable::NotJson => Limit::Size,
            })
        })?;
        check::check(self, &value, max_steps).map_err(|stop| match stop {
            Stop::Mismatch(mismatch) => mismatch.into(),
            Stop::GaveUp(limit) => Violation::GaveUp(limit),
        })
    }
}

/// Schemas can be long, so only the number of their parts is shown.
impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("parts", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

impl From<Mismatch> for Violation {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch {
            path: pointer(&mismatch.path),
            keyword: mismatch.keyword,
            reason: clip(&mismatch.reason, 90),
        }
    }
}

/// At most 200 characters.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch {
                path,
                keyword,
                reason,
            } => {
                let subject = if path.is_empty() { "the value" } else { path };
                write!(f, "{subject} {reason} ({keyword})")
            }
            Self::GaveUp(limit) => write!(f, "the check gave up: {limit}"),
        }
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work => "too much work",
            Self::Depth => "nested too deeply",
            Self::Size => "the value has too many parts",
        })
    }
}

/// Some 80 characters of a path, both ends of it.
fn pointer(inside_out: &[Step]) -> String {
    let path: String = inside_out
        .iter()
        .rev()
        .map(|step| match step {
            Step::Name(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => format!("/{index}"),
        })
        .collect();
    let length = path.chars().count();
    if length <= 80 {
        return path;
    }
    let head: String = path.chars().take(38).collect();
    let tail: String = path.chars().skip(length - 38).collect();
    format!("{head}...{tail}")
}

/// A text of others within one of ours.
fn shown(text: &str) -> String {
    clip(text, 60)
}
