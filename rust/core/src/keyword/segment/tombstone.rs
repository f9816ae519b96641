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
    let too_many = || SegmentError::refused("ids: too many for one tombstone");
    if ids.len() > u64::from(u32::MAX) {
        return Err(too_many());
    }
    let ranges = IdRanges::new(ids.iter()).ok_or_else(too_many)?;
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
    let read = IdRanges::read(&mut reader, u32::MAX);
    read.and_then(|ids| reader.end().map(|()| ids))
        .map_err(SegmentError::damaged(id))
}
