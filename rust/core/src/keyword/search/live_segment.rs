//! A segment without its deleted chunks.

use std::sync::Arc;

use super::read_segment::ReadSegment;
use crate::keyword::format::Header;
use crate::keyword::format::list::{Cursor, List, POSTINGS_PER_LOOKUP};
use crate::segments::liveness::Liveness;
use crate::segments::{IdRanges, SegmentError, impossible};

/// A segment of a view: it is shared by all views in which the same chunks are deleted.
#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) segment: Arc<ReadSegment>,
    pub(crate) liveness: Liveness,
    /// Terms of the living chunks, repeats included.
    pub(crate) length: u64,
}

impl LiveSegment {
    /// The segment without what any of the tombstones names.
    pub(crate) fn new<'t>(
        segment: &Arc<ReadSegment>,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Self, SegmentError> {
        let header = &segment.header;
        let liveness = Liveness::new(&header.ids, tombstones)?;
        Self::made(segment, liveness, header.total_length)
    }

    /// The segment without what further tombstones name as well; `None` if that changes nothing.
    pub(crate) fn without<'t>(
        &self,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Option<Self>, SegmentError> {
        let liveness = self.liveness.without(&self.header().ids, tombstones)?;
        liveness
            .map(|liveness| Self::made(&self.segment, liveness, self.length))
            .transpose()
    }

    /// Makes a segment; `length` is the length of the state that this one was derived from.
    fn made(
        segment: &Arc<ReadSegment>,
        liveness: Liveness,
        mut length: u64,
    ) -> Result<Self, SegmentError> {
        for ordinal in liveness.fallen() {
            length = length
                .checked_sub(u64::from(segment.header.length(*ordinal)?))
                .ok_or_else(|| impossible("deleted chunks are longer than their segment"))?;
        }
        Ok(Self {
            segment: Arc::clone(segment),
            liveness,
            length,
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.segment.header
    }

    /// The number of chunks that are not deleted.
    pub(crate) fn chunks(&self) -> Result<u64, SegmentError> {
        let living = u64::from(self.header().chunks()).checked_sub(self.liveness.dead.len() as u64);
        living.ok_or_else(|| impossible("more chunks are deleted than exist"))
    }

    /// Whether the same chunks of the same segment are deleted.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.segment, &other.segment) && self.liveness.dead == other.liveness.dead
    }

    /// In how many deleted chunks the term of a list is known to occur, and the deleted chunks to look up besides.
    fn counted(&self, list: &List) -> (u32, &[u32]) {
        let Liveness {
            number,
            before,
            dead: all_dead,
            ..
        } = &self.liveness;
        if let Some(dead) = list.dead(*number) {
            return (dead, &[]);
        }
        let known = before
            .as_ref()
            .and_then(|(number, since)| Some((list.dead(*number)?, since.as_slice())));
        // If the state before was not counted, all are.
        known.unwrap_or((0, all_dead))
    }

    /// About how many postings [`Self::dead_postings`] reads.
    pub(crate) fn uncounted_postings(&self, list: &List) -> usize {
        let (_, uncounted) = self.counted(list);
        let lookups = uncounted.len().saturating_mul(POSTINGS_PER_LOOKUP);
        lookups.min(list.count() as usize)
    }

    /// In how many deleted chunks the term of a list occurs. `keeps` notes it in the list for the next search.
    pub(crate) fn dead_postings(&self, list: &List, keeps: bool) -> Result<u32, SegmentError> {
        let (mut dead, uncounted) = self.counted(list);
        if uncounted.is_empty() {
            return Ok(dead);
        }
        if uncounted.len() < list.count() as usize / POSTINGS_PER_LOOKUP {
            let mut cursor = Cursor::new(list);
            for ordinal in uncounted {
                dead += u32::from(cursor.frequency(*ordinal) > 0);
            }
            cursor.finish()?;
        } else {
            dead = 0;
            list.each_ordinal(|ordinal| {
                dead += u32::from(!self.liveness.is_alive(ordinal));
                Ok(())
            })?;
        }
        if keeps {
            list.keep_dead(self.liveness.number, dead);
        }
        Ok(dead)
    }
}
