//! From the text of a pattern to its syntax tree.

use std::iter::Peekable;
use std::str::Chars;

use super::Unsupported;
use super::set::Set;

/// A part of a pattern.
#[derive(Debug)]
pub(super) enum Ast {
    Set(Set),
    Char(char),
    Assert(Assertion),
    Concat(Vec<Self>),
    Either(Vec<Self>),
    Repeat {
        what: Box<Self>,
        min: u32,
        max: Option<u32>,
    },
}

/// A condition on a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assertion {
    Start,
    End,
    WordBoundary,
    NotWordBoundary,
}

/// Groups within groups. Parsing, compiling and dropping recurse as deep.
const MAX_GROUPS: usize = 48;

pub(super) fn parse(text: &str) -> Result<Ast, Unsupported> {
    let mut parser = Parser {
        rest: text.chars().peekable(),
        groups: 0,
    };
    let ast = parser.alternatives()?;
    match parser.rest.next() {
        None => Ok(ast),
        Some(_) => Err(Unsupported),
    }
}

struct Parser<'t> {
    rest: Peekable<Chars<'t>>,
    groups: usize,
}

impl Parser<'_> {
    fn alternatives(&mut self) -> Result<Ast, Unsupported> {
        let mut all = vec![self.sequence()?];
        while self.take('|') {
            all.push(self.sequence()?);
        }
        Ok(match all.pop() {
            Some(only) if all.is_empty() => only,
            last => {
                all.extend(last);
                Ast::Either(all)
            }
        })
    }

    fn sequence(&mut self) -> Result<Ast, Unsupported> {
        let mut parts = Vec::new();
        while let Some(&c) = self.rest.peek() {
            if matches!(c, '|' | ')') {
                break;
            }
            let part = self.atom()?;
            parts.push(self.quantified(part)?);
        }
        Ok(Ast::Concat(parts))
    }

    fn atom(&mut self) -> Result<Ast, Unsupported> {
        Ok(match self.rest.next().ok_or(Unsupported)? {
            '^' => Ast::Assert(Assertion::Start),
            '$' => Ast::Assert(Assertion::End),
            '.' => Ast::Set(Set::no_line_end()),
            '[' => Ast::Set(self.class()?),
            '(' => self.group()?,
            '\\' => self.escape()?,
            '*' | '+' | '?' => return Err(Unsupported),
            // Outside the flag `u`, a brace that begins no quantifier stands for itself.
            '{' if braces(self.rest.clone()).is_some() => return Err(Unsupported),
            c => Ast::Char(c),
        })
    }

    fn group(&mut self) -> Result<Ast, Unsupported> {
        self.groups += 1;
        if self.groups > MAX_GROUPS {
            return Err(Unsupported);
        }
        if self.take('?') {
            // `(?P<name>` is Python's spelling, and means nothing else in ECMAScript.
            match (self.rest.next(), self.rest.peek().copied()) {
                (Some(':'), _) => {}
                (Some('P'), Some('<')) => {
                    self.rest.next();
                    self.name()?;
                }
                (Some('<'), Some(c)) if c != '=' && c != '!' => self.name()?,
                _ => return Err(Unsupported),
            }
        }
        let inner = self.alternatives()?;
        if !self.take(')') {
            return Err(Unsupported);
        }
        self.groups -= 1;
        Ok(inner)
    }

    fn name(&mut self) -> Result<(), Unsupported> {
        let mut length = 0;
        for c in self.rest.by_ref() {
            match c {
                '>' if length > 0 => return Ok(()),
                c if c.is_ascii_alphanumeric() || matches!(c, '_' | '$') => length += 1,
                _ => break,
            }
        }
        Err(Unsupported)
    }

    fn quantified(&mut self, what: Ast) -> Result<Ast, Unsupported> {
        let (min, max) = match self.rest.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let mut ahead = self.rest.clone();
                ahead.next();
                let Some((min, max)) = braces(ahead) else {
                    return Ok(what);
                };
                self.rest.by_ref().take_while(|&c| c != '}').for_each(drop);
                return self.repeat(what, min, max);
            }
            _ => return Ok(what),
        };
        self.rest.next();
        self.repeat(what, min, max)
    }

    fn repeat(&mut self, what: Ast, min: u32, max: Option<u32>) -> Result<Ast, Unsupported> {
        // Lazy or not, the same texts match.
        self.take('?');
        if matches!(what, Ast::Assert(_)) || max.is_some_and(|max| max < min) {
            return Err(Unsupported);
        }
        Ok(Ast::Repeat {
            what: Box::new(what),
            min,
            max,
        })
    }

    fn escape(&mut self) -> Result<Ast, Unsupported> {
        match self.rest.peek() {
            Some('b') => {
                self.rest.next();
                Ok(Ast::Assert(Assertion::WordBoundary))
            }
            Some('B') => {
                self.rest.next();
                Ok(Ast::Assert(Assertion::NotWordBoundary))
            }
            _ => Ok(match self.escaped()? {
                Item::Char(c) => Ast::Char(c),
                Item::Set(set) => Ast::Set(set),
            }),
        }
    }

    /// What follows a backslash and means the same in and out of a class.
    fn escaped(&mut self) -> Result<Item, Unsupported> {
        let c = self.rest.next().ok_or(Unsupported)?;
        Ok(match c {
            'd' => Item::Set(Set::digits()),
            'D' => Item::Set(Set::digits().complement()),
            'w' => Item::Set(Set::word()),
            'W' => Item::Set(Set::word().complement()),
            's' => Item::Set(Set::space()),
            'S' => Item::Set(Set::space().complement()),
            't' => Item::Char('\t'),
            'n' => Item::Char('\n'),
            'r' => Item::Char('\r'),
            'v' => Item::Char('\u{b}'),
            'f' => Item::Char('\u{c}'),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => Item::Char('\0'),
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic);
                let code = u32::from(letter.ok_or(Unsupported)?) % 32;
                Item::Char(char::from_u32(code).ok_or(Unsupported)?)
            }
            'x' => Item::Char(char::from_u32(self.hex(2)?).ok_or(Unsupported)?),
            'u' => Item::Char(self.unicode()?),
            c if c.is_ascii_punctuation() || c == ' ' => Item::Char(c),
            _ => return Err(Unsupported),
        })
    }

    fn unicode(&mut self) -> Result<char, Unsupported> {
        if self.take('{') {
            let mut code = 0_u32;
            let mut digits = 0;
            loop {
                match self.rest.next().ok_or(Unsupported)? {
                    '}' if digits > 0 => break,
                    c => {
                        let digit = c.to_digit(16).ok_or(Unsupported)?;
                        code = code.checked_mul(16).ok_or(Unsupported)? + digit;
                        digits += 1;
                    }
                }
            }
            return char::from_u32(code).ok_or(Unsupported);
        }
        let first = self.hex(4)?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        // Two escapes can make one character: a surrogate pair.
        if !(self.take('\\') && self.take('u')) {
            return Err(Unsupported);
        }
        let units = [first, self.hex(4)?].map(|unit| u16::try_from(unit).unwrap_or_default());
        match char::decode_utf16(units).next() {
            Some(Ok(c)) => Ok(c),
            _ => Err(Unsupported),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<u32, Unsupported> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or(Unsupported)?;
        }
        Ok(code)
    }

    fn class(&mut self) -> Result<Set, Unsupported> {
        let negated = self.take('^');
        let mut ranges = Vec::new();
        loop {
            let low = match self.item()? {
                None => break,
                Some(Item::Set(set)) => {
                    ranges.extend_from_slice(set.ranges());
                    continue;
                }
                Some(Item::Char(c)) => u32::from(c),
            };
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
            let high = if is_range {
                self.rest.next();
                match self.item()? {
                    Some(Item::Char(c)) => u32::from(c),
                    // `[a-\d]`: the dash stands for itself.
                    Some(Item::Set(set)) => {
                        ranges.extend_from_slice(set.ranges());
                        ranges.push((0x2d, 0x2d));
                        low
                    }
                    None => return Err(Unsupported),
                }
            } else {
                low
            };
            if high < low {
                return Err(Unsupported);
            }
            ranges.push((low, high));
        }
        let set = Set::of(&ranges);
        Ok(if negated { set.complement() } else { set })
    }

    /// One item of a class; `None` at its end.
    fn item(&mut self) -> Result<Option<Item>, Unsupported> {
        Ok(match self.rest.next().ok_or(Unsupported)? {
            ']' => None,
            '\\' if self.take('b') => Some(Item::Char('\u{8}')),
            '\\' => Some(self.escaped()?),
            c => Some(Item::Char(c)),
        })
    }

    fn take(&mut self, c: char) -> bool {
        self.rest.next_if_eq(&c).is_some()
    }
}

enum Item {
    Char(char),
    Set(Set),
}

/// The quantifier that this is, behind its opening brace.
fn braces(mut text: Peekable<Chars<'_>>) -> Option<(u32, Option<u32>)> {
    let min = number(&mut text)?;
    let max = match text.next()? {
        '}' => return Some((min, Some(min))),
        ',' if text.peek() == Some(&'}') => None,
        ',' => Some(number(&mut text)?),
        _ => return None,
    };
    (text.next() == Some('}')).then_some((min, max))
}

fn number(text: &mut Peekable<Chars<'_>>) -> Option<u32> {
    let mut value = None;
    while let Some(digit) = text.peek().and_then(|c| c.to_digit(10)) {
        text.next();
        let so_far: u32 = value.unwrap_or(0);
        value = Some(so_far.saturating_mul(10).saturating_add(digit));
    }
    value
}
