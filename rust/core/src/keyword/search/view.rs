//! The view of one snapshot of the tables: its segments without the dead chunks, and totals over all of them.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::bm25::{Parameters, TfNormTable};
use super::live_segment::LiveSegment;
use super::read_segment::ReadSegment;
use crate::segments::known_index::{KnownIndex, Segment, Tombstone};
use crate::segments::spans::{Hint, Spans, refuse_shared};
use crate::segments::{IdRanges, SegmentError, SegmentId};

/// Segments and tombstones of one snapshot. Equal lists of ids give an equal view, so it can be kept.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<LiveSegment>>,
    /// The segments and tombstones of the view.
    pub(crate) known: Arc<KnownIndex<ReadSegment>>,
    spans: Spans,
    /// Living chunks.
    pub(crate) chunks: u64,
    /// Average length of a living chunk.
    pub(crate) average_length: f64,
    tf_norms: Mutex<Option<(Parameters, Arc<TfNorms>)>>,
}

/// The tables of all segments, and the maximum relative error of their norms for the view's average length.
#[derive(Debug)]
pub(crate) struct TfNorms {
    pub(crate) tables: Vec<Arc<TfNormTable>>,
    pub(crate) drift: f64,
}

impl View {
    /// The view of what a snapshot lists, made of another view and of what differs.
    pub(crate) fn new(
        before: Option<&Self>,
        known: &Arc<KnownIndex<ReadSegment>>,
    ) -> Result<Self, SegmentError> {
        let (segments, tombstones) = (&known.listed, &known.buried);
        let old = before.map_or(&[][..], |before| &before.segments);
        let buried = before.map_or(&[][..], |before| &before.known.buried);
        let old: FxHashMap<_, _> = old.iter().map(|live| (live.header().id, live)).collect();
        let (added, removed) = (lacking(tombstones, buried), lacking(buried, tombstones));
        let mut is_new = Vec::with_capacity(segments.len());
        let mut live = Vec::with_capacity(segments.len());
        for segment in segments {
            let known = old.get(&segment.header.id);
            let known = known.filter(|known| Arc::ptr_eq(&known.segment, segment));
            is_new.push(known.is_none());
            live.push(match known {
                Some(known) => kept(known, tombstones, &added, &removed)?,
                None => Arc::new(LiveSegment::new(segment, ids_of(tombstones))?),
            });
        }
        refuse_shared(segments, &is_new)?;
        let (mut chunks, mut length) = (0, 0);
        for live in &live {
            chunks += live.chunks()?;
            length += live.length;
        }
        Ok(Self {
            spans: Spans::new(segments.iter().map(|segment| segment.ids())),
            segments: live,
            known: Arc::clone(known),
            chunks,
            // At least 1 when no chunk has terms: then nothing is scored, and nothing is divided by zero.
            average_length: if length == 0 {
                1.0
            } else {
                length as f64 / chunks as f64
            },
            tf_norms: Mutex::new(None),
        })
    }

    /// Segment and ordinal of a chunk, dead or alive. `hint` remembers the place for ids in about ascending order.
    pub(crate) fn locate(&self, id: i64, hint: &mut Hint) -> Option<(usize, u32)> {
        let ids = |number: usize| Some(&self.segments.get(number)?.header().ids);
        self.spans.locate(id, hint, ids)
    }

    /// The tables of all segments, kept for the next search with the same parameters.
    pub(crate) fn tf_norms(&self, parameters: Parameters) -> Arc<TfNorms> {
        let mut kept = self.tf_norms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, norms)) = kept.as_ref()
            && *known == parameters
        {
            return Arc::clone(norms);
        }
        let tables = self.segments.iter();
        let tables: Vec<_> = tables
            .map(|live| live.segment.tf_norms(parameters, self.average_length))
            .collect();
        let drifts = tables.iter().map(|table| table.drift(self.average_length));
        let norms = Arc::new(TfNorms {
            drift: drifts.fold(0.0, f64::max),
            tables,
        });
        *kept = Some((parameters, Arc::clone(&norms)));
        norms
    }
}

/// The tombstones of one list that the other lacks; both are sorted by id.
fn lacking<'t>(one: &'t [Tombstone], other: &[Tombstone]) -> Vec<&'t IdRanges> {
    let lacks = |id: &SegmentId| other.binary_search_by(|(known, _)| known.cmp(id)).is_err();
    one.iter()
        .filter(|(id, _)| lacks(id))
        .map(|(_, ids)| &**ids)
        .collect()
}

fn ids_of(tombstones: &[Tombstone]) -> impl Iterator<Item = &IdRanges> {
    tombstones.iter().map(|(_, ids)| &**ids)
}

