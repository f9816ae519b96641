//! Times of the core's loops: `cargo bench -p semlex-core`; `cargo bench -p semlex-core search` for some of them.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement"
)]

use std::sync::LazyLock;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use semlex_core::keyword::analyzer::{Analyzer, parse_query};
use semlex_core::keyword::build::{SegmentBuilder, Source, merge};
use semlex_core::keyword::format::{EncodedSegment, Header};
use semlex_core::keyword::search::{GivenRow, LanguageQuery, Parameters, PostingCache, Snapshot};
use semlex_core::pgcopy::{Batch, Cells, Column, Lists, Rows, ScalarColumn};
use semlex_core::segments::{IdSet, MAX_CHUNKS, SegmentId};

fn main() {
    divan::main();
}

const PARAMETERS: Parameters = Parameters { k1: 1.2, b: 0.75 };
const ID: SegmentId = [1; 16];
const OTHER: SegmentId = [2; 16];
const WORDS: f64 = 30_000.0;

/// The same numbers on every machine, from 0 up to 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = product.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }

    /// A word with a number; small numbers are frequent, about as words are in prose.
    fn word(&mut self) -> String {
        format!("w{}", WORDS.powf(self.next()) as u32)
    }

    fn text(&mut self, words: usize) -> String {
        let words: Vec<_> = (0..words).map(|_| self.word()).collect();
        words.join(" ")
    }
}

/// A segment of this many chunks, with every second id, so that another segment can have the others.
fn segment(id: &SegmentId, chunks: usize, first: i64) -> EncodedSegment {
    let (mut numbers, mut builder) = (Numbers(first as u64), SegmentBuilder::new());
    for chunk in 0..chunks as i64 {
        let length = 20.0 + 60.0 * numbers.next();
        let words: Vec<_> = (0..length as usize).map(|_| numbers.word()).collect();
        let terms = words.iter().map(String::as_str);
        builder.add_terms(chunk * 2 + first, terms).unwrap();
    }
    builder.finish(id).unwrap()
}

static FULL: LazyLock<EncodedSegment> = LazyLock::new(|| segment(&ID, MAX_CHUNKS, 1));

fn query(kind: &str) -> Vec<LanguageQuery> {
    let words: &[u32] = match kind {
        "one rare word" => &[29_000],
        "two frequent words" => &[1, 2],
        _ => &[
            1, 2, 7, 20, 150, 700, 2_000, 5_000, 9_000, 12_000, 20_000, 29_000,
        ],
    };
    let slots = (0..).zip(words);
    vec![LanguageQuery {
        language: "english".to_owned(),
        wanted: slots
            .map(|(slot, word)| (slot, format!("w{word}")))
            .collect(),
        ..LanguageQuery::default()
    }]
}

/// Reads the full segment's lists of a query, as a search does whose lists are not in memory.
fn snapshot(queries: &[LanguageQuery]) -> Snapshot {
    let cache = PostingCache::new(usize::MAX);
    let plan = cache.plan(queries).unwrap();
    let terms = plan.terms(true).chain(plan.terms(false));
    let rows = terms.map(|(_, term)| {
        let rows = &FULL.rows;
        let behind = rows.partition_point(|row| row.first_term.as_slice() <= term.as_bytes());
        let row = behind.checked_sub(1).and_then(|place| rows.get(place));
        GivenRow {
            segment: ID,
            term: term.as_bytes(),
            row: row.map(|row| (row.first_term.as_slice(), row.data.as_slice())),
        }
    });
    let segments = [(ID, "english", Some(FULL.header.as_slice()))];
    let rows: Vec<_> = rows.collect();
    cache.snapshot(&plan, &segments, &[], &rows, 0).unwrap()
}

const QUERIES: [&str; 3] = ["one rare word", "two frequent words", "twelve words"];

/// 30 best of 65,536 chunks.
#[divan::bench(args = QUERIES)]
fn search(bencher: Bencher<'_, '_>, kind: &str) {
    let snapshot = snapshot(&query(kind));
    bencher.bench(|| snapshot.search(30, PARAMETERS, None, &[]).unwrap());
}

