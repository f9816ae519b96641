//! Small segments with all their rows. Most commits add one, and each query needs different lists of it; kept whole, it
//! is read only once.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::plan::CachedList;
use crate::keyword::format::Header;
use crate::keyword::format::rows::IndexedRow;
use crate::segments::{SegmentError, SegmentId};

/// All rows of one segment, by their keys.
#[derive(Debug, Default)]
pub(crate) struct SmallSegment {
    rows: Vec<IndexedRow>,
    bytes: usize,
}

impl SmallSegment {
    /// The segment of rows (first term and data) in ascending order.
    pub(crate) fn new<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let rows = rows.into_iter();
        let rows: Vec<_> = rows
            .map(|(first_term, data)| IndexedRow::new(first_term, data))
            .collect();
        let bytes = rows.iter().map(IndexedRow::memory).sum();
        Self { rows, bytes }
    }

    /// The list of a term; `None` if the segment does not hold it.
    pub(crate) fn list(&self, header: &Header, term: &[u8]) -> Result<CachedList, SegmentError> {
        let behind = self.rows.partition_point(|row| row.key() <= term);
        let row = behind.checked_sub(1).and_then(|place| self.rows.get(place));
        let list = row.map_or(Ok(None), |row| row.list(header, term))?;
        Ok(list.map(Arc::new))
    }
}

/// The small segments that were read last, as far as they fit into a limit.
#[derive(Debug, Default)]
pub(crate) struct SmallSegments {
    kept: FxHashMap<SegmentId, Arc<SmallSegment>>,
    /// Ids in the order in which the segments were read, the latest last.
    order: VecDeque<SegmentId>,
    bytes: usize,
}

impl SmallSegments {
    /// Bytes of all rows that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn get(&self, id: &SegmentId) -> Option<&Arc<SmallSegment>> {
        self.kept.get(id)
    }

    /// Keeps a segment; forgets the oldest ones beyond `limit` bytes.
    pub(crate) fn keep(&mut self, id: SegmentId, segment: &Arc<SmallSegment>, limit: usize) {
        if self.kept.insert(id, Arc::clone(segment)).is_none() {
            self.order.push_back(id);
            self.bytes = self.bytes.saturating_add(segment.bytes);
        }
        while self.bytes > limit
            && let Some(oldest) = self.order.front().copied()
        {
            self.forget(&oldest);
        }
    }

    /// Forgets a segment.
    pub(crate) fn forget(&mut self, id: &SegmentId) {
        if let Some(segment) = self.kept.remove(id) {
            self.order.retain(|kept| kept != id);
            self.bytes = self.bytes.saturating_sub(segment.bytes);
        }
    }
}
