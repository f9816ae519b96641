//! Which chunks of a segment are deleted in a snapshot, derived from the snapshot before.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bitmap::Bitmap;
use super::{IdRanges, SegmentError};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The deleted chunks of a segment, the same for all snapshots in which the same are deleted.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// Distinguishes what was ever known to be deleted; never 0.
    pub(crate) number: u64,
    /// The number of the state that this one was derived from, and the ordinals that were deleted since, ascending.
    pub(crate) before: Option<(u64, Vec<u32>)>,
    /// Ordinals of the deleted chunks, ascending.
    pub(crate) dead: Vec<u32>,
    /// The others; nothing when none is deleted.
    pub(crate) alive: Option<Bitmap>,
}

impl Liveness {
    /// Of a segment with these ids, without what any of the tombstones names.
    pub(crate) fn new<'t>(
        ids: &IdRanges,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Self, SegmentError> {
        let dead = fallen(ids, None, tombstones)?;
        Ok(Self::made(None, bitmap_without(None, ids, &dead), dead))
    }

    /// The same without what further tombstones name as well; nothing when that changes nothing.
    pub(crate) fn without<'t>(
        &self,
        ids: &IdRanges,
        tombstones: impl IntoIterator<Item = &'t IdRanges>,
    ) -> Result<Option<Self>, SegmentError> {
        let fallen = fallen(ids, self.alive.as_ref(), tombstones)?;
        if fallen.is_empty() {
            return Ok(None);
        }
        let alive = bitmap_without(self.alive.as_ref(), ids, &fallen);
        let mut dead = [&*fallen, &self.dead].concat();
        dead.sort_unstable();
        Ok(Some(Self::made(Some((self.number, fallen)), alive, dead)))
    }

    fn made(before: Option<(u64, Vec<u32>)>, alive: Option<Bitmap>, dead: Vec<u32>) -> Self {
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            before,
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

/// Those of a bitmap (all, if there is none yet) that have not fallen.
fn bitmap_without(alive: Option<&Bitmap>, ids: &IdRanges, fallen: &[u32]) -> Option<Bitmap> {
    if fallen.is_empty() {
        return alive.cloned();
    }
    // Without a bitmap none was deleted so far.
    let mut alive = alive.cloned().unwrap_or_else(|| Bitmap::full(ids.len()));
    fallen.iter().for_each(|ordinal| alive.remove(*ordinal));
    Some(alive)
}

/// The ordinals that tombstones name and that are alive, ascending and once each.
fn fallen<'t>(
    own: &IdRanges,
    alive: Option<&Bitmap>,
    tombstones: impl IntoIterator<Item = &'t IdRanges>,
) -> Result<Vec<u32>, SegmentError> {
    let mut fallen = Vec::new();
    for ids in tombstones {
        own.each_common(ids, |first, count| {
            let ordinals = first..first + count;
            fallen.extend(
                ordinals.filter(|ordinal| alive.is_none_or(|alive| alive.contains(*ordinal))),
            );
        })?;
    }
    fallen.sort_unstable();
    fallen.dedup();
    Ok(fallen)
}
