//! Names of instances in URLs: any text of up to 1,024 bytes, percent-encoded as one segment.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The longest name, in bytes. An object that is addressed by a longer one does not know its name.
pub const MAX_NAME_BYTES: usize = 1024;

/// All but the characters that mean themselves everywhere (RFC 3986 §2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Why a text names no instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing at all.
    #[error("an instance name must not be empty")]
    Empty,
    /// `.` or `..`, which URL parsers resolve, also where they are percent-encoded.
    #[error("an instance must not be named \".\" or \"..\": URL parsers remove such segments")]
    Dots,
    /// More than [`MAX_NAME_BYTES`].
    #[error("an instance name must not exceed 1,024 bytes")]
    TooLong,
    /// A percent sign without two hexadecimal digits after it.
    #[error("the instance name is not well percent-encoded: write a percent sign as %25")]
    Malformed,
    /// Percent-encoded bytes that are no UTF-8.
    #[error("the instance name is not UTF-8")]
    NotUtf8,
}

/// The segment of a URL that stands for the instance `name`: everything but letters and digits of
/// ASCII and `-._~` is percent-encoded.
///
/// A router decodes it to the same name, whatever it contains: slashes, percent signs, any script.
///
/// # Errors
/// [`NameError`] for what no URL can name: nothing, `.`, `..`, and more than 1,024 bytes.
pub fn encode_segment(name: &str) -> Result<String, NameError> {
    check(name)?;
    Ok(utf8_percent_encode(name, ESCAPED).to_string())
}

/// The name that a segment stands for. Decoded exactly once: `a%2520b` is `a%20b`.
///
/// # Errors
/// [`NameError`] for a segment that is malformed or names nothing.
pub fn decode_segment(segment: &str) -> Result<Cow<'_, str>, NameError> {
    let mut rest = segment;
    while let Some((_, after)) = rest.split_once('%') {
        let is_pair = matches!(after.as_bytes(), [high, low, ..]
            if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
        if !is_pair {
            return Err(NameError::Malformed);
        }
        rest = after;
    }
    let name = percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| NameError::NotUtf8)?;
    check(&name)?;
    Ok(name)
}

/// Whether a URL can hold a name.
pub(super) fn check(name: &str) -> Result<(), NameError> {
    match name {
        "." | ".." => Err(NameError::Dots),
        _ => check_length(name),
    }
}

/// Whether an object can have a name, in a URL or not.
pub(super) fn check_length(name: &str) -> Result<(), NameError> {
    match name.len() {
        0 => Err(NameError::Empty),
        1..=MAX_NAME_BYTES => Ok(()),
        _ => Err(NameError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn segments_are_decoded_once() {
        for (segment, name) in [
            ("plain", "plain"),
            ("u1%2Fs1", "u1/s1"),
            ("u1%2fs1", "u1/s1"),
            ("a%20b", "a b"),
            ("a%2520b", "a%20b"),
            ("a+b", "a+b"),
            ("%E5%90%8D%E5%89%8D", "名前"),
            ("名前", "名前"),
            ("%00", "\0"),
            ("...", "..."),
            ("%252e%252e", "%2e%2e"),
            ("a%5Cb", "a\\b"),
        ] {
            assert_eq!(decode_segment(segment).as_deref(), Ok(name), "{segment}");
        }
    }

    #[test]
    fn malformed_segments_are_refused() {
        for (segment, error) in [
            ("", NameError::Empty),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            ("%2e%2E", NameError::Dots),
            (".%2e", NameError::Dots),
            ("%", NameError::Malformed),
            ("a%", NameError::Malformed),
            ("a%2", NameError::Malformed),
            ("%zz", NameError::Malformed),
            ("%2", NameError::Malformed),
            ("%%41", NameError::Malformed),
            ("%é", NameError::Malformed),
            ("%20%+1", NameError::Malformed),
            ("%FF", NameError::NotUtf8),
            ("%C3", NameError::NotUtf8),
            ("%C0%AF", NameError::NotUtf8),
            ("%ED%A0%80", NameError::NotUtf8),
        ] {
            assert_eq!(decode_segment(segment), Err(error), "{segment}");
        }
    }

    #[test]
    fn names_have_a_limit_in_bytes() {
        let longest = "é".repeat(512);
        let segment = encode_segment(&longest).unwrap();
        assert_eq!(decode_segment(&segment).unwrap(), longest);
        let longer = format!("{longest}x");
        assert_eq!(encode_segment(&longer), Err(NameError::TooLong));
        assert_eq!(
            decode_segment(&format!("{segment}x")),
            Err(NameError::TooLong)
        );
    }

    #[test]
    fn names_that_urls_lose_are_refused() {
        assert_eq!(encode_segment(""), Err(NameError::Empty));
        assert_eq!(encode_segment("."), Err(NameError::Dots));
        assert_eq!(encode_segment(".."), Err(NameError::Dots));
    }

    /// What a browser or `fetch` makes of the URL in between must not matter.
    fn through_a_url(name: &str) -> String {
        let segment = encode_segment(name).unwrap();
        let url = Url::parse(&format!("https://a.example/agents/chat/{segment}/x?q#f")).unwrap();
        let path: Vec<&str> = url.path().split('/').collect();
        assert_eq!(path.len(), 5, "{name:?} in {url}");
        decode_segment(path[3]).unwrap().into_owned()
    }

    #[test]
    fn every_name_survives_a_url() {
        for name in [
            "u1/s1",
            "名前",
            "a b",
            "a%20b",
            "%2e%2e",
            "%2e",
            "...",
            " ",
            "\t",
            "\n",
            "\0",
            "a\\b",
            "?",
            "#",
            "a;b=c",
            "@:!$&'()*+,",
            "\u{feff}",
            "🎉",
            "%",
            "%25",
            "e\u{301}",
            "\u{e9}",
            "~-._",
        ] {
            assert_eq!(through_a_url(name), name, "{name:?}");
        }
        for code in (0..=0x2_FFFF).filter_map(char::from_u32) {
            let name = format!("{code}x{code}");
            assert_eq!(through_a_url(&name), name, "{name:?}");
        }
    }

    #[test]
    fn different_names_have_different_segments() {
        let names = ["a/b", "a%2Fb", "a%2fb", "a b", "a+b", "a%20b", "A", "a"];
        let segments: Vec<_> = names.iter().map(|name| encode_segment(name)).collect();
        for (n, one) in segments.iter().enumerate() {
            assert!(segments.iter().skip(n + 1).all(|other| other != one));
        }
    }
}
