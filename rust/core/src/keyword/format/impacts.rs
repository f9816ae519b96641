//! The competitive impacts of a posting list: frequencies and lengths that bound its scores, whatever the average length
//! is.

use super::Posting;
use crate::segments::sealed::{ByteReader, Read, write_varint};
use crate::segments::{SegmentError, impossible};

/// Largest frequency and shortest chunk among postings of about the same frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Impact {
    pub(crate) frequency: u32,
    pub(crate) length: u32,
}

/// Frequencies 1, 2, 3, 4 to 7, 8 and above.
const CLASSES: usize = 5;

fn of_class(impacts: &mut [Impact; CLASSES], frequency: u32) -> &mut Impact {
    let [one, two, three, few, many] = impacts;
    match frequency {
        0 | 1 => one,
        2 => two,
        3 => three,
        4..8 => few,
        _ => many,
    }
}

/// Appends the impacts of postings in chunks of these lengths.
pub(crate) fn write_impacts(
    postings: &[Posting],
    lengths: &[u32],
    out: &mut Vec<u8>,
) -> Result<(), SegmentError> {
    let mut impacts = [Impact::default(); CLASSES];
    for posting in postings {
        let length = lengths.get(usize::from(posting.ordinal));
        let length = *length.ok_or_else(|| impossible("a posting names an unknown chunk"))?;
        let impact = of_class(&mut impacts, posting.frequency);
        if impact.frequency == 0 || length < impact.length {
            impact.length = length;
        }
        impact.frequency = impact.frequency.max(posting.frequency);
    }
    // An impact with a larger frequency and no longer chunk bounds this one, too.
    let mut shortest = u32::MAX;
    let mut kept = Vec::with_capacity(CLASSES);
    for impact in impacts.iter().rev() {
        if impact.frequency > 0 && (kept.is_empty() || impact.length < shortest) {
            shortest = impact.length;
            kept.push(impact);
        }
    }
    write_varint(kept.len() as u64, out);
    for impact in kept {
        write_varint(u64::from(impact.frequency), out);
        write_varint(u64::from(impact.length), out);
    }
    Ok(())
}

/// Reads what [`write_impacts`] wrote.
pub(crate) fn read_impacts(reader: &mut ByteReader<'_>) -> Read<Box<[Impact]>> {
    let count = reader.varint_usize()?;
    if count == 0 || count > CLASSES {
        return Err("a posting list has no impacts or too many");
    }
    let impacts = (0..count).map(|_| {
        Ok(Impact {
            frequency: reader.varint_u32()?,
            length: reader.varint_u32()?,
        })
    });
    impacts.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ByteReader, CLASSES, Posting, read_impacts, write_impacts};

    proptest! {
        #[test]
        fn each_posting_is_bounded(parts in prop::collection::vec((prop_oneof![1_u32..12, any::<u32>()], any::<u32>()), 1..200)) {
            let postings = (0..).zip(&parts).map(|(ordinal, (frequency, _))| Posting { ordinal, frequency: (*frequency).max(1) });
            let postings: Vec<_> = postings.collect();
            let lengths: Vec<_> = parts.iter().map(|(_, length)| *length).collect();
            let mut bytes = Vec::new();
            prop_assert!(write_impacts(&postings, &lengths, &mut bytes).is_ok());
            let mut reader = ByteReader::new(&bytes);
            let impacts = read_impacts(&mut reader).map_err(TestCaseError::fail)?;
            prop_assert!(reader.end().is_ok() && impacts.len() <= CLASSES);
            for (posting, length) in postings.iter().zip(&lengths) {
                prop_assert!(impacts.iter().any(|impact| impact.frequency >= posting.frequency && impact.length <= *length));
            }
            for cut in 0..bytes.len() {
                prop_assert!(read_impacts(&mut ByteReader::new(&bytes[..cut])).is_err());
            }
        }
    }
}
