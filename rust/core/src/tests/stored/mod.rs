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

fn rows_of(segment: &EncodedSegment) -> impl Iterator<Item = (&[u8], &[u8])> {
    let rows = segment.rows.iter();
    rows.map(|row| (row.first_term.as_slice(), row.data.as_slice()))
}

fn keys_of(segment: &EncodedSegment) -> [u8; 32] {
    keys_hash(rows_of(segment).map(|(key, _)| key))
}

/// The row that may hold a term.
fn row_of<'s>(segment: &'s EncodedSegment, term: &[u8]) -> Option<(&'s [u8], &'s [u8])> {
    rows_of(segment).take_while(|(key, _)| *key <= term).last()
}

/// A row for each list that a plan lacks, of the segments that are there.
pub fn missing_rows<'s>(
    plan: &'s PostingPlan,
    segments: impl Iterator<Item = &'s StoredSegment> + Clone,
) -> Vec<GivenRow<'s>> {
    let missing = plan.missing().map(|(id, term)| {
        let segment = segments.clone().find(|(own, ..)| own == id);
        GivenRow {
            segment: *id,
            term: term.as_bytes(),
            row: segment.and_then(|(.., segment)| row_of(segment, term.as_bytes())),
        }
    });
    missing.collect()
}

/// The segments and the tombstones that a plan knows.
fn known_parts(plan: &PostingPlan) -> (BTreeSet<SegmentId>, BTreeSet<SegmentId>) {
    let segments = plan.known_segments().copied().collect();
    (segments, plan.known_tombstones().copied().collect())
}

/// Id, language and content.
pub type StoredSegment = (SegmentId, String, EncodedSegment);

/// What the tables hold.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub segments: Vec<StoredSegment>,
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
        let (known, buried) = known_parts(plan);
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
                        let row = row_of(segment, term);
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

    /// What a client brings up to date that expects the state that it knows: new segments come with all their rows.
    pub fn followed(
        &self,
        cache: &PostingCache,
        plan: &PostingPlan,
    ) -> Result<Snapshot, SegmentError> {
        let (known, buried) = known_parts(plan);
        let new = self.segments.iter().filter(|(id, ..)| !known.contains(id));
        let new: Vec<_> = new
            .map(|(id, language, segment)| (id, language, segment, keys_of(segment)))
            .collect();
        let new: Vec<_> = new
            .iter()
            .map(|(id, language, segment, row_keys)| NewSegment {
                id: **id,
                language,
                header: &segment.header,
                row_keys,
                rows: rows_of(segment).collect(),
            })
            .collect();
        let dead = self
            .tombstones
            .iter()
            .filter(|(id, _)| !buried.contains(id));
        let dead: Vec<_> = dead.map(|(id, data)| (*id, data.as_slice())).collect();
        let segments: Vec<_> = self.segments.iter().map(|(id, ..)| *id).collect();
        let tombstones: Vec<_> = self.tombstones.iter().map(|(id, _)| *id).collect();
        let changes = Changes::new(plan, &segments, &tombstones, &new, &dead)?.unwrap();
        assert_eq!(
            (changes.damaged(), changes.parts()),
            (0, segments.len() + tombstones.len())
        );
        // A known segment that is gone has no rows any more.
        let missing = missing_rows(plan, self.segments.iter());
        cache.follow(plan, &changes, &missing, self.ended)
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
