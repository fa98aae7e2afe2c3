//! The automaton of a pattern, and its run.

use super::parse::{Assertion, Ast, parse};
use super::set::Set;
use super::{MAX_STATES, Stopped, Unsupported};

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    states: Box<[State]>,
    sets: Box<[Set]>,
    /// Nothing matches but at the start.
    is_anchored: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Takes this character and goes on to the next state.
    Char(char),
    /// Takes a character of this set.
    Set(u32),
    Assert(Assertion),
    Jump(u32),
    /// Goes on to the next state and to this one.
    Fork(u32),
    Match,
}

impl Program {
    /// Compiles a pattern. Its states are taken from `allowance`.
    pub(crate) fn compile(text: &str, allowance: &mut usize) -> Result<Self, Unsupported> {
        let ast = parse(text)?;
        let mut compiler = Compiler {
            states: Vec::new(),
            sets: Vec::new(),
            work: (*allowance).min(MAX_STATES),
        };
        let before = compiler.work;
        compiler.part(&ast)?;
        compiler.push(State::Match)?;
        *allowance -= before - compiler.work;
        Ok(Self {
            is_anchored: matches!(
                compiler.states.first(),
                Some(State::Assert(Assertion::Start))
            ),
            states: compiler.states.into(),
            sets: compiler.sets.into(),
        })
    }

    /// Whether the pattern matches anywhere in the text. `spend` is told of the work at each
    /// character, and can end it with an error.
    pub(crate) fn is_match(
        &self,
        text: &str,
        spend: &mut dyn FnMut(usize) -> Result<(), Stopped>,
    ) -> Result<bool, Stopped> {
        let mut now = Threads::new(self.states.len());
        let mut next = Threads::new(self.states.len());
        let mut stack = Vec::new();
        let mut before = None;
        let mut rest = text.chars();
        spend(self.states.len() / 16)?;
        loop {
            let after = rest.clone().next();
            if !self.is_anchored || before.is_none() {
                now.add(self, &mut stack, 0, before, after);
            }
            if now.is_matched {
                return Ok(true);
            }
            spend(now.touched.len() + 1)?;
            let Some(c) = rest.next() else {
                return Ok(false);
            };
            if self.is_anchored && now.list.is_empty() {
                return Ok(false);
            }
            let following = rest.clone().next();
            for &at in &now.list {
                let takes = match self.state(at) {
                    State::Char(wanted) => wanted == c,
                    State::Set(index) => {
                        (self.sets.get(index as usize)).is_some_and(|s| s.contains(c))
                    }
                    _ => false,
                };
                if takes {
                    next.add(self, &mut stack, at + 1, Some(c), following);
                }
            }
            now.clear();
            std::mem::swap(&mut now, &mut next);
            before = Some(c);
        }
    }

    fn state(&self, at: u32) -> State {
        // No state points beyond the last one, which is `Match`.
        self.states
            .get(at as usize)
            .copied()
            .unwrap_or(State::Match)
    }
}

/// The states that are alive at one position.
struct Threads {
    list: Vec<u32>,
    /// Which states have been seen; those of the list and those passed through.
    seen: Vec<bool>,
    /// What to forget in `seen`.
    touched: Vec<u32>,
    is_matched: bool,
}

impl Threads {
    fn new(states: usize) -> Self {
        Self {
            list: Vec::new(),
            seen: vec![false; states],
            touched: Vec::new(),
            is_matched: false,
        }
    }

    fn clear(&mut self) {
        for at in self.touched.drain(..) {
            if let Some(seen) = self.seen.get_mut(at as usize) {
                *seen = false;
            }
        }
        self.list.clear();
    }

