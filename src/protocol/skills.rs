//! Skills: instructions that a server offers as files (extension `io.modelcontextprotocol/skills`).
//!
//! `skills/list` and `skills/get` describe a skill by an entry: the URI of its `SKILL.md`, that file's
//! frontmatter, and every file with digest and size. The files themselves are resources. What is
//! read is checked against the entry before it is used; a match shows that both say the same, not
//! that either can be trusted.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::bounded::{self, raw_member, small_member};
use super::{ProtocolError, clip, frontmatter};

/// The extension's name among a server's capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/skills";

/// The method that lists skills.
pub(crate) const LIST: &str = "skills/list";
/// The method that gets one.
pub(crate) const GET: &str = "skills/get";

/// The most files of a skill that is loaded.
pub const MAX_FILES: usize = 512;
/// The most bytes that all files of a skill that is loaded may have.
pub const MAX_BYTES: u64 = 16 << 20;
/// The longest frontmatter of an entry, in bytes of JSON.
const MAX_FRONTMATTER: usize = 64 << 10;

/// A skill as its server describes it, kept as the text the server sent. Cloning is cheap.
///
/// It is named by its URI and the server it comes from; two skills may have the same name. All of
/// it is untrusted, `allowed-tools` of the frontmatter above all.
#[derive(Clone)]
pub struct Skill {
    json: Rc<RawValue>,
    uri: Rc<str>,
    frontmatter: Rc<Map<String, Value>>,
    /// `None` is a skill whose files change as they are read.
    files: Option<Rc<[SkillFile]>>,
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    uri: Rc<str>,
    sha256: [u8; 32],
    size: u64,
}

impl Skill {
    /// Takes the server's entry.
    ///
    /// # Errors
    /// Why the entry describes no skill. Such a one must not be loaded.
    pub fn from_json(json: Box<RawValue>) -> Result<Self, InvalidSkill> {
        let text =
            |name| -> Option<String> { serde_json::from_str(raw_member(&json, name)?.get()).ok() };
        let uri: Rc<str> = text("uri")
            .ok_or(InvalidSkill::Malformed("\"uri\" is no text"))?
            .into();
        let root =
            root(&uri).ok_or(InvalidSkill::Malformed("\"uri\" is not that of a SKILL.md"))?;
        let frontmatter: Map<String, Value> = small_member(&json, "frontmatter", MAX_FRONTMATTER)
            .ok_or(InvalidSkill::Malformed(
            "\"frontmatter\" is no object, or too large",
        ))?;
        let is_filled = |name| {
            let text = frontmatter.get(name).and_then(Value::as_str);
            text.is_some_and(|text| !text.is_empty())
        };
        if !is_filled("name") || !is_filled("description") {
            return Err(InvalidSkill::Malformed(
                "\"frontmatter\" lacks name or description",
            ));
        }
        let folder = root.rsplit('/').next();
        if folder != frontmatter.get("name").and_then(Value::as_str) {
            return Err(InvalidSkill::Malformed(
                "its name is not that of its folder",
            ));
        }
        let files = raw_member(&json, "resources")
            .ok_or(InvalidSkill::Malformed("\"resources\" is missing"))?;
        let files = if serde_json::from_str(files.get()).is_ok_and(|text: String| text == "dynamic")
        {
            None
        } else {
            Some(read_files(files, &uri, root)?)
        };
        Ok(Self {
            uri,
            frontmatter: frontmatter.into(),
            files,
            json: json.into(),
        })
    }

    /// The URI of its `SKILL.md`.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name, which is also the last folder in the URI. Not unique.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// What it is for, in the author's words. Untrusted.
    pub fn description(&self) -> &str {
        self.text("description")
    }

