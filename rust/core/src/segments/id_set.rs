//! Sets of ids as ranges: a few bytes of a tombstone may name billions of ids, and nothing ever lists them all.

use super::ids::IdRanges;

/// A set of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet {
    /// First and last ids, ascending, with a gap behind each.
    ranges: Vec<(i64, i64)>,
}

impl IdSet {
    /// The set of these ids, in any order, repeated or not.
    #[must_use]
    pub fn new(mut ids: Vec<i64>) -> Self {
        ids.sort_unstable();
        Self::joined(ids.into_iter().map(|id| (id, id)))
    }

    /// The union of the sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let ranges = sets.into_iter().flat_map(|set| &set.ranges).copied();
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable();
        Self::joined(ranges)
    }

    /// The set of these ranges, which come in the order of their first ids.
    fn joined(ascending: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for (first, last) in ascending {
            match ranges.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => ranges.push((first, last)),
            }
        }
        Self { ranges }
    }

    /// Number of ids; `u64::MAX` if it has more.
    #[must_use]
    pub fn len(&self) -> u64 {
        let counts = self.ranges.iter();
        let counts = counts.map(|(first, last)| last.abs_diff(*first).saturating_add(1));
        counts.fold(0, u64::saturating_add)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an id is among them.
    #[must_use]
    pub fn contains(&self, id: i64) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= id);
        let range = behind
            .checked_sub(1)
            .and_then(|place| self.ranges.get(place));
        range.is_some_and(|(_, last)| id <= *last)
    }

    /// The intersection of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        let (mut left, mut right) = (
            self.ranges.iter().peekable(),
            other.ranges.iter().peekable(),
        );
        while let (Some((start, end)), Some((begin, finish))) = (left.peek(), right.peek()) {
            let (first, last) = (*start.max(begin), *end.min(finish));
            if first <= last {
                ranges.push((first, last));
            }
            if end <= finish {
                left.next();
            } else {
                right.next();
            }
        }
        Self { ranges }
    }

    /// The ids of this set that the other lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        let mut others = other.ranges.iter().peekable();
        for (first, last) in &self.ranges {
            // What is left of the range; nothing behind the greatest id.
            let mut start = Some(*first);
            while let (Some(from), Some((begin, finish))) = (start, others.peek()) {
                if begin > last {
                    break;
                }
                if *begin > from {
                    ranges.push((from, begin.saturating_sub(1)));
                }
                if finish > last {
                    start = None;
                    break;
                }
                start = finish.checked_add(1).map(|next| next.max(from));
                others.next();
            }
            if let Some(from) = start.filter(|from| from <= last) {
                ranges.push((from, *last));
            }
        }
        Self { ranges }
    }

    /// The first and last ids of its ranges, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.ranges.iter().copied()
    }

    /// The ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl From<&IdRanges> for IdSet {
    fn from(ids: &IdRanges) -> Self {
        let ranges = ids.ranges().iter();
        Self::joined(ranges.map(|range| (range.start, range.last())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::IdSet;

    /// Ids near each other and near both ends.
    fn ids() -> impl Strategy<Value = Vec<i64>> {
        let id = prop_oneof![
            0..20_i64,
            Just(i64::MIN),
            Just(i64::MAX),
            i64::MAX - 9..=i64::MAX
        ];
        prop::collection::vec(id, 0..30)
    }

    proptest! {
        #[test]
        fn it_is_a_set(one in ids(), other in ids(), third in ids()) {
            let set = |ids: &[i64]| ids.iter().copied().collect::<BTreeSet<_>>();
            let list = |set: &IdSet| set.iter().collect::<Vec<_>>();
            let (left, right) = (IdSet::new(one.clone()), IdSet::new(other.clone()));
            let (one, other) = (set(&one), set(&other));
            prop_assert_eq!(list(&left), one.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(left.len(), one.len() as u64);
            prop_assert_eq!(left.is_empty(), one.is_empty());
            prop_assert_eq!(list(&left.intersection(&right)), one.intersection(&other).copied().collect::<Vec<_>>());
            prop_assert_eq!(list(&left.difference(&right)), one.difference(&other).copied().collect::<Vec<_>>());
            let all = IdSet::union([&left, &right, &IdSet::new(third.clone())]);
            let expected: BTreeSet<_> = one.iter().chain(&other).chain(&third).copied().collect();
            prop_assert_eq!(&all, &IdSet::new(expected.iter().copied().collect()));
            prop_assert_eq!(list(&all), expected.into_iter().collect::<Vec<_>>());
            prop_assert!(third.iter().all(|id| left.contains(*id) == one.contains(id)));
        }
    }

    #[test]
    fn all_ids_are_a_range() {
        let all = IdSet {
            ranges: vec![(i64::MIN, i64::MAX)],
        };
        let few = IdSet::new(vec![i64::MIN, 0, i64::MAX]);
        assert_eq!(all.len(), u64::MAX);
        assert_eq!(all.intersection(&few), few);
        assert!(few.difference(&all).is_empty());
        assert_eq!(
            all.difference(&few).ranges,
            [(i64::MIN + 1, -1), (1, i64::MAX - 1)]
        );
    }
}
