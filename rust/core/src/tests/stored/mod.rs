//! The tables of a keyword index in memory, and what the statements of a search bring of them.

pub mod chunks;

use std::collections::BTreeSet;

use semlex_core::keyword::format::*;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

/// The id of a segment or tombstone.
pub fn id_of(number: usize) -> SegmentId {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&(number as u64).to_le_bytes());
    id
}

/// What the tables hold.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub segments: Vec<(SegmentId, String, EncodedSegment)>,
    pub tombstones: Vec<(SegmentId, Vec<u8>)>,
    /// How many transactions had ended.
    pub ended: u64,
}

impl Tables {
    /// What the SQL brings for a plan.
    pub fn snapshot(
        &self,
        cache: &PostingCache,
        plan: &PostingPlan,
    ) -> Result<Snapshot, SegmentError> {
        let known: BTreeSet<_> = plan.known_segments().copied().collect();
        let buried: BTreeSet<_> = plan.known_tombstones().copied().collect();
        let segments: Vec<GivenSegment<'_>> = self
            .segments
            .iter()
            .map(|(id, language, segment)| {
                let header = (!known.contains(id)).then_some(segment.header.as_slice());
                (*id, language.as_str(), header)
            })
            .collect();
        let tombstones: Vec<GivenTombstone<'_>> = self
            .tombstones
            .iter()
            .map(|(id, data)| (*id, (!buried.contains(id)).then_some(data.as_slice())))
            .collect();
        let mut rows = Vec::new();
        for cold in [true, false] {
            for (language, term) in plan.terms(cold) {
                for (id, of, segment) in &self.segments {
                    if of == language && (cold || !known.contains(id)) {
                        let term = term.as_bytes();
                        let behind = segment
                            .rows
                            .partition_point(|row| row.first_term.as_slice() <= term);
                        let row = behind.checked_sub(1).map(|place| &segment.rows[place]);
                        let row = row.map(|row| (row.first_term.as_slice(), row.data.as_slice()));
                        rows.push(GivenRow {
                            segment: *id,
                            term,
                            row,
                        });
                    }
                }
            }
        }
        cache.snapshot(plan, &segments, &tombstones, &rows, self.ended)
    }

    pub fn search(
        &self,
        cache: &PostingCache,
        queries: &[LanguageQuery],
        k: usize,
        parameters: Parameters,
        allowed: Option<&[i64]>,
        score_ids: &[i64],
    ) -> Found {
        let plan = cache.plan(queries).unwrap();
        let snapshot = self.snapshot(cache, &plan).unwrap();
        snapshot.search(k, parameters, allowed, score_ids).unwrap()
    }
}
