//! Numbers for words: the hot path of building, where most words have come before.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// A number for each of many byte strings.
#[derive(Default)]
pub(crate) struct Dictionary {
    /// Words of up to 16 bytes: compared without a look at their bytes.
    short: HashTable<(Short, u32)>,
    long: HashTable<Long>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Long {
    start: u32,
    end: u32,
    number: u32,
}

/// The first and the last bytes of a word, which may overlap, and its length: different for different words.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Short {
    first: u64,
    last: u64,
    length: u32,
}

impl Short {
    #[inline]
    fn new(word: &[u8]) -> Option<Self> {
        let (first, last) = match word.len() {
            8..=16 => (
                u64::from_le_bytes(*word.first_chunk()?),
                u64::from_le_bytes(*word.last_chunk()?),
            ),
            4..8 => {
                let (first, last) = (word.first_chunk()?, word.last_chunk()?);
                (
                    u64::from(u32::from_le_bytes(*first)),
                    u64::from(u32::from_le_bytes(*last)),
                )
            }
            2..4 => {
                let (first, last) = (word.first_chunk()?, word.last_chunk()?);
                (
                    u64::from(u16::from_le_bytes(*first)),
                    u64::from(u16::from_le_bytes(*last)),
                )
            }
            0..2 => (word.first().copied().map_or(0, u64::from), 0),
            _ => return None,
        };
        Some(Self {
            first,
            last,
            length: u32::try_from(word.len()).ok()?,
        })
    }
}

impl Dictionary {
    /// The number of a word.
    #[inline]
    pub(crate) fn find(&self, word: &[u8]) -> Option<u32> {
        if let Some(short) = Short::new(word) {
            let found = self
                .short
                .find(FxBuildHasher.hash_one(short), |(other, _)| *other == short);
            return found.map(|(_, number)| *number);
        }
        let same = |entry: &Long| self.bytes(entry.start, entry.end) == word;
        self.long
            .find(FxBuildHasher.hash_one(word), same)
            .map(|entry| entry.number)
    }

    /// Adds a word that is not there yet; gives its place for [`Self::bytes`], or nothing when there is no room.
    pub(crate) fn insert(&mut self, word: &[u8], number: u32) -> Option<(u32, u32)> {
        let start = u32::try_from(self.bytes.len()).ok()?;
        let end = u32::try_from(self.bytes.len() + word.len()).ok()?;
        self.bytes.extend_from_slice(word);
        if let Some(short) = Short::new(word) {
            let hash = |(short, _): &(Short, u32)| FxBuildHasher.hash_one(short);
            self.short
                .insert_unique(FxBuildHasher.hash_one(short), (short, number), hash);
        } else {
            let entry = Long { start, end, number };
            self.long
                .insert_unique(FxBuildHasher.hash_one(word), entry, |entry| {
                    FxBuildHasher.hash_one(stored(&self.bytes, entry.start, entry.end))
                });
        }
        Some((start, end))
    }

    /// The word at a place.
    pub(crate) fn bytes(&self, start: u32, end: u32) -> &[u8] {
        stored(&self.bytes, start, end)
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len()
            + self.short.capacity() * size_of::<(Short, u32)>()
            + self.long.capacity() * size_of::<Long>()
    }
}

fn stored(bytes: &[u8], start: u32, end: u32) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}
