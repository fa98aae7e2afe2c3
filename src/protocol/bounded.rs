//! Reading JSON from others without letting a few bytes become much memory.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::slice;

use memchr::{memchr, memchr2};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Whether the text is that of a JSON object.
pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// One member of a JSON object; the last one wins when a name is repeated. The other members are
/// passed over unread.
///
/// Dearer than [`member_text`]: only a complete reading makes a [`RawValue`].
pub(crate) fn raw_member<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut deserializer = serde_json::Deserializer::from_str(object.get());
    Member(name).deserialize(&mut deserializer).ok().flatten()
}

/// The text of one member of a JSON object; the last one wins when a name is repeated.
pub(crate) fn member_text<'a>(object: &'a RawValue, name: &str) -> Option<&'a str> {
    member_of(object.get(), name)
}

/// As [`member_text`], of an object that is itself a part of a text known to be valid.
pub(crate) fn member_of<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    Cursor::over(object).object(|key, value| {
        let text = value.skip();
        if is_key(key, name) {
            found = Some(text);
        }
    });
    found
}

/// Whether objects and lists are nested at most `max` deep.
pub(crate) fn is_shallow(text: &str, max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            return false;
        }
    }
    true
}

/// How deep a member may be nested. Far from what the parser takes, so that it can still be read
/// when it is stored within something else.
const MAX_DEPTH: usize = 32;

/// One member, if its text is no longer than `max` bytes, not deeply nested, and reads as a `T`.
pub(crate) fn small_member<'a, T: Deserialize<'a>>(
    object: &'a RawValue,
    name: &str,
    max: usize,
) -> Option<T> {
    let text = member_text(object, name)?;
    if text.len() <= max && is_shallow(text, MAX_DEPTH) {
        serde_json::from_str(text).ok()
    } else {
        None
    }
}

/// The first `max` items of a JSON array, and whether there are more.
pub(crate) fn list<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    max: usize,
) -> serde_json::Result<(Vec<T>, bool)> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let items = List {
        max,
        item: PhantomData,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(items)
}

/// Walks over JSON that is known to be valid, so that quotes and brackets are all that it looks at.
/// Large answers are walked more than once, and this takes half the time of a parser.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    rest: slice::Iter<'a, u8>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(json: &'a RawValue) -> Self {
        Self::over(json.get())
    }

    fn over(text: &'a str) -> Self {
        Self {
            text,
            rest: text.as_bytes().iter(),
        }
    }

    /// Passes over an object. `member` gets the text of every key and must pass over the value.
    /// Any other value is passed over without a call.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&'a str, &mut Self)) {
        self.each(b'{', |this| {
            let key = this.skip();
            this.to(|byte| byte == b':');
            this.rest.next();
            member(key, this);
        });
    }

    /// Passes over a list. `item` must pass over the item. Any other value is passed over without a
    /// call.
    pub(crate) fn list(&mut self, item: impl FnMut(&mut Self)) {
        self.each(b'[', item);
    }

    fn each(&mut self, open: u8, mut item: impl FnMut(&mut Self)) {
        self.to(|byte| !byte.is_ascii_whitespace());
        if self.rest.as_slice().first() != Some(&open) {
            self.skip();
            return;
        }
        self.rest.next();
        loop {
            self.to(|byte| !byte.is_ascii_whitespace() && byte != b',');
            if matches!(self.rest.as_slice().first(), None | Some(b']' | b'}')) {
                self.rest.next();
                return;
            }
            item(self);
        }
    }

    /// Passes over a value of any type and returns its text.
    pub(crate) fn skip(&mut self) -> &'a str {
        self.to(|byte| !byte.is_ascii_whitespace());
        let start = self.at();
        let mut depth = 0_usize;
        let mut rest = self.rest.clone();
        while let Some(byte) = rest.as_slice().first() {
            match byte {
                b'"' => {
                    rest.next();
                    skip_string(&mut rest);
                }
                b'{' | b'[' => {
                    rest.next();
                    depth += 1;
                    continue;
                }
                b'}' | b']' if depth > 0 => {
                    rest.next();
                    depth -= 1;
                }
                _ if depth == 0 => {
                    self.rest = rest;
                    self.to(|byte| {
                        byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']')
                    });
                    rest = self.rest.clone();
                }
                _ => {
                    rest.next();
                    continue;
                }
            }
            if depth == 0 {
                break;
            }
        }
        self.rest = rest;
        self.text.get(start..self.at()).unwrap_or_default()
    }

    fn to(&mut self, wanted: impl Fn(u8) -> bool) {
        while self
            .rest
            .as_slice()
            .first()
            .is_some_and(|&byte| !wanted(byte))
        {
            self.rest.next();
        }
    }

    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }
}

/// Goes behind the closing quote.
fn skip_string(rest: &mut slice::Iter<'_, u8>) {
    while let Some(at) = memchr2(b'"', b'\\', rest.as_slice()) {
        // An escape is passed over with the byte that it escapes.
        if rest.nth(at) == Some(&b'"') {
            return;
        }
        rest.next();
    }
    *rest = [].iter();
}

/// Whether the text of a JSON string spells `name`.
pub(crate) fn is_key(text: &str, name: &str) -> bool {
    if text.contains('\\') {
        serde_json::from_str::<String>(text).is_ok_and(|key| key == name)
    } else {
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        inner == Some(name)
    }
}

