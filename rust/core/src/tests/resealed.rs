//! Blobs whose contents are damaged and whose checksums fit, as a role that can write to the tables can make them. Reading
//! them ends, within bounds, in an answer or in an error.
use proptest::prelude::*;

use semlex_core::keyword::build::*;
use semlex_core::keyword::format::*;
use semlex_core::keyword::search::*;
use semlex_core::segments::sealed::{BlobKind, FRONT_BYTES, seal};
use semlex_core::segments::*;

use super::every_form::segment;

const ID: SegmentId = [3; 16];

/// How a content is changed: the place, how, and with which byte.
type Change = (prop::sample::Index, u8, u8);

fn changed(kind: BlobKind, key: &[u8], blob: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut content = blob[FRONT_BYTES..].to_vec();
    for (place, how, value) in changes {
        let place = place.index(content.len() + 1);
        match how {
            0 => content.insert(place, *value),
            1 => content.truncate(place),
            2 if place < content.len() => drop(content.remove(place)),
            3 if place < content.len() => content[place] ^= 1 << (value % 8),
            4 => content.extend(std::iter::repeat_n(*value, place)),
            // The fronts of contents hold their counts.
            _ if !content.is_empty() => {
                let place = place.min(usize::from(value % 12)).min(content.len() - 1);
                content[place] = *value;
            }
            _ => {}
        }
    }
    seal(kind, &ID, key, &content)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let value = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x80)];
    prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8, value), 1..5)
}

fn is_damage<T: std::fmt::Debug>(result: Result<T, SegmentError>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(SegmentError::Damaged { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// Searches with a header and one row, the others as they were.
fn read(
    segment: &EncodedSegment,
    header: &[u8],
    row: usize,
    data: &[u8],
    term: &str,
    tombstone: &[u8],
) {
    let cache = PostingCache::new(usize::MAX);
    let query = LanguageQuery {
        language: "english".into(),
        wanted: vec![(0, term.to_owned())],
        ..LanguageQuery::default()
    };
    let plan = cache.plan(&[query]).unwrap();
    let key = segment.rows[row].first_term.as_slice();
    let rows = [GivenRow {
        segment: ID,
        term: term.as_bytes(),
        row: Some((key, data)),
    }];
    let tombstones = [([9; 16], Some(tombstone))];
    let segments = [(ID, "english", Some(header))];
    let snapshot = cache.snapshot(&plan, &segments, &tombstones, &rows, 0);
    let Some(snapshot) = is_damage(snapshot) else {
        return;
    };
    assert!(snapshot.chunks() <= MAX_CHUNKS as u64 && snapshot.postings() <= MAX_CHUNKS as u64);
    assert!(cache.counters().bytes < 10_000_000);
    let ids = [0, 1, 700, 1_544, i64::MAX];
    let found = snapshot
        .search(10, Parameters { k1: 1.2, b: 0.75 }, None, &ids)
        .unwrap();
    assert!(found.best.len() <= 1_010);
    assert!(
        snapshot
            .coverage(&ids)
            .unwrap()
            .iter()
            .all(|share| share.is_nan() || (0.0..=1.0).contains(share))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 20_000 }))]

    #[test]
    fn reading_ends_within_bounds(
        row: prop::sample::Index, of_header in changes(), of_row in changes(), of_tombstone in changes(), which in 1..8_u8,
    ) {
        thread_local! {
            static SEGMENT: EncodedSegment = segment(&ID);
        }
        SEGMENT.with(|segment| {
            let row = row.index(segment.rows.len());
            let key = segment.rows[row].first_term.clone();
            let mut bytes = segment.clone();
            if which & 1 > 0 {
                bytes.header = changed(BlobKind::Header, &[], &segment.header, &of_header);
            }
            if which & 2 > 0 {
                bytes.rows[row].data = changed(BlobKind::Row, &key, &segment.rows[row].data, &of_row);
            }
            let dead = encode_tombstone(&[9; 16], &IdSet::new(vec![1, 2, 3, 900])).unwrap();
            let dead = if which & 4 > 0 {
                let content = changed(BlobKind::Tombstone, &[], &dead, &of_tombstone);
                seal(BlobKind::Tombstone, &[9; 16], &[], &content[FRONT_BYTES..])
            } else {
                dead
            };
            if let Some(header) = is_damage(Header::decode(&ID, &bytes.header)) {
                assert!(header.chunks() as usize <= MAX_CHUNKS.min(bytes.header.len()));
            }
            let first = String::from_utf8_lossy(&key).into_owned();
            for term in [&*first, "common", "often", "rare5", "once7", "zzz"] {
                if term.as_bytes() >= key.as_slice() {
                    read(segment, &bytes.header, row, &bytes.rows[row].data, term, &dead);
                }
            }
            let ids = is_damage(decode_tombstone(&[9; 16], &dead));
            let ids = ids.map_or_else(IdSet::default, |ids| IdSet::from(&ids));
            let rows = bytes.rows.iter().map(|row| (&*row.first_term, &*row.data)).collect();
            match merge(&[4; 16], vec![Source { id: ID, header: &bytes.header, rows }], &ids) {
                // A term that is moved in front of the row before looks like rows in another order.
                Ok(_) | Err(SegmentError::Damaged { .. } | SegmentError::Refused(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        });
    }
}
