//! The view of one snapshot of the tables: its segments without the dead chunks, and totals over all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::bitmap::Bitmap;
use super::bm25::{Parameters, TfNormTable};
use super::header::Header;
use super::ids::{IdRange, IdRanges};
use super::list::{Cursor, List, POSTINGS_PER_LOOKUP};
use super::{SegmentError, SegmentId};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A segment of a view.
#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) header: Arc<Header>,
    /// Ordinals of the deleted chunks, ascending.
    pub(crate) dead: Vec<u32>,
    /// The others; nothing when none is deleted.
    pub(crate) alive: Option<Bitmap>,
}

impl LiveSegment {
    /// In how many deleted chunks the term of a list occurs.
    pub(crate) fn dead_postings(&self, list: &List) -> u32 {
        let Some(alive) = &self.alive else { return 0 };
        let mut dead = 0;
        if self.dead.len() < list.count() as usize / POSTINGS_PER_LOOKUP {
            let mut cursor = Cursor::new(list);
            for ordinal in &self.dead {
                dead += u32::from(cursor.frequency(*ordinal) > 0);
            }
        } else {
            list.each_ordinal(|ordinal| dead += u32::from(!alive.contains(ordinal)));
        }
        dead
    }
}

/// Segments and tombstones of one snapshot. Equal lists of ids give an equal view, so it can be kept.
#[derive(Debug)]
pub(crate) struct View {
    /// Distinguishes views; never 0.
    pub(crate) number: u64,
    key: (Vec<SegmentId>, Vec<SegmentId>),
    pub(crate) segments: Vec<LiveSegment>,
    /// Ranges of ids with the segment that each one stands in, ascending.
    places: Vec<(IdRange, usize)>,
    /// Living chunks.
    pub(crate) chunks: u64,
    /// Average length of a living chunk.
    pub(crate) average_length: f64,
    tf_norms: Mutex<Option<(Parameters, Arc<Vec<TfNormTable>>)>>,
}

impl View {
    pub(crate) fn new(
        segments: Vec<Arc<Header>>,
        tombstones: &[(SegmentId, Arc<IdRanges>)],
    ) -> Result<Self, SegmentError> {
        let key = (
            segments.iter().map(|header| header.id).collect(),
            tombstones.iter().map(|(id, _)| *id).collect(),
        );
        let mut places: Vec<_> = segments
            .iter()
            .enumerate()
            .flat_map(|(number, header)| {
                header
                    .ids
                    .ranges()
                    .iter()
                    .map(move |range| (*range, number))
            })
            .collect();
        places.sort_unstable_by_key(|(range, _)| range.start);
        for ((range, number), (next, _)) in places.iter().zip(places.iter().skip(1)) {
            if range.last() >= next.start {
                let id = segments.get(*number).map_or([0; 16], |header| header.id);
                return Err(SegmentError::damaged(&id)(
                    "a chunk stands in another segment as well",
                ));
            }
        }
        let mut view = Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            segments: segments
                .into_iter()
                .map(|header| LiveSegment {
                    header,
                    dead: Vec::new(),
                    alive: None,
                })
                .collect(),
            places,
            chunks: 0,
            average_length: 0.0,
            tf_norms: Mutex::new(None),
        };
        for (_, ids) in tombstones {
            ids.ranges()
                .iter()
                .for_each(|range| view.apply_tombstone(range));
        }
        view.total();
        Ok(view)
    }

    /// Whether this is the view of these lists of ids.
    pub(crate) fn shows<'a>(
        &self,
        segments: impl Iterator<Item = &'a SegmentId>,
        tombstones: impl Iterator<Item = &'a SegmentId>,
    ) -> bool {
        self.key.0.iter().eq(segments) && self.key.1.iter().eq(tombstones)
    }

    /// Marks the chunks of a range of ids as deleted.
    fn apply_tombstone(&mut self, dead: &IdRange) {
        let first = self
            .places
            .partition_point(|(range, _)| range.last() < dead.start);
        let met = self.places.iter().skip(first);
        for (range, number) in met.take_while(|(range, _)| range.start <= dead.last()) {
            let Some(segment) = self.segments.get_mut(*number) else {
                continue;
            };
            let chunks = segment.header.chunks();
            let alive = segment.alive.get_or_insert_with(|| Bitmap::full(chunks));
            let from = range.distance(dead.start).unwrap_or(0);
            let to = range
                .distance(dead.last())
                .unwrap_or(range.count.saturating_sub(1));
            for distance in from..=to {
                alive.remove(range.ordinal.saturating_add(distance));
            }
        }
    }

    fn total(&mut self) {
        let (mut chunks, mut length) = (0_u64, 0_u64);
        for segment in &mut self.segments {
            let header = &segment.header;
            if let Some(alive) = &segment.alive {
                let mut dead = Bitmap::full(header.chunks());
                dead.subtract(alive);
                segment.dead = dead.iter().collect();
            }
            let dead_length: u64 = segment
                .dead
                .iter()
                .map(|ordinal| u64::from(header.length(*ordinal)))
                .sum();
            chunks += u64::from(header.chunks()) - segment.dead.len() as u64;
            length += header.total_length - dead_length;
        }
        self.chunks = chunks;
        // At least 1 when no chunk has terms: then nothing is scored, and nothing is divided by zero.
        self.average_length = if length == 0 {
            1.0
        } else {
            length as f64 / chunks as f64
        };
    }

    /// Segment and ordinal of a chunk, dead or alive. `hint` remembers the range for ids in about ascending order.
    pub(crate) fn locate(&self, id: i64, hint: &mut usize) -> Option<(usize, u32)> {
        let holds = |place: usize| {
            let (range, number) = self.places.get(place)?;
            Some((*number, range.ordinal.checked_add(range.distance(id)?)?))
        };
        if let Some(found) = holds(*hint) {
            return Some(found);
        }
        let behind = self.places.partition_point(|(range, _)| range.start <= id);
        *hint = behind.checked_sub(1)?;
        holds(*hint)
    }

    /// The tables of all segments, kept for the next search with the same parameters.
    pub(crate) fn tf_norms(&self, parameters: Parameters) -> Arc<Vec<TfNormTable>> {
        let mut kept = self.tf_norms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, tables)) = kept.as_ref()
            && *known == parameters
        {
            return Arc::clone(tables);
        }
        let tables = self
            .segments
            .iter()
            .map(|segment| TfNormTable::new(parameters, self.average_length, &segment.header));
        let tables = Arc::new(tables.collect());
        *kept = Some((parameters, Arc::clone(&tables)));
        tables
    }
}