/// Appends what the text of a JSON string spells. Anything else, and a string with half of a
/// surrogate pair, appends nothing and is `None`.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let before = out.len();
    out.reserve(inner.len());
    let mut rest = inner.as_bytes();
    while let Some(at) = memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        out.extend_from_slice(plain);
        let [_, escaped, behind @ ..] = escape else {
            return None;
        };
        out.push(match escaped {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            // Surrogate pairs and all: no reason to read them a second way.
            b'u' => {
                out.truncate(before);
                let text: String = serde_json::from_str(text).ok()?;
                out.extend_from_slice(text.as_bytes());
                return Some(());
            }
            itself => *itself,
        });
        rest = behind;
    }
    out.extend_from_slice(rest);
    Some(())
}

struct Member<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Key(key)) = map.next_key()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// `Cow<str>` borrows as a map key only through a wrapper.
#[derive(Deserialize)]
pub(crate) struct Key<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

struct List<T> {
    max: usize,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for List<T> {
    type Value = (Vec<T>, bool);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = (Vec<T>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.max {
            match seq.next_element()? {
                Some(item) => items.push(item),
                None => return Ok((items, false)),
            }
        }
        let mut has_more = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            has_more = true;
        }
        Ok((items, has_more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn a_member_is_found_whatever_stands_around_it() {
        let deep = format!(
            r#"{{"x":{}{},"\u0061":[1, 2]}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(raw_member(&raw(&deep), "a").unwrap().get(), "[1, 2]");
        assert_eq!(
            raw_member(&raw(r#"{"a":1,"a":2}"#), "a").unwrap().get(),
            "2"
        );
        assert_eq!(
            raw_member(&raw(r#"{"a":null}"#), "a").unwrap().get(),
            "null"
        );
        for text in ["{}", "[]", "null", "3", r#""a""#] {
            assert!(raw_member(&raw(text), "a").is_none(), "{text}");
        }
    }

    #[test]
    fn a_member_reads_the_same_by_the_cursor_and_by_the_parser() {
        let values = [
            "1",
            "-1.5e+3",
            "true",
            "null",
            "\"\"",
            r#""\\""#,
            r#""\"}],{[:\\\"""#,
            "[]",
            "{}",
            "[ ]",
            "{ }",
            r#"[1, [2], {"a":[{}]}, "]"]"#,
            r#"{"a": {"b" :1} , "c":"}"}"#,
        ];
        let keys = [r#""a""#, r#""\u0061""#, r#""\"a""#, r#""""#, r#""b""#];
        for (value, key) in values.iter().flat_map(|value| keys.map(|key| (value, key))) {
            for (open, gap, end) in [("{", "", "}"), (" {\n", " \t", "\r\n} ")] {
                let pair = format!("{key}{gap}:{gap}{value}{gap}");
                let first = format!(r#""first"{gap}:{gap}{value}{gap}"#);
                for members in [
                    pair.clone(),
                    format!("{first},{gap}{pair}"),
                    format!("{pair},{gap}{first}"),
                ] {
                    let text = format!("{open}{members}{end}");
                    let object = raw(&text);
                    for name in ["a", "\"a", "", "b", "first", "none"] {
                        let parsed = raw_member(&object, name).map(RawValue::get);
                        assert_eq!(member_text(&object, name), parsed, "{name} of {text}");
                    }
                }
            }
        }
        for text in ["[]", "null", "3", r#""a""#, r#"["a",{"a":1}]"#] {
            assert_eq!(member_text(&raw(text), "a"), None, "{text}");
        }
        assert_eq!(member_text(&raw(r#"{"a":1,"a":2}"#), "a"), Some("2"));
    }

    #[test]
    fn strings_are_read_as_the_parser_reads_them() {
        for text in [
            r#""""#,
            r#""aé日😀""#,
            r#""\"\\\/\b\f\n\r\t""#,
            r#""a\nb\u00e9\ud83d\ude00c""#,
        ] {
            let mut out = b"x".to_vec();
            push_string(&mut out, text).unwrap();
            let parsed: String = serde_json::from_str(text).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{parsed}"));
        }
        for text in ["3", "null", "[]", r#""a\ud83d""#] {
            let mut out = b"x".to_vec();
            assert!(push_string(&mut out, text).is_none(), "{text}");
            assert_eq!(out, b"x");
        }
    }

    #[test]
    fn a_member_that_is_too_long_or_of_another_type_is_none() {
        let object = raw(r#"{"a":"12345"}"#);
        assert_eq!(
            small_member::<String>(&object, "a", 7).as_deref(),
            Some("12345")
        );
        assert_eq!(small_member::<String>(&object, "a", 6), None);
        assert_eq!(small_member::<u32>(&object, "a", 7), None);
    }

    #[test]
    fn depth_is_that_of_objects_and_lists_alone() {
        for (text, depth) in [
            ("3", 0),
            (r#"{"a":[1,{"b":[]}]}"#, 4),
            (r#"["[[[[", "\\\"[[[", {}]"#, 2),
            ("[[],[],[]]", 2),
        ] {
            assert!(is_shallow(text, depth), "{text}");
            assert!(depth == 0 || !is_shallow(text, depth - 1), "{text}");
        }
    }

    #[test]
    fn a_list_is_cut_at_its_limit() {
        assert_eq!(list::<u8>(b" [1,2,3] ", 3).unwrap(), (vec![1, 2, 3], false));
        assert_eq!(
            list::<u8>(b"[1,2,3,[],{}]", 3).unwrap(),
            (vec![1, 2, 3], true)
        );
        for text in ["[1,2,3", "[1] x", "{}", "3", r#"["a"]"#] {
            assert!(list::<u8>(text.as_bytes(), 3).is_err(), "{text}");
        }
    }
}
