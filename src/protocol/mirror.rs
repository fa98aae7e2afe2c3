//! Tool arguments that servers ask to see in headers (MCP 2026-07-28, streamable-http and tools).
//!
//! A property of a tool's input schema may carry `"x-mcp-header": "Zone"`; the argument then also
//! goes out as `Mcp-Param-Zone`. An annotation that breaks the rules makes its tool invalid.
//! Mirrored values are visible to every intermediary and its logs.

use std::collections::HashSet;
use std::fmt;

use http::{HeaderName, HeaderValue};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::bounded::{Key, raw_member};
use super::clip;
use super::request::encode_header;
use super::schema::number::Decimal;

const ANNOTATION: &str = "x-mcp-header";

/// The mirrored arguments of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirrors(Vec<Mirror>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    header: HeaderName,
    /// The names of the properties that lead to the argument.
    path: Box<[Box<str>]>,
}

impl Mirrors {
    /// Reads the annotations of a tool's input schema.
    ///
    /// The whole schema is searched, because an annotation where no argument can be found (under
    /// `items`, `anyOf`, `$defs`, an unknown keyword) is an error too. What is data and no schema
    /// (`default`, `examples`, `const`, `enum`) is not searched.
    ///
    /// # Errors
    /// Why the tool must not be offered.
    pub fn read(input_schema: &RawValue) -> Result<Self, InvalidMirror> {
        let text = input_schema.get();
        // Most schemas have none. The name is ASCII, so a key that spells it otherwise has a
        // `\u00`.
        if !text.contains(ANNOTATION) && !text.contains("\\u00") {
            return Ok(Self::default());
        }
        let mut search = Search::default();
        let walk = Walk {
            search: &mut search,
            content: Content::Schema,
            place: Place::Root,
        };
        match walk.deserialize(&mut serde_json::Deserializer::from_str(text)) {
            Ok(()) => Ok(Self(search.found)),
            Err(_) => Err(search.problem.unwrap_or(InvalidMirror::Unreadable)),
        }
    }

