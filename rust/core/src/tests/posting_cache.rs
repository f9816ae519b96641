//! The cache of posting lists: what it holds stays within its limit.

use semlex_core::keyword::format::*;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

use super::stored::chunks::{build, many};
use super::stored::{Tables, id_of};

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
            ..Tables::default()
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
        ..Tables::default()
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

fn english(terms: &[&str]) -> [LanguageQuery; 1] {
    let terms = terms.iter().map(|term| (*term).to_owned());
    [LanguageQuery {
        language: "english".into(),
        wanted: (0..).zip(terms).collect(),
        ..LanguageQuery::default()
    }]
}

fn of_segments(ended: u64, segments: &[(SegmentId, &EncodedSegment)]) -> Tables {
    let segments = segments.iter();
    Tables {
        segments: segments
            .map(|(id, segment)| (*id, "english".into(), (*segment).clone()))
            .collect(),
        ended,
        ..Tables::default()
    }
}

/// A transaction that has its snapshot from before a merge searches between others, which search what was merged.
#[test]
fn an_older_snapshot_takes_nothing_away() {
    let chunks = many(300, 3);
    let [one, two, whole] = [1, 2, 3].map(id_of);
    let halves = [build(&one, &chunks[..150]), build(&two, &chunks[150..])];
    let merged = build(&whole, &chunks);
    let older = of_segments(7, &[(one, &halves[0]), (two, &halves[1])]);
    let later = of_segments(8, &[(whole, &merged)]);
    let cache = PostingCache::new(usize::MAX);
    let queries = english(&["t0", "t1", "t5"]);
    let search = |tables: &Tables| {
        let before = cache.counters();
        let plan = cache.plan(&queries).unwrap();
        let known: Vec<_> = plan.known_segments().copied().collect();
        let snapshot = tables.snapshot(&cache, &plan).unwrap();
        let parameters = Parameters { k1: 1.2, b: 0.75 };
        let found = snapshot.search(5, parameters, None, &[]).unwrap();
        let misses = cache.counters().misses - before.misses;
        (known, snapshot.is_latest(), misses, found.best)
    };
    let (_, is_latest, misses, best) = search(&older);
    assert!(is_latest && misses == 6);
    let (_, is_latest, misses, later_best) = search(&later);
    assert!(is_latest && misses == 3 && later_best == best);
    for _ in 0..3 {
        let (known, is_latest, misses, found) = search(&older);
        assert_eq!(
            (known, is_latest, found),
            (vec![whole], false, best.clone())
        );
        assert_eq!(misses, 6, "what is gone is not kept");
        let (known, is_latest, misses, found) = search(&later);
        assert_eq!((known, is_latest, found), (vec![whole], true, best.clone()));
        assert_eq!(misses, 0, "the older snapshot took lists away");
    }
}

/// Postings that are unpacked, blocks that are not, and chunks that are scored once more.
#[test]
fn a_search_says_what_it_did() {
    let mut chunks = many(30_000, 4);
    for chunk in chunks.iter_mut().step_by(3_000) {
        chunk.terms.push("rare".into());
    }
    // Where the first segment has found enough, the others need not be read in whole.
    let parts: Vec<_> = (1..)
        .map(id_of)
        .zip(chunks.chunks(10_000))
        .map(|(id, chunks)| (id, build(&id, chunks)))
        .collect();
    let parts: Vec<_> = parts.iter().map(|(id, part)| (*id, part)).collect();
    let tables = of_segments(1, &parts);
    let cache = PostingCache::new(usize::MAX);
    let parameters = Parameters { k1: 1.2, b: 0.75 };
    let work = |terms: &[&str], k| {
        let queries = english(terms);
        let plan = cache.plan(&queries).unwrap();
        let snapshot = tables.snapshot(&cache, &plan).unwrap();
        let found = snapshot.search(k, parameters, None, &[10]).unwrap();
        (found.work, snapshot.postings())
    };
    let (alone, postings) = work(&["rare"], 10);
    assert_eq!(
        (postings, alone.skipped_blocks, alone.rescored),
        (10, 0, 10)
    );
    assert_eq!(alone.postings, 20, "once to find and once to score");
    let (common, postings) = work(&["t0"], 5);
    assert!(common.postings >= postings && common.skipped_blocks == 0 && common.rescored >= 5);
    let (both, postings) = work(&["rare", "t0"], 2);
    assert!(both.skipped_blocks > 0 && both.postings < postings);
    assert_eq!(work(&["rare"], 0).0, Work::default());
}

/// Lists that no search has used since chunks were deleted are read once more, and not again.
#[test]
fn postings_of_deleted_chunks_are_counted_once() {
    let cache = PostingCache::new(usize::MAX);
    let id = id_of(1);
    let mut tables = of_segments(1, &[(id, &build(&id, &many(2_000, 1)))]);
    let (query, other) = (english(&["t0"]), english(&["t1"]));
    let uncounted = || cache.uncounted_postings(&cache.plan(&query).unwrap());
    let seen = tables.snapshot(&cache, &cache.plan(&query).unwrap());
    let postings = usize::try_from(seen.unwrap().postings()).unwrap();
    assert_eq!(uncounted(), 0);
    for (number, deleted, expected) in [(2, 1, 8), (3, 2_000, postings)] {
        let id = id_of(number);
        let ids = IdSet::new((0..deleted).map(|place| 10 + place * 2).collect());
        let tombstone = encode_tombstone(&id, &ids).unwrap();
        tables.tombstones.push((id, tombstone));
        tables.ended += 1;
        tables
            .snapshot(&cache, &cache.plan(&other).unwrap())
            .unwrap();
        assert_eq!(uncounted(), expected);
        cache.complete(&cache.plan(&query).unwrap(), &[]).unwrap();
        assert_eq!(uncounted(), 0);
    }
}
