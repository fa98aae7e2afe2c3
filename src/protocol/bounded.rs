//! Reading JSON from others without letting a few bytes become much memory.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Whether the text is that of a JSON object.
pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// The text of one member of a JSON object; the last one wins when a name is repeated. The other
/// members are passed over unread.
pub(crate) fn raw_member<'a>(object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut deserializer = serde_json::Deserializer::from_str(object.get());
    Member(name).deserialize(&mut deserializer).ok().flatten()
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
    let text = raw_member(object, name)?.get();
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
