//! Regular expressions of schemas: ECMAScript's, matched in linear time.
//!
//! A pattern comes from a server and its subject from there or from a user, so a backtracking
//! engine could be made to run for years. This one follows all threads of the automaton at once
//! and asks before each step whether it may go on.
//!
//! The dialect is ECMA-262 with the flag `u`, and the escapes of punctuation that the flag alone
//! would refuse. What no automaton of this kind can do (look-around, back references) and what
//! would need tables of Unicode (`\p{…}`) does not compile.

mod parse;
mod program;
mod set;

pub(crate) use program::Program as Pattern;

/// How much automaton patterns may still make. `.{1,4096}` alone takes 8 192 states.
pub(crate) const MAX_STATES: usize = 32_768;

/// The text is no regular expression, or one that this engine does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsupported;

/// A run was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;