    /// Adds a state, or where it leads without taking a character.
    fn add(
        &mut self,
        program: &Program,
        stack: &mut Vec<u32>,
        from: u32,
        before: Option<char>,
        after: Option<char>,
    ) {
        stack.push(from);
        while let Some(at) = stack.pop() {
            match self.seen.get_mut(at as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            self.touched.push(at);
            match program.state(at) {
                State::Char(_) | State::Set(_) => self.list.push(at),
                State::Assert(what) if holds(what, before, after) => stack.push(at + 1),
                State::Assert(_) => {}
                State::Jump(to) => stack.push(to),
                State::Fork(to) => stack.extend([to, at + 1]),
                State::Match => self.is_matched = true,
            }
        }
    }
}

fn holds(what: Assertion, before: Option<char>, after: Option<char>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    match what {
        Assertion::Start => before.is_none(),
        Assertion::End => after.is_none(),
        Assertion::WordBoundary => is_word(before) != is_word(after),
        Assertion::NotWordBoundary => is_word(before) == is_word(after),
    }
}

struct Compiler {
    states: Vec<State>,
    sets: Vec<Set>,
    /// Shrinks with every state and every repetition: `(){1000000000}` has few states.
    work: usize,
}

impl Compiler {
    fn part(&mut self, ast: &Ast) -> Result<(), Unsupported> {
        match ast {
            Ast::Char(c) => self.push(State::Char(*c)),
            Ast::Set(set) => {
                let known = self
                    .sets
                    .iter()
                    .rev()
                    .take(8)
                    .position(|known| known == set);
                let index = if let Some(back) = known {
                    self.sets.len() - 1 - back
                } else {
                    let ranges = set.ranges().len();
                    self.work = self.work.checked_sub(ranges).ok_or(Unsupported)?;
                    self.sets.push(set.clone());
                    self.sets.len() - 1
                };
                self.push(State::Set(u32::try_from(index).map_err(|_| Unsupported)?))
            }
            Ast::Assert(what) => self.push(State::Assert(*what)),
            Ast::Concat(parts) => parts.iter().try_for_each(|part| self.part(part)),
            Ast::Either(parts) => self.either(parts),
            Ast::Repeat { what, min, max } => self.repeat(what, *min, *max),
        }
    }

    fn either(&mut self, parts: &[Ast]) -> Result<(), Unsupported> {
        let mut ends = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            if index + 1 == parts.len() {
                self.part(part)?;
            } else {
                let fork = self.hole()?;
                self.part(part)?;
                ends.push(self.hole()?);
                self.fill(fork, State::Fork(self.here()));
            }
        }
        for end in ends {
            self.fill(end, State::Jump(self.here()));
        }
        Ok(())
    }

    fn repeat(&mut self, what: &Ast, min: u32, max: Option<u32>) -> Result<(), Unsupported> {
        let Some(max) = max else {
            return self.repeat_for_ever(what, min);
        };
        for _ in 0..min {
            self.spend()?;
            self.part(what)?;
        }
        // Each optional repetition leaves for the end at once, so few states live at a time.
        let mut forks = Vec::new();
        for _ in min..max {
            forks.push(self.hole()?);
            self.part(what)?;
        }
        for fork in forks {
            self.fill(fork, State::Fork(self.here()));
        }
        Ok(())
    }

    fn repeat_for_ever(&mut self, what: &Ast, min: u32) -> Result<(), Unsupported> {
        for _ in 1..min {
            self.spend()?;
            self.part(what)?;
        }
        let start = self.here();
        if min > 0 {
            self.part(what)?;
            return self.push(State::Fork(start));
        }
        let fork = self.hole()?;
        self.part(what)?;
        self.push(State::Jump(start))?;
        self.fill(fork, State::Fork(self.here()));
        Ok(())
    }

    fn push(&mut self, state: State) -> Result<(), Unsupported> {
        self.spend()?;
        self.states.push(state);
        Ok(())
    }

    /// A state to be filled in when its target is known.
    fn hole(&mut self) -> Result<usize, Unsupported> {
        self.push(State::Match)?;
        Ok(self.states.len() - 1)
    }

    fn fill(&mut self, at: usize, state: State) {
        if let Some(hole) = self.states.get_mut(at) {
            *hole = state;
        }
    }

    fn spend(&mut self) -> Result<(), Unsupported> {
        self.work = self.work.checked_sub(1).ok_or(Unsupported)?;
        Ok(())
    }

