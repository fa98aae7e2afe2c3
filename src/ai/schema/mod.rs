//! Schemas of arguments in the dialects that models take.
//!
//! A server's schema is read into one plain form ([`read`]), and each dialect is written from that.
//! What a dialect cannot say is left out, which only widens what is taken: the server checks its
//! arguments itself. Nothing here fails for good: a tool whose schema is beyond reading takes any
//! object, and that is reported.

mod merge;
mod null;
mod pointer;
mod prune;
mod read;
mod root;
mod strict;
mod tree;
mod write;

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::value::RawValue;

pub(crate) use prune::prune;
pub(crate) use read::Plain;

use root::permissive;
use tree::Node;

/// The longest schema that is written, in bytes.
const MAX_WRITTEN: usize = 64 << 10;

/// What a provider takes for a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Models of Workers AI: one type each, and a description for every argument.
    WorkersAi,
    /// OpenAI, and what is compatible with it, without strict mode.
    OpenAi,
    /// OpenAI in strict mode: closed objects, every member required, `null` for what is left out. A
    /// schema that strict mode cannot say is written without it, which is reported.
    OpenAiStrict,
    /// Anthropic: JSON Schema 2020-12, an object at the root, names of up to 64 characters.
    Anthropic,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 4] = [
        Self::WorkersAi,
        Self::OpenAi,
        Self::OpenAiStrict,
        Self::Anthropic,
    ];
}

/// A schema in a provider's dialect.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Converted {
    /// The schema: one JSON object.
    pub json: Rc<str>,
    /// Whether it can be used in strict mode.
    pub is_strict: bool,
    /// Why the schema was given up for one that takes any object.
    pub replaced: Option<String>,
    /// Why it is not strict though that was asked for.
    pub not_strict: Option<String>,
    /// What the dialect cannot say, and was left out.
    pub losses: BTreeSet<String>,
}

/// Converts the schema of a tool's arguments. `None` is a tool without arguments.
///
/// ```
/// use workers_agents::ai::{Dialect, convert_schema};
/// let schema = serde_json::value::RawValue::from_string(
///     r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#.into(),
/// )?;
/// let converted = convert_schema(Some(&schema), Dialect::OpenAiStrict);
/// assert_eq!(
///     &*converted.json,
///     r#"{"type":"object","properties":{"n":{"type":["integer","null"]}},"required":["n"],"additionalProperties":false}"#,
/// );
/// # Ok::<_, serde_json::Error>(())
/// ```
pub fn convert_schema(schema: Option<&RawValue>, dialect: Dialect) -> Converted {
    convert(&read_plain(schema), dialect)
}

/// A schema read once, or why that cannot be done.
pub(crate) type Reading = Result<Plain, String>;

pub(crate) fn read_plain(schema: Option<&RawValue>) -> Reading {
    read::read(schema)
}

pub(crate) fn convert(plain: &Reading, dialect: Dialect) -> Converted {
    let plain = match plain {
        Ok(plain) => plain,
        Err(reason) => return replaced(reason.clone()),
    };
    let mut losses = plain.losses.clone();
    let mut not_strict = None;
    if dialect == Dialect::OpenAiStrict {
        let mut own = losses.clone();
        match strict::strict(&plain.root, &mut own) {
            Ok(root) => return written(&root, true, None, own),
            Err(reason) => not_strict = Some(reason),
        }
    }
    let root = write::write(&plain.root, dialect, &mut losses);
    written(&root, false, not_strict, losses)
}

fn written(
    root: &Node,
    is_strict: bool,
    not_strict: Option<String>,
    losses: BTreeSet<String>,
) -> Converted {
    let json = root.to_json();
    if json.len() > MAX_WRITTEN {
        return replaced(format!(
            "it is longer than {MAX_WRITTEN} bytes when written"
        ));
    }
    Converted {
        json: json.into(),
        is_strict,
        replaced: None,
        not_strict,
        losses,
    }
}

fn replaced(reason: String) -> Converted {
    Converted {
        json: permissive().to_json().into(),
        is_strict: false,
        replaced: Some(reason),
        not_strict: None,
        losses: BTreeSet::new(),
    }
}
