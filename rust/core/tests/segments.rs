//! Posting segments against a slow, obvious twin: a list of chunks, each a list of terms.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use semlex_core::keyword::TermSource;
use semlex_core::keyword::segment::*;

mod stored;

use stored::{Tables, id_of};

const LANGUAGES: [&str; 2] = ["english", "german"];

/// A living chunk.
#[derive(Clone, Debug)]
struct Chunk {
    id: i64,
    language: usize,
    terms: Vec<String>,
}

fn build(id: &SegmentId, chunks: &[Chunk]) -> EncodedSegment {
    let mut builder = SegmentBuilder::new();
    for chunk in chunks {
        builder
            .add_terms(chunk.id, chunk.terms.iter().map(String::as_str))
            .unwrap();
    }
    builder.finish(id).unwrap()
}

/// BM25 as the book has it.
fn twin(chunks: &[Chunk], queries: &[LanguageQuery], parameters: Parameters) -> BTreeMap<i64, f64> {
    let total: usize = chunks.iter().map(|chunk| chunk.terms.len()).sum();
    let average = total as f64 / chunks.len() as f64;
    let query = |chunk: &Chunk| {
        queries
            .iter()
            .find(|query| query.language == LANGUAGES[chunk.language])
            .unwrap()
    };
    let count =
        |chunk: &Chunk, term: &str| chunk.terms.iter().filter(|other| *other == term).count();
    let mut frequencies = BTreeMap::<u64, usize>::new();
    for chunk in chunks {
        for (slot, term) in &query(chunk).wanted {
            *frequencies.entry(*slot).or_default() += usize::from(count(chunk, term) > 0);
        }
    }
    let mut scores = BTreeMap::new();
    for chunk in chunks {
        let query = query(chunk);
        let holds = |term: &String| chunk.terms.contains(term);
        let excluded = query
            .excluded
            .iter()
            .any(|group| group.len() == 1 && group.iter().all(holds));
        if excluded || !query.phrases.iter().flatten().all(holds) {
            continue;
        }
        let mut score = 0.0;
        for (slot, term) in &query.wanted {
            let frequency = count(chunk, term) as f64;
            let of = frequencies[slot] as f64;
            let idf = (1.0 + (chunks.len() as f64 - of + 0.5) / (of + 0.5)).ln();
            let Parameters { k1, b } = parameters;
            let norm = k1 * (1.0 - b + b * chunk.terms.len() as f64 / average);
            if frequency > 0.0 {
                score += idf * frequency * (k1 + 1.0) / (frequency + norm);
            }
        }
        scores.insert(chunk.id, score);
    }
    scores
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(1e-9)
}

/// Checks a search against the twin's scores.
fn check(
    found: &Found,
    scores: &BTreeMap<i64, f64>,
    k: usize,
    allowed: Option<&[i64]>,
    score_ids: &[i64],
) {
    let may = |id: &i64| allowed.is_none_or(|allowed| allowed.contains(id));
    let mut expected: Vec<_> = scores
        .iter()
        .filter(|(id, score)| **score > 0.0 && may(id))
        .map(|(id, score)| (*score, *id))
        .collect();
    expected.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    let best = found.best.len();
    assert!(
        best >= k.min(expected.len()),
        "{best} of {} at {k}",
        expected.len()
    );
    assert!(best <= expected.len() && (k > 0 || best == 0));
    for ((score, id), (other, _)) in found.best.iter().zip(&expected) {
        assert!(close(*score, *other), "{score} {other}");
        assert!(close(*score, scores[id]) && may(id));
    }
    let ids: BTreeSet<_> = found.best.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), best);
    assert!(
        found
            .best
            .windows(2)
            .all(|pair| pair[0].0 > pair[1].0 || (pair[0].0 == pair[1].0 && pair[0].1 < pair[1].1))
    );
    if let (true, Some((last, _))) = (
        k > 0 && best >= k,
        k.checked_sub(1).and_then(|at| found.best.get(at)),
    ) {
        assert!(found.best[k..].iter().all(|(score, _)| score == last));
        // Everything that ties is there, up to the bound; sums in another order may differ in the last bits.
        let ties = expected
            .iter()
            .filter(|(score, _)| *score > last * (1.0 + 1e-9))
            .count();
        assert!(ties < k);
    }
    for (id, score) in score_ids.iter().zip(&found.scores) {
        match scores.get(id) {
            Some(expected) => assert!(close(*score, *expected), "{id}: {score} {expected}"),
            None => assert!(score.is_nan(), "{id}: {score}"),
        }
    }
}