    fn text(&self, name: &str) -> &str {
        let text = self.frontmatter.get(name).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    /// The frontmatter of its `SKILL.md`, as the server lists it. Untrusted: what asks for
    /// permissions in it grants none.
    pub fn frontmatter(&self) -> &Map<String, Value> {
        &self.frontmatter
    }

    /// Its files, `SKILL.md` among them; `None` when the server says that they are made as they are
    /// read. Nothing can be checked then but the frontmatter.
    pub fn files(&self) -> Option<&[SkillFile]> {
        self.files.as_deref()
    }

    /// The entry as the server sent it.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// Checks a `SKILL.md` against the entry: size, digest, and the frontmatter member by member.
    ///
    /// # Errors
    /// What differs. The bytes must not be used then.
    pub fn verify(&self, skill_md: &[u8]) -> Result<(), SkillMismatch> {
        self.verify_file(&self.uri, skill_md)?;
        let unreadable = |reason| SkillMismatch::UnreadableFrontmatter { reason };
        let text = std::str::from_utf8(skill_md).map_err(|_| unreadable("it is not UTF-8"))?;
        let read = frontmatter::read(text).map_err(unreadable)?;
        let names: HashSet<&String> = read.keys().chain(self.frontmatter.keys()).collect();
        let differs = |name: &&String| {
            let (listed, read) = (self.frontmatter.get(*name), read.get(*name));
            !same(listed.unwrap_or(&Value::Null), read.unwrap_or(&Value::Null))
        };
        match names.into_iter().filter(differs).min() {
            None => Ok(()),
            Some(name) => Err(SkillMismatch::Frontmatter {
                member: clip(name, MAX_SHOWN),
            }),
        }
    }

    /// Checks a file, given by its URI, against the entry.
    ///
    /// # Errors
    /// What differs. The bytes must not be used then.
    pub fn verify_file(&self, uri: &str, bytes: &[u8]) -> Result<(), SkillMismatch> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(files) = &self.files else {
            return if size > MAX_BYTES {
                Err(SkillMismatch::TooLarge)
            } else {
                Ok(())
            };
        };
        let shown = || clip(uri, MAX_SHOWN);
        let file = files.iter().find(|file| *file.uri == *uri);
        let file = file.ok_or_else(|| SkillMismatch::Unlisted { path: shown() })?;
        if size != file.size {
            return Err(SkillMismatch::Size {
                uri: shown(),
                listed: file.size,
                read: size,
            });
        }
        if Sha256::digest(bytes)[..] != file.sha256 {
            return Err(SkillMismatch::Digest { uri: shown() });
        }
        Ok(())
    }

    /// Whether it is within the limits up to which skills are loaded.
    ///
    /// # Errors
    /// [`SkillMismatch::TooLarge`].
    pub fn check_size(&self) -> Result<(), SkillMismatch> {
        let files = self.files().unwrap_or_default();
        let bytes = files
            .iter()
            .try_fold(0_u64, |sum, file| sum.checked_add(file.size));
        if files.len() > MAX_FILES || bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
            return Err(SkillMismatch::TooLarge);
        }
        Ok(())
    }

    /// The URI of a file, from its path within the skill's folder (`references/FORMS.md`).
    ///
    /// The path is that of a file system: `.` and `..` are resolved, and nothing is percent-encoded
    /// in it.
    ///
    /// # Errors
    /// [`SkillMismatch::Unlisted`] when the path leaves the folder, or the entry lists no such file.
    pub fn resolve(&self, path: &str) -> Result<String, SkillMismatch> {
        let unlisted = || SkillMismatch::Unlisted {
            path: clip(path, MAX_SHOWN),
        };
        let root = root(&self.uri).ok_or_else(unlisted)?;
        let path = normalize(path).ok_or_else(unlisted)?;
        let encoded = format!("{root}/{}", encode(&path));
        let Some(files) = &self.files else {
            return Ok(encoded);
        };
        // Servers differ in what they encode.
        [format!("{root}/{path}"), encoded]
            .into_iter()
            .find(|uri| files.iter().any(|file| *file.uri == **uri))
            .ok_or_else(unlisted)
    }
}

impl SkillFile {
    /// The URI to read it by.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The SHA-256 of its bytes.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Serialize for Skill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl fmt::Debug for Skill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Skill").field(&self.uri).finish()
    }
}

/// Why an entry describes no skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSkill {
    /// A member is missing or has another type.
    #[error("the entry of the skill is malformed: {0}")]
    Malformed(&'static str),
    /// A file is not within the skill's folder, or not listed as the extension asks for.
    #[error("the entry of the skill lists a file that is none of it: {uri}")]
    BadFile {
        /// The file's URI, cut to a sane length.
        uri: String,
    },
    /// A file is listed twice.
    #[error("the entry of the skill lists a file twice: {uri}")]
    RepeatedFile {
        /// The file's URI, cut to a sane length.
        uri: String,
    },
    /// `SKILL.md` is not among the files.
    #[error("the entry of the skill does not list its SKILL.md")]
    Incomplete,
}

