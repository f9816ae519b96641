//! Sizes and times of posting segments on made-up chunks: `cargo run --release --example posting_segments -- 1000000`.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a measurement"
)]

use std::time::Instant;

use semlex_core::lexical::TermSource;
use semlex_core::lexical::segment::*;

/// Distinct terms of a chunk, terms in all, and the fall of their frequencies.
const DISTINCT: usize = 66;
const TERMS: f64 = 650_000.0;

struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }
}

struct Spaces;

impl TermSource for Spaces {
    fn places(&self, text: &str, mut token: impl FnMut(usize, usize)) {
        let mut start = 0;
        for word in text.split(' ') {
            token(start, start + word.len());
            start += word.len() + 1;
        }
    }
    fn terms(&self, token: &str, mut term: impl FnMut(&str)) {
        term(token);
    }
}

/// Letters as uneven as in words, four to ten of them.
fn word(numbers: &mut Numbers) -> String {
    let length = 4 + (numbers.uniform() * 7.0) as usize;
    (0..length)
        .map(|_| char::from(b'a' + (numbers.uniform().powi(2) * 26.0) as u8))
        .collect()
}

fn id_of(number: usize) -> SegmentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(number as u64).to_le_bytes());
    id
}

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 95 / 100])
}

fn main() {
    let chunks: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000);
    let mut numbers = Numbers(3);
    let words: Vec<String> = (0..TERMS as usize).map(|_| word(&mut numbers)).collect();
    let mut segments = Vec::new();
    let (mut bytes_in, mut adding, mut finishing) = (0, 0.0, 0.0);
    let mut builder = SegmentBuilder::new();
    for start in (0..chunks).step_by(MOST_CHUNKS) {
        for id in start..(start + MOST_CHUNKS).min(chunks) {
            // Zipf's law with exponent 1.1, from the tenth rank on: stop words are gone.
            let drawn = DISTINCT + (numbers.uniform() * 20.0) as usize;
            let text: Vec<&str> = (0..drawn)
                .map(|_| {
                    let (most, least) = (10_f64.powf(-0.1), TERMS.powf(-0.1));
                    let rank = (most - numbers.uniform() * (most - least)).powi(-10);
                    words[(rank as usize).min(words.len() - 1)].as_str()
                })
                .collect();
            let text = text.join(" ");
            bytes_in += text.len();
            let clock = Instant::now();
            builder.add(id as i64, &Spaces, &[&text]).unwrap();
            adding += clock.elapsed().as_secs_f64();
        }
        let clock = Instant::now();
        let id = id_of(start + 1);
        segments.push((id, builder.finish(&id).unwrap()));
        finishing += clock.elapsed().as_secs_f64();
    }
    let postings: u64 = segments.iter().map(|(_, segment)| segment.postings).sum();
    let rows: usize = segments.iter().map(|(_, segment)| segment.rows.len()).sum();
    let data: usize = segments
        .iter()
        .flat_map(|(_, segment)| &segment.rows)
        .map(|row| row.data.len() + row.first_term.len())
        .sum();
    let headers: usize = segments
        .iter()
        .map(|(_, segment)| segment.header.len())
        .sum();
    let postings_f = postings as f64;
    println!(
        "{chunks} chunks, {postings} postings ({:.1} a chunk), {rows} rows",
        postings_f / chunks as f64
    );
    println!(
        "adding {:.0} MB/s, finishing {finishing:.2} s ({:.0} MB/s in all)",
        bytes_in as f64 / 1e6 / adding,
        bytes_in as f64 / 1e6 / (adding + finishing)
    );
    println!(
        "bytes a posting: rows {:.3}, headers {:.3}, with 92 a row {:.3}",
        data as f64 / postings_f,
        headers as f64 / postings_f,
        (data + headers + rows * 92) as f64 / postings_f
    );

    let (alone, shared): (Vec<_>, Vec<_>) = segments
        .iter()
        .flat_map(|(_, segment)| &segment.rows)
        .partition(|row| row.data[5] == 0);
    let bytes = |rows: &[&EncodedRow]| {
        rows.iter()
            .map(|row| row.data.len() + row.first_term.len())
            .sum::<usize>() as f64
            / postings_f
    };
    println!(
        "rows alone {} with {:.3} bytes a posting, shared {} with {:.3}",
        alone.len(),
        bytes(&alone),
        shared.len(),
        bytes(&shared)
    );
    let clock = Instant::now();
    let (first, segment) = &segments[0];
    let source = |id: &SegmentId, segment: &'static EncodedSegment| Source {
        id: *id,
        header: &segment.header,
        rows: segment
            .rows
            .iter()
            .map(|row| (row.first_term.as_slice(), row.data.as_slice()))
            .collect(),
    };
    let leaked: &'static EncodedSegment = Box::leak(Box::new(segment.clone()));
    let merged = merge(&id_of(0), vec![source(first, leaked)], vec![5]).unwrap();
    println!(
        "merging one of {} postings: {:.0} ms",
        merged.postings,
        clock.elapsed().as_secs_f64() * 1e3
    );

    let cache = PostingCache::new(usize::MAX);
    for (kind, count) in [("short", 3), ("question", 8), ("long", 20)] {
        for dead in [0_i64, 2_000] {
            let queries: Vec<LanguageQuery> = (0..60)
                .map(|_| {
                    let mut wanted: Vec<(u32, String)> = (0..count)
                        .map(|unit| {
                            let rank = 12.0 * 300_f64.powf(numbers.uniform());
                            (unit, words[rank as usize].clone())
                        })
                        .collect();
                    wanted.sort_by(|left, right| left.1.cmp(&right.1));
                    wanted.dedup_by(|left, right| left.1 == right.1);
                    LanguageQuery {
                        language: "english".into(),
                        wanted,
                        ..LanguageQuery::default()
                    }
                })
                .collect();
            let tombstones: Vec<(SegmentId, Vec<u8>)> = if dead == 0 {
                vec![]
            } else {
                vec![(
                    id_of(77),
                    encode_tombstone(
                        &id_of(77),
                        (0..dead).map(|at| at * chunks as i64 / dead).collect(),
                    )
                    .unwrap(),
                )]
            };
            for pass in ["cold", "warm", "warm"] {
                let (
                    mut plans,
                    mut snapshots,
                    mut searches,
                    mut totals,
                    mut touched,
                    mut postings_read,
                ) = (vec![], vec![], vec![], vec![], 0, 0);
                if pass == "cold" {
                    cache.clear();
                }
                for query in &queries {
                    let queries = std::slice::from_ref(query);
                    let clock = Instant::now();
                    let plan = cache.plan(queries).unwrap();
                    plans.push(clock.elapsed().as_secs_f64() * 1e3);
                    let known: std::collections::HashSet<_> =
                        plan.known_segments().copied().collect();
                    let given: Vec<GivenSegment<'_>> = segments
                        .iter()
                        .map(|(id, segment)| {
                            (
                                *id,
                                "english",
                                (!known.contains(id)).then_some(segment.header.as_slice()),
                            )
                        })
                        .collect();
                    let graves: Vec<GivenTombstone<'_>> = tombstones
                        .iter()
                        .map(|(id, data)| (*id, Some(data.as_slice())))
                        .collect();
                    let mut rows = vec![];
                    for (_, term) in plan
                        .terms(true)
                        .chain(plan.terms(false).filter(|_| known.is_empty()))
                    {
                        for (id, segment) in &segments {
                            let behind = segment.rows.partition_point(|row| {
                                row.first_term.as_slice() <= term.as_bytes()
                            });
                            let row = behind
                                .checked_sub(1)
                                .map(|place| &segment.rows[place])
                                .map(|row| (row.first_term.as_slice(), row.data.as_slice()));
                            touched += row.map_or(0, |(_, data)| data.len());
                            rows.push(GivenRow {
                                segment: *id,
                                term: term.as_bytes(),
                                row,
                            });
                        }
                    }
                    let clock = Instant::now();
                    let snapshot = cache.snapshot(&plan, &given, &graves, &rows).unwrap();
                    snapshots.push(clock.elapsed().as_secs_f64() * 1e3);
                    let clock = Instant::now();
                    let found = snapshot
                        .search(10, Parameters { k1: 1.2, b: 0.75 }, None, &[])
                        .unwrap();
                    searches.push(clock.elapsed().as_secs_f64() * 1e3);
                    totals.push(
                        plans.last().unwrap()
                            + snapshots.last().unwrap()
                            + searches.last().unwrap(),
                    );
                    assert!(!found.best.is_empty());
                    postings_read += snapshot.postings();
                }
                let show = |times| {
                    let (p50, p95) = median(times);
                    format!("{p50:.2}/{p95:.2}")
                };
                println!(
                    "{kind:8} {pass} dead {dead:4}: plan {} snapshot {} search {} total {} ms, {} KB read, {} postings a query",
                    show(plans),
                    show(snapshots),
                    show(searches),
                    show(totals),
                    touched / queries.len() / 1000,
                    postings_read / queries.len() as u64
                );
            }
        }
    }
    let counters = cache.counters();
    println!(
        "cache {:.1} MB, {} hits, {} misses",
        counters.bytes as f64 / 1e6,
        counters.hits,
        counters.misses
    );
}