/// The share of the idf of the terms that a chunk holds, by definition.
fn check_coverage(covered: &[f64], chunks: &[Chunk], queries: &[LanguageQuery], asked: &[i64]) {
    let of = |language: usize| {
        let mut queries = queries.iter();
        queries.find(|query| query.language == LANGUAGES[language])
    };
    let holds = |chunk: &Chunk, slot: u64| {
        let wanted = &of(chunk.language).unwrap().wanted;
        wanted
            .iter()
            .any(|(own, term)| *own == slot && chunk.terms.contains(term))
    };
    let idf = |slot: u64| {
        let frequency = chunks.iter().filter(|chunk| holds(chunk, slot)).count() as f64;
        (1.0 + (chunks.len() as f64 - frequency + 0.5) / (frequency + 0.5)).ln()
    };
    for (id, share) in asked.iter().zip(covered) {
        let chunk = chunks.iter().find(|chunk| chunk.id == *id);
        let wanted = chunk.map(|chunk| &of(chunk.language).unwrap().wanted);
        let (Some(chunk), Some(wanted)) = (chunk, wanted.filter(|wanted| !wanted.is_empty()))
        else {
            assert!(share.is_nan());
            continue;
        };
        let slots = wanted.iter().map(|(slot, _)| *slot);
        let held: f64 = slots
            .clone()
            .filter(|slot| holds(chunk, *slot))
            .map(idf)
            .sum();
        let total: f64 = slots.clone().map(idf).sum();
        assert!(close(*share, held / total), "{share} {held} {total}");
        assert!((0.0..=1.0).contains(share) && share.is_sign_positive());
        assert_eq!(*share == 1.0, slots.clone().all(|slot| holds(chunk, slot)));
    }
}

fn term() -> BoxedStrategy<String> {
    prop_oneof![
        (0..6_u32).prop_map(|number| format!("common{number}")),
        (0..40_u32).prop_map(|number| format!("term{number}")),
        "[a-z]{1,20}",
        "\\PC{1,30}",
    ]
    .boxed()
}

fn terms() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(term(), 0..12)
}

fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
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

fn queries() -> impl Strategy<Value = Vec<LanguageQuery>> {
    let one = (
        prop::collection::vec(term(), 0..8),
        prop::collection::vec(prop::collection::vec(term(), 0..2), 0..2),
        prop::collection::vec(prop::collection::vec(term(), 0..3), 0..2),
    );
    (one.clone(), one).prop_map(|both| {
        let make =
            |language: &str, (terms, phrases, excluded): (Vec<String>, _, _)| LanguageQuery {
                language: language.to_owned(),
                wanted: terms
                    .into_iter()
                    .enumerate()
                    .map(|(slot, term)| (slot as u64 * 3, term))
                    .collect(),
                phrases,
                excluded,
            };
        vec![make("english", both.0), make("german", both.1)]
    })
}

fn parameters() -> impl Strategy<Value = Parameters> {
    prop_oneof![
        Just(Parameters { k1: 1.2, b: 0.75 }),
        (0.0..3.0, 0.0..=1.0).prop_map(|(k1, b)| Parameters { k1, b }),
        Just(Parameters { k1: 0.0, b: 0.0 }),
        Just(Parameters {
            k1: 1_000.0,
            b: 1.0
        }),
    ]
}

