//! JSON as a tree that borrows from its text: numbers stay exact, members are found by name.
//!
//! `serde_json::Value` would round numbers, and let two bytes (`1,`) become two dozen without a limit.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::number::Decimal;
use super::order::sorted;

/// A JSON value.
#[derive(Debug)]
pub(super) enum Json<'t> {
    Null,
    Bool(bool),
    /// Its text.
    Number(&'t str),
    String(Cow<'t, str>),
    Array(Vec<Self>),
    /// Sorted by name, no name twice.
    Object(Vec<(Cow<'t, str>, Self)>),
}

/// Why a text did not become a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    TooDeep,
    TooManyValues,
    NotJson,
}

/// Reading and writing recurse as deep, checking about twice as deep.
const MAX_DEPTH: usize = 128;

impl<'t> Json<'t> {
    pub(super) fn read(text: &'t RawValue, max_values: usize) -> Result<Self, Unreadable> {
        Reader {
            text: text.get(),
            at: 0,
            depth: 0,
            values_left: max_values,
        }
        .value()
    }

    /// A member of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => find(members, name)
                .and_then(|at| members.get(at))
                .map(|m| &m.1),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The same text for all that JSON Schema calls equal, another for all else. `max` bounds its
    /// length.
    pub(super) fn canonical(&self, max: usize) -> Option<String> {
        let mut text = String::new();
        self.write(&mut text, max).then_some(text)
    }

    fn write(&self, to: &mut String, max: usize) -> bool {
        match self {
            Self::Null => to.push('n'),
            Self::Bool(value) => to.push(if *value { 't' } else { 'f' }),
            Self::Number(text) => {
                to.push_str(&Decimal::read(text).to_string());
                to.push(';');
            }
            Self::String(text) => write_text(text, to),
            Self::Array(items) => {
                to.push('[');
                for item in items {
                    if !item.write(to, max) {
                        return false;
                    }
                }
                to.push(']');
            }
            Self::Object(members) => {
                to.push('{');
                for (name, value) in members {
                    write_text(name, to);
                    if !value.write(to, max) {
                        return false;
                    }
                }
                to.push('}');
            }
        }
        to.len() <= max
    }
}

/// The place of a name among sorted members.
pub(super) fn find<N: AsRef<str>, T>(members: &[(N, T)], name: &str) -> Option<usize> {
    members
        .binary_search_by(|(known, _)| known.as_ref().cmp(name))
        .ok()
}

/// The length in front keeps `["a","b"]` apart from `["a\",\"b"]`.
fn write_text(text: &str, to: &mut String) {
    to.push('"');
    to.push_str(&text.len().to_string());
    to.push(':');
    to.push_str(text);
}

/// Reads text that is known to be JSON.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    values_left: usize,
}

impl<'t> Reader<'t> {
    fn value(&mut self) -> Result<Json<'t>, Unreadable> {
        self.values_left = (self.values_left.checked_sub(1)).ok_or(Unreadable::TooManyValues)?;
        Ok(match self.peek().ok_or(Unreadable::NotJson)? {
            b'{' => self.within(Self::object)?,
            b'[' => self.within(Self::array)?,
            b'"' => Json::String(self.string()?),
            _ => match self.word() {
                "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                "" => return Err(Unreadable::NotJson),
                number => Json::Number(number),
            },
        })
    }

    fn within(
        &mut self,
        read: fn(&mut Self) -> Result<Json<'t>, Unreadable>,
    ) -> Result<Json<'t>, Unreadable> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unreadable::TooDeep);
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Result<Json<'t>, Unreadable> {
        let mut items = Vec::new();
        while !self.take(b']') {
            items.push(self.value()?);
            self.take(b',');
        }
        Ok(Json::Array(items))
    }

    fn object(&mut self) -> Result<Json<'t>, Unreadable> {
        let mut members = Vec::new();
        while !self.take(b'}') {
            let name = match self.peek() {
                Some(b'"') => self.string()?,
                _ => return Err(Unreadable::NotJson),
            };
            self.take(b':');
            members.push((name, self.value()?));
            self.take(b',');
        }
        // The last one of a name counts, as in JavaScript; the sort is stable.
        members.reverse();
        let mut members = sorted(members, |(a, _), (b, _)| a.cmp(b));
        members.dedup_by(|(a, _), (b, _)| a == b);
        Ok(Json::Object(members))
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Unreadable> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut end = start;
        let mut is_plain = true;
        loop {
            match bytes.get(end).ok_or(Unreadable::NotJson)? {
                b'"' => break,
                b'\\' => {
                    is_plain = false;
                    end += 2;
                }
                _ => end += 1,
            }
        }
        self.at = end + 1;
        let text = self.text.get(start..end).ok_or(Unreadable::NotJson)?;
        if is_plain {
            return Ok(Cow::Borrowed(text));
        }
        let quoted = self.text.get(start - 1..=end).unwrap_or_default();
        // A lone surrogate fits no Rust string. Such a text stays as it is written.
        Ok(serde_json::from_str(quoted).map_or(Cow::Borrowed(text), Cow::Owned))
    }

    /// A literal or a number.
    fn word(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_end = |c: char| matches!(c, ',' | ']' | '}' | ':' | '"') || c.is_ascii_whitespace();
        let length = rest.find(is_end).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blanks = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.at += blanks;
        rest.get(blanks).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        Json::read(&raw, 1000).unwrap().canonical(10_000).unwrap()
    }

    #[test]
    fn equal_values_have_one_text_and_others_another() {
        for (a, b, is_equal) in [
            (
                r#"{"a":1,"b":[null,true]}"#,
                r#" { "b" : [ null , true ] , "\u0061" : 1.0 } "#,
                true,
            ),
            (r#""\ud83d\ude00\n\"\/""#, "\"\u{1f600}\\n\\u0022/\"", true),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, true),
            (r#"["a","b"]"#, r#"["a\",\"b"]"#, false),
            (r#"["a",["b"]]"#, r#"["a","b"]"#, false),
            ("0", "false", false),
            ("1", "true", false),
            ("\"1\"", "1", false),
            ("[1,2]", "[12]", false),
            ("[]", "{}", false),
            ("null", "[]", false),
            (r#""\ud800\n""#, r#""\ud800\u000a""#, false),
        ] {
            assert_eq!(canonical(a) == canonical(b), is_equal, "{a} {b}");
        }
    }

    #[test]
    fn every_text_agrees_with_the_usual_parser() {
        for text in [
            r#"{"a":[1,-2.5e3,"x\\",{}],"b":{"c":[[]],"":null}}"#,
            r#""a\\\"b""#,
            r#"[true ,false, null,"\u00e9\t"]"#,
        ] {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(canonical(text), canonical(&value.to_string()), "{text}");
        }
    }

    #[test]
    fn depth_and_number_of_values_are_bounded() {
        let deep = |depth| {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            RawValue::from_string(text).unwrap()
        };
        assert!(Json::read(&deep(MAX_DEPTH), 1000).is_ok());
        let error = Json::read(&deep(100_000), 1000).unwrap_err();
        assert_eq!(error, Unreadable::TooDeep);
        let many = RawValue::from_string("[1,1,1]".into()).unwrap();
        assert!(Json::read(&many, 4).is_ok());
        assert_eq!(Json::read(&many, 3).unwrap_err(), Unreadable::TooManyValues);
        assert!(Json::read(&many, 4).unwrap().canonical(5).is_none());
    }
}