/// What was read is not what the skill's entry says. Asking for the entry again helps if the skill
/// has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkillMismatch {
    /// A file has another length.
    #[error("{uri} has {read} bytes, and {listed} were listed")]
    Size {
        /// The file.
        uri: String,
        /// The length in the entry.
        listed: u64,
        /// The length of what was read.
        read: u64,
    },
    /// A file has another digest.
    #[error("{uri} does not have the digest that was listed")]
    Digest {
        /// The file.
        uri: String,
    },
    /// The frontmatter says something else.
    #[error("the frontmatter's member {member:?} is not what was listed")]
    Frontmatter {
        /// The member that differs.
        member: String,
    },
    /// The frontmatter has a form that is not read here; see the module's limits.
    #[error("the frontmatter cannot be read: {reason}")]
    UnreadableFrontmatter {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The skill has no such file.
    #[error("the skill has no file {path:?}")]
    Unlisted {
        /// The path or URI that was asked for.
        path: String,
    },
    /// The answer to reading a file is not one text or blob.
    #[error("reading {uri} did not give one file")]
    NotOneFile {
        /// The file.
        uri: String,
    },
    /// The skill has more than [`MAX_FILES`] files or [`MAX_BYTES`] bytes.
    #[error("the skill has more than {MAX_FILES} files or {MAX_BYTES} bytes")]
    TooLarge,
}

/// The longest URI or name in an error, in characters.
const MAX_SHOWN: usize = 200;

/// A page of `skills/list`.
pub(crate) struct Page {
    pub(crate) entries: Vec<Box<RawValue>>,
    /// More entries than were asked for.
    pub(crate) has_more: bool,
    pub(crate) next_cursor: Option<String>,
}

impl Page {
    /// Reads a page, up to `max` entries of it.
    pub(crate) fn read(result: &RawValue, max: usize) -> Result<Self, ProtocolError> {
        let malformed = |reason: &str| ProtocolError::MalformedResult {
            method: LIST,
            reason: reason.to_owned(),
        };
        let entries =
            raw_member(result, "skills").ok_or_else(|| malformed("\"skills\" is missing"))?;
        let (entries, has_more) = bounded::list(entries.get().as_bytes(), max)
            .map_err(|_| malformed("\"skills\" is no list"))?;
        let next_cursor = raw_member(result, "nextCursor")
            .map(|cursor| serde_json::from_str(cursor.get()))
            .transpose()
            .map_err(|_| malformed("\"nextCursor\" is not a string"))?;
        Ok(Self {
            entries,
            has_more,
            next_cursor: next_cursor.flatten(),
        })
    }
}

/// The skill in a `skills/get` result, if it is the one that was asked for.
pub(crate) fn one(result: &RawValue, uri: &str) -> Result<Skill, ProtocolError> {
    let malformed = |reason: String| ProtocolError::MalformedResult {
        method: GET,
        reason,
    };
    let entry =
        raw_member(result, "skill").ok_or_else(|| malformed("\"skill\" is missing".into()))?;
    let skill = Skill::from_json(entry.to_owned()).map_err(|error| malformed(error.to_string()))?;
    if skill.uri() == uri {
        Ok(skill)
    } else {
        Err(malformed("it is another skill".into()))
    }
}

/// The bytes of the one file in a `resources/read` result.
///
/// # Errors
/// [`SkillMismatch::NotOneFile`]: whatever else is in the result would be used unchecked.
pub(crate) fn content(result: &RawValue, uri: &str) -> Result<Vec<u8>, SkillMismatch> {
    #[derive(Deserialize)]
    struct Content {
        text: Option<String>,
        blob: Option<String>,
    }
    let read = || {
        let contents = raw_member(result, "contents")?;
        let (mut contents, has_more) =
            bounded::list::<Content>(contents.get().as_bytes(), 1).ok()?;
        if has_more {
            return None;
        }
        match contents.pop()? {
            Content {
                text: Some(text),
                blob: None,
            } => Some(text.into_bytes()),
            Content {
                text: None,
                blob: Some(blob),
            } => BASE64.decode(blob).ok(),
            Content { .. } => None,
        }
    };
    read().ok_or_else(|| SkillMismatch::NotOneFile {
        uri: clip(uri, MAX_SHOWN),
    })
}

