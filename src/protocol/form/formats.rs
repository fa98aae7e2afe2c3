//! The formats that a text field can have. Sane rather than complete: a typing error is found, and
//! nothing that somebody could mean is refused.

use url::Url;

/// A mailbox of RFC 5321 without quotes or comments.
pub(super) fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"(),:;<>@[\\]".contains(c);
    let is_host = |c: char| c == '-' || c.is_ascii_alphanumeric() || !c.is_ascii();
    let is_dotted = |part: &str| part.split('.').all(|label| !label.is_empty());
    text.len() <= 254
        && local.len() <= 64
        && local.chars().all(is_plain)
        && is_dotted(local)
        && is_dotted(domain)
        && domain.split('.').all(|label| {
            !label.starts_with('-') && !label.ends_with('-') && label.chars().all(is_host)
        })
}

/// An absolute URI of RFC 3986: not an address with letters that have to be escaped.
pub(super) fn is_uri(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
        && Url::parse(text).is_ok()
}

/// `full-date` of RFC 3339.
pub(super) fn is_date(text: &str) -> bool {
    let (Some(year), Some(month), Some(day)) = (
        number(text.get(..4)),
        number(text.get(5..7)),
        number(text.get(8..)),
    ) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    text.len() == 10
        && text.get(4..5) == Some("-")
        && text.get(7..8) == Some("-")
        && (1..=days).contains(&day)
}

/// `date-time` of RFC 3339.
pub(super) fn is_date_time(text: &str) -> bool {
    let (Some(date), Some(mark), Some(time), Some(rest)) = (
        text.get(..10),
        text.get(10..11),
        text.get(11..19),
        text.get(19..),
    ) else {
        return false;
    };
    is_date(date) && mark.eq_ignore_ascii_case("t") && is_time(time) && is_end_of_time(rest)
}

/// `23:59:60` is a leap second.
fn is_time(text: &str) -> bool {
    text.get(2..3) == Some(":")
        && text.get(5..6) == Some(":")
        && number(text.get(..2)).is_some_and(|hour| hour < 24)
        && number(text.get(3..5)).is_some_and(|minute| minute < 60)
        && number(text.get(6..)).is_some_and(|second| second <= 60)
}

/// A fraction of a second or none, then the offset.
fn is_end_of_time(text: &str) -> bool {
    let offset = match text.strip_prefix('.') {
        Some(fraction) => {
            let offset = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if offset.len() == fraction.len() {
                return false;
            }
            offset
        }
        None => text,
    };
    match offset.strip_prefix(['+', '-']) {
        Some(offset) => {
            offset.len() == 5
                && offset.get(2..3) == Some(":")
                && number(offset.get(..2)).is_some_and(|hour| hour < 24)
                && number(offset.get(3..)).is_some_and(|minute| minute < 60)
        }
        None => offset.eq_ignore_ascii_case("z"),
    }
}

fn number(digits: Option<&str>) -> Option<u32> {
    let digits = digits?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (
        fn(&str) -> bool,
        &'static [&'static str],
        &'static [&'static str],
    );

    #[test]
    fn formats_accept_what_is_well_formed_and_refuse_the_rest() {
        for (is_valid, good, bad) in [
            (
                is_email,
                &[
                    "a@b.example",
                    "a.b+c@b-c.example",
                    "ü@localhost",
                    "o'x@1.example",
                ],
                &[
                    "", "a", "@b", "a@", "a@b..c", ".a@b", "a b@c", "a@b c", "a@@b", "a@-b.c",
                    "a@b,c", "<a@b.c>",
                ],
            ),
            (
                is_uri,
                &[
                    "https://a.example/x?y#z",
                    "urn:x:y",
                    "mailto:a@b.example",
                    "HTTP://a",
                ],
                &[
                    "",
                    "/a",
                    "a.example",
                    "https://",
                    "https://a b",
                    "https://ä.example",
                    "https://a/\n",
                    "http://a/<b>",
                ],
            ),
            (
                is_date,
                &["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"],
                &[
                    "",
                    "2023-02-29",
                    "1900-02-29",
                    "2024-13-01",
                    "2024-00-10",
                    "2024-04-31",
                    "2024-1-01",
                    "2024-01-1",
                    "2024-01-01Z",
                    "2024/01/01",
                    "+024-01-01",
                    "20２4-01-01",
                ],
            ),
            (
                is_date_time,
                &[
                    "2024-02-29T23:59:60Z",
                    "2024-01-01t00:00:00.123+05:30",
                    "2024-01-01T00:00:00z",
                ],
                &[
                    "2024-01-01",
                    "2024-01-01T00:00:00",
                    "2024-01-01 00:00:00Z",
                    "2024-01-01T24:00:00Z",
                    "2024-01-01T00:60:00Z",
                    "2024-01-01T00:00:61Z",
                    "2024-01-01T00:00:00.Z",
                    "2024-01-01T00:00:00+0530",
                    "2024-01-01T00:00:00+24:00",
                    "2024-01-01T00:00Z",
                ],
            ),
        ] as [Case; 4]
        {
            for text in good {
                assert!(is_valid(text), "{text:?}");
            }
            for text in bad {
                assert!(!is_valid(text), "{text:?}");
            }
        }
    }
}
