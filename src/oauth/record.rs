//! Records as they are stored: JSON objects of which every member may be missing or odd.
//!
//! By hand, because what a derive writes for that is ten times as large.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Record = Map<String, Value>;

/// A member of a record. What cannot be read counts as absent.
pub(crate) trait Member: Sized {
    fn read(value: Option<Value>) -> Self;
    /// `None` leaves the member out.
    fn write(&self) -> Option<Value>;
}

impl Member for Option<String> {
    fn read(value: Option<Value>) -> Self {
        match value {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    fn write(&self) -> Option<Value> {
        self.clone().map(Value::from)
    }
}

impl Member for String {
    fn read(value: Option<Value>) -> Self {
        Option::read(value).unwrap_or_default()
    }

    fn write(&self) -> Option<Value> {
        Some(self.clone().into())
    }
}

impl Member for Option<u64> {
    fn read(value: Option<Value>) -> Self {
        value.and_then(|value| value.as_u64())
    }

    fn write(&self) -> Option<Value> {
        self.map(Value::from)
    }
}

impl Member for u64 {
    fn read(value: Option<Value>) -> Self {
        Option::read(value).unwrap_or_default()
    }

    fn write(&self) -> Option<Value> {
        Some((*self).into())
    }
}

impl Member for bool {
    fn read(value: Option<Value>) -> Self {
        value == Some(Value::Bool(true))
    }

    fn write(&self) -> Option<Value> {
        self.then(|| true.into())
    }
}

impl Member for Option<bool> {
    fn read(value: Option<Value>) -> Self {
        value.and_then(|value| value.as_bool())
    }

    fn write(&self) -> Option<Value> {
        self.map(Value::from)
    }
}

impl Member for Option<Vec<String>> {
    fn read(value: Option<Value>) -> Self {
        let Some(Value::Array(values)) = value else {
            return None;
        };
        let texts = values.into_iter().map(|value| Option::read(Some(value)));
        texts.collect()
    }

    fn write(&self) -> Option<Value> {
        self.clone().map(Value::from)
    }
}

impl Member for BTreeMap<String, u32> {
    fn read(value: Option<Value>) -> Self {
        let Some(Value::Object(members)) = value else {
            return Self::new();
        };
        // One by one: collecting into a map is sorting first, and its code is long.
        let mut counts = Self::new();
        for (name, count) in members {
            if let Some(count) = count.as_u64().and_then(|count| u32::try_from(count).ok()) {
                counts.insert(name, count);
            }
        }
        counts
    }

    fn write(&self) -> Option<Value> {
        let mut members = Map::new();
        for (name, count) in self {
            members.insert(name.clone(), Value::from(*count));
        }
        (!members.is_empty()).then_some(Value::Object(members))
    }
}

/// Puts a member into a record, unless it is absent.
pub(crate) fn put(record: &mut Record, name: &str, member: &impl Member) {
    if let Some(value) = member.write() {
        record.insert(name.to_owned(), value);
    }
}

/// Takes a member out of a record.
pub(crate) fn take<M: Member>(record: &mut Record, name: &str) -> M {
    M::read(record.remove(name))
}

/// Reads and writes a struct as a record: every field with the name of its member.
macro_rules! record {
    ($type:ty { $($field:ident: $name:literal),* $(,)? }) => {
        impl $crate::oauth::Member for $type {
            fn read(value: Option<::serde_json::Value>) -> Self {
                let mut record = match value {
                    Some(::serde_json::Value::Object(record)) => record,
                    _ => $crate::oauth::Record::new(),
                };
                Self { $($field: $crate::oauth::take(&mut record, $name)),* }
            }

            fn write(&self) -> Option<::serde_json::Value> {
                let mut record = $crate::oauth::Record::new();
                $($crate::oauth::put(&mut record, $name, &self.$field);)*
                (!record.is_empty()).then(|| record.into())
            }
        }
    };
}
pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Default, PartialEq)]
    struct All {
        text: String,
        perhaps: Option<String>,
        number: u64,
        yes: bool,
        list: Option<Vec<String>>,
        counts: BTreeMap<String, u32>,
    }

    record! { All {
        text: "text",
        perhaps: "perhaps",
        number: "number",
        yes: "yes",
        list: "list",
        counts: "counts",
    }}

    #[test]
    fn what_is_written_is_read_and_what_is_odd_is_absent() {
        let all = All {
            text: "t".into(),
            perhaps: Some("p".into()),
            number: 5,
            yes: true,
            list: Some(vec!["a".into()]),
            counts: [("c".to_owned(), 2)].into(),
        };
        assert_eq!(All::read(all.write()), all);
        let odd = json!({
            "text": 1, "perhaps": null, "number": "5", "yes": "true", "list": ["a", 1], "counts": [],
        });
        assert_eq!(All::read(Some(odd)), All::default());
        assert_eq!(All::read(Some("odd".into())), All::default());
        assert_eq!(All::read(None), All::default());
    }
}
