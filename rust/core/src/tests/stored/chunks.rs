//! Chunks as lists of terms, and the segments made of them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use semlex_core::keyword::build::*;
use semlex_core::keyword::format::*;
use semlex_core::segments::*;

use super::{Tables, id_of};

pub const LANGUAGES: [&str; 2] = ["english", "german"];

/// A living chunk.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub id: i64,
    pub language: usize,
    pub terms: Vec<String>,
}

pub fn build(id: &SegmentId, chunks: &[Chunk]) -> EncodedSegment {
    let mut builder = SegmentBuilder::new();
    for chunk in chunks {
        builder
            .add_terms(chunk.id, chunk.terms.iter().map(String::as_str))
            .unwrap();
    }
    builder.finish(id).unwrap()
}

pub fn term() -> BoxedStrategy<String> {
    prop_oneof![
        (0..6_u32).prop_map(|number| format!("common{number}")),
        (0..40_u32).prop_map(|number| format!("term{number}")),
        "[a-z]{1,20}",
        "\\PC{1,30}",
    ]
    .boxed()
}

pub fn terms() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(term(), 0..12)
}

pub fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
    let chunk = (1..4_i64, 0..2_usize, terms());
    prop::collection::vec(chunk, 1..60).prop_map(|parts| {
        let mut id = -20;
        parts
            .into_iter()
            .map(|(step, language, terms)| {
                id += step;
                Chunk {
                    id,
                    language,
                    terms,
                }
            })
            .collect()
    })
}

/// Spreads chunks over segments, each of one language, and buries the dead in several tombstones.
pub fn tables(
    chunks: &[Chunk],
    segments: usize,
    dead: &BTreeSet<i64>,
    first_tombstone: usize,
) -> Tables {
    let mut tables = Tables::default();
    for number in 0..segments * 2 {
        let own: Vec<_> = chunks
            .iter()
            .enumerate()
            .filter(|(place, chunk)| place % segments == number / 2 && chunk.language == number % 2)
            .map(|(_, chunk)| chunk.clone())
            .collect();
        if !own.is_empty() {
            let id = id_of(number);
            tables
                .segments
                .push((id, LANGUAGES[number % 2].to_owned(), build(&id, &own)));
        }
    }
    for (number, ids) in dead
        .iter()
        .copied()
        .collect::<Vec<_>>()
        .chunks(3)
        .enumerate()
    {
        let id = id_of(first_tombstone + number);
        // Ids in no segment, and ids named twice, do no harm.
        let ids = ids.iter().copied().chain([5_000, ids[0]]).collect();
        tables
            .tombstones
            .push((id, encode_tombstone(&id, &IdSet::new(ids)).unwrap()));
    }
    tables
}

pub fn source(id: SegmentId, segment: &EncodedSegment) -> Source<'_> {
    let rows = segment
        .rows
        .iter()
        .map(|row| (row.first_term.as_slice(), row.data.as_slice()));
    Source {
        id,
        header: &segment.header,
        rows: rows.collect(),
    }
}

/// A generator of numbers that are the same everywhere.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Large segments with long lists: pruning, skipping and blocks all take part.
pub fn many(count: usize, seed: u64) -> Vec<Chunk> {
    let mut numbers = Numbers(seed);
    (0..count)
        .map(|place| {
            let length = 1 + numbers.next() % 40;
            let terms = (0..length).map(|_| {
                let uniform = numbers.next() as f64 / f64::from(1_u32 << 31);
                format!("t{}", (3_000_f64.powf(uniform) - 1.0) as u64)
            });
            Chunk {
                id: place as i64 * 2 + 10,
                language: 0,
                terms: terms.collect(),
            }
        })
        .collect()
}
