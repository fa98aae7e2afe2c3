//! The YAML frontmatter of a `SKILL.md`, as a JSON object.
//!
//! Reads the part of YAML 1.2 that people write in frontmatter: block mappings and sequences, plain,
//! quoted and block scalars, and flow collections on one line, with the types of the core schema.
//! Everything else (anchors, aliases, tags, complex keys, directives, merge keys, tabs as
//! indentation) is refused, so that what is read here is what any YAML parser reads. A whole parser
//! would cost more Wasm than everything else that skills need.

use serde_json::{Map, Number, Value};

/// The longest frontmatter, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// How deep mappings and sequences may be nested.
const MAX_DEPTH: usize = 16;

/// Why frontmatter cannot be read.
pub(crate) type Problem = &'static str;

type Read<T> = Result<T, Problem>;

/// The frontmatter that the text begins with.
pub(crate) fn read(text: &str) -> Read<Map<String, Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text.split('\n');
    let is_fence = |line: &str| line.trim_end_matches([' ', '\t', '\r']) == "---";
    if !rest.next().is_some_and(is_fence) {
        return Err("it does not begin with ---");
    }
    let (mut lines, mut bytes, mut is_closed) = (Vec::new(), 0, false);
    for line in rest {
        if is_fence(line) {
            is_closed = true;
            break;
        }
        bytes += line.len() + 1;
        if bytes > MAX_BYTES {
            return Err("it is too long");
        }
        lines.push(Line::new(line.strip_suffix('\r').unwrap_or(line))?);
    }
    if !is_closed {
        return Err("it does not end with ---");
    }
    let mut reader = Reader { lines, at: 0 };
    match reader.node(0, 0)? {
        Value::Object(members) if reader.at >= reader.lines.len() => Ok(members),
        Value::Object(_) => Err("a line is indented wrongly"),
        _ => Err("it is no mapping"),
    }
}

#[derive(Clone, Copy)]
struct Line<'t> {
    /// Spaces before the text.
    indent: usize,
    text: &'t str,
}

impl<'t> Line<'t> {
    fn new(line: &'t str) -> Read<Self> {
        // Older parsers break lines at the last three.
        let is_odd = |c: char| {
            (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
        };
        if line.contains(is_odd) {
            return Err("it has a control character");
        }
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        if indent == 0 && (text == "..." || text.starts_with("... ") || text.starts_with("--- ")) {
            return Err("it has more than one document");
        }
        Ok(Self { indent, text })
    }

    fn is_blank(self) -> bool {
        self.text.trim_matches([' ', '\t']).is_empty()
    }

    fn is_comment(self) -> bool {
        self.text.starts_with('#')
    }

    fn is_item(self) -> bool {
        self.text == "-" || self.text.starts_with("- ")
    }

    /// What stands at `indent` and after, with the spaces beyond it.
    fn from(self, indent: usize) -> String {
        format!(
            "{}{}",
            " ".repeat(self.indent.saturating_sub(indent)),
            self.text
        )
    }
}

struct Reader<'t> {
    lines: Vec<Line<'t>>,
    at: usize,
}

