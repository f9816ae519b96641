//! Where the ids of each of many segments lie, so that a chunk is found by its id.

use std::sync::Arc;

use super::known_index::Segment;
use super::{IdRanges, SegmentError, SegmentId};

/// The spans of segments from their first to their last ids, by the first. Spans may overlap; ids may not.
#[derive(Debug)]
pub(crate) struct Spans(Vec<Span>);

#[derive(Debug)]
struct Span {
    first: i64,
    last: i64,
    /// The last id of this segment and all before it.
    reach: i64,
    /// Number of the segment.
    number: usize,
}

/// Where a chunk was found last: its segment, and the range of ids in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    number: usize,
    range: usize,
}

impl Spans {
    /// The spans of segments with these ids.
    pub(crate) fn new<'a>(segments: impl Iterator<Item = &'a IdRanges>) -> Self {
        let spans = segments.enumerate().filter_map(|(number, ids)| {
            let ranges = ids.ranges();
            let last = ranges.last()?.last();
            Some(Span {
                first: ranges.first()?.start,
                last,
                reach: last,
                number,
            })
        });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_unstable_by_key(|span| span.first);
        let mut reach = i64::MIN;
        for span in &mut spans {
            reach = reach.max(span.last);
            span.reach = reach;
        }
        Self(spans)
    }

    /// Number of the segment and ordinal of a chunk; `ids` gives the ids of a segment. `hint` remembers the place for ids
    /// in about ascending order.
    pub(crate) fn locate<'a>(
        &self,
        id: i64,
        hint: &mut Hint,
        ids: impl Fn(usize) -> Option<&'a IdRanges>,
    ) -> Option<(usize, u32)> {
        let place =
            |number: usize, range: &mut usize| Some((number, ids(number)?.ordinal(id, range)?));
        if let Some(found) = place(hint.number, &mut hint.range) {
            return Some(found);
        }
        let behind = self.0.partition_point(|span| span.first <= id);
        let before = self.0.get(..behind)?.iter().rev();
        for span in before.take_while(|span| span.reach >= id) {
            let mut range = 0;
            if let Some(found) = (span.last >= id)
                .then(|| place(span.number, &mut range))
                .flatten()
            {
                *hint = Hint {
                    number: span.number,
                    range,
                };
                return Some(found);
            }
        }
        None
    }
}

/// From this many new segments on, sorting the ranges of all is faster than comparing the new ones with every other.
const MIN_SORTED: usize = 8;

/// Refuses a chunk that stands in two segments, at least one of them new.
pub(crate) fn refuse_shared<S: Segment>(
    segments: &[Arc<S>],
    is_new: &[bool],
) -> Result<(), SegmentError> {
    let damaged = |id| SegmentError::damaged(id)("a chunk is also in another segment");
    let new = || {
        let numbered = segments.iter().enumerate().zip(is_new);
        numbered.filter(|(_, is_new)| **is_new).map(|(one, _)| one)
    };
    if new().count() < MIN_SORTED {
        for (number, one) in new() {
            let mut others = segments.iter().enumerate();
            if others.any(|(other, two)| other != number && two.ids().meets(one.ids())) {
                return Err(damaged(one.id()));
            }
        }
        return Ok(());
    }
    let ranges = segments.iter().flat_map(|segment| {
        let ranges = segment.ids().ranges().iter();
        ranges.map(move |range| (range.start, range.last(), segment.id()))
    });
    let mut ranges: Vec<(i64, i64, &SegmentId)> = ranges.collect();
    ranges.sort_unstable_by_key(|(first, ..)| *first);
    for ((_, last, id), (next, ..)) in ranges.iter().zip(ranges.iter().skip(1)) {
        if last >= next {
            return Err(damaged(id));
        }
    }
    Ok(())
}
