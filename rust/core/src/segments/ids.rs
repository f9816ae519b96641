//! Ascending ids as ranges: they are reserved in blocks, so a segment has few ranges.

use super::sealed::{ByteReader, Read, write_varint};

/// Ids that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first id.
    pub start: i64,
    /// The number of ids, at least 1.
    pub count: u32,
    /// The place of the first id among all.
    pub ordinal: u32,
}

impl IdRange {
    /// How far an id stands behind the first, or `None` if the range does not hold it.
    #[inline]
    pub(crate) fn distance(&self, id: i64) -> Option<u32> {
        let distance = u32::try_from(id.checked_sub(self.start)?).ok()?;
        (distance < self.count).then_some(distance)
    }

    /// The id that stands `distance` behind the first.
    #[inline]
    pub(crate) fn id(&self, distance: u32) -> i64 {
        self.start + i64::from(distance)
    }

    /// The last id.
    #[inline]
    pub(crate) fn last(&self) -> i64 {
        self.id(self.count - 1)
    }
}

/// Ascending ids without repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRanges {
    ranges: Vec<IdRange>,
    count: u32,
}

impl IdRanges {
    /// The ranges of ascending ids without repetition; `None` if they are not, or are more than 32 bits can count.
    #[must_use]
    pub fn new(ids: impl IntoIterator<Item = i64>) -> Option<Self> {
        let mut ranges = Vec::<IdRange>::new();
        let mut count = 0_u32;
        for id in ids {
            match ranges.last_mut() {
                Some(range) if range.last() >= id => return None,
                Some(range) if range.last().checked_add(1) == Some(id) => {
                    range.count = range.count.checked_add(1)?;
                }
                _ => ranges.push(IdRange {
                    start: id,
                    count: 1,
                    ordinal: count,
                }),
            }
            count = count.checked_add(1)?;
        }
        Some(Self { ranges, count })
    }

    /// These ranges, as first and last ids, which ascend with a gap behind each; `None` if they hold more ids than 32
    /// bits can count.
    pub(crate) fn joined(ranges: impl IntoIterator<Item = (i64, i64)>) -> Option<Self> {
        let mut joined = Self::default();
        for (start, last) in ranges {
            let count = last.abs_diff(start).checked_add(1)?;
            let count = u32::try_from(count).ok()?;
            joined.ranges.push(IdRange {
                start,
                count,
                ordinal: joined.count,
            });
            joined.count = joined.count.checked_add(count)?;
        }
        Some(joined)
    }

    /// The number of ids.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is no id.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[IdRange] {
        &self.ranges
    }

    /// All ids, ascending.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.ranges
            .iter()
            .flat_map(|range| (0..range.count).map(|distance| range.id(distance)))
    }

    /// The id at a place.
    #[must_use]
    pub fn id(&self, ordinal: u32) -> Option<i64> {
        let behind = self
            .ranges
            .partition_point(|range| range.ordinal <= ordinal);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        let distance = ordinal.checked_sub(range.ordinal)?;
        (distance < range.count).then(|| range.id(distance))
    }

    /// The place of an id. `hint` is the range where to look first, and becomes the one where it was found.
    pub(crate) fn ordinal(&self, id: i64, hint: &mut usize) -> Option<u32> {
        let holds = |place: usize| {
            let range = self.ranges.get(place)?;
            range.ordinal.checked_add(range.distance(id)?)
        };
        if let Some(found) = holds(*hint) {
            return Some(found);
        }
        let behind = self.ranges.partition_point(|range| range.start <= id);
        let place = behind.checked_sub(1)?;
        let found = holds(place)?;
        *hint = place;
        Some(found)
    }

    /// The ids that both have: for each shared part, a range of these ids and the part's first and last id.
    pub(crate) fn common<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a IdRange, i64, i64)> {
        let (mut own, mut others) = (self.ranges.as_slice(), other.ranges.as_slice());
        std::iter::from_fn(move || {
            while let ([one, own_rest @ ..], [two, others_rest @ ..]) = (own, others) {
                if one.last() < two.start {
                    own = behind(own, two.start);
                } else if two.last() < one.start {
                    others = behind(others, one.start);
                } else {
                    if one.last() <= two.last() {
                        own = own_rest;
                    } else {
                        others = others_rest;
                    }
                    let last = one.last().min(two.last());
                    return Some((one, one.start.max(two.start), last));
                }
            }
            None
        })
    }

    /// Whether both have an id in common.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.common(other).next().is_some()
    }

    /// Number of ranges, the first id (zigzag), then the length of each range and the gap to the next.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_varint(self.ranges.len() as u64, out);
        let mut before: Option<i64> = None;
        for range in &self.ranges {
            let gap = match before {
                None => ((range.start << 1) ^ (range.start >> 63)).cast_unsigned(),
                // Two ids of different ranges are at least two apart.
                Some(last) => range.start.wrapping_sub(last).cast_unsigned() - 2,
            };
            write_varint(gap, out);
            write_varint(u64::from(range.count) - 1, out);
            before = Some(range.last());
        }
    }

    /// Reads what [`Self::write`] wrote, at most `most` ids.
    pub(crate) fn read(reader: &mut ByteReader<'_>, most: usize) -> Read<Self> {
        let ranges = reader.varint_usize()?;
        // A range takes two bytes at least: nothing is reserved that the content cannot hold.
        if ranges > reader.left() / 2 {
            return Err("more ranges of ids than the content can hold");
        }
        let mut read = Self {
            ranges: Vec::with_capacity(ranges),
            count: 0,
        };
        let mut before: Option<i64> = None;
        for _ in 0..ranges {
            let gap = reader.varint()?;
            let start = match before {
                None => Some((gap >> 1).cast_signed() ^ -(gap & 1).cast_signed()),
                Some(last) => gap
                    .checked_add(2)
                    .and_then(|gap| last.checked_add_unsigned(gap)),
            };
            let range = IdRange {
                start: start.ok_or("an id is too large")?,
                count: reader
                    .varint_u32()?
                    .checked_add(1)
                    .ok_or("a range of ids is too long")?,
                ordinal: read.count,
            };
            before = Some(
                range
                    .start
                    .checked_add(i64::from(range.count) - 1)
                    .ok_or("an id is too large")?,
            );
            read.count = read
                .count
                .checked_add(range.count)
                .filter(|count| *count as usize <= most)
                .ok_or("too many ids")?;
            read.ranges.push(range);
        }
        Ok(read)
    }
}

/// The ranges that end at `id` or behind it: looked for in steps that double, so that both a near and a far one are found
/// in few.
fn behind(mut ranges: &[IdRange], id: i64) -> &[IdRange] {
    let ends_before = |range: &IdRange| range.last() < id;
    let mut step = 1;
    while let Some((_, rest)) = ranges.split_at_checked(step)
        && rest.first().is_some_and(ends_before)
    {
        ranges = rest;
        step *= 2;
    }
    let (near, _) = ranges.split_at(ranges.len().min(step));
    ranges.split_at(near.partition_point(ends_before)).1
}
