//! The dialects of JSON Schema, and where in a schema others may stand.

/// A dialect this validator speaks, in order of age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

/// What a keyword holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Schema,
    /// A list of schemas, or one.
    Schemas,
    /// An object whose members are schemas; those that are not are passed over.
    Named,
}

impl Dialect {
    /// The dialect that `$schema` names.
    pub(super) fn named(uri: &str) -> Option<Self> {
        let uri = uri.trim_end_matches('#').to_ascii_lowercase();
        let path = uri
            .strip_prefix("https://")
            .or_else(|| uri.strip_prefix("http://"))?
            .strip_prefix("json-schema.org/")?;
        match path.trim_end_matches('/') {
            "draft/2020-12/schema" => Some(Self::Draft2020),
            "draft/2019-09/schema" => Some(Self::Draft2019),
            "draft-07/schema" | "draft-7/schema" => Some(Self::Draft7),
            "draft-06/schema" | "draft-6/schema" => Some(Self::Draft6),
            _ => None,
        }
    }

    /// Up to draft-07 nothing counts beside a `$ref`.
    pub(super) fn ref_stands_alone(self) -> bool {
        self <= Self::Draft7
    }

    pub(super) fn holds(self, keyword: &str) -> Option<Holds> {
        let (holds, since) = match keyword {
            "additionalProperties" | "propertyNames" | "contains" | "not" => {
                (Holds::Schema, Self::Draft6)
            }
            "if" | "then" | "else" => (Holds::Schema, Self::Draft7),
            "unevaluatedProperties" | "unevaluatedItems" => (Holds::Schema, Self::Draft2019),
            // 2020-12 renamed it; a list in `items` still shows what was meant.
            "additionalItems" => (Holds::Schema, Self::Draft6),
            "items" | "allOf" | "anyOf" | "oneOf" => (Holds::Schemas, Self::Draft6),
            "prefixItems" => (Holds::Schemas, Self::Draft2020),
            // `definitions` and `dependencies` are kept in later dialects for compatibility.
            "properties" | "patternProperties" | "definitions" | "dependencies" => {
                (Holds::Named, Self::Draft6)
            }
            "$defs" | "dependentSchemas" => (Holds::Named, Self::Draft2019),
            _ => return None,
        };
        (self >= since).then_some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tl_26_known_dialects_are_recognised_however_they_are_spelled() {
        for (uri, dialect) in [
            (
                "https://json-schema.org/draft/2020-12/schema",
                Some(Dialect::Draft2020),
            ),
            (
                "https://json-schema.org/draft/2020-12/schema#",
                Some(Dialect::Draft2020),
            ),
            (
                "http://json-schema.org/draft/2019-09/schema",
                Some(Dialect::Draft2019),
            ),
            (
                "http://json-schema.org/draft-07/schema#",
                Some(Dialect::Draft7),
            ),
            (
                "https://JSON-Schema.org/draft-07/schema",
                Some(Dialect::Draft7),
            ),
            (
                "http://json-schema.org/draft-06/schema#",
                Some(Dialect::Draft6),
            ),
            ("http://json-schema.org/draft-04/schema#", None),
            ("https://example.com/draft-07/schema", None),
            ("urn:x", None),
            ("", None),
        ] {
            assert_eq!(Dialect::named(uri), dialect, "{uri}");
        }
    }
}
