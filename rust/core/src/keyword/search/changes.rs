//! What has changed in the tables since a plan was made: new tombstones, and new segments with all their rows.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::plan::PostingPlan;
use super::read_segment::ReadSegment;
use super::small_segments::SmallSegment;
use crate::keyword::format::{Header, keys_hash};
use crate::segments::known_index::Tombstone;
use crate::segments::{SegmentError, SegmentId, decode_tombstone};

/// A new segment.
#[derive(Clone, Debug)]
pub struct NewSegment<'a> {
    /// Its id.
    pub id: SegmentId,
    /// Its language.
    pub language: &'a str,
    /// Its header.
    pub header: &'a [u8],
    /// The hash of the keys of its rows.
    pub row_keys: &'a [u8],
    /// All its rows: first term and data, by first term.
    pub rows: Vec<(&'a [u8], &'a [u8])>,
}

/// All that a later state of the tables lists.
#[derive(Debug)]
pub struct Changes {
    pub(crate) listed: Vec<Arc<ReadSegment>>,
    pub(crate) buried: Vec<Tombstone>,
    /// The new segments.
    pub(crate) small: FxHashMap<SegmentId, Arc<SmallSegment>>,
    damaged: usize,
}

impl Changes {
    /// The state that lists `segments` and `tombstones`, of which those that the plan does not know were given; nothing
    /// when one was not.
    ///
    /// # Errors
    ///
    /// Damaged headers and tombstones.
    pub fn new(
        plan: &PostingPlan,
        segments: &[SegmentId],
        tombstones: &[SegmentId],
        new: &[NewSegment<'_>],
        dead: &[(SegmentId, &[u8])],
    ) -> Result<Option<Self>, SegmentError> {
        let mut listed = Vec::with_capacity(segments.len());
        let mut small = FxHashMap::default();
        let mut damaged = 0;
        for id in segments {
            if let Some(known) = plan.known.segment(id) {
                listed.push(Arc::clone(known));
                continue;
            }
            let Some(new) = new.iter().find(|new| new.id == *id) else {
                return Ok(None);
            };
            let header = Arc::new(Header::decode(id, new.header)?);
            listed.push(Arc::new(ReadSegment::new(new.language, header)));
            let keys = new.rows.iter().map(|(first_term, _)| *first_term);
            damaged += usize::from(keys_hash(keys) != new.row_keys);
            let rows = new.rows.iter().copied();
            small.insert(*id, Arc::new(SmallSegment::new(rows)));
        }
        let mut buried = Vec::with_capacity(tombstones.len());
        for id in tombstones {
            if let Some(known) = plan.known.tombstone(id) {
                buried.push(known.clone());
                continue;
            }
            let Some((_, data)) = dead.iter().find(|(dead, _)| dead == id) else {
                return Ok(None);
            };
            buried.push((*id, Arc::new(decode_tombstone(id, data)?)));
        }
        Ok(Some(Self {
            listed,
            buried,
            small,
            damaged,
        }))
    }

    /// How many segments and tombstones there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.listed.len() + self.buried.len()
    }

    /// How many of the new segments lack rows, or have others than those that were written.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The languages of all segments, repeats included.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().map(|segment| &*segment.language)
    }
}
