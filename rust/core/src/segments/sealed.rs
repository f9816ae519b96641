//! Blobs: version, checksum, content. And the reading of their parts, each step within bounds.

use super::{FORMAT_VERSION, SegmentError, SegmentId};

/// Version and checksum.
pub(crate) const FRONT_BYTES: usize = 5;

/// What a blob holds; part of what its checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlobKind {
    /// Ids, lengths and totals of a segment.
    Header = 1,
    /// Posting lists.
    Row = 2,
    /// Ids of deleted chunks.
    Tombstone = 3,
}

/// The checksum covers where a blob belongs as well, so that a row under another's key is found out.
fn checksum(version: u8, kind: BlobKind, id: &SegmentId, key: &[u8], content: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[version, kind as u8]);
    hasher.update(id);
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(content);
    hasher.finalize().to_le_bytes()
}

/// The blob that holds `content`.
pub(crate) fn seal(kind: BlobKind, id: &SegmentId, key: &[u8], content: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(FRONT_BYTES + content.len());
    blob.push(FORMAT_VERSION);
    blob.extend_from_slice(&checksum(FORMAT_VERSION, kind, id, key, content));
    blob.extend_from_slice(content);
    blob
}

/// The content of a blob, when it is whole and belongs here.
pub(crate) fn open<'a>(
    kind: BlobKind,
    id: &SegmentId,
    key: &[u8],
    blob: &'a [u8],
) -> Result<&'a [u8], SegmentError> {
    let damaged = SegmentError::damaged(id);
    let (front, content) = blob
        .split_first_chunk::<FRONT_BYTES>()
        .ok_or_else(|| damaged("a blob has fewer than 5 bytes"))?;
    let [version, found @ ..] = *front;
    if found != checksum(version, kind, id, key, content) {
        return Err(damaged("a checksum does not match"));
    }
    if version != FORMAT_VERSION {
        return Err(SegmentError::OtherVersion {
            id: *id,
            found: version,
        });
    }
    Ok(content)
}

/// The result of reading a part: the part, or what is wrong with it.
pub(crate) type Read<T> = Result<T, &'static str>;

const ENDS_EARLY: &str = "the content ends early";
const TOO_LARGE: &str = "a number is too large";

/// Reads a content from front to back.
#[derive(Clone, Copy)]
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(content: &'a [u8]) -> Self {
        Self { rest: content }
    }

    /// Bytes that are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The bytes that are left.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns an error if bytes are left.
    pub(crate) fn end(&self) -> Read<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err("unexpected bytes follow the content")
        }
    }

    /// The next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Read<u8> {
        let (byte, rest) = self.rest.split_first().ok_or(ENDS_EARLY)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// A number in groups of seven bits, the lowest first; the shortest form only.
    #[inline]
    pub(crate) fn varint(&mut self) -> Read<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                return Err(TOO_LARGE);
            }
            value |= group << shift;
            if byte < 0x80 {
                return if byte == 0 {
                    Err("a number is not in its shortest form")
                } else {
                    Ok(value)
                };
            }
        }
        Err(TOO_LARGE)
    }

    /// A number that fits 32 bits.
    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Read<u32> {
        u32::try_from(self.varint()?).map_err(|_| TOO_LARGE)
    }

    /// A number that fits the machine.
    #[inline]
    pub(crate) fn varint_usize(&mut self) -> Read<usize> {
        usize::try_from(self.varint()?).map_err(|_| TOO_LARGE)
    }
}

/// Writes what [`ByteReader::varint`] reads.
pub(crate) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BlobKind, ByteReader, FORMAT_VERSION, checksum, open, seal, write_varint};
    use crate::segments::SegmentError;

    proptest! {
        #[test]
        fn a_number_comes_back(value: u64, bits in 0_u32..64) {
            let value = value >> bits;
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            let mut reader = ByteReader::new(&bytes);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.end().is_ok());
        }

        #[test]
        fn a_number_has_one_form(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut reader = ByteReader::new(&bytes);
            if let Ok(value) = reader.varint() {
                let mut again = Vec::new();
                write_varint(value, &mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - reader.left()]);
            }
        }
    }

    #[test]
    fn another_version_of_the_format_is_told_from_damage() {
        let (id, key, content) = ([7; 16], b"key", b"content");
        let mut blob = seal(BlobKind::Row, &id, key, content);
        assert_eq!(open(BlobKind::Row, &id, key, &blob), Ok(&content[..]));
        let found = FORMAT_VERSION + 1;
        blob[0] = found;
        let damaged = open(BlobKind::Row, &id, key, &blob);
        assert!(matches!(damaged, Err(SegmentError::Damaged { .. })));
        blob[1..5].copy_from_slice(&checksum(found, BlobKind::Row, &id, key, content));
        let other = open(BlobKind::Row, &id, key, &blob);
        assert_eq!(other, Err(SegmentError::OtherVersion { id, found }));
    }
}