    /// Whether the tool mirrors nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers of a call with these arguments.
    ///
    /// An argument that is absent or `null` has no header, and neither has one that is neither
    /// string, integer nor boolean: that the server refuses itself.
    ///
    /// # Errors
    /// When an integer is too large for the header to say the same as the body to every server.
    pub fn headers(
        &self,
        arguments: Option<&RawValue>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, UnmirroredInteger> {
        let mut headers = Vec::new();
        let Some(arguments) = arguments else {
            return Ok(headers);
        };
        for Mirror { header, path } in &self.0 {
            let argument = path
                .iter()
                .try_fold(arguments, |value, name| raw_member(value, name));
            let Some(text) = argument.map_or(Ok(None), plain)? else {
                continue;
            };
            if let Ok(mut value) = HeaderValue::from_str(&encode_header(&text)) {
                value.set_sensitive(true);
                headers.push((header.clone(), value));
            }
        }
        Ok(headers)
    }
}

/// The largest integer that every JSON parser reads exactly.
const MAX_INTEGER: i64 = (1 << 53) - 1;
/// One more than that.
const TOO_LARGE: &str = "9007199254740992";

/// The text that stands for an argument, before it is made fit for a header.
fn plain(argument: &RawValue) -> Result<Option<String>, UnmirroredInteger> {
    let text = argument.get();
    match text.as_bytes().first() {
        Some(b'"') => Ok(serde_json::from_str(text).ok()),
        Some(b't' | b'f') => Ok(Some(text.to_owned())),
        Some(b'-' | b'0'..=b'9') => integer(text),
        _ => Ok(None),
    }
}

fn integer(text: &str) -> Result<Option<String>, UnmirroredInteger> {
    if let Ok(integer) = text.parse::<i64>() {
        let is_exact = (-MAX_INTEGER..=MAX_INTEGER).contains(&integer);
        return is_exact
            .then(|| Some(integer.to_string()))
            .ok_or(UnmirroredInteger);
    }
    // JSON Schema takes `42.0` and `4.2e1` for integers too.
    let (sign, size) = match text.strip_prefix('-') {
        Some(size) => ("-", size),
        None => ("", text),
    };
    let size = Decimal::read(size);
    match size.as_count() {
        Some(0) => Ok(Some("0".to_owned())),
        Some(size) if size <= MAX_INTEGER.unsigned_abs() => Ok(Some(format!("{sign}{size}"))),
        None if size < Decimal::read(TOO_LARGE) => Ok(None),
        // Where numbers are rounded, it is an integer even with a fraction.
        Some(_) | None => Err(UnmirroredInteger),
    }
}

/// An argument that must be mirrored is an integer beyond ±(2^53−1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an argument that goes into a header is an integer beyond ±(2^53-1)")]
pub struct UnmirroredInteger;

/// Why a tool's annotations make it unusable. Names are the server's, cut to a sane length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMirror {
    /// The annotation is not a string.
    #[error("property \"{property}\": x-mcp-header is not a string")]
    NotText {
        /// Where it stands.
        property: String,
    },
    /// The annotation is empty or no token (RFC 9110, 5.6.2).
    #[error("property \"{property}\": x-mcp-header {name:?} is not a header name")]
    BadName {
        /// Where it stands.
        property: String,
        /// What it says.
        name: String,
    },
    /// The property is not declared as a string, an integer or a boolean.
    #[error("property \"{property}\": only strings, integers and booleans can go into a header")]
    BadType {
        /// Where it stands.
        property: String,
    },
    /// The annotation is on no property, or on one that a chain of `properties` does not reach.
    #[error("x-mcp-header {name:?} stands where no argument can be found")]
    Misplaced {
        /// What it says.
        name: String,
    },
    /// Two annotations name one header; upper and lower case do not matter.
    #[error("x-mcp-header {name:?} is used twice")]
    Repeated {
        /// What the second one says.
        name: String,
    },
    /// There are more annotations than this client sends headers for.
    #[error("more than {MAX_MIRRORS} properties have an x-mcp-header")]
    TooMany,
    /// The schema cannot be searched: it is nested too deeply.
    #[error("the input schema is nested too deeply to look for x-mcp-header")]
    Unreadable,
}

/// Every annotation costs a look through the arguments and a header.
const MAX_MIRRORS: usize = 64;
/// The longest name in an error, in characters.
const MAX_SHOWN: usize = 64;

#[derive(Default)]
struct Search {
    found: Vec<Mirror>,
    /// Every header named so far, in lower case.
    names: HashSet<HeaderName>,
    problem: Option<InvalidMirror>,
}

impl Search {
    /// Takes note of an annotation, or says what is wrong with it.
    fn note(
        &mut self,
        place: Place<'_>,
        annotation: &RawValue,
        kind: Option<&RawValue>,
    ) -> Result<(), InvalidMirror> {
        let property = || clip(&place.path().join("."), MAX_SHOWN);
        let name: String =
            serde_json::from_str(annotation.get()).map_err(|_| InvalidMirror::NotText {
                property: property(),
            })?;
        let shown = || clip(&name, MAX_SHOWN);
        let header = header(&name).ok_or_else(|| InvalidMirror::BadName {
            property: property(),
            name: shown(),
        })?;
        let Place::Property(_) = place else {
            return Err(InvalidMirror::Misplaced { name: shown() });
        };
        let kind: Option<String> = kind.and_then(|kind| serde_json::from_str(kind.get()).ok());
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(InvalidMirror::BadType {
                property: property(),
            });
        }
        if !self.names.insert(header.clone()) {
            return Err(InvalidMirror::Repeated { name: shown() });
        }
        if self.found.len() == MAX_MIRRORS {
            return Err(InvalidMirror::TooMany);
        }
        let path = place.path().into_iter().map(Box::from).collect();
        self.found.push(Mirror { header, path });
        Ok(())
    }
}

