//! Elicitation: the forms that servers ask people to fill in, and the pages they want visited.
//!
//! A form is a flat JSON Schema of few constructs (MCP 2025-11-25, elicitation). This module reads
//! what a form asks for and checks answers; what a user sees is made from the server's own text,
//! which is handed on unchanged. Nothing here opens or fetches a page.

mod fields;
mod formats;
mod page;

use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub use fields::{Choice, Field, FieldKind, Format, TextPattern};
pub use page::{SafeUrl, UrlProblem, check_url};

use super::bounded::{is_object, is_shallow};
use super::clip;

/// What a server asks for.
#[derive(Debug, Clone)]
pub struct Form {
    fields: Vec<Field>,
    /// Whether other fields than these may be answered.
    is_open: bool,
}

/// A text that is no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// Not a schema of an object.
    #[error("the requested schema is not that of a form")]
    NotAForm,
    /// Too long, too deeply nested, or with too many fields.
    #[error("the requested schema is too large")]
    TooLarge,
}

/// What is wrong with an answer. Shows no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormProblem {
    /// The name of the field, cut to a sane length.
    pub field: String,
    /// What is wrong with it, as the rest of a sentence.
    pub reason: FieldProblem,
}

/// What is wrong with one field of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldProblem {
    /// It is required and has no value.
    #[error("is missing")]
    Missing,
    /// The form has no such field and allows no others.
    #[error("is not asked for")]
    Unknown,
    /// Not of the field's type, or of none that an answer may have.
    #[error("has the wrong type")]
    WrongType,
    /// Not one of the choices.
    #[error("is not one of the choices")]
    NotAChoice,
    /// A text with too few characters, or too few choices.
    #[error("is too short")]
    TooShort,
    /// A text with too many characters, or too many choices.
    #[error("is too long")]
    TooLong,
    /// Less than the minimum.
    #[error("is too small")]
    TooSmall,
    /// More than the maximum.
    #[error("is too large")]
    TooGreat,
    /// Not of the format that the field has.
    #[error("is not well-formed")]
    BadFormat,
    /// Does not match the field's pattern.
    #[error("does not match the pattern")]
    PatternMismatch,
}

/// The text of a form. People fill it in, so it cannot be long.
const MAX_FORM: usize = 256 * 1024;

/// The fields of a form.
const MAX_FIELDS: usize = 1000;

/// How deep a form goes; what is nested in it is unsupported, but may stand there.
const MAX_DEPTH: usize = 32;

impl Form {
    /// Reads a `requestedSchema`.
    ///
    /// Keywords that are not known are passed over, and a field of a kind that is not known is
    /// [`FieldKind::Unsupported`].
    pub fn read(schema: &RawValue) -> Result<Self, FormError> {
        let text = schema.get();
        if text.len() > MAX_FORM || !is_shallow(text, MAX_DEPTH) {
            return Err(FormError::TooLarge);
        }
        if !is_object(schema) {
            return Err(FormError::NotAForm);
        }
        let wire: fields::WireForm<'_> =
            serde_json::from_str(text).map_err(|_| FormError::NotAForm)?;
        if wire.kind.as_ref().is_some_and(|kind| kind != "object") {
            return Err(FormError::NotAForm);
        }
        if wire.properties.0.len() > MAX_FIELDS {
            return Err(FormError::TooLarge);
        }
        Ok(Self {
            is_open: wire.additional_properties != Some(Value::Bool(false)),
            fields: wire.fields(),
        })
    }

    /// The fields, in the server's order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Adds the default of each field that has one and is missing. What was answered stays.
    pub fn with_defaults(&self, mut content: Map<String, Value>) -> Map<String, Value> {
        for field in &self.fields {
            if let Some(default) = &field.default
                && !content.contains_key(&field.name)
            {
                content.insert(field.name.clone(), default.clone());
            }
        }
        content
    }

    /// Checks an answer; the first problem is returned.
    pub fn check(&self, content: &Map<String, Value>) -> Result<(), FormProblem> {
        for field in &self.fields {
            let result = match content.get(&field.name) {
                Some(value) => field.kind.check(value),
                None if field.is_required => Err(FieldProblem::Missing),
                None => Ok(()),
            };
            result.map_err(|reason| FormProblem::new(&field.name, reason))?;
        }
        for (name, value) in content {
            if self.fields.iter().any(|field| field.name == *name) {
                continue;
            }
            if !self.is_open {
                return Err(FormProblem::new(name, FieldProblem::Unknown));
            }
            FieldKind::Unsupported
                .check(value)
                .map_err(|reason| FormProblem::new(name, reason))?;
        }
        Ok(())
    }
}

impl FormProblem {
    fn new(field: &str, reason: FieldProblem) -> Self {
        Self {
            field: clip(field, 60),
            reason,
        }
    }
}

impl fmt::Display for FormProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field \"{}\" {}", self.field, self.reason)
    }
}

impl std::error::Error for FormProblem {}

#[cfg(test)]
mod tests;
