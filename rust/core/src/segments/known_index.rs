//! The segments and tombstones that a snapshot of the tables lists.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{IdRanges, SegmentId};

/// A segment that was read.
pub(crate) trait Segment {
    fn id(&self) -> &SegmentId;
    /// The ids of its chunks, by ordinal.
    fn ids(&self) -> &IdRanges;
}

/// A tombstone that was read.
pub(crate) type Tombstone = (SegmentId, Arc<IdRanges>);

/// Segments and tombstones of one snapshot.
#[derive(Debug)]
pub(crate) struct KnownIndex<S> {
    /// Large ones first: a high threshold early spares work later.
    pub(crate) listed: Vec<Arc<S>>,
    /// By id.
    pub(crate) buried: Vec<Tombstone>,
    /// The same segments by id.
    segments: FxHashMap<SegmentId, Arc<S>>,
}

impl<S> Default for KnownIndex<S> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            buried: Vec::new(),
            segments: FxHashMap::default(),
        }
    }
}

impl<S: Segment> KnownIndex<S> {
    pub(crate) fn new(mut listed: Vec<Arc<S>>, mut buried: Vec<Tombstone>) -> Self {
        listed.sort_unstable_by_key(|segment| (Reverse(segment.ids().len()), *segment.id()));
        buried.sort_unstable_by_key(|(id, _)| *id);
        let segments = listed.iter();
        let segments = segments.map(|segment| (*segment.id(), Arc::clone(segment)));
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

    pub(crate) fn segment(&self, id: &SegmentId) -> Option<&Arc<S>> {
        self.segments.get(id)
    }

    pub(crate) fn tombstone(&self, id: &SegmentId) -> Option<&Tombstone> {
        let place = self.buried.binary_search_by(|(known, _)| known.cmp(id));
        self.buried.get(place.ok()?)
    }
}
