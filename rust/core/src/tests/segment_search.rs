//! Searches against a slow, obvious twin: BM25 over a list of chunks, each a list of terms.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use semlex_core::keyword::is_typed;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

use super::stored::chunks::{Chunk, LANGUAGES, Numbers, build, chunks, many, tables, term};
use super::stored::{Tables, id_of};

/// BM25 as the book has it.
fn twin(chunks: &[Chunk], queries: &[LanguageQuery], parameters: Parameters) -> BTreeMap<i64, f64> {
    // A term that keeps accents is the second one of its word.
    let length = |chunk: &Chunk| chunk.terms.iter().filter(|term| !is_typed(term)).count();
    let total: usize = chunks.iter().map(length).sum();
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
            let norm = k1 * (1.0 - b + b * length(chunk) as f64 / average);
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