impl<'t> Reader<'t> {
    /// The next line, whatever it holds.
    fn line(&self) -> Option<Line<'t>> {
        self.lines.get(self.at).copied()
    }

    /// The next line that is neither blank nor a comment.
    fn content(&mut self) -> Read<Option<Line<'t>>> {
        while let Some(line) = self.line() {
            if line.is_blank() || line.is_comment() {
                self.at += 1;
                continue;
            }
            if line.text.starts_with('\t') {
                return Err("a line is indented with a tab");
            }
            return Ok(Some(line));
        }
        Ok(None)
    }

    /// The node on the next lines, if they are indented by at least `min`; else null.
    fn node(&mut self, min: usize, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deeply");
        }
        match self.content()? {
            Some(line) if line.indent >= min && line.is_item() => self.sequence(line.indent, depth),
            Some(line) if line.indent >= min => self.mapping(line.indent, depth),
            _ => Ok(Value::Null),
        }
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Read<Value> {
        let mut members = Map::new();
        while let Some(line) = self.content()? {
            if line.indent < indent {
                break;
            }
            if line.indent > indent || line.is_item() {
                return Err("a line is indented wrongly");
            }
            let (key, rest) = key(line.text)?;
            let value = if rest.is_empty() || rest.starts_with('#') {
                self.at += 1;
                // The items of a sequence may stand right below its key.
                match self.content()? {
                    Some(next) if next.indent == indent && next.is_item() => {
                        self.sequence(indent, depth + 1)?
                    }
                    _ => self.node(indent + 1, depth + 1)?,
                }
            } else {
                self.scalar(rest, indent)?
            };
            if members.insert(key, value).is_some() {
                return Err("a key is repeated");
            }
        }
        Ok(Value::Object(members))
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Read<Value> {
        let mut items = Vec::new();
        while let Some(line) = self.content()? {
            if line.indent < indent || (line.indent == indent && !line.is_item()) {
                break;
            }
            if line.indent > indent {
                return Err("a line is indented wrongly");
            }
            let after = line.text.get(1..).unwrap_or_default();
            let rest = after.trim_start_matches(' ');
            let is_nested = rest == "-" || rest.starts_with("- ") || key(rest).is_ok();
            items.push(if rest.is_empty() || rest.starts_with('#') {
                self.at += 1;
                self.node(indent + 1, depth + 1)?
            } else if is_nested {
                // As if the dash were a space.
                let indent = indent + 1 + after.len() - rest.len();
                if let Some(line) = self.lines.get_mut(self.at) {
                    *line = Line { indent, text: rest };
                }
                self.node(indent, depth + 1)?
            } else {
                self.scalar(rest, indent)?
            });
        }
        Ok(Value::Array(items))
    }

    /// The scalar or flow collection that begins with `text`, on the next line; `indent` is that of
    /// the mapping or sequence around it.
    fn scalar(&mut self, text: &'t str, indent: usize) -> Read<Value> {
        self.at += 1;
        match text.as_bytes().first() {
            Some(b'|' | b'>') => self.block(text, indent).map(Value::String),
            Some(b'"' | b'\'') => self.quoted(text, indent).map(Value::String),
            Some(b'[' | b'{') => Flow(text).only(),
            _ => self.plain(text, indent),
        }
    }

    fn plain(&mut self, text: &'t str, indent: usize) -> Read<Value> {
        let (first, mut is_open) = plain_line(text)?;
        if !may_begin_plain(first) {
            return Err("a value begins with a character that has a meaning in YAML");
        }
        let mut folded = first.to_owned();
        let mut is_single = true;
        while is_open {
            let mut blanks = 0;
            let mut ahead = self.at;
            while self.lines.get(ahead).is_some_and(|line| line.is_blank()) {
                blanks += 1;
                ahead += 1;
            }
            let next = self.lines.get(ahead).copied();
            let Some(line) = next.filter(|line| line.indent > indent && !line.is_comment()) else {
                break;
            };
            if line.text.starts_with('\t') {
                return Err("a line is indented with a tab");
            }
            let (text, is_open_still) = plain_line(line.text)?;
            fold(&mut folded, blanks);
            folded.push_str(text);
            (is_open, is_single) = (is_open_still, false);
            self.at = ahead + 1;
        }
        if is_single {
            resolve(&folded)
        } else {
            Ok(Value::String(folded))
        }
    }

    fn quoted(&mut self, text: &'t str, indent: usize) -> Read<String> {
        let mut out = String::new();
        let (mut rest, is_double) = (text.get(1..).unwrap_or_default(), text.starts_with('"'));
        loop {
            // What an escape wrote is not trimmed at the end of a line.
            let mut kept = out.len();
            let (is_closed, after, is_joined) = quoted_line(rest, is_double, &mut out, &mut kept)?;
            if is_closed {
                let trimmed = after.trim_start_matches([' ', '\t']);
                let is_comment = trimmed.starts_with('#') && trimmed.len() < after.len();
                return if trimmed.is_empty() || is_comment {
                    Ok(out)
                } else {
                    Err("something follows a quoted value")
                };
            }
            let trimmed = out.trim_end_matches([' ', '\t']).len().max(kept);
            out.truncate(trimmed);
            let mut blanks = 0;
            while self.line().is_some_and(Line::is_blank) {
                blanks += 1;
                self.at += 1;
            }
            let line = self.line().filter(|line| line.indent > indent);
            let line = line.ok_or("a quoted value does not end")?;
            self.at += 1;
            if !is_joined || blanks > 0 {
                fold(&mut out, blanks);
            }
            rest = line.text.trim_start_matches([' ', '\t']);
        }
    }

    /// A literal (`|`) or folded (`>`) scalar.
    fn block(&mut self, header: &str, indent: usize) -> Read<String> {
        let is_folded = header.starts_with('>');
        let header = header.get(1..).unwrap_or_default();
        let (flags, comment) = header.split_once([' ', '\t']).unwrap_or((header, ""));
        let comment = comment.trim_start_matches([' ', '\t']);
        if !comment.is_empty() && !comment.starts_with('#') {
            return Err("something follows the mark of a block");
        }
        let keep = match flags {
            "" => None,
            "-" => Some(false),
            "+" => Some(true),
            _ => return Err("the mark of a block is not understood"),
        };

        let (mut lines, mut block) = (Vec::new(), None);
        while let Some(line) = self.line() {
            if line.is_blank() && block.is_none_or(|block| line.indent <= block) {
                if line.text.contains('\t') {
                    return Err("a line is indented with a tab");
                }
                if block.is_none() && line.indent > indent + 1 {
                    // Whether that is too much shows only later, so it had better not be there.
                    return Err("a block begins with a line of spaces");
                }
                lines.push(String::new());
            } else {
                let block = *block.get_or_insert(line.indent);
                if line.indent < block || block <= indent {
                    break;
                }
                lines.push(line.from(block));
            }
            self.at += 1;
        }
        let texts = lines.iter().rposition(|line| !line.is_empty());
        let count = texts.map_or(0, |last| last + 1);
        let blanks = lines.len() - count;
        lines.truncate(count);

        let mut out = if is_folded {
            folded(&lines)
        } else {
            lines.join("\n")
        };
        match keep {
            Some(true) => out.push_str(&"\n".repeat(blanks + usize::from(count > 0))),
            None if count > 0 => out.push('\n'),
            None | Some(false) => {}
        }
        Ok(out)
    }
}

