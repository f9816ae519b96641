//! Blobs of the keyword index whose checksums fit, as a role that can write to the tables can make them.

use std::sync::LazyLock;

use semlex_core::keyword::build::{Source, merge};
use semlex_core::keyword::format::{EncodedSegment, Header};
use semlex_core::keyword::search::{GivenRow, LanguageQuery, Parameters, PostingCache};
use semlex_core::segments::{
    FORMAT_VERSION, IdSet, MAX_CHUNKS, SegmentError, SegmentId, decode_tombstone, encode_tombstone,
};

use super::{Target, behaviour, coarse, every_form};
use crate::inputs::Input;

pub(crate) const HEADER: Target = Target {
    name: "header",
    run: header,
    examples: || vec![content(&SEGMENT.header)],
    words: WORDS,
};
pub(crate) const ROW: Target = Target {
    name: "row",
    run: row,
    examples: || rows().collect(),
    words: WORDS,
};
pub(crate) const TOMBSTONE: Target = Target {
    name: "tombstone",
    run: tombstone,
    examples: || {
        let sets = [
            vec![],
            vec![1, 2, 3, 900],
            (0..500).map(|id| id * id).collect(),
        ];
        let blobs = sets.map(|ids| encode_tombstone(&ID, &IdSet::new(ids)));
        blobs.iter().flatten().map(|blob| content(blob)).collect()
    },
    words: WORDS,
};
pub(crate) const MERGE: Target = Target {
    name: "merge",
    run: merged,
    examples: || rows().collect(),
    words: WORDS,
};

const ID: SegmentId = [3; 16];
const DEAD: SegmentId = [9; 16];
/// Numbers in groups of seven bits: the greatest of 16, 32 and 64 bits, and one that is too large.
const WORDS: &[&[u8]] = &[
    b"\xff\xff\x03",
    b"\x80\x80\x04",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x00\x00\x00\x00",
];
/// Version and checksum.
const FRONT_BYTES: usize = 5;
const HEADER_KIND: u8 = 1;
const ROW_KIND: u8 = 2;
const TOMBSTONE_KIND: u8 = 3;

static SEGMENT: LazyLock<EncodedSegment> = LazyLock::new(|| every_form::segment(&ID));

/// A blob around a content. The format is that of the core, which checks whatever is not made here.
fn sealed(kind: u8, id: &SegmentId, key: &[u8], content: &[u8]) -> Vec<u8> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[FORMAT_VERSION, kind]);
    hasher.update(id);
    hasher.update(&u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(key);
    hasher.update(content);
    let mut blob = vec![FORMAT_VERSION];
    blob.extend_from_slice(&hasher.finalize().to_le_bytes());
    blob.extend_from_slice(content);
    blob
}

fn content(blob: &[u8]) -> Vec<u8> {
    blob.get(FRONT_BYTES..).unwrap_or_default().to_vec()
}

/// Every 20th row: the length of its key, the key, the content.
fn rows() -> impl Iterator<Item = Vec<u8>> {
    SEGMENT.rows.iter().step_by(20).map(|row| {
        let length = u8::try_from(row.first_term.len()).unwrap_or(u8::MAX);
        [&[length], &*row.first_term, &*content(&row.data)].concat()
    })
}

/// The key and the blob of an input.
fn given_row(input: &[u8]) -> (&[u8], Vec<u8>) {
    let mut input = Input::new(input);
    let length = usize::from(input.byte());
    let key = input.take(length);
    (key, sealed(ROW_KIND, &ID, key, input.rest()))
}

/// What a damaged blob is called; nothing may be anything but damage, or a refusal.
fn damage(error: &SegmentError) -> String {
    match error {
        SegmentError::Damaged { what, .. } => (*what).to_owned(),
        other => other.to_string(),
    }
}

