//! Sizes of posting segments, and times of searches in them, stage by stage. The corpus is read from standard input, a
//! JSON string on each line; queries from a file, lists of strings by kind:
//! `zcat chunks.jsonl.gz | head -100000 | cargo run --release --example posting_segments -- queries.json`.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_wrap,
    reason = "a measurement"
)]

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::Instant;

use semlex_core::keyword::analyzer::{Analyzer, parse_query};
use semlex_core::keyword::build::*;
use semlex_core::keyword::format::*;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

const PARAMETERS: Parameters = Parameters { k1: 1.2, b: 0.75 };
const ROUNDS: usize = 5;
const BEST: usize = 50;

type Segments = Vec<(SegmentId, EncodedSegment)>;

fn id_of(number: usize) -> SegmentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(number as u64).to_le_bytes());
    id
}

fn built(analyzer: &Analyzer) -> Segments {
    let mut builder = SegmentBuilder::new();
    let mut segments = Segments::new();
    let mut seconds = 0.0;
    let finish = |builder: &mut SegmentBuilder, segments: &mut Segments| {
        let id = id_of(segments.len() + 1);
        segments.push((id, builder.finish(&id).unwrap()));
    };
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let text: String = serde_json::from_str(&line.unwrap()).unwrap();
        let clock = Instant::now();
        builder.add(number as i64, analyzer, &[&text]).unwrap();
        if builder.chunks() == MAX_CHUNKS {
            finish(&mut builder, &mut segments);
        }
        seconds += clock.elapsed().as_secs_f64();
    }
    if builder.chunks() > 0 {
        finish(&mut builder, &mut segments);
    }
    println!("{} segments, built in {seconds:.1} s", segments.len());
    segments
}

fn tell_sizes(segments: &Segments) {
    let sum = |of: &dyn Fn(&EncodedSegment) -> usize| -> usize {
        segments.iter().map(|(_, segment)| of(segment)).sum()
    };
    let stored = |row: &&EncodedRow| row.data.len() + row.first_term.len();
    let postings: u64 = segments.iter().map(|(_, segment)| segment.postings).sum();
    let postings = postings as f64;
    let chunks: u32 = segments.iter().map(|(_, segment)| segment.chunks).sum();
    let rows = sum(&|segment| segment.rows.len());
    let headers = sum(&|segment| segment.header.len());
    let data = sum(&|segment| segment.rows.iter().map(|row| stored(&row)).sum());
    let is_alone = |row: &&EncodedRow| row.data[5] == 0;
    let alone = sum(&|segment| segment.rows.iter().filter(is_alone).count());
    let alone_data = sum(&|segment| {
        segment
            .rows
            .iter()
            .filter(is_alone)
            .map(|row| stored(&row))
            .sum()
    });
    println!(
        "{chunks} chunks, {:.1} postings a chunk, {alone} rows with a list of their own, {} shared",
        postings / f64::from(chunks),
        rows - alone
    );
    println!(
        "bytes a posting: lists alone {:.4}, shared {:.4}, headers {:.4}, with 92 a row {:.4}",
        alone_data as f64 / postings,
        (data - alone_data) as f64 / postings,
        headers as f64 / postings,
        (data + headers + rows * 92) as f64 / postings
    );
}

/// Milliseconds of each stage, best of some rounds.
#[derive(Clone, Copy)]
struct Times {
    checksums: f64,
    snapshot: f64,
    search: f64,
    warm_search: f64,
}

/// Posting rows of a query's cold terms.
fn rows<'a>(segments: &'a Segments, plan: &'a PostingPlan) -> Vec<GivenRow<'a>> {
    let mut rows = Vec::new();
    for (_, term) in plan.terms(true) {
        for (id, segment) in segments {
            let behind = segment
                .rows
                .partition_point(|row| row.first_term.as_slice() <= term.as_bytes());
            let row = behind.checked_sub(1).map(|place| &segment.rows[place]);
            rows.push(GivenRow {
                segment: *id,
                term: term.as_bytes(),
                row: row.map(|row| (row.first_term.as_slice(), row.data.as_slice())),
            });
        }
    }
    rows
}