/// Lines of a folded block: text lines flow together, lines that begin with a space do not.
fn folded(lines: &[String]) -> String {
    let is_deeper = |line: &str| line.starts_with([' ', '\t']);
    let (mut out, mut blanks) = (String::new(), 0);
    let mut above: Option<&String> = None;
    for line in lines {
        if line.is_empty() {
            blanks += 1;
            continue;
        }
        match above {
            None => out.push_str(&"\n".repeat(blanks)),
            Some(above) if is_deeper(above) || is_deeper(line) => {
                out.push_str(&"\n".repeat(blanks + 1));
            }
            Some(_) => fold(&mut out, blanks),
        }
        out.push_str(line);
        (above, blanks) = (Some(line), 0);
    }
    out
}

/// A line break within a scalar that flows: a space, or as many line breaks as lines are empty.
fn fold(out: &mut String, blanks: usize) {
    if blanks == 0 {
        out.push(' ');
    } else {
        out.push_str(&"\n".repeat(blanks));
    }
}

/// The part of a line that belongs to a plain scalar, and whether the next line may too.
fn plain_line(text: &str) -> Read<(&str, bool)> {
    let comment = [" #", "\t#"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let plain = comment.map_or(text, |at| text.get(..at).unwrap_or_default());
    let plain = plain.trim_end_matches([' ', '\t']);
    if plain.contains(": ") || plain.contains(":\t") || plain.ends_with(':') {
        return Err("a value has a colon and must be quoted");
    }
    Ok((plain, comment.is_none()))
}

fn may_begin_plain(text: &str) -> bool {
    let mut characters = text.chars();
    match characters.next() {
        None => false,
        Some('-' | '?' | ':') => characters
            .next()
            .is_some_and(|next| !matches!(next, ' ' | '\t')),
        Some(first) => !",[]{}#&*!|>'\"%@`".contains(first),
    }
}

/// Splits a line into a key and what follows the colon.
fn key(text: &str) -> Read<(String, &str)> {
    const NO_KEY: Problem = "a line is no key and value";
    let (key, rest) = if text.starts_with(['"', '\'']) {
        let (mut key, mut kept) = (String::new(), 0);
        let body = text.get(1..).unwrap_or_default();
        let (is_closed, rest, _) = quoted_line(body, text.starts_with('"'), &mut key, &mut kept)?;
        if !is_closed {
            return Err(NO_KEY);
        }
        let rest = rest.trim_start_matches(' ').strip_prefix(':');
        (key, rest.ok_or(NO_KEY)?)
    } else {
        let end = text
            .match_indices(':')
            .map(|(at, _)| at)
            .find(|at| matches!(text.as_bytes().get(at + 1), None | Some(b' ' | b'\t')))
            .ok_or(NO_KEY)?;
        let (key, rest) = text.split_at_checked(end).ok_or(NO_KEY)?;
        let key = key.trim_end_matches(' ');
        if !may_begin_plain(key) || key == "<<" || key.contains(" #") || key.contains('\t') {
            return Err("a key is not understood");
        }
        // Keys of JSON are texts; what another parser makes of others differs.
        if !matches!(resolve(key)?, Value::String(_)) {
            return Err("a key is no text");
        }
        (key.to_owned(), rest.get(1..).unwrap_or_default())
    };
    let value = rest.trim_start_matches([' ', '\t']);
    if !value.is_empty() && value.len() == rest.len() {
        return Err(NO_KEY);
    }
    Ok((key, value))
}

/// Reads a quoted scalar up to its closing quote or the end of the line. Gives whether it was
/// closed, what follows, and whether the line break is escaped; `kept` is set to the length of
/// what must not be trimmed.
fn quoted_line<'t>(
    text: &'t str,
    is_double: bool,
    out: &mut String,
    kept: &mut usize,
) -> Read<(bool, &'t str, bool)> {
    let quote = if is_double { '"' } else { '\'' };
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let rest = characters.as_str();
        if character == quote {
            if is_double || !rest.starts_with('\'') {
                return Ok((true, rest, false));
            }
            characters.next();
            out.push('\'');
        } else if character == '\\' && is_double {
            match characters.next() {
                None => {
                    *kept = out.len();
                    return Ok((false, "", true));
                }
                Some(escape) => {
                    out.push(unescape(escape, &mut characters)?);
                    *kept = out.len();
                }
            }
        } else {
            out.push(character);
        }
    }
    Ok((false, "", false))
}

