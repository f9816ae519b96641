//! Which chunks of a segment are deleted in a snapshot, derived from the snapshot before.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bitmap::Bitmap;
use super::{IdRanges, SegmentError, impossible};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The deleted chunks of a segment, the same for all snapshots in which the same are deleted.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// Number of this set of deleted chunks, different for each set; never 0.
    pub(crate) number: u64,
    /// The number of the state that this one was derived from, and the ordinals that were deleted since, ascending.
    pub(crate) before: Option<(u64, Vec<u32>)>,
    /// Ordinals of the deleted chunks, ascending.
    pub(crate) dead: Vec<u32>,
    /// The others; `None` if none is deleted.
    pub(crate) alive: Option<Bitmap>,
}

impl Liveness {
    /// The state of a segment with these ids, in which every chunk that a tombstone names is deleted.
    pub(crate) fn new<'t>(
        ids: &IdRanges,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Self, SegmentError> {
        Ok(Self::made(None, ids, fallen(ids, None, tombstones)?))
    }

    /// The state in which the chunks that further tombstones name are deleted as well; `None` if it is the same.
    pub(crate) fn without<'t>(
        &self,
        ids: &IdRanges,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Option<Self>, SegmentError> {
        let fallen = fallen(ids, self.alive.as_ref(), tombstones)?;
        Ok((!fallen.is_empty()).then(|| Self::made(Some(self), ids, fallen)))
    }

    /// `fallen` are the chunks that are deleted now and were not `before`.
    fn made(before: Option<&Self>, ids: &IdRanges, fallen: Vec<u32>) -> Self {
        let mut alive = before.and_then(|before| before.alive.clone());
        if !fallen.is_empty() {
            let alive = alive.get_or_insert_with(|| Bitmap::full(ids.len()));
            fallen.iter().for_each(|ordinal| alive.remove(*ordinal));
        }
        let mut dead = [before.map_or(&[][..], |before| &before.dead), &fallen].concat();
        dead.sort_unstable();
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            before: before.map(|before| (before.number, fallen)),
            dead,
            alive,
        }
    }

    /// The chunks that are deleted here and were not in the state that this one was derived from.
    pub(crate) fn fallen(&self) -> &[u32] {
        self.before
            .as_ref()
            .map_or(&self.dead, |(_, fallen)| fallen)
    }

    /// Whether a chunk is not deleted.
    pub(crate) fn is_alive(&self, ordinal: u32) -> bool {
        self.alive
            .as_ref()
            .is_none_or(|alive| alive.contains(ordinal))
    }
}

/// The ordinals that tombstones name and that are alive, ascending and once each.
fn fallen<'t>(
    own: &IdRanges,
    alive: Option<&Bitmap>,
    tombstones: impl IntoIterator<Item = &'t IdRanges>,
) -> Result<Vec<u32>, SegmentError> {
    let mut fallen = Vec::new();
    for ids in tombstones {
        for (range, first, last) in own.common(ids) {
            let distances = range.distance(first).zip(range.distance(last));
            let (first, last) =
                distances.ok_or_else(|| impossible("an id is outside its range"))?;
            let ordinals = range.ordinal + first..=range.ordinal + last;
            fallen.extend(
                ordinals.filter(|ordinal| alive.is_none_or(|alive| alive.contains(*ordinal))),
            );
        }
    }
    fallen.sort_unstable();
    fallen.dedup();
    Ok(fallen)
}
