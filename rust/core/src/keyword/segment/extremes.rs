//! What bounds the scores of a list, whatever the average length is: largest frequencies and shortest chunks.

use super::Posting;
use super::sealed::{Read, Reader, write_varint};

/// Largest frequency and shortest chunk among postings of about the same frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extreme {
    pub(crate) frequency: u32,
    pub(crate) length: u32,
}

/// Frequencies 1, 2, 3, 4 to 7, 8 and above.
const CLASSES: usize = 5;

fn class(frequency: u32) -> usize {
    match frequency {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4..8 => 3,
        _ => 4,
    }
}

/// Appends the extremes of postings in chunks of these lengths.
pub(crate) fn write_extremes(postings: &[Posting], lengths: &[u32], out: &mut Vec<u8>) {
    let mut extremes = [Extreme::default(); CLASSES];
    for posting in postings {
        let length = lengths.get(usize::from(posting.ordinal));
        let length = length.copied().unwrap_or(0);
        if let Some(extreme) = extremes.get_mut(class(posting.frequency)) {
            if extreme.frequency == 0 || length < extreme.length {
                extreme.length = length;
            }
            extreme.frequency = extreme.frequency.max(posting.frequency);
        }
    }
    // One with a larger frequency and a chunk that is not longer bounds this one, too.
    let mut shortest = u32::MAX;
    let mut kept = Vec::with_capacity(CLASSES);
    for extreme in extremes.iter().rev() {
        if extreme.frequency > 0 && (kept.is_empty() || extreme.length < shortest) {
            shortest = extreme.length;
            kept.push(extreme);
        }
    }
    write_varint(kept.len() as u64, out);
    for extreme in kept {
        write_varint(u64::from(extreme.frequency), out);
        write_varint(u64::from(extreme.length), out);
    }
}

/// Reads what [`write_extremes`] wrote.
pub(crate) fn read_extremes(reader: &mut Reader<'_>) -> Read<Box<[Extreme]>> {
    let count = reader.varint_usize()?;
    if count == 0 || count > CLASSES {
        return Err("a list has an impossible number of extremes");
    }
    let extremes = (0..count).map(|_| {
        Ok(Extreme {
            frequency: reader.varint_u32()?,
            length: reader.varint_u32()?,
        })
    });
    extremes.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CLASSES, Posting, Reader, read_extremes, write_extremes};

    proptest! {
        #[test]
        fn each_posting_is_bounded(parts in prop::collection::vec((prop_oneof![1_u32..12, any::<u32>()], any::<u32>()), 1..200)) {
            let postings = (0..).zip(&parts).map(|(ordinal, (frequency, _))| Posting { ordinal, frequency: (*frequency).max(1) });
            let postings: Vec<_> = postings.collect();
            let lengths: Vec<_> = parts.iter().map(|(_, length)| *length).collect();
            let mut bytes = Vec::new();
            write_extremes(&postings, &lengths, &mut bytes);
            let mut reader = Reader::new(&bytes);
            let extremes = read_extremes(&mut reader).map_err(TestCaseError::fail)?;
            prop_assert!(reader.end().is_ok() && extremes.len() <= CLASSES);
            for (posting, length) in postings.iter().zip(&lengths) {
                prop_assert!(extremes.iter().any(|extreme| extreme.frequency >= posting.frequency && extreme.length <= *length));
            }
            for cut in 0..bytes.len() {
                prop_assert!(read_extremes(&mut Reader::new(&bytes[..cut])).is_err());
            }
        }
    }
}