fn unescape(escape: char, rest: &mut std::str::Chars<'_>) -> Read<char> {
    let digits = match escape {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    if digits > 0 {
        let (code, after) = rest.as_str().split_at_checked(digits).ok_or(BAD_ESCAPE)?;
        let is_hex = code.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = u32::from_str_radix(code, 16).ok().filter(|_| is_hex);
        *rest = after.chars();
        return code.and_then(char::from_u32).ok_or(BAD_ESCAPE);
    }
    Ok(match escape {
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        ' ' | '"' | '/' | '\\' => escape,
        _ => return Err(BAD_ESCAPE),
    })
}

const BAD_ESCAPE: Problem = "an escape is not understood";

/// The value of a plain scalar (YAML 1.2, core schema).
fn resolve(text: &str) -> Read<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let radix = |prefix, radix| {
        let digits = text
            .strip_prefix(prefix)
            .filter(|digits| !digits.starts_with(['+', '-']))?;
        i64::from_str_radix(digits, radix).ok()
    };
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Err("a number is none in JSON"),
        _ if matches!(unsigned, ".inf" | ".Inf" | ".INF") => {
            return Err("a number is none in JSON");
        }
        _ => {}
    }
    if let Some(integer) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Ok(integer.into());
    }
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    if !is_number {
        return Ok(Value::String(text.to_owned()));
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(integer) = text.parse::<i64>()
    {
        return Ok(integer.into());
    }
    // Dates, versions and the like have the characters of a number and are none.
    let number = text.parse::<f64>().ok();
    Ok(match number {
        None => Value::String(text.to_owned()),
        Some(number) => Value::Number(Number::from_f64(number).ok_or("a number is none in JSON")?),
    })
}

/// A flow collection on one line: what is left of it to read.
struct Flow<'t>(&'t str);

