//! Numbers as JSON writes them, compared by their mathematical value.

use std::cmp::Ordering;
use std::fmt;

/// A decimal number, exact: `0.` `digits` times ten to the power of `point`.
///
/// Floating point would find 0.3 no multiple of 0.1, and 2⁵³ equal to 2⁵³ + 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    /// Without zeros at either end; empty for zero.
    digits: Box<str>,
    point: i64,
}

/// Beyond it numbers are only known to be huge, or next to zero.
const MAX_EXPONENT: i64 = 1_000_000_000_000_000;

impl Decimal {
    /// Reads the text of a JSON number.
    pub(crate) fn read(text: &str) -> Self {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading = length(&all) - length(significant);
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Self {
                negative: false,
                digits: Box::default(),
                point: 0,
            };
        }
        Self {
            negative,
            digits: digits.into(),
            point: exponent_of(exponent) + length(whole) - leading,
        }
    }

    pub(crate) fn is_integer(&self) -> bool {
        length(&self.digits) <= self.point || self.is_zero()
    }

    /// The number as a size: a whole number that is not negative. Huge ones are cut.
    pub(crate) fn as_count(&self) -> Option<u64> {
        if self.negative || !self.is_integer() {
            return None;
        }
        let mut count = 0_u64;
        let mut digits = self.digits.bytes();
        for _ in 0..self.point.min(21) {
            let digit = digits.next().map_or(0, |digit| u64::from(digit - b'0'));
            count = count.saturating_mul(10).saturating_add(digit);
        }
        Some(count)
    }

    /// The divisor for [`is_multiple_of`](Self::is_multiple_of). `None` when it is not positive
    /// or has more than 9 digits.
    pub(crate) fn as_divisor(&self) -> Option<Divisor> {
        if self.negative || self.is_zero() || self.digits.len() > 9 {
            return None;
        }
        Some(Divisor {
            digits: self.digits.parse().ok()?,
            exponent: self.exponent(),
        })
    }

    pub(crate) fn is_multiple_of(&self, divisor: &Divisor) -> bool {
        if self.is_zero() {
            return true;
        }
        let Ok(zeros) = u64::try_from(self.exponent() - divisor.exponent) else {
            // More decimals than the divisor; they do not end in zero.
            return false;
        };
        let by = divisor.digits;
        let rest =
            (self.digits.bytes()).fold(0, |rest, digit| (rest * 10 + u64::from(digit - b'0')) % by);
        (rest * power_of_ten(zeros, by)).is_multiple_of(by)
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The power of ten that the digits, read as a whole number, are multiplied by.
    fn exponent(&self) -> i64 {
        self.point - length(&self.digits)
    }
}

/// A positive number to divide by. Its few digits let the remainders multiply within 64 bits.
#[derive(Debug, Clone)]
pub(crate) struct Divisor {
    digits: u64,
    exponent: i64,
}

fn power_of_ten(mut exponent: u64, modulus: u64) -> u64 {
    let (mut power, mut factor) = (1 % modulus, 10 % modulus);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * factor % modulus;
        }
        factor = factor * factor % modulus;
        exponent >>= 1;
    }
    power
}

fn exponent_of(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = digits.bytes().fold(0_i64, |size, digit| {
        (size * 10 + i64::from(digit.saturating_sub(b'0'))).min(MAX_EXPONENT)
    });
    if negative { -size } else { size }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        // -1, 0 or 1.
        let sign = |number: &Self| i8::from(!number.is_zero()) - 2 * i8::from(number.negative);
        let size = || {
            self.point
                .cmp(&other.point)
                .then_with(|| self.digits.cmp(&other.digits))
        };
        sign(self).cmp(&sign(other)).then_with(|| {
            if self.negative {
                size().reverse()
            } else {
                size()
            }
        })
    }
}

/// One text for each value.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}e{}", self.digits, self.exponent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_text() {
        for (text, same) in [
            ("1", "1e0"),
            ("1.0", "1e0"),
            ("10e-1", "1e0"),
            ("0.001e+3", "1e0"),
            ("100", "1e2"),
            ("-0.50", "-5e-1"),
            ("0", "e0"),
            ("-0.0e7", "e0"),
            ("9007199254740993", "9007199254740993e0"),
        ] {
            assert_eq!(Decimal::read(text).to_string(), same, "{text}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let rising = [
            "-1e400",
            "-100",
            "-12",
            "-1.5",
            "-1",
            "-0.001",
            "0",
            "1e-400",
            "0.09",
            "0.1",
            "1",
            "1.5",
            "12",
            "100",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1e401",
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(
                    Decimal::read(a).cmp(&Decimal::read(b)),
                    i.cmp(&j),
                    "{a} {b}"
                );
            }
        }
    }

    #[test]
    fn whole_numbers_and_multiples_are_recognised() {
        for (text, count) in [
            ("0", Some(0)),
            ("2.0", Some(2)),
            ("12e1", Some(120)),
            ("1e99", Some(u64::MAX)),
            ("1.5", None),
            ("-1", None),
            ("1e-9", None),
        ] {
            assert_eq!(Decimal::read(text).as_count(), count, "{text}");
        }
        for (number, divisor, is_multiple) in [
            ("0.3", "0.1", true),
            ("4.5", "1.5", true),
            ("35", "1.5", false),
            ("0", "3", true),
            ("-9", "3", true),
            ("1e308", "0.123456789", false),
            ("1e308", "0.5", true),
            ("1e999999999999999999", "7", false),
            ("0.00751", "0.0001", false),
            ("123456789012345678901234567890", "10", true),
            ("99999999999", "999999999", false),
        ] {
            let divisor = Decimal::read(divisor).as_divisor().unwrap();
            assert_eq!(
                Decimal::read(number).is_multiple_of(&divisor),
                is_multiple,
                "{number}"
            );
        }
        for text in ["0", "-1", "1234567891"] {
            assert!(Decimal::read(text).as_divisor().is_none());
        }
    }
}