/// The best among the chunks that pass a filter, one in ten.
#[divan::bench(args = QUERIES)]
fn search_filtered(bencher: Bencher<'_, '_>, kind: &str) {
    let snapshot = snapshot(&query(kind));
    let allowed: Vec<i64> = (0..MAX_CHUNKS as i64 / 10).map(|id| id * 20 + 1).collect();
    bencher.bench(|| {
        snapshot
            .search(30, PARAMETERS, Some(&allowed), &[])
            .unwrap()
    });
}

/// Decodes the header, and the rows of the query's words.
#[divan::bench(args = QUERIES)]
fn read(bencher: Bencher<'_, '_>, kind: &str) {
    let queries = query(kind);
    bencher.bench(|| snapshot(&queries));
}

#[divan::bench]
fn decode_header(bencher: Bencher<'_, '_>) {
    let header = &FULL.header;
    let bytes = BytesCount::new(header.len());
    bencher
        .counter(bytes)
        .bench(|| Header::decode(&ID, black_box(header)).unwrap());
}

/// Two segments whose ids alternate into one, a tenth of the chunks deleted.
#[divan::bench]
fn merge_two(bencher: Bencher<'_, '_>) {
    let halves = [
        (ID, segment(&ID, 8_192, 1)),
        (OTHER, segment(&OTHER, 8_192, 2)),
    ];
    let dead = IdSet::new((0..16_384).step_by(10).collect());
    let sources = || {
        let sources = halves.iter().map(|(id, half)| Source {
            id: *id,
            header: &half.header,
            rows: half
                .rows
                .iter()
                .map(|row| (&*row.first_term, &*row.data))
                .collect(),
        });
        sources.collect()
    };
    let postings = ItemsCount::new((halves[0].1.postings + halves[1].1.postings) as usize);
    let bencher = bencher.counter(postings).with_inputs(sources);
    bencher.bench_values(|sources: Vec<_>| merge(&[3; 16], sources, &dead).unwrap());
}

/// Texts into a segment.
#[divan::bench]
fn analyse_texts(bencher: Bencher<'_, '_>) {
    let analyzer = Analyzer::new("english", true).unwrap();
    let mut numbers = Numbers(5);
    let texts: Vec<_> = (0..200).map(|_| numbers.text(150)).collect();
    let bytes = BytesCount::new(texts.iter().map(String::len).sum::<usize>());
    bencher.counter(bytes).bench(|| {
        let mut builder = SegmentBuilder::new();
        for (id, text) in (0..).zip(&texts) {
            builder.add(id, &analyzer, &[text]).unwrap();
        }
        builder.finish(&ID).unwrap()
    });
}

#[divan::bench]
fn analyse_query(bencher: Bencher<'_, '_>) {
    let analyzer = Analyzer::new("english", true).unwrap();
    let text = "how do I restore \"point in time\" backups of naïve databases -windows";
    bencher.bench(|| analyzer.query(&parse_query(black_box(text)), 64));
}

/// 1,000 rows of a key, a text and a vector.
#[divan::bench]
fn encode_copy(bencher: Bencher<'_, '_>) {
    const ROWS: usize = 1_000;
    const DIMENSIONS: usize = 384;
    let mut numbers = Numbers(9);
    let keys = vec![[7; 16]; ROWS];
    let (mut texts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let start = texts.len();
        texts.extend_from_slice(numbers.text(100).as_bytes());
        ends.push(Some(start..texts.len()));
    }
    let vectors: Vec<_> = (0..ROWS * DIMENSIONS)
        .map(|_| numbers.next() as f32)
        .collect();
    let rows = Rows::Ranges(&ends);
    let (width, count) = (DIMENSIONS, ROWS);
    let columns = vec![
        (
            "key",
            Column::Scalar(ScalarColumn::Uuid(Cells {
                values: &keys,
                nulls: None,
            })),
        ),
        (
            "text",
            Column::Scalar(ScalarColumn::Text(Lists {
                values: &texts,
                rows,
            })),
        ),
        (
            "vector",
            Column::Vector(Lists {
                values: &vectors,
                rows: Rows::Dense { width, count },
            }),
        ),
    ];
    let batch = Batch::new(columns).unwrap();
    let mut buffer = vec![0; 8 << 20];
    let (_, written) = batch.encode_into(&mut buffer, 0).unwrap();
    let bencher = bencher.counter(BytesCount::new(written));
    bencher.bench_local(|| batch.encode_into(&mut buffer, 0).unwrap());
}