fn header(name: &str) -> Option<HeaderName> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_|~`".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return None;
    }
    HeaderName::from_bytes(format!("mcp-param-{name}").as_bytes()).ok()
}

/// Where a schema stands, as a list that grows on the stack.
#[derive(Clone, Copy)]
enum Place<'p> {
    Root,
    Property(&'p Step<'p>),
    Elsewhere,
}

struct Step<'p> {
    above: Place<'p>,
    name: &'p str,
}

impl<'p> Place<'p> {
    fn path(self) -> Vec<&'p str> {
        let (mut path, mut place) = (Vec::new(), self);
        while let Self::Property(step) = place {
            path.push(step.name);
            place = step.above;
        }
        path.reverse();
        path
    }
}

/// What the members of an object are.
#[derive(Clone, Copy)]
enum Content {
    /// Keywords of a schema.
    Schema,
    /// Schemas by names of the author's choice.
    Named,
}

/// Walks a schema in one pass. The parser refuses what is nested more than 128 deep.
struct Walk<'s, 'p> {
    search: &'s mut Search,
    content: Content,
    place: Place<'p>,
}

impl<'p> Walk<'_, 'p> {
    fn below<'b>(&'b mut self, content: Content, place: Place<'b>) -> Walk<'b, 'b>
    where
        'p: 'b,
    {
        Walk {
            search: self.search,
            content,
            place,
        }
    }

    fn schema<'de, A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (mut annotation, mut kind) = (None, None);
        let place = self.place;
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                ANNOTATION => annotation = Some(map.next_value()?),
                "type" => kind = Some(map.next_value()?),
                "const" | "default" | "enum" | "examples" => {
                    map.next_value::<IgnoredAny>()?;
                }
                "properties" => map.next_value_seed(self.below(Content::Named, place))?,
                "$defs" | "definitions" | "dependencies" | "dependentSchemas"
                | "patternProperties" => {
                    map.next_value_seed(self.below(Content::Named, Place::Elsewhere))?;
                }
                _ => map.next_value_seed(self.below(Content::Schema, Place::Elsewhere))?,
            }
        }
        let Some(annotation) = annotation else {
            return Ok(());
        };
        self.search.note(place, annotation, kind).map_err(|error| {
            self.search.problem = Some(error);
            A::Error::custom("")
        })
    }

    fn named<'de, A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let above = self.place;
        while let Some(Key(name)) = map.next_key()? {
            let step = Step { above, name: &name };
            let place = match above {
                Place::Root | Place::Property(_) => Place::Property(&step),
                Place::Elsewhere => Place::Elsewhere,
            };
            map.next_value_seed(self.below(Content::Schema, place))?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a schema")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match self.content {
            Content::Schema => self.schema(map),
            Content::Named => self.named(map),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let item = self.below(Content::Schema, Place::Elsewhere);
            if seq.next_element_seed(item)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    fn read(schema: &str) -> Result<Mirrors, InvalidMirror> {
        Mirrors::read(&raw(schema))
    }

    fn headers(schema: &str, arguments: &str) -> Vec<(String, String)> {
        let mirrors = read(schema).unwrap();
        let headers = mirrors.headers(Some(&raw(arguments))).unwrap();
        headers
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn values_go_out_as_the_specification_writes_them() {
        for (argument, value) in [
            (r#""bergen""#, Some("bergen")),
            (r#""us west 1""#, Some("us west 1")),
            (r#""\u00c6r\u00f8""#, Some("=?base64?w4Zyw7g=?=")),
            (r#"" x""#, Some("=?base64?IHg=?=")),
            (r#""a\tb""#, Some("=?base64?YQli?=")),
            (r#""a\r\nb""#, Some("=?base64?YQ0KYg==?=")),
            (r#""""#, Some("=?base64??=")),
            (r#""null""#, Some("null")),
            ("42", Some("42")),
            ("-7", Some("-7")),
            ("-0", Some("0")),
            ("-0.0", Some("0")),
            ("42.0", Some("42")),
            ("4.2e1", Some("42")),
            ("9007199254740991", Some("9007199254740991")),
            ("-9007199254740991", Some("-9007199254740991")),
            ("-4.20E+1", Some("-42")),
            ("4200e-2", Some("42")),
            ("0e5", Some("0")),
            ("1.5", None),
            ("-4.2", None),
            ("9007199254740991.5", None),
            ("true", Some("true")),
            ("false", Some("false")),
            ("null", None),
            ("[1]", None),
            (r#"{"a":1}"#, None),
        ] {
            let sent = headers(
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"Zone"}}}"#,
                &format!(r#"{{"a":{argument}}}"#),
            );
            let expected = value.map(|value| ("mcp-param-zone".to_owned(), value.to_owned()));
            assert_eq!(sent, Vec::from_iter(expected), "{argument}");
        }
    }

    #[test]
    fn an_integer_that_servers_may_read_differently_is_not_sent() {
        let mirrors =
            read(r#"{"properties":{"a":{"type":"integer","x-mcp-header":"A"}}}"#).unwrap();
        for argument in [
            "9007199254740992",
            "-9007199254740992",
            "9007199254740992.5",
            "9007199254740992.0",
            "-1e16",
            "1e300",
            "1e999",
        ] {
            let arguments = raw(&format!(r#"{{"a":{argument}}}"#));
            assert_eq!(mirrors.headers(Some(&arguments)), Err(UnmirroredInteger));
        }
    }

    #[test]
    fn arguments_are_found_at_their_exact_place() {
        let schema = r#"{"type":"object","properties":{
            "x-mcp-header":{"type":"string"},
            "properties":{"type":"object","properties":{"in.ner":{"type":"boolean","x-mcp-header":"Method"}}},
            "zone":{"type":"string","x-mcp-header":"z!#$%&'*+-.^_|~`9"},
            "other":{"type":"string","default":{"x-mcp-header":""},"enum":[{"x-mcp-header":1}]}}}"#;
        assert_eq!(
            headers(
                schema,
                r#"{"x-mcp-header":"no","properties":{"in.ner":true},"zone":"q","other":"no"}"#
            ),
            [
                ("mcp-param-method".to_owned(), "true".to_owned()),
                ("mcp-param-z!#$%&'*+-.^_|~`9".to_owned(), "q".to_owned())
            ]
        );
        for arguments in [
            "{}",
            "[]",
            "3",
            r#"{"properties":true}"#,
            r#"{"in.ner":true}"#,
        ] {
            assert_eq!(headers(schema, arguments), [], "{arguments}");
        }
        assert_eq!(read(schema).unwrap().headers(None), Ok(Vec::new()));
    }

    #[test]
    fn an_annotation_that_breaks_a_rule_is_named() {
        let property = |annotation: &str| format!(r#"{{"properties":{{"p":{{{annotation}}}}}}}"#);
        for (schema, reason) in [
            (
                property(r#""type":"string","x-mcp-header":"""#),
                r#"property "p": x-mcp-header "" is not a header name"#,
            ),
            (
                property(r#""type":"string","x-mcp-header":"My Region""#),
                r#"property "p": x-mcp-header "My Region" is not a header name"#,
            ),
            (
                property(r#""type":"string","x-mcp-header":"R:P""#),
                r#"property "p": x-mcp-header "R:P" is not a header name"#,
            ),
            (
                property(r#""type":"string","x-mcp-header":"Région""#),
                r#"property "p": x-mcp-header "Région" is not a header name"#,
            ),
            (
                property(r#""type":"string","x-mcp-header":"R\t1""#),
                r#"property "p": x-mcp-header "R\t1" is not a header name"#,
            ),
            (
                property(r#""type":"string","x-mcp-header":7"#),
                r#"property "p": x-mcp-header is not a string"#,
            ),
            (
                property(r#""x-mcp-h\u0065ader":null,"type":"string""#),
                r#"property "p": x-mcp-header is not a string"#,
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"Field"},
                    "b":{"properties":{"c":{"type":"string","x-mcp-header":"fIELD"}}}}}"#
                    .to_owned(),
                r#"x-mcp-header "fIELD" is used twice"#,
            ),
        ] {
            assert_eq!(read(&schema).unwrap_err().to_string(), reason, "{schema}");
        }
        for kind in [
            r#""type":"object","#,
            r#""type":"array","#,
            r#""type":"null","#,
            r#""type":"number","#,
            r#""type":["string"],"#,
            "",
        ] {
            let schema = property(&format!(r#"{kind}"x-mcp-header":"P""#));
            assert_eq!(
                read(&schema),
                Err(InvalidMirror::BadType {
                    property: "p".into()
                }),
                "{schema}"
            );
        }
    }

    #[test]
    fn an_annotation_where_no_argument_can_be_found_is_an_error() {
        const ANNOTATED: &str = r#"{"type":"string","x-mcp-header":"P"}"#;
        let in_properties = format!(r#"{{"properties":{{"q":{ANNOTATED}}}}}"#);
        for keyword in [
            "additionalProperties",
            "items",
            "not",
            "if",
            "then",
            "else",
            "contains",
            "unknown",
            "unevaluatedProperties",
        ] {
            for schema in [ANNOTATED, in_properties.as_str()] {
                for text in [
                    format!(r#"{{"{keyword}":{schema}}}"#),
                    format!(r#"{{"properties":{{"a":{{"{keyword}":{schema}}}}}}}"#),
                    format!(r#"{{"{keyword}":[true,{schema}]}}"#),
                ] {
                    let error = read(&text).unwrap_err();
                    assert_eq!(
                        error,
                        InvalidMirror::Misplaced { name: "P".into() },
                        "{text}"
                    );
                }
            }
        }
        for keyword in [
            "$defs",
            "definitions",
            "dependentSchemas",
            "patternProperties",
        ] {
            let text = format!(r#"{{"{keyword}":{{"default":{ANNOTATED}}}}}"#);
            let error = read(&text).unwrap_err();
            assert_eq!(
                error,
                InvalidMirror::Misplaced { name: "P".into() },
                "{text}"
            );
        }
        assert!(read(ANNOTATED).is_err(), "the root is no property");
    }

    #[test]
    fn hostile_schemas_cost_little() {
        let deep = |inner: &str, depth| {
            let (open, close) = (r#"{"items":"#.repeat(depth), "}".repeat(depth));
            format!("{open}{inner}{close}")
        };
        assert!(read(&deep("{}", 100_000)).unwrap().is_empty());
        let hidden = deep(r#"{"x-mcp-header":"P"}"#, 100_000);
        assert_eq!(read(&hidden), Err(InvalidMirror::Unreadable));
        let data = format!(
            r#"{{"properties":{{"a":{{"type":"string","x-mcp-header":"A","default":{}}}}}}}"#,
            deep("1", 100_000)
        );
        assert!(!read(&data).unwrap().is_empty());

        let many: Vec<String> = (0..=MAX_MIRRORS)
            .map(|n| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#))
            .collect();
        let schema = |count: usize| format!(r#"{{"properties":{{{}}}}}"#, many[..count].join(","));
        assert!(read(&schema(MAX_MIRRORS)).is_ok());
        assert_eq!(read(&schema(MAX_MIRRORS + 1)), Err(InvalidMirror::TooMany));
        let long = format!(r#"{{"x-mcp-header":"{}"}}"#, "x y".repeat(10_000));
        assert!(read(&long).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn schemas_without_annotations_mirror_nothing() {
        for schema in [
            "{}",
            "true",
            "null",
            r#""x-mcp-header""#,
            r#"{"description":"\u00e9 x-mcp-header","const":{"x-mcp-header":1}}"#,
            r#"{"properties":["x-mcp-header"]}"#,
        ] {
            assert!(read(schema).unwrap().is_empty(), "{schema}");
        }
    }

    #[test]
    fn mirrored_values_are_not_printed() {
        let mirrors = read(r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#).unwrap();
        let headers = mirrors.headers(Some(&raw(r#"{"a":"s3cret"}"#))).unwrap();
        assert!(!format!("{headers:?}").contains("s3cret"));
    }
}
