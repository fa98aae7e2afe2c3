//! Texts that servers wrote and models read.

use crate::protocol::clip;

/// Takes out what people cannot see and models can: control characters, marks that turn the
/// direction of writing, and characters without a shape, in which instructions can be hidden. Cuts
/// what is longer than `max` characters.
pub(crate) fn shown(text: &str, max: usize) -> String {
    let seen: String = text
        .chars()
        .filter(|letter| !is_hidden(*letter))
        .take(max.saturating_add(1))
        .collect();
    clip_to(seen.trim(), max)
}

/// Cuts a text so that it has at most `max` characters, the mark of the cut included.
pub(crate) fn clip_to(text: &str, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    clip(text, max.saturating_sub(MARK))
}

/// How long the mark of a cut is.
const MARK: usize = 3;

fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        // Zero-width space, direction marks and isolates, invisible operators; then tags, and the
        // second block of variation selectors.
        '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{00ad}'
        | '\u{e0000}'..='\u{e01ef}' => true,
        _ => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_go_and_long_texts_are_cut() {
        assert_eq!(shown("a\u{200b}b\u{e0041}\u{202e}c\u{0}\n", 10), "abc");
        assert_eq!(shown("émigré", 6), "émigré");
        assert_eq!(shown("émigrés", 6), "émi...");
        assert_eq!(clip_to("abcdef", 2), "...");
    }
}