/// The folder of a `SKILL.md`.
fn root(uri: &str) -> Option<&str> {
    let root = uri.strip_suffix("/SKILL.md")?;
    let (scheme, path) = root.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (is_scheme && is_clean(path)).then_some(root)
}

/// Whether every reader of URIs finds the same segments in a path, none of which leads elsewhere.
fn is_clean(path: &str) -> bool {
    let is_odd = |c: char| c.is_control() || matches!(c, '\\' | '?' | '#');
    let lower = path.to_ascii_lowercase();
    let hides_a_slash = ["%2f", "%5c", "%00"]
        .iter()
        .any(|code| lower.contains(code));
    let is_dots = |segment: &str| matches!(&*segment.replace("%2e", "."), "" | "." | "..");
    !path.contains(is_odd) && !hides_a_slash && !lower.split('/').any(is_dots)
}

fn read_files(
    files: &RawValue,
    skill_uri: &str,
    root: &str,
) -> Result<Rc<[SkillFile]>, InvalidSkill> {
    #[derive(Deserialize)]
    struct Entry {
        uri: String,
        digest: String,
        size: u64,
    }
    // One more than is loaded, so that the skill can be listed and refused with the reason.
    let (entries, _) = bounded::list::<Entry>(files.get().as_bytes(), MAX_FILES + 1)
        .map_err(|_| InvalidSkill::Malformed("\"resources\" is no list of files"))?;
    let mut seen = HashSet::new();
    let mut files = Vec::with_capacity(entries.len());
    for Entry { uri, digest, size } in entries {
        let shown = || clip(&uri, MAX_SHOWN);
        let path = uri
            .strip_prefix(root)
            .and_then(|path| path.strip_prefix('/'));
        let sha256 = digest.strip_prefix("sha256:").and_then(unhex);
        let (true, Some(sha256)) = (path.is_some_and(is_clean), sha256) else {
            return Err(InvalidSkill::BadFile { uri: shown() });
        };
        if !seen.insert(uri.clone()) {
            return Err(InvalidSkill::RepeatedFile { uri: shown() });
        }
        files.push(SkillFile {
            uri: uri.into(),
            sha256,
            size,
        });
    }
    if !seen.contains(skill_uri) && files.len() <= MAX_FILES {
        return Err(InvalidSkill::Incomplete);
    }
    Ok(files.into())
}

/// 64 hexadecimal digits in lower case.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Resolves a relative path; `None` when it leaves its folder or is none.
fn normalize(path: &str) -> Option<String> {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." => {
                segments.pop()?;
            }
            "" => return None,
            _ if segment.contains(|c: char| c.is_control() || c == '\\') => return None,
            _ => segments.push(segment),
        }
    }
    (!segments.is_empty()).then(|| segments.join("/"))
}

