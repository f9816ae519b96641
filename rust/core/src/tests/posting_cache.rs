//! The cache of posting lists: what it holds stays within its limit.

use semlex_core::keyword::segment::*;

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
