//! Sorting, in one copy for all types: each copy of the standard library's is 4 to 8 KB of Wasm.

use std::cmp::Ordering;

/// Sorts; what is equal keeps its order.
pub(crate) fn sorted<T>(items: Vec<T>, compare: fn(&T, &T) -> Ordering) -> Vec<T> {
    let goes_before = |a: usize, b: usize| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b).is_lt(),
        _ => false,
    };
    let order = order(items.len(), &goes_before);
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|at| items.get_mut(at)?.take())
        .collect()
}

/// The indices in the order of what they stand for: a merge sort from the bottom up.
fn order(length: usize, goes_before: &dyn Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    let mut run = 1;
    while run < length {
        let mut merged = Vec::with_capacity(length);
        for pair in order.chunks(2 * run) {
            let (left, right) = pair.split_at(run.min(pair.len()));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            loop {
                let next = match (left.peek(), right.peek()) {
                    (Some(a), Some(b)) if goes_before(**b, **a) => right.next(),
                    (Some(_), _) => left.next(),
                    (None, _) => right.next(),
                };
                let Some(next) = next else { break };
                merged.push(*next);
            }
        }
        order = merged;
        run *= 2;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_and_equal_ones_keep_their_order() {
        for length in 0..40_usize {
            let items: Vec<(usize, usize)> = (0..length).map(|i| (i * 7919 % 11, i)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            assert_eq!(sorted(items, |a, b| a.0.cmp(&b.0)), expected);
        }
    }
}