/// Percent-encodes what may not stand in the path of a URI (RFC 3986, 3.3).
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Whether two values mean the same. JSON does not tell `1` from `1.0`, and neither do servers.
fn same(listed: &Value, read: &Value) -> bool {
    match (listed, read) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let equals = |(name, a)| b.get(name).is_some_and(|b| same(a, b));
            a.len() == b.len() && a.iter().all(equals)
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => listed == read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SKILL_MD: &str =
        "---\nname: pdf\ndescription: Fill in forms\nmetadata:\n  rank: 1.0\n---\n\nBody.\n";
    const FORMS: &str = "Forms.\n";

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn file(uri: &str, content: &str) -> Value {
        let digest: Vec<String> = Sha256::digest(content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        json!({"uri": uri, "digest": format!("sha256:{}", digest.concat()), "size": content.len()})
    }

    fn entry() -> Value {
        json!({
            "uri": "skill://acme/pdf/SKILL.md",
            "frontmatter": {"name": "pdf", "description": "Fill in forms", "metadata": {"rank": 1}},
            "resources": [
                file("skill://acme/pdf/SKILL.md", SKILL_MD),
                file("skill://acme/pdf/references/FORMS.md", FORMS),
                file("skill://acme/pdf/a%20b.md", FORMS),
                file("skill://acme/pdf/c d.md", FORMS),
            ],
            "later": 1,
        })
    }

    fn skill(entry: &Value) -> Skill {
        Skill::from_json(raw(entry)).unwrap()
    }

    fn with(mut entry: Value, pointer: &str, value: Value) -> Value {
        *entry.pointer_mut(pointer).unwrap() = value;
        entry
    }

    #[test]
    fn an_entry_is_read_and_kept() {
        let skill = skill(&entry());
        assert_eq!(skill.name(), "pdf");
        assert_eq!(skill.description(), "Fill in forms");
        let files = skill.files().unwrap();
        assert_eq!(files.len(), 4);
        assert_eq!(files[1].size(), 7);
        assert_eq!(serde_json::to_value(&skill).unwrap(), entry());
        let dynamic = with(entry(), "/resources", json!("dynamic"));
        assert!(Skill::from_json(raw(&dynamic)).unwrap().files().is_none());
    }

    #[test]
    fn an_entry_that_breaks_the_rules_is_no_skill() {
        let zeros = format!("sha256:{}", "0".repeat(63));
        for (pointer, value) in [
            ("/uri", json!("skill://acme/pdf/README.md")),
            ("/uri", json!("skill://acme/other/SKILL.md")),
            ("/uri", json!("/acme/pdf/SKILL.md")),
            ("/uri", json!(3)),
            ("/frontmatter", json!([])),
            ("/frontmatter", json!({"name": "pdf"})),
            ("/frontmatter/name", json!("pdf2")),
            ("/frontmatter/description", json!("")),
            (
                "/frontmatter/description",
                json!("x".repeat(MAX_FRONTMATTER)),
            ),
            ("/resources", json!(null)),
            ("/resources", json!("static")),
            ("/resources", json!({})),
            ("/resources", json!([])),
            ("/resources/0/uri", json!("skill://acme/pdf/other.md")),
            ("/resources/0/size", json!(-1)),
            ("/resources/0/size", json!(1.5)),
            ("/resources/0/digest", json!(zeros)),
            ("/resources/0/digest", json!(format!("{zeros}g"))),
            ("/resources/0/digest", json!(format!("{zeros}A"))),
            ("/resources/0/digest", json!(format!("md5{zeros}0"))),
            ("/resources/1/uri", json!("skill://acme/pdf/SKILL.md")),
            ("/resources/1/uri", json!("skill://acme/pdf")),
            ("/resources/1/uri", json!("skill://acme/pdf2/x.md")),
            ("/resources/1/uri", json!("skill://evil/pdf/x.md")),
            ("/resources/1/uri", json!("https://acme/pdf/x.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/../x.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/%2E./x.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/a%2F..%2fx.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/a\\x.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/a//x.md")),
            ("/resources/1/uri", json!("skill://acme/pdf/x.md?a")),
            ("/resources/1/uri", json!("skill://acme/pdf/x.md#a")),
        ] {
            let entry = with(entry(), pointer, value.clone());
            assert!(Skill::from_json(raw(&entry)).is_err(), "{pointer}: {value}");
        }
        for entry in [json!({}), json!(null), json!([])] {
            assert!(Skill::from_json(raw(&entry)).is_err(), "{entry}");
        }
        let entry = with(entry(), "/uri", json!("skill://../pdf/SKILL.md"));
        assert!(Skill::from_json(raw(&entry)).is_err());
    }

    #[test]
    fn only_what_was_listed_is_accepted() {
        let skill = skill(&entry());
        assert_eq!(skill.verify(SKILL_MD.as_bytes()), Ok(()));
        assert_eq!(
            skill.verify_file("skill://acme/pdf/references/FORMS.md", FORMS.as_bytes()),
            Ok(())
        );
        let uri = || "skill://acme/pdf/SKILL.md".to_owned();
        let longer = format!("{SKILL_MD}.");
        assert_eq!(
            skill.verify(longer.as_bytes()),
            Err(SkillMismatch::Size {
                uri: uri(),
                listed: 74,
                read: 75
            })
        );
        assert_eq!(
            skill.verify(SKILL_MD.replace("Body", "Evil").as_bytes()),
            Err(SkillMismatch::Digest { uri: uri() })
        );
        assert!(matches!(
            skill.verify_file("skill://acme/pdf/new.md", b""),
            Err(SkillMismatch::Unlisted { .. })
        ));
    }

    #[test]
    fn the_frontmatter_must_say_what_was_listed() {
        let dynamic = skill(&with(entry(), "/resources", json!("dynamic")));
        let mismatch = |member: &str| {
            Err(SkillMismatch::Frontmatter {
                member: member.into(),
            })
        };
        for (from, to, outcome) in [
            ("Body", "Other body", Ok(())),
            ("1.0", "1", Ok(())),
            ("Fill in forms", "\"Fill in forms\"", Ok(())),
            ("---\n\nBody", "license: ~\n---\n\nBody", Ok(())),
            ("Fill in forms", "Steal", mismatch("description")),
            ("name: pdf", "name: PDF", mismatch("name")),
            ("1.0", "'1'", mismatch("metadata")),
            ("  rank: 1.0", "  rank: 1\n  more: x", mismatch("metadata")),
            ("metadata:\n  rank: 1.0\n", "", mismatch("metadata")),
            (
                "name:",
                "allowed-tools: Bash\nname:",
                mismatch("allowed-tools"),
            ),
        ] {
            let text = SKILL_MD.replace(from, to);
            assert_eq!(dynamic.verify(text.as_bytes()), outcome, "{text}");
        }
        for bytes in [
            b"".as_slice(),
            b"# pdf",
            b"---\nname: \xff\n---\n",
            b"---\nname: &a pdf\n---\n",
        ] {
            assert!(matches!(
                dynamic.verify(bytes),
                Err(SkillMismatch::UnreadableFrontmatter { .. })
            ));
        }
    }

    #[test]
    fn paths_stay_within_the_skill() {
        let static_ = skill(&entry());
        let dynamic = skill(&with(entry(), "/resources", json!("dynamic")));
        for (path, listed, computed) in [
            ("SKILL.md", Some("SKILL.md"), Some("SKILL.md")),
            (
                "references/FORMS.md",
                Some("references/FORMS.md"),
                Some("references/FORMS.md"),
            ),
            (
                "./x/.././references/FORMS.md",
                Some("references/FORMS.md"),
                Some("references/FORMS.md"),
            ),
            ("a b.md", Some("a%20b.md"), Some("a%20b.md")),
            ("c d.md", Some("c d.md"), Some("c%20d.md")),
            ("%2e%2e/x", None, Some("%252e%252e/x")),
            ("é?#", None, Some("%C3%A9%3F%23")),
            ("", None, None),
            (".", None, None),
            ("..", None, None),
            ("x/../../y", None, None),
            ("/SKILL.md", None, None),
            ("references//FORMS.md", None, None),
            ("references/", None, None),
            ("..\\x", None, None),
            ("x\ny", None, None),
            ("skill://acme/pdf/SKILL.md", None, None),
        ] {
            let uri = |path: &str| format!("skill://acme/pdf/{path}");
            assert_eq!(static_.resolve(path).ok(), listed.map(uri), "{path}");
            assert_eq!(dynamic.resolve(path).ok(), computed.map(uri), "{path}");
        }
    }

    #[test]
    fn a_read_gives_one_file() {
        for (result, bytes) in [
            (json!({"contents": [{"uri": "u", "text": "é"}]}), Some("é")),
            (
                json!({"contents": [{"uri": "u", "blob": "w6k="}]}),
                Some("é"),
            ),
            (
                json!({"contents": [{"uri": "u", "text": "a", "blob": "w6k="}]}),
                None,
            ),
            (json!({"contents": [{"text": "a"}, {"text": "b"}]}), None),
            (json!({"contents": [{"blob": "?"}]}), None),
            (json!({"contents": [{}]}), None),
            (json!({"contents": []}), None),
            (json!({}), None),
        ] {
            let read = content(&raw(&result), "u").ok();
            assert_eq!(read.as_deref(), bytes.map(str::as_bytes), "{result}");
        }
    }

    #[test]
    fn large_skills_are_listed_and_not_loaded() {
        assert_eq!(skill(&entry()).check_size(), Ok(()));
        let many: Vec<Value> = (0..=MAX_FILES)
            .map(|n| file(&format!("skill://acme/pdf/{n}"), ""))
            .collect();
        let many = skill(&with(entry(), "/resources", many.into()));
        assert_eq!(many.check_size(), Err(SkillMismatch::TooLarge));
        for size in [MAX_BYTES, u64::MAX] {
            let large = skill(&with(entry(), "/resources/1/size", size.into()));
            assert_eq!(large.check_size(), Err(SkillMismatch::TooLarge));
        }
    }
}