/// Spreads chunks over segments, each of one language, and buries the dead in several tombstones.
fn tables(
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 96 } else { 1_500 }))]

    #[test]
    fn search_is_bm25(
        chunks in chunks(),
        asked in prop::collection::vec((queries(), 0..70_usize, parameters(), any::<prop::sample::Index>()), 1..6),
        segments in 1..7_usize,
        share in 1..8_usize,
        limit in prop_oneof![Just(0_usize), 1_usize..3_000, Just(usize::MAX)],
    ) {
        let cache = PostingCache::new(limit);
        for (round, (queries, k, parameters, at)) in (1..).zip(asked) {
            let dead: BTreeSet<_> = chunks.iter().skip(at.index(chunks.len())).step_by(share).map(|chunk| chunk.id).collect();
            let living: Vec<_> = chunks.iter().filter(|chunk| !dead.contains(&chunk.id)).cloned().collect();
            let tables = tables(&chunks, segments, &dead, round * 1_000);
            let scores = twin(&living, &queries, parameters);
            let score_ids: Vec<_> = chunks.iter().rev().map(|chunk| chunk.id).chain([7_000, i64::MIN, i64::MAX]).collect();
            let found = tables.search(&cache, &queries, k, parameters, None, &score_ids);
            check(&found, &scores, k, None, &score_ids);
            let plan = cache.plan(&queries).unwrap();
            let covered = tables.snapshot(&cache, &plan).unwrap().coverage(&score_ids).unwrap();
            check_coverage(&covered, &living, &queries, &score_ids);
            let allowed: Vec<_> = score_ids.iter().copied().step_by(2).collect();
            let found = tables.search(&cache, &queries, k, parameters, Some(&allowed), &score_ids);
            check(&found, &scores, k, Some(&allowed), &score_ids);
            prop_assert!(cache.counters().bytes <= limit);
        }
    }

    #[test]
    fn merging_is_building_from_what_is_left(
        chunks in chunks(),
        segments in 1..6_usize,
        share in 1..6_usize,
        shift: prop::sample::Index,
    ) {
        let chunks: Vec<_> = chunks.into_iter().map(|chunk| Chunk { language: 0, ..chunk }).collect();
        let dead: Vec<_> = chunks.iter().skip(shift.index(chunks.len())).step_by(share).map(|chunk| chunk.id).collect();
        let tables = tables(&chunks, segments, &BTreeSet::new(), 0);
        let sources = tables.segments.iter().map(|(id, _, segment)| source(*id, segment)).collect();
        let merged = merge(&id_of(99), sources, &IdSet::new(dead.clone())).unwrap();
        let living: Vec<_> = chunks.into_iter().filter(|chunk| !dead.contains(&chunk.id)).collect();
        prop_assert_eq!(merged, build(&id_of(99), &living));
    }

    #[test]
    fn a_segment_decodes_to_its_chunks(chunks in chunks()) {
        let segment = build(&id_of(1), &chunks);
        let header = Header::decode(&id_of(1), &segment.header).unwrap();
        prop_assert_eq!(header.ids.iter().collect::<Vec<_>>(), chunks.iter().map(|chunk| chunk.id).collect::<Vec<_>>());
        for (ordinal, chunk) in (0..).zip(&chunks) {
            prop_assert_eq!(header.length(ordinal) as usize, chunk.terms.len());
            prop_assert_eq!(header.ids.id(ordinal), Some(chunk.id));
        }
        prop_assert_eq!(header.total_length, segment.total_length);
        let distinct: usize = chunks.iter().map(|chunk| chunk.terms.iter().collect::<BTreeSet<_>>().len()).sum();
        prop_assert_eq!(segment.postings, distinct as u64);
        prop_assert!(segment.rows.is_sorted_by(|left, right| left.first_term < right.first_term));
    }

    #[test]
    fn a_tombstone_comes_back(ids in prop::collection::vec(prop_oneof![any::<i64>(), 0..50_i64], 0..60)) {
        let id = id_of(3);
        let data = encode_tombstone(&id, &IdSet::new(ids.clone())).unwrap();
        let read = decode_tombstone(&id, &data).unwrap();
        prop_assert_eq!(read.iter().collect::<BTreeSet<_>>(), ids.iter().copied().collect::<BTreeSet<_>>());
        prop_assert!(decode_tombstone(&id_of(4), &data).is_err());
    }

    #[test]
    fn damage_is_found(chunks in chunks(), at: prop::sample::Index, place: prop::sample::Index, how in 0..5_u8, value: u8) {
        let id = id_of(1);
        let segment = build(&id, &chunks);
        let number = at.index(segment.rows.len() + 1);
        let mut damaged = segment.clone();
        let blob = if number == 0 { &mut damaged.header } else { &mut damaged.rows[number - 1].data };
        let place = place.index(blob.len());
        match how {
            0 => blob[place] ^= 1 << (value % 8),
            1 => blob[place] = value,
            2 => blob.truncate(place),
            3 => blob.insert(place, value),
            _ => drop(blob.remove(place)),
        }
        let merged = merge(&id_of(2), vec![source(id, &damaged)], &IdSet::default());
        prop_assert_eq!(merged.is_ok(), damaged == segment);
        // Under another id or first term the same bytes are damaged as well.
        prop_assert!(merge(&id_of(2), vec![source(id_of(5), &segment)], &IdSet::default()).is_err());
        if let Some(row) = damaged.rows.first_mut() {
            row.first_term.insert(0, 1);
            prop_assert!(merge(&id_of(2), vec![source(id, &damaged)], &IdSet::default()).is_err());
        }
    }
}

