//! Tombstones: ids of chunks that were deleted, written by the transaction that deleted them.

use super::id_set::IdSet;
use super::ids::IdRanges;
use super::sealed::{BlobKind, ByteReader, open, seal};
use super::{SegmentError, SegmentId};

/// The blob that holds the ids.
///
/// # Errors
///
/// Refuses more ids than 32 bits can count.
pub fn encode_tombstone(id: &SegmentId, ids: &IdSet) -> Result<Vec<u8>, SegmentError> {
    let ranges = IdRanges::joined(ids.ranges()).ok_or(SegmentError::Refused(
        "ids: a tombstone holds at most 2**32 - 1 ids",
    ))?;
    let mut content = Vec::new();
    ranges.write(&mut content);
    Ok(seal(BlobKind::Tombstone, id, &[], &content))
}

/// The ids in a blob, as ranges: a few bytes may name many.
///
/// # Errors
///
/// A damaged blob.
pub fn decode_tombstone(id: &SegmentId, blob: &[u8]) -> Result<IdRanges, SegmentError> {
    let mut reader = ByteReader::new(open(BlobKind::Tombstone, id, &[], blob)?);
    let read = IdRanges::read(&mut reader, usize::MAX);
    read.and_then(|ids| reader.end().map(|()| ids))
        .map_err(SegmentError::damaged(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: SegmentId = [9; 16];

    proptest! {
        #[test]
        fn ids_come_back(ids in prop::collection::vec(prop_oneof![0..40_i64, any::<i64>()], 0..30)) {
            let ids = IdSet::new(ids);
            let blob = encode_tombstone(&ID, &ids);
            let read = blob.and_then(|blob| decode_tombstone(&ID, &blob));
            prop_assert_eq!(read.map(|ids| IdSet::from(&ids)), Ok(ids));
        }
    }

    /// Billions of ids in a few bytes are neither listed when they are read nor when they are written again.
    #[test]
    fn few_bytes_may_hold_billions_of_ids() {
        let content = b"\x02\x0f\x0d\x28\x9d\xdf\xd1\x7f";
        let blob = seal(BlobKind::Tombstone, &ID, &[], content);
        let read = decode_tombstone(&ID, &blob);
        let again = read.and_then(|ids| encode_tombstone(&ID, &IdSet::from(&ids)));
        assert_eq!(again, Ok(blob));
    }

    #[test]
    fn more_ids_than_32_bits_count_are_refused() {
        let many = IdRanges::joined([(0, i64::from(u32::MAX) - 1)]);
        let many = many.map_or_else(IdSet::default, |ids| IdSet::from(&ids));
        assert!(encode_tombstone(&ID, &many).is_ok());
        let more = IdSet::union([&many, &IdSet::new(vec![-9])]);
        assert!(matches!(
            encode_tombstone(&ID, &more),
            Err(SegmentError::Refused(_))
        ));
    }
}