fn measured(
    cache: &PostingCache,
    segments: &Segments,
    query: LanguageQuery,
) -> (Times, u64, usize) {
    let milliseconds = |clock: Instant| clock.elapsed().as_secs_f64() * 1e3;
    let mut best = Times {
        checksums: f64::MAX,
        snapshot: f64::MAX,
        search: f64::MAX,
        warm_search: f64::MAX,
    };
    let queries = [query];
    let (mut postings, mut bytes) = (0, 0);
    for _ in 0..ROUNDS {
        let plan = cache.plan(&queries).unwrap();
        let given: Vec<GivenSegment<'_>> = segments
            .iter()
            .map(|(id, _)| (*id, "english", None))
            .collect();
        let rows = rows(segments, &plan);
        let clock = Instant::now();
        let sum = rows
            .iter()
            .filter_map(|row| row.row)
            .fold(0, |sum, (_, data)| sum ^ crc32fast::hash(data));
        std::hint::black_box(sum);
        best.checksums = best.checksums.min(milliseconds(clock));
        let clock = Instant::now();
        let snapshot = cache.snapshot(&plan, &given, &[], &rows, 0).unwrap();
        best.snapshot = best.snapshot.min(milliseconds(clock));
        for time in [&mut best.search, &mut best.warm_search] {
            let clock = Instant::now();
            std::hint::black_box(snapshot.search(BEST, PARAMETERS, None, &[]).unwrap());
            *time = time.min(milliseconds(clock));
        }
        postings = snapshot.postings();
        bytes = rows
            .iter()
            .filter_map(|row| row.row)
            .map(|(_, data)| data.len())
            .sum();
    }
    (best, postings, bytes)
}

fn main() {
    let analyzer = Analyzer::new("english", true).unwrap();
    let path = std::env::args().nth(1).unwrap();
    let queries: BTreeMap<String, Vec<String>> =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let segments = built(&analyzer);
    tell_sizes(&segments);
    // Nothing is kept but what is always kept, so that every search is cold.
    let cache = PostingCache::new(0);
    let empty = cache.plan(&[]).unwrap();
    let given: Vec<GivenSegment<'_>> = segments
        .iter()
        .map(|(id, segment)| (*id, "english", Some(segment.header.as_slice())))
        .collect();
    cache.snapshot(&empty, &given, &[], &[], 0).unwrap();
    for (kind, queries) in queries {
        let mut all: Vec<_> = queries
            .iter()
            .map(|query| {
                let terms = analyzer.query(&parse_query(query), 64);
                let query = LanguageQuery {
                    language: "english".into(),
                    wanted: terms.wanted,
                    ..LanguageQuery::default()
                };
                measured(&cache, &segments, query)
            })
            .collect();
        let mut show = |name: &str, of: &dyn Fn(&(Times, u64, usize)) -> f64| {
            all.sort_by(|left, right| of(left).total_cmp(&of(right)));
            let (p50, p95) = (of(&all[all.len() / 2]), of(&all[all.len() * 95 / 100]));
            let mean = all.iter().map(of).sum::<f64>() / all.len() as f64;
            println!("{kind:9} {name:20} p50 {p50:8.3}, p95 {p95:8.3}, mean {mean:8.3}");
        };
        show("thousand postings", &|(_, postings, _)| {
            *postings as f64 / 1e3
        });
        show("thousand bytes", &|(_, _, bytes)| *bytes as f64 / 1e3);
        show("checksums, ms", &|(times, _, _)| times.checksums);
        show("snapshot, ms", &|(times, _, _)| times.snapshot);
        show("first search, ms", &|(times, _, _)| times.search);
        show("next search, ms", &|(times, _, _)| times.warm_search);
    }
}