fn source(id: SegmentId, segment: &EncodedSegment) -> Source<'_> {
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
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Large segments with long lists: pruning, skipping and blocks all take part.
fn many(count: usize, seed: u64) -> Vec<Chunk> {
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

#[test]
fn long_lists_are_pruned_without_loss() {
    let chunks = many(9_000, 5);
    let mut tables = Tables::default();
    for (number, own) in chunks.chunks(3_500).enumerate() {
        let id = id_of(number);
        tables
            .segments
            .push((id, "english".into(), build(&id, own)));
    }
    let dead: BTreeSet<_> = chunks.iter().step_by(7).map(|chunk| chunk.id).collect();
    let mut numbers = Numbers(9);
    let cache = PostingCache::new(200_000);
    for round in 0..40_usize {
        if round == 20 {
            let id = id_of(50);
            tables.tombstones.push((
                id,
                encode_tombstone(&id, &IdSet::new(dead.iter().copied().collect())).unwrap(),
            ));
        }
        let buried = round >= 20;
        let living: Vec<_> = chunks
            .iter()
            .filter(|chunk| !buried || !dead.contains(&chunk.id))
            .cloned()
            .collect();
        let wanted: BTreeSet<_> = (0..=numbers.next() % 9)
            .map(|_| {
                format!(
                    "t{}",
                    (3_000_f64.powf(numbers.next() as f64 / f64::from(1_u32 << 31)) - 1.0) as u64
                )
            })
            .collect();
        let query = LanguageQuery {
            language: "english".into(),
            wanted: (0..).zip(wanted).collect(),
            excluded: if round % 5 == 0 {
                vec![vec!["t1".into()]]
            } else {
                vec![]
            },
            phrases: if round % 7 == 0 {
                vec![vec!["t0".into(), "t2".into()]]
            } else {
                vec![]
            },
        };
        let queries = [
            query,
            LanguageQuery {
                language: "german".into(),
                ..LanguageQuery::default()
            },
        ];
        let parameters = Parameters { k1: 1.2, b: 0.75 };
        let scores = twin(&living, &queries, parameters);
        let score_ids: Vec<_> = chunks.iter().step_by(50).map(|chunk| chunk.id).collect();
        for k in [1, 3, 10, 100, 20_000] {
            check(
                &tables.search(&cache, &queries, k, parameters, None, &score_ids),
                &scores,
                k,
                None,
                &score_ids,
            );
        }
        for few in [2_000, 20] {
            let allowed: Vec<_> = chunks.iter().step_by(few).map(|chunk| chunk.id).collect();
            let found = tables.search(&cache, &queries, 10, parameters, Some(&allowed), &[]);
            check(&found, &scores, 10, Some(&allowed), &[]);
        }
    }
    let counters = cache.counters();
    assert!(counters.hits > 0 && counters.misses > 0 && counters.bytes <= 200_000);
}

#[test]
fn damage_is_found_in_long_lists() {
    let mut numbers = Numbers(3);
    let mut chunks = many(3_000, 5);
    // A frequency far above all others.
    chunks[7].terms = vec!["t0".into(); 70_000];
    let id = id_of(1);
    let segment = build(&id, &chunks);
    let alone = |row: &EncodedRow| row.data.get(5) == Some(&0);
    let long = (0..segment.rows.len()).filter(|number| alone(&segment.rows[*number]));
    let long: Vec<_> = long.collect();
    assert!(long.len() > 10);
    let merged = merge(&id_of(2), vec![source(id, &segment)], &IdSet::default());
    assert_eq!(merged.unwrap(), build(&id_of(2), &chunks));
    for round in 0..400 {
        let mut damaged = segment.clone();
        let row = &mut damaged.rows[long[round % long.len()]];
        let place = numbers.next() as usize % row.data.len();
        match round / long.len() % 3 {
            0 => row.data[place] ^= 1 << (numbers.next() % 8),
            1 => row.data.truncate(place),
            _ => row.data.insert(place, numbers.next() as u8),
        }
        let term = String::from_utf8(row.first_term.clone()).unwrap();
        let merged = merge(&id_of(2), vec![source(id, &damaged)], &IdSet::default());
        assert!(damaged == segment || matches!(merged, Err(SegmentError::Damaged { .. })));
        let tables = Tables {
            segments: vec![(id, "english".into(), damaged.clone())],
            tombstones: Vec::new(),
        };
        let cache = PostingCache::new(0);
        let query = LanguageQuery {
            language: "english".into(),
            wanted: vec![(0, term)],
            ..LanguageQuery::default()
        };
        let plan = cache.plan(&[query]).unwrap();
        let read = tables.snapshot(&cache, &plan);
        assert!(damaged == segment || matches!(read, Err(SegmentError::Damaged { .. })));
    }
}

/// Terms of segments that are gone are not kept, whatever was asked for in them.
#[test]
fn what_is_remembered_goes_with_its_segments() {
    let cache = PostingCache::new(usize::MAX);
    let query = |term: String| LanguageQuery {
        language: "english".into(),
        wanted: vec![(0, term)],
        ..LanguageQuery::default()
    };
    for round in 0..50 {
        // Another segment each time, as merges make them.
        let id = id_of(round);
        let tables = Tables {
            segments: vec![(id, "english".into(), build(&id, &many(20, 1)))],
            tombstones: Vec::new(),
        };
        for term in 0..20 {
            let plan = cache
                .plan(&[query(format!("asked{round}x{term}"))])
                .unwrap();
            tables.snapshot(&cache, &plan).unwrap();
        }
        assert!(cache.counters().terms <= 20, "{}", cache.counters().terms);
    }
    let empty = Tables::default();
    let plan = cache.plan(&[query("asked".into())]).unwrap();
    empty.snapshot(&cache, &plan).unwrap();
    assert_eq!((cache.counters().terms, cache.counters().bytes), (0, 0));
}

/// What a term costs that is in no list: maps and names, not the list alone.
#[test]
fn the_limit_counts_what_absences_cost() {
    let limit = 100_000;
    let cache = PostingCache::new(limit);
    let id = id_of(1);
    let tables = Tables {
        segments: vec![(id, "english".into(), build(&id, &many(20, 1)))],
        tombstones: Vec::new(),
    };
    for round in 0..30 {
        let wanted = (0..64).map(|term| (term, format!("asked{round}x{term}")));
        let query = LanguageQuery {
            language: "english".into(),
            wanted: wanted.collect(),
            ..LanguageQuery::default()
        };
        let plan = cache.plan(&[query]).unwrap();
        tables.snapshot(&cache, &plan).unwrap();
    }
    assert!(cache.counters().terms <= limit / 250);
}

#[test]
fn all_that_tie_come_along_up_to_a_thousand() {
    let mut chunks: Vec<_> = (0..2_500)
        .map(|id| Chunk {
            id,
            language: 0,
            terms: vec!["same".into(), "word".into()],
        })
        .collect();
    chunks[2_400].terms = vec!["same".into(), "same".into()];
    let query = LanguageQuery {
        language: "english".into(),
        wanted: vec![(0, "same".into())],
        ..LanguageQuery::default()
    };
    let queries = [query];
    for segments in [1, 3, 50] {
        let tables = tables(&chunks, segments, &BTreeSet::new(), 0);
        let found = tables.search(
            &PostingCache::new(0),
            &queries,
            10,
            Parameters { k1: 1.2, b: 0.75 },
            None,
            &[],
        );
        let ids: Vec<_> = found.best.iter().map(|(_, id)| *id).collect();
        let expected: Vec<i64> = std::iter::once(2_400).chain(0..1_009).collect();
        assert_eq!(ids, expected);
    }
}

/// Words by spaces, in small letters; "the" stands for nothing, a hyphen for two terms.
struct Words;

impl TermSource for Words {
    fn offsets(&self, text: &str, mut token: impl FnMut(usize, usize)) {
        let mut start = 0;
        for word in text.split(' ') {
            if !word.is_empty() {
                token(start, start + word.len());
            }
            start += word.len() + 1;
        }
    }

    fn terms(&self, token: &str, term: impl FnMut(&str)) {
        let lower = token.to_lowercase();
        if lower != "the" {
            lower
                .split('-')
                .filter(|part| !part.is_empty())
                .for_each(term);
        }
    }
}

proptest! {
    #[test]
    fn texts_give_the_terms_of_their_source(texts in prop::collection::vec(prop::collection::vec("(the|The|[aAbB]{1,2}(-[ab])?|x{60,70})( [aAb]{1,3}-?c?){0,9}", 0..3), 0..20)) {
        let (mut builder, mut by_terms) = (SegmentBuilder::new(), SegmentBuilder::new());
        for _ in 0..2 {
            for (id, texts) in (0..).zip(&texts) {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                builder.add(id, &Words, &texts).unwrap();
                let mut terms = Vec::new();
                for text in texts {
                    Words.tokens(text, |token| Words.terms(token, |term| terms.push(term.to_owned())));
                }
                by_terms.add_terms(id, terms.iter().map(String::as_str)).unwrap();
            }
            prop_assert_eq!(builder.finish(&id_of(0)).unwrap(), by_terms.finish(&id_of(0)).unwrap());
        }
    }
}

/// As `Words`, but letters mean others.
struct Others;

impl TermSource for Others {
    fn offsets(&self, text: &str, token: impl FnMut(usize, usize)) {
        Words.offsets(text, token);
    }

    fn terms(&self, token: &str, mut term: impl FnMut(&str)) {
        Words.terms(token, |it| term(&it.replace('a', "c")));
    }
}

proptest! {
    #[test]
    fn what_is_remembered_changes_no_segment(
        batches in prop::collection::vec((any::<bool>(), prop::collection::vec("(the|The|[aAbB]{1,2}(-[ab])?|x{60,70})( [aAb]{1,3}-?c?){0,9}| ?a{129}", 0..9)), 0..6)
    ) {
        fn add(builder: &mut SegmentBuilder, others: bool, id: i64, text: &str) -> Result<(), SegmentError> {
            if others {
                builder.add(id, &Others, &[text])
            } else {
                builder.add(id, &Words, &[text])
            }
        }
        let (mut known, mut by_others) = (Vocabulary::default(), false);
        for (others, texts) in &batches {
            let (mut builder, mut plain) = (SegmentBuilder::new(), SegmentBuilder::new());
            builder.adopt(&mut known);
            prop_assert_eq!(known.memory(), 0);
            if *others != by_others {
                builder.forget_source();
            }
            by_others = *others;
            for (id, text) in (0..).zip(texts) {
                // A term that is too long is refused, and its chunk leaves no trace.
                let refused = add(&mut builder, *others, id, text).is_err();
                prop_assert_eq!(refused, text.contains(&"a".repeat(129)));
                prop_assert_eq!(add(&mut plain, *others, id, text).is_err(), refused);
            }
            prop_assert_eq!(builder.release().is_some(), builder.chunks() == 0);
            prop_assert_eq!(builder.finish(&id_of(0)), plain.finish(&id_of(0)));
            known = builder.release().unwrap();
        }
    }
}

#[test]
fn rows_of_several_terms_fit_a_quarter_of_a_page() {
    let mut chunks = many(20_000, 5);
    for term in chunks.iter_mut().flat_map(|chunk| &mut chunk.terms) {
        term.push_str("-suffix");
    }
    let segment = build(&id_of(1), &chunks);
    let (alone, shared): (Vec<_>, Vec<_>) = segment
        .rows
        .iter()
        .partition(|row| row.data.get(5) == Some(&0));
    assert!(!alone.is_empty() && shared.len() > 1);
    // 44 bytes of each are the server's.
    assert!(
        shared
            .iter()
            .all(|row| row.first_term.len() + row.data.len() <= 2_032 - 44)
    );
    // Some keys are beginnings that are no term themselves.
    let terms = chunks.into_iter().flat_map(|chunk| chunk.terms);
    let terms: BTreeSet<_> = terms.map(String::into_bytes).collect();
    assert!(shared.iter().any(|row| !terms.contains(&row.first_term)));
    assert!(
        segment
            .rows
            .is_sorted_by(|row, next| row.first_term < next.first_term)
    );
}

#[test]
fn misuse_is_refused() {
    let id = id_of(0);
    let mut builder = SegmentBuilder::new();
    builder.add_terms(1, ["a"]).unwrap();
    builder.add_terms(1, ["b"]).unwrap();
    assert!(matches!(builder.finish(&id), Err(SegmentError::Refused(_))));
    assert!(builder.add_terms(1, ["a", ""]).is_err());
    assert!(builder.add_terms(2, ["a", &"x".repeat(129)]).is_err());
    builder.add_terms(3, ["a", &"x".repeat(128)]).unwrap();
    let segment = builder.finish(&id).unwrap();
    assert_eq!((segment.chunks, segment.postings), (1, 2));
    for number in 0..MAX_CHUNKS as i64 {
        builder.add_terms(number, ["a"]).unwrap();
    }
    assert!(builder.add_terms(-1, ["a"]).is_err());
    let full = builder.finish(&id).unwrap();
    assert_eq!(full.postings, 65_536);
    let other = build(
        &id_of(1),
        &[Chunk {
            id: -1,
            language: 0,
            terms: vec!["a".into()],
        }],
    );
    let sources = || vec![source(id, &full), source(id_of(1), &other)];
    assert!(matches!(
        merge(&id_of(2), sources(), &IdSet::default()),
        Err(SegmentError::Refused(_))
    ));
    assert_eq!(
        merge(&id_of(2), sources(), &IdSet::new(vec![3]))
            .unwrap()
            .chunks,
        65_536
    );
    let mut missing = full.clone();
    missing.rows.clear();
    assert!(matches!(
        merge(&id_of(2), vec![source(id, &missing)], &IdSet::default()),
        Err(SegmentError::Damaged { .. })
    ));
}
