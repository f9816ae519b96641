//! Codes that have fewer bits for more frequent symbols: D. A. Huffman, "A method for the construction of
//! minimum-redundancy codes" (1952), in canonical form, so that the code follows from the lengths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bits::{BitReader, BitWriter};
use crate::byte_table::ByteTable;
use crate::segments::sealed::{ByteReader, Read, write_varint};
use crate::segments::{SegmentError, impossible};

/// Bits of a symbol at most: a table of all that may follow is then small.
const MAX_BITS: usize = 12;

const SYMBOLS: usize = 256;

/// Distances and lengths of codes share a byte, with an escape for the distance.
const NIBBLE: u8 = 15;

/// How often each symbol occurs.
pub(crate) struct Counts(ByteTable<u64>);

impl Default for Counts {
    fn default() -> Self {
        Self(ByteTable([0; SYMBOLS]))
    }
}

impl Counts {
    #[inline]
    pub(crate) fn add(&mut self, symbol: u8) {
        *self.0.of_mut(symbol) += 1;
    }
}

/// A code for bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixCode {
    /// Bits of each symbol; 0 for one that has no code.
    lengths: ByteTable<u8>,
    /// The codes, their first bit lowest.
    codes: ByteTable<u16>,
    /// For the next bits: the symbol that they begin with, and the length of its code; 0 if they are not a code.
    meanings: Box<[(u8, u8)]>,
}

impl PrefixCode {
    /// The best code for symbols of these counts. Only those that occur have one.
    pub(crate) fn new(counts: &Counts) -> Self {
        let mut counts = counts.0.0;
        loop {
            let lengths = huffman(&counts);
            if lengths
                .0
                .iter()
                .all(|length| usize::from(*length) <= MAX_BITS)
                && let Some(code) = Self::canonical(lengths)
            {
                return code;
            }
            // Flatter, until it fits: with equal counts no symbol has more than 8 bits.
            for count in &mut counts {
                *count = count.div_ceil(2);
            }
        }
    }

    /// The code of these lengths; `None` if none exists.
    fn canonical(lengths: ByteTable<u8>) -> Option<Self> {
        let mut codes = [0; SYMBOLS];
        let mut meanings = vec![(0, 0); 1 << MAX_BITS];
        let mut next = 0_usize;
        for length in 1..=MAX_BITS {
            let own = (0..=u8::MAX).zip(lengths.0.iter().zip(&mut codes));
            for (symbol, (_, code)) in own.filter(|(_, (own, _))| usize::from(**own) == length) {
                if next >= 1 << length {
                    return None;
                }
                // Bits are read from the lowest on: so that of the highest weight stands there.
                let reversed = next.reverse_bits() >> (usize::BITS as usize - length);
                *code = u16::try_from(reversed).ok()?;
                let meaning = (symbol, u8::try_from(length).ok()?);
                for place in (reversed..1 << MAX_BITS).step_by(1 << length) {
                    *meanings.get_mut(place)? = meaning;
                }
                next += 1;
            }
            next <<= 1;
        }
        Some(Self {
            lengths,
            codes: ByteTable(codes),
            meanings: meanings.into(),
        })
    }

    /// Appends a symbol that occurred in the counts.
    #[inline]
    pub(crate) fn write(&self, symbol: u8, writer: &mut BitWriter) -> Result<(), SegmentError> {
        let length = *self.lengths.of(symbol);
        if length == 0 {
            return Err(impossible("a symbol has no code"));
        }
        writer.bits(u32::from(*self.codes.of(symbol)), u32::from(length));
        Ok(())
    }

    /// Reads a symbol.
    #[inline]
    pub(crate) fn read(&self, reader: &mut BitReader<'_>) -> Read<u8> {
        reader.symbol(|window| {
            let place = window & ((1 << MAX_BITS) - 1);
            let meaning = usize::try_from(place).ok();
            match meaning.and_then(|place| self.meanings.get(place)) {
                Some((symbol, length)) if *length > 0 => Ok((*symbol, *length)),
                _ => Err("bits match no symbol of the prefix code"),
            }
        })
    }

