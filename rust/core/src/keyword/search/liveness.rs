//! Which chunks of a segment are deleted in a snapshot, derived from the snapshot before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::read_segment::ReadSegment;
use crate::keyword::format::Header;
use crate::keyword::format::list::{Cursor, List, POSTINGS_PER_LOOKUP};
use crate::segments::IdRanges;
use crate::segments::bitmap::Bitmap;
use crate::segments::{SegmentError, impossible};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A segment of a view: it is shared by all views in which the same chunks are deleted.
#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) segment: Arc<ReadSegment>,
    /// Distinguishes what was ever known to be deleted; never 0.
    number: u64,
    /// The number of the state before, and the ordinals that were deleted since, ascending.
    before: Option<(u64, Vec<u32>)>,
    /// Ordinals of the deleted chunks, ascending.
    dead: Vec<u32>,
    /// The others; nothing when none is deleted.
    pub(crate) alive: Option<Bitmap>,
    /// Terms of the others, repeats included.
    pub(crate) length: u64,
}

impl LiveSegment {
    /// The segment without what any of the tombstones names.
    pub(crate) fn new<'t>(
        segment: &Arc<ReadSegment>,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Self, SegmentError> {
        let dead = fallen(&segment.header, None, tombstones);
        Self::made(Arc::clone(segment), None, dead)
    }

    /// The segment without what further tombstones name as well; nothing when that changes nothing.
    pub(crate) fn without<'t>(
        &self,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Option<Self>, SegmentError> {
        let fallen = fallen(&self.segment.header, self.alive.as_ref(), tombstones);
        if fallen.is_empty() {
            return Ok(None);
        }
        let segment = Arc::clone(&self.segment);
        Self::made(segment, Some(self), fallen).map(Some)
    }

    /// `fallen` are those that are deleted now and were not `before`.
    fn made(
        segment: Arc<ReadSegment>,
        before: Option<&Self>,
        fallen: Vec<u32>,
    ) -> Result<Self, SegmentError> {
        let header = &segment.header;
        let mut length = before.map_or(header.total_length, |before| before.length);
        for ordinal in &fallen {
            length = length
                .checked_sub(u64::from(header.length(*ordinal)?))
                .ok_or_else(|| impossible("deleted chunks are longer than their segment"))?;
        }
        let mut alive = before.and_then(|before| before.alive.clone());
        if !fallen.is_empty() {
            let alive = alive.get_or_insert_with(|| Bitmap::full(header.chunks()));
            fallen.iter().for_each(|ordinal| alive.remove(*ordinal));
        }
        let (before, dead) = match before {
            Some(before) => {
                let mut dead = [&*fallen, &before.dead].concat();
                dead.sort_unstable();
                (Some((before.number, fallen)), dead)
            }
            None => (None, fallen),
        };
        Ok(Self {
            segment,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            before,
            dead,
            alive,
            length,
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.segment.header
    }

    /// The number of chunks that are not deleted.
    pub(crate) fn chunks(&self) -> u64 {
        u64::from(self.header().chunks()).saturating_sub(self.dead.len() as u64)
    }

    /// Whether the same chunks of the same segment are deleted.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.segment, &other.segment) && self.dead == other.dead
    }

    /// In how many deleted chunks the term of a list occurs. `keeps` notes it in the list for the next search.
    pub(crate) fn dead_postings(&self, list: &List, keeps: bool) -> Result<u32, SegmentError> {
        let Some(alive) = &self.alive else {
            return Ok(0);
        };
        if let Some(dead) = list.dead(self.number) {
            return Ok(dead);
        }
        let known = self
            .before
            .as_ref()
            .and_then(|(number, since)| Some((list.dead(*number)?, since)));
        let (mut dead, uncounted) = known.unwrap_or((0, &self.dead));
        if uncounted.len() < list.count() as usize / POSTINGS_PER_LOOKUP {
            let mut cursor = Cursor::new(list);
            for ordinal in uncounted {
                dead += u32::from(cursor.frequency(*ordinal) > 0);
            }
            cursor.finish()?;
        } else {
            dead = 0;
            list.each_ordinal(|ordinal| dead += u32::from(!alive.contains(ordinal)))?;
        }
        if keeps {
            list.keep_dead(self.number, dead);
        }
        Ok(dead)
    }
}

/// The ordinals that tombstones name and that are alive, ascending and once each.
fn fallen<'t>(
    header: &Header,
    alive: Option<&Bitmap>,
    tombstones: impl IntoIterator<Item = &'t IdRanges>,
) -> Vec<u32> {
    let mut fallen = Vec::new();
    for ids in tombstones {
        header.ids.each_common(ids, |first, count| {
            let ordinals = first..first.saturating_add(count);
            fallen.extend(
                ordinals.filter(|ordinal| alive.is_none_or(|alive| alive.contains(*ordinal))),
            );
        });
    }
    fallen.sort_unstable();
    fallen.dedup();
    fallen
}