/// Searches a snapshot of one row.
fn searched(header: &[u8], term: &str, row: (&[u8], &[u8]), tombstone: Option<&[u8]>) -> u64 {
    let cache = PostingCache::new(usize::MAX);
    let query = LanguageQuery {
        language: "english".into(),
        wanted: vec![(0, term.to_owned())],
        ..LanguageQuery::default()
    };
    let rows = [GivenRow {
        segment: ID,
        term: term.as_bytes(),
        row: Some(row),
    }];
    let tombstones: Vec<_> = tombstone
        .map(|data| (DEAD, Some(data)))
        .into_iter()
        .collect();
    let snapshot = cache.plan(&[query]).and_then(|plan| {
        cache.snapshot(
            &plan,
            &[(ID, "english", Some(header))],
            &tombstones,
            &rows,
            0,
        )
    });
    match snapshot {
        Err(error) => behaviour(damage(&error)),
        Ok(snapshot) => {
            let most = u64::try_from(MAX_CHUNKS).unwrap_or(u64::MAX);
            assert!(snapshot.chunks() <= most && snapshot.postings() <= most);
            let ids = [0, 1, 700, 1_544, i64::MAX];
            let parameters = Parameters { k1: 1.2, b: 0.75 };
            let found = snapshot.search(10, parameters, None, &ids);
            let shares = snapshot.coverage(&ids).unwrap_or_default();
            let whole = |share: &f64| share.is_nan() || (0.0..=1.0).contains(share);
            assert!(shares.iter().all(whole));
            let hits = found.map_or(usize::MAX, |found| found.best.len());
            behaviour((hits, coarse(cache.counters().bytes)))
        }
    }
}

/// The row in which a term stands, if it occurs.
fn row_of(term: &str) -> Option<(&'static [u8], &'static [u8])> {
    let place = SEGMENT
        .rows
        .partition_point(|row| row.first_term.as_slice() <= term.as_bytes());
    let row = SEGMENT.rows.get(place.checked_sub(1)?)?;
    Some((&row.first_term, &row.data))
}

fn header(input: &[u8]) -> u64 {
    let blob = sealed(HEADER_KIND, &ID, &[], input);
    let decoded = match Header::decode(&ID, &blob) {
        Err(error) => return behaviour(damage(&error)),
        Ok(header) => header,
    };
    assert!(decoded.chunks() as usize <= MAX_CHUNKS.min(blob.len()));
    let found = ["common", "once7", "rare5"]
        .map(|term| row_of(term).map_or(0, |row| searched(&blob, term, row, None)));
    let rows = SEGMENT
        .rows
        .iter()
        .map(|row| (&*row.first_term, &*row.data));
    behaviour((found, merge_of(&blob, rows.collect())))
}

fn row(input: &[u8]) -> u64 {
    let (key, blob) = given_row(input);
    let term = String::from_utf8_lossy(key).into_owned();
    let row = (key, &*blob);
    let found = [&*term, "common", "often", "rare5", "once7", "zzz"].map(|term| {
        let reachable = term.as_bytes() >= key;
        if reachable {
            searched(&SEGMENT.header, term, row, None)
        } else {
            0
        }
    });
    behaviour(found)
}

fn tombstone(input: &[u8]) -> u64 {
    let blob = sealed(TOMBSTONE_KIND, &DEAD, &[], input);
    let ids = match decode_tombstone(&DEAD, &blob) {
        Err(error) => return behaviour(damage(&error)),
        Ok(ids) => IdSet::from(&ids),
    };
    let again = encode_tombstone(&DEAD, &ids).is_ok();
    let union = IdSet::union([&ids, &IdSet::new(vec![5, 6])]);
    let left = ids.difference(&union).is_empty();
    let held = row_of("common").map_or(0, |row| {
        searched(&SEGMENT.header, "common", row, Some(&blob))
    });
    let size = usize::try_from(ids.len()).unwrap_or(usize::MAX);
    behaviour((again, left, held, coarse(size)))
}

fn merged(input: &[u8]) -> u64 {
    let (key, blob) = given_row(input);
    let mut rows: Vec<(&[u8], &[u8])> = SEGMENT
        .rows
        .iter()
        .map(|row| (&*row.first_term, &*row.data))
        .filter(|row| row.0 != key)
        .collect();
    let place = rows.partition_point(|row| row.0 < key);
    rows.insert(place, (key, &blob));
    merge_of(&SEGMENT.header, rows)
}

fn merge_of(header: &[u8], rows: Vec<(&[u8], &[u8])>) -> u64 {
    let source = Source {
        id: ID,
        header,
        rows,
    };
    match merge(&[4; 16], vec![source], &IdSet::new(vec![1, 2, 3])) {
        Ok(segment) => behaviour((coarse(segment.rows.len()), segment.chunks)),
        Err(error) => behaviour(damage(&error)),
    }
}