    /// Appends the code itself: the number of symbols, and of each its distance from the one before and its length.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let used = self.lengths.0.iter().filter(|length| **length > 0);
        write_varint(used.count() as u64, out);
        let (mut distance, mut more) = (0, 0);
        for length in &self.lengths.0 {
            match *length {
                0 if distance < NIBBLE => distance += 1,
                0 => more += 1,
                length => {
                    out.push(distance << 4 | length);
                    if distance == NIBBLE {
                        write_varint(more, out);
                    }
                    (distance, more) = (0, 0);
                }
            }
        }
    }

    /// Reads what [`Self::save`] wrote.
    pub(crate) fn load(reader: &mut ByteReader<'_>) -> Read<Self> {
        const WRONG: &str = "a prefix code has impossible lengths";
        let mut lengths = [0; SYMBOLS];
        let mut places = lengths.iter_mut();
        for _ in 0..reader.varint_usize()? {
            let byte = reader.byte()?;
            let mut distance = usize::from(byte >> 4);
            if byte >> 4 == NIBBLE {
                let more = reader.varint_usize()?;
                distance = distance.checked_add(more).ok_or(WRONG)?;
            }
            let place = places.nth(distance).ok_or(WRONG)?;
            *place = byte & NIBBLE;
            if *place == 0 || usize::from(*place) > MAX_BITS {
                return Err(WRONG);
            }
        }
        Self::canonical(ByteTable(lengths)).ok_or(WRONG)
    }
}

/// The codes of a segment's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermCodes {
    /// Bytes of terms, and what stands behind each.
    pub(crate) text: PrefixCode,
    /// How many bytes a term shares with the one before.
    pub(crate) shared: PrefixCode,
}

/// Lengths of the best codes: the two rarest are joined until one is left.
fn huffman(counts: &[u64; SYMBOLS]) -> ByteTable<u8> {
    let mut lengths = ByteTable([0; SYMBOLS]);
    let symbols = (0..=u8::MAX).zip(counts).filter(|(_, count)| **count > 0);
    let mut heap: BinaryHeap<_> = symbols
        .map(|(symbol, count)| Reverse((*count, vec![symbol])))
        .collect();
    if let (1, Some(Reverse((_, only)))) = (heap.len(), heap.peek()) {
        lengthen(&mut lengths, only);
    }
    while let (Some(Reverse((rarest, mut members))), Some(Reverse((rare, others)))) =
        (heap.pop(), heap.pop())
    {
        members.extend(others);
        lengthen(&mut lengths, &members);
        heap.push(Reverse((rarest.saturating_add(rare), members)));
    }
    lengths
}

fn lengthen(lengths: &mut ByteTable<u8>, members: &[u8]) {
    for symbol in members {
        let length = lengths.of_mut(*symbol);
        *length = length.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BitReader, BitWriter, ByteReader, Counts, MAX_BITS, PrefixCode};

    proptest! {
        #[test]
        fn symbols_come_back(text in prop::collection::vec(prop_oneof![any::<u8>(), 97_u8..104], 0..300), doublings in 0_u32..60) {
            let mut counts = Counts::default();
            text.iter().for_each(|symbol| counts.add(*symbol));
            // As uneven as can be: longer codes than there may be, if nothing were done about it.
            for (symbol, count) in (0..doublings).zip(counts.0.0.iter_mut().skip(97)) {
                *count += 1_u64 << symbol;
            }
            let code = PrefixCode::new(&counts);
            prop_assert!(code.lengths.0.iter().all(|length| usize::from(*length) <= MAX_BITS));
            let mut saved = Vec::new();
            code.save(&mut saved);
            let mut reader = ByteReader::new(&saved);
            prop_assert_eq!(PrefixCode::load(&mut reader), Ok(code.clone()));
            prop_assert!(reader.end().is_ok());
            let mut writer = BitWriter::default();
            prop_assert!(text.iter().all(|symbol| code.write(*symbol, &mut writer).is_ok()));
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            for symbol in &text {
                prop_assert_eq!(code.read(&mut reader), Ok(*symbol));
            }
            prop_assert_eq!(reader.end(), Ok(()));
        }

        #[test]
        fn any_bytes_are_a_code_or_an_error(saved in prop::collection::vec(any::<u8>(), 0..80), bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(code) = PrefixCode::load(&mut ByteReader::new(&saved)) {
                let mut reader = BitReader::new(&bytes);
                while code.read(&mut reader).is_ok() {}
            }
        }
    }
}
