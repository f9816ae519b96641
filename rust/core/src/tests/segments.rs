//! Segments, stored and read back: merges, damage and misuse.

use std::collections::BTreeSet;

use proptest::prelude::*;
use semlex_core::keyword::build::*;
use semlex_core::keyword::format::*;
use semlex_core::keyword::is_typed;
use semlex_core::keyword::search::*;
use semlex_core::segments::*;

use super::stored::chunks::{Chunk, Numbers, build, chunks, many, source, tables};
use super::stored::{Tables, id_of};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 96 } else { 1_500 }))]

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
            let length = chunk.terms.iter().filter(|term| !is_typed(term)).count();
            prop_assert_eq!(header.length(ordinal).unwrap() as usize, length);
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
            ..Tables::default()
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
