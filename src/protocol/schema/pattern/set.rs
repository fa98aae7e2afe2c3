//! Sets of characters.

use super::super::order::sorted;

/// A set of characters as sorted ranges that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set(Vec<(u32, u32)>);

const LAST: u32 = char::MAX as u32;

impl Set {
    pub(super) fn of(ranges: &[(u32, u32)]) -> Self {
        let sorted = sorted(ranges.to_vec(), Ord::cmp);
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
        for (low, high) in sorted {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    pub(super) fn digits() -> Self {
        Self::of(&[(0x30, 0x39)])
    }

    pub(super) fn word() -> Self {
        Self::of(&[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)])
    }

    /// `WhiteSpace` and `LineTerminator` of ECMA-262.
    pub(super) fn space() -> Self {
        Self::of(&[
            (0x09, 0x0d),
            (0x20, 0x20),
            (0xa0, 0xa0),
            (0x1680, 0x1680),
            (0x2000, 0x200a),
            (0x2028, 0x2029),
            (0x202f, 0x202f),
            (0x205f, 0x205f),
            (0x3000, 0x3000),
            (0xfeff, 0xfeff),
        ])
    }

    /// What `.` matches.
    pub(super) fn no_line_end() -> Self {
        Self::of(&[(0x0a, 0x0a), (0x0d, 0x0d), (0x2028, 0x2029)]).complement()
    }

    pub(super) fn complement(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.0 {
            if next < low {
                gaps.push((next, low - 1));
            }
            next = high.saturating_add(1);
        }
        if next <= LAST {
            gaps.push((next, LAST));
        }
        Self(gaps)
    }

    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub(super) fn contains(&self, c: char) -> bool {
        let c = u32::from(c);
        let after = self.0.partition_point(|&(low, _)| low <= c);
        after
            .checked_sub(1)
            .and_then(|at| self.0.get(at))
            .is_some_and(|&(_, high)| c <= high)
    }
}