    fn here(&self) -> u32 {
        // At most `MAX_STATES`.
        u32::try_from(self.states.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        let program = Program::compile(pattern, &mut MAX_STATES.clone()).unwrap();
        program.is_match(text, &mut |_| Ok(())).unwrap()
    }

    #[test]
    fn patterns_match_as_in_ecmascript() {
        for (pattern, yes, no) in [
            ("b", "abc", "ac"),
            ("", "", "\0"),
            ("^ab$", "ab", "ab\n"),
            ("^$", "", "a"),
            ("a.c", "a\u{1f600}c", "a\u{2028}c"),
            ("^a*$", "aaa", "ab"),
            ("^a+?$", "a", ""),
            ("^(a|bc)?d$", "bcd", "abcd"),
            ("^(?:a|b|)$", "", "c"),
            ("^(?<x>a)(?P<y>b)$", "ab", "a"),
            ("^a{2}$", "aa", "aaa"),
            ("^a{2,}$", "aaaa", "a"),
            ("^a{1,3}$", "aaa", "aaaa"),
            ("^(ab{0,2}){2}$", "abbab", "abbb"),
            ("^a{,2}$", "a{,2}", "aa"),
            ("^{a}$", "{a}", "a"),
            (r"^\d+$", "09", "\u{663}"),
            (r"^\D$", "\u{663}", "1"),
            (r"^\w$", "_", "é"),
            (r"^\W$", "é", "_"),
            (r"^\s$", "\u{feff}", "\u{180e}"),
            (r"^\S$", "a", "\u{a0}"),
            (r"^[\w\-\.]+$", "a-b.c", "a b"),
            (r"^[a-z\d-]+$", "a-1", "A"),
            (r"^[^a-c]$", "d", "b"),
            (r"^[^]$", "\n", ""),
            (r"^[\D\d]$", "\n", ""),
            (r"^[\]\\^]+$", r"]\^", "["),
            (r"^[[&&~]$", "&", "]"),
            (r"^\/\x41\u0042\u{1F600}\cJ\0$", "/AB\u{1f600}\n\0", "AB"),
            (r"^\uD83D\uDE00$", "\u{1f600}", "\u{fffd}"),
            (r"\bfoo\b", "a foo.", "afoo"),
            (r"\Boo", "foo", "oo"),
            (r"^[\b]$", "\u{8}", "b"),
            ("a$|^b", "ca", "ab\n"),
            ("x*", "", "\0never"),
            ("(^a|b)c", "dbc", "dac"),
        ] {
            assert!(is_match(pattern, yes), "{pattern} on {yes:?}");
            assert!(
                no.starts_with('\0') || !is_match(pattern, no),
                "{pattern} on {no:?}"
            );
        }
    }

    #[test]
    fn what_an_automaton_cannot_do_is_refused() {
        for pattern in [
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"(a)\1",
            r"\k<x>",
            r"\p{L}",
            "(?i)a",
            "*",
            "a**",
            "a{2}{3}",
            "(",
            ")",
            "[a",
            "[b-a]",
            "a{2,1}",
            r"\",
            r"\u12",
            r"\ud800",
            r"\x4",
            r"\A",
            r"\Z",
            r"\u{110000}",
            "^*",
            r"\c1",
            r"\01",
            "(?<>a)",
        ] {
            assert_eq!(
                Program::compile(pattern, &mut MAX_STATES.clone()).err(),
                Some(Unsupported),
                "{pattern}"
            );
        }
    }

    #[test]
    fn an_automaton_that_would_be_huge_is_refused_at_once() {
        let groups = format!("{}{}", "(".repeat(100), ")".repeat(100));
        for pattern in [
            "(a{1000}){1000}",
            "(){4294967295}",
            "((){65535}){65535}",
            "(a{0,60000}){0,60000}",
            "((((a{99}){99}){99}){99}){99}",
            &groups,
        ] {
            assert!(
                Program::compile(pattern, &mut MAX_STATES.clone()).is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn tl_26_the_work_is_linear_and_can_be_stopped() {
        let program = Program::compile("^(([a-z])+.)+[A-Z]([a-z])+$", &mut 1000).unwrap();
        let mut steps = 0;
        let subject = "a".repeat(10_000);
        let matched = program.is_match(&subject, &mut |n| {
            steps += n;
            Ok(())
        });
        assert_eq!(matched, Ok(false));
        assert!(steps < 10_000 * 20, "{steps}");
        let mut left = 100_usize;
        let stopped = program.is_match(&subject, &mut |n| {
            left = left.checked_sub(n).ok_or(Stopped)?;
            Ok(())
        });
        assert_eq!(stopped, Err(Stopped));
    }
}
