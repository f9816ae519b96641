//! What a snapshot of the tables lists.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::read_segment::ReadSegment;
use crate::segments::{IdRanges, SegmentId};

/// A tombstone that was read.
pub(crate) type Tombstone = (SegmentId, Arc<IdRanges>);

/// Segments and tombstones of one snapshot.
#[derive(Debug, Default)]
pub(crate) struct KnownIndex {
    /// Large ones first: a high threshold early spares work later.
    pub(crate) listed: Vec<Arc<ReadSegment>>,
    /// By id.
    pub(crate) buried: Vec<Tombstone>,
    /// The same segments by id.
    segments: FxHashMap<SegmentId, Arc<ReadSegment>>,
}

impl KnownIndex {
    pub(crate) fn new(mut listed: Vec<Arc<ReadSegment>>, mut buried: Vec<Tombstone>) -> Self {
        listed
            .sort_unstable_by_key(|segment| (Reverse(segment.header.chunks()), segment.header.id));
        buried.sort_unstable_by_key(|(id, _)| *id);
        let segments = listed.iter();
        let segments = segments.map(|segment| (segment.header.id, Arc::clone(segment)));
        Self {
            segments: segments.collect(),
            listed,
            buried,
        }
    }

    /// Whether both list the same.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let mut segments = self.listed.iter().zip(&other.listed);
        let mut tombstones = self.buried.iter().zip(&other.buried);
        std::ptr::eq(self, other)
            || self.listed.len() == other.listed.len()
                && self.buried.len() == other.buried.len()
                && segments.all(|(one, two)| Arc::ptr_eq(one, two))
                && tombstones.all(|((one, _), (two, _))| one == two)
    }

    pub(crate) fn lists_one_twice(&self) -> bool {
        self.segments.len() < self.listed.len()
    }

    pub(crate) fn segment(&self, id: &SegmentId) -> Option<&Arc<ReadSegment>> {
        self.segments.get(id)
    }

    pub(crate) fn tombstone(&self, id: &SegmentId) -> Option<&Tombstone> {
        let place = self.buried.binary_search_by(|(known, _)| known.cmp(id));
        self.buried.get(place.ok()?)
    }

    /// The segments of a language.
    pub(crate) fn of_language<'a>(
        &'a self,
        language: &'a str,
    ) -> impl Iterator<Item = &'a SegmentId> {
        let own = self.listed.iter();
        own.filter(move |segment| *segment.language == *language)
            .map(|segment| &segment.header.id)
    }
}