/// A segment of the view before: the same one where no tombstone that came or went names a chunk of it.
fn kept(
    known: &Arc<LiveSegment>,
    tombstones: &[Tombstone],
    added: &[&IdRanges],
    removed: &[&IdRanges],
) -> Result<Arc<LiveSegment>, SegmentError> {
    let ids = &known.header().ids;
    let live = if removed.iter().any(|gone| ids.meets(gone)) {
        // What went may be named elsewhere: merges put tombstones together.
        let live = LiveSegment::new(&known.segment, ids_of(tombstones))?;
        (!live.equals(known)).then_some(live)
    } else {
        known.without(added.iter().copied())?
    };
    Ok(live.map_or_else(|| Arc::clone(known), Arc::new))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a test fails by panicking

    use super::*;
    use crate::keyword::build::SegmentBuilder;
    use crate::keyword::format::Header;

    fn segment(number: u8, ids: std::ops::Range<i64>) -> Arc<ReadSegment> {
        let mut builder = SegmentBuilder::new();
        for id in ids {
            builder.add_terms(id, ["a", "b"]).unwrap();
        }
        let encoded = builder.finish(&[number; 16]).unwrap();
        let header = Header::decode(&[number; 16], &encoded.header).unwrap();
        Arc::new(ReadSegment::new("english", Arc::new(header)))
    }

    fn known(
        segments: &[&Arc<ReadSegment>],
        buried: &[(u8, &[i64])],
    ) -> Arc<KnownIndex<ReadSegment>> {
        let buried = buried.iter().map(|(number, ids)| {
            let ids = IdRanges::new(ids.iter().copied()).unwrap();
            ([*number; 16], Arc::new(ids))
        });
        let listed = segments.iter().map(|segment| Arc::clone(segment));
        Arc::new(KnownIndex::new(listed.collect(), buried.collect()))
    }

    /// Which segments of the second view are those of the first, as they were.
    fn same(before: &View, after: &View) -> Vec<bool> {
        let is_same =
            |live: &Arc<LiveSegment>| before.segments.iter().any(|old| Arc::ptr_eq(old, live));
        after.segments.iter().map(is_same).collect()
    }

    #[test]
    fn a_commit_remakes_what_it_touches() {
        let (one, two, three) = (
            segment(1, 0..2_000),
            segment(2, 2_000..3_000),
            segment(3, 3_000..3_001),
        );
        let parameters = Parameters { k1: 1.2, b: 0.75 };
        let first = View::new(None, &known(&[&one, &two], &[(9, &[5])])).unwrap();
        let norms = first.tf_norms(parameters);
        let added = View::new(Some(&first), &known(&[&one, &two, &three], &[(9, &[5])])).unwrap();
        assert_eq!(same(&first, &added), [true, true, false]);
        let buried = [(8, &[2_500, 9_000][..]), (9, &[5])];
        let touched = View::new(Some(&added), &known(&[&one, &two, &three], &buried)).unwrap();
        assert_eq!(same(&added, &touched), [true, false, true]);
        let again = touched.tf_norms(parameters);
        for (old, new) in norms.tables.iter().zip(&again.tables) {
            assert!(Arc::ptr_eq(old, new), "norms were rebuilt");
        }
        // Two tombstones become one: nothing else is deleted.
        let merged = [(7, &[5, 2_500][..])];
        let settled = View::new(Some(&touched), &known(&[&one, &two, &three], &merged)).unwrap();
        assert_eq!(same(&touched, &settled), [true, true, true]);
        assert_eq!((settled.chunks, settled.average_length), (2_999, 2.0));
        // What is in no tombstone any more is alive.
        let risen = View::new(Some(&settled), &known(&[&one, &two], &[])).unwrap();
        assert_eq!(same(&settled, &risen), [false, false]);
        assert_eq!(risen.chunks, 3_000);
    }

    #[test]
    fn chunks_are_located_in_segments_whose_ids_interleave() {
        let mut builders = [
            SegmentBuilder::new(),
            SegmentBuilder::new(),
            SegmentBuilder::new(),
        ];
        for id in 0..900_i64 {
            let of = usize::try_from(id * id % 3).unwrap();
            builders[of].add_terms(id, ["a"]).unwrap();
        }
        let segments: Vec<_> = (0..)
            .zip(&mut builders)
            .map(|(number, builder)| {
                let id = [number; 16];
                let header = Header::decode(&id, &builder.finish(&id).unwrap().header).unwrap();
                Arc::new(ReadSegment::new("english", Arc::new(header)))
            })
            .collect();
        let view = View::new(None, &known(&segments.iter().collect::<Vec<_>>(), &[])).unwrap();
        let mut hint = Hint::default();
        for id in (0..900_i64).chain([500, 3, 899, 0]) {
            let (number, ordinal) = view.locate(id, &mut hint).unwrap();
            assert_eq!(view.segments[number].header().ids.id(ordinal), Some(id));
        }
        assert!(
            [-1, 900, i64::MIN, i64::MAX]
                .iter()
                .all(|id| view.locate(*id, &mut hint).is_none())
        );
    }

    #[test]
    fn a_chunk_in_two_segments_is_damage() {
        let (one, two, three) = (segment(1, 0..20), segment(2, 20..30), segment(3, 29..31));
        let view = View::new(None, &known(&[&one, &two], &[])).unwrap();
        assert!(View::new(Some(&view), &known(&[&one, &two, &three], &[])).is_err());
        let many: Vec<_> = (4..14).map(|number| segment(number, 100..102)).collect();
        assert!(View::new(None, &known(&many.iter().collect::<Vec<_>>(), &[])).is_err());
    }
}