impl Flow<'_> {
    /// The collection, if nothing but a comment follows it.
    fn only(mut self) -> Read<Value> {
        let value = self.value(0)?;
        let rest = self.0.trim_start_matches([' ', '\t']);
        if rest.is_empty() || (rest.starts_with('#') && rest.len() < self.0.len()) {
            Ok(value)
        } else {
            Err("something follows a value in brackets")
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deeply");
        }
        match self.peek() {
            Some('[') => {
                let mut items = Vec::new();
                self.entries(']', |flow| {
                    items.push(flow.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Value::Array(items))
            }
            Some('{') => {
                let mut members = Map::new();
                self.entries('}', |flow| {
                    let key = flow.key()?;
                    let value = flow.value(depth + 1)?;
                    if members.insert(key, value).is_some() {
                        return Err("a key is repeated");
                    }
                    Ok(())
                })?;
                Ok(Value::Object(members))
            }
            Some('"' | '\'') => self.quoted().map(Value::String),
            _ => {
                let text = self.plain()?;
                resolve(text)
            }
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_start_matches([' ', '\t']);
        self.0.chars().next()
    }

    fn skip(&mut self) {
        let mut characters = self.0.chars();
        characters.next();
        self.0 = characters.as_str();
    }

    /// What stands between brackets, at the opening one.
    fn entries(&mut self, close: char, mut entry: impl FnMut(&mut Self) -> Read<()>) -> Read<()> {
        self.skip();
        while self.peek() != Some(close) {
            entry(self)?;
            match self.peek() {
                Some(',') => self.skip(),
                Some(next) if next == close => {}
                _ => return Err(UNCLOSED),
            }
        }
        self.skip();
        Ok(())
    }

    fn key(&mut self) -> Read<String> {
        let key = match self.peek() {
            Some('"' | '\'') => self.quoted()?,
            _ => match self.plain()? {
                "<<" => return Err("a key is not understood"),
                text => match resolve(text)? {
                    Value::String(text) => text,
                    _ => return Err("a key is no text"),
                },
            },
        };
        let rest = self.0.trim_start_matches(' ');
        self.0 = rest
            .strip_prefix(": ")
            .ok_or("a key in braces has no value")?;
        Ok(key)
    }

    fn quoted(&mut self) -> Read<String> {
        let (mut out, mut kept) = (String::new(), 0);
        let is_double = self.0.starts_with('"');
        let body = self.0.get(1..).unwrap_or_default();
        let (is_closed, rest, _) = quoted_line(body, is_double, &mut out, &mut kept)?;
        self.0 = rest;
        is_closed.then_some(out).ok_or(UNCLOSED)
    }

    fn plain(&mut self) -> Read<&str> {
        let text = self.0;
        let ends = |at: usize, c: char| {
            let next = text.get(at + c.len_utf8()..).unwrap_or_default();
            ",[]{}".contains(c)
                || (c == ':' && (next.is_empty() || next.starts_with([' ', '\t', ',', ']', '}'])))
        };
        let end = text.char_indices().find(|(at, c)| ends(*at, *c));
        let (plain, rest) = end
            .and_then(|(at, _)| text.split_at_checked(at))
            .ok_or(UNCLOSED)?;
        let plain = plain.trim_end_matches([' ', '\t']);
        if !may_begin_plain(plain) || plain.contains(" #") || plain.contains("\t#") {
            return Err("a value in brackets is not understood");
        }
        self.0 = rest;
        Ok(plain)
    }
}

const UNCLOSED: Problem = "a value in brackets does not end on its line";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(yaml: &str) -> Read<Value> {
        read(&format!("---\n{yaml}\n---\n\nBody.\n")).map(Value::Object)
    }

    #[test]
    fn what_people_write_is_read() {
        for (yaml, expected) in [
            (
                "name: pdf-processing\ndescription: Extract, fill, and assemble PDF documents",
                json!({"name": "pdf-processing", "description": "Extract, fill, and assemble PDF documents"}),
            ),
            (
                "# a comment\n\na: x # not this\nb: x#this\nc:\n\nd: ~ \n'e f': \"g: \\u00e9\\n\"",
                json!({"a": "x", "b": "x#this", "c": null, "d": null, "e f": "g: é\n"}),
            ),
            (
                "a: 1\nb: -2.50\nc: 1e3\nd: true\ne: 'true'\nf: 1.2.3\ng: 2026-07-28\nh: 0x1F\ni: yes\nj: +5\nk: .5\nl: 010",
                json!({"a": 1, "b": -2.5, "c": 1000.0, "d": true, "e": "true", "f": "1.2.3",
                    "g": "2026-07-28", "h": 31, "i": "yes", "j": 5, "k": 0.5, "l": 10}),
            ),
            (
                "metadata:\n  author: gull\n  nested:\n    deep: it's\n  version: \"1.0\"\nlast: x",
                json!({"metadata": {"author": "gull", "nested": {"deep": "it's"}, "version": "1.0"}, "last": "x"}),
            ),
            (
                "tools:\n- Read\n- Bash(git:*)\nmore:\n  - a\n  -\n  - - b\n    - c\n  - k: 1\n    l: 2",
                json!({"tools": ["Read", "Bash(git:*)"], "more": ["a", null, ["b", "c"], {"k": 1, "l": 2}]}),
            ),
            (
                "a: [x, \"y, z\", 3, [], {k: v, \"l\": null}] # c\nb: {}\nc: [a b, http://x/y, ]",
                json!({"a": ["x", "y, z", 3, [], {"k": "v", "l": null}], "b": {}, "c": ["a b", "http://x/y"]}),
            ),
            (
                "a: one\n  two\n\n  - three\nb: \"one\n  two\\\n  three \\\n\n  four\"\nc: 'it''s\n\n\n  x'",
                json!({"a": "one two\n- three", "b": "one twothree \nfour", "c": "it's\n\nx"}),
            ),
            (
                "a: |\n  one\n   two\n\n  three\n\nb: >-\n  one\n  two\n\n  three\n    code\n  four\nc: |+\n  x\n\nd: >\n  y\ne: |-\nf: z",
                json!({"a": "one\n two\n\nthree\n", "b": "one two\nthree\n  code\nfour", "c": "x\n\n",
                    "d": "y\n", "e": "", "f": "z"}),
            ),
            (
                "a: |\n  # no comment\n  b: c\n# comment\nd: e",
                json!({"a": "# no comment\nb: c\n", "d": "e"}),
            ),
            (
                "url: https://example.com/a?b=c\ntime: 12:30",
                json!({"url": "https://example.com/a?b=c", "time": "12:30"}),
            ),
            (
                "a: -x\nb: ?x\nc: :x\nd: a&b *c !d",
                json!({"a": "-x", "b": "?x", "c": ":x", "d": "a&b *c !d"}),
            ),
        ] {
            assert_eq!(value(yaml).unwrap(), expected, "{yaml}");
            let dos = yaml.replace('\n', "\r\n");
            assert_eq!(value(&dos).unwrap(), expected, "with CR: {yaml}");
        }
        assert!(read("\u{feff}--- \r\na: b\r\n---").is_ok());
    }

    #[test]
    fn what_parsers_read_differently_is_refused() {
        for yaml in [
            "a: &x b",
            "a: *x",
            "a: !!str b",
            "<<: {a: b}",
            "? a\n: b",
            "a: b: c",
            "a: b\na: c",
            "a: {b: 1, b: 2}",
            "a:\n\tb: c",
            "a: b\n c: d",
            "a:\n  b: c\n d: e",
            "  a: b\nc: d",
            "- a",
            "text",
            "",
            "a: \"b",
            "a: 'b' c",
            "a: 'b'#c",
            "a: [b]#c",
            "a: \"\\q\"",
            "a: \"\\ud800\"",
            "a: \"\\u+0e9\"",
            "a: [b",
            "a: [b\n  c]",
            "a: [b] c",
            "a: [*b]",
            "a: [b: c]",
            "a: {b}",
            "a: |2\n  b",
            "a: | b",
            "a: @b",
            "a: `b`",
            "a: %b",
            "a: }",
            "a: - b",
            "a: .inf",
            "a: 1e999",
            "1: a",
            "true: a",
            "a: b\u{0}",
            "a: b\u{2028}c: d",
            "a: b\u{85}c: d",
            "a: b\rc: d",
            "a: b\n...\nc: d",
            "a: b # c\n  d",
            "%YAML 1.2",
            "a:b",
        ] {
            assert!(value(yaml).is_err(), "{yaml:?} is {:?}", value(yaml));
        }
        for text in [
            "",
            "a: b",
            "---\na: b",
            "--- a\n---",
            " ---\na: b\n---",
            "---\na: b\n ---",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn hostile_frontmatter_costs_little() {
        let nested: Vec<String> = (0..1000).map(|n| format!("{}a:", " ".repeat(n))).collect();
        for yaml in [
            nested.join("\n"),
            format!("a: {}", "[".repeat(10_000)),
            format!("a:\n{}b", "- ".repeat(10_000)),
            format!("a: {}", "x".repeat(MAX_BYTES)),
        ] {
            assert!(value(&yaml).is_err());
        }
        let blank = format!("a: >\n  x\n{}  y", "\n".repeat(30_000));
        assert_eq!(value(&blank).unwrap()["a"].as_str().unwrap().len(), 30_003);
    }

    #[test]
    fn no_cut_of_a_text_panics() {
        let text = "---\na: \"x\\u00e9 \\\n  y\" # c\nb:\n  - {k: 'é', l: [1, ~]}\n  - >-\n    é\n     z\nç: |+\n  é\n---\n";
        for (start, _) in text.char_indices() {
            for (end, _) in text.char_indices().filter(|(end, _)| *end > start) {
                let _ = value(&text[start..end]);
                let _ = read(&text[..end]);
            }
        }
    }
}
