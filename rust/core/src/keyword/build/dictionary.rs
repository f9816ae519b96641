//! Numbers for words: the hot path of building, where most words have come before.

use std::hash::BuildHasher;

use hashbrown::HashTable;

use crate::hashing::WordState;
use crate::short_string::{Seed, ShortString, process_seed};

/// Stands for a word that was not found; no word has this number.
pub(crate) const NOT_FOUND: u32 = u32::MAX;

/// Minimum number of places of a table that is not empty.
const MIN_PLACES: usize = 256;

/// A number for each of many byte strings.
pub(crate) struct Dictionary {
    /// Random, so that writers of texts cannot choose words that collide.
    seed: Seed,
    state: WordState,
    /// Short words: open addressing, places a power of two, at most half of them taken. One look at memory finds one.
    short: Vec<(ShortString, u32)>,
    shorts: usize,
    long: HashTable<Long>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Long {
    start: u32,
    end: u32,
    number: u32,
    hash: u64,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            seed: process_seed(),
            state: WordState::default(),
            short: Vec::new(),
            shorts: 0,
            long: HashTable::default(),
            bytes: Vec::new(),
        }
    }
}

impl Dictionary {
    /// The number of a word.
    pub(crate) fn find(&self, word: &[u8]) -> Option<u32> {
        match ShortString::new(word) {
            Some(short) => self.find_short(short),
            None => self.find_long(word),
        }
    }

    /// The number of the word from `start` to `end` of a text, or [`NOT_FOUND`] where it does not stand at its first place.
    ///
    /// Nothing that follows in the caller has to wait for memory, so that it can ask for several words at once.
    #[inline]
    pub(crate) fn glance(&self, text: &[u8], start: usize, end: usize) -> u32 {
        let Some(short) = ShortString::inside(text, start, end) else {
            return NOT_FOUND;
        };
        let place = short.place(self.seed, self.short.len());
        match self.short.get(place) {
            Some((found, number)) => {
                std::hint::select_unpredictable(found.equals(short), *number, NOT_FOUND)
            }
            None => NOT_FOUND,
        }
    }

    fn find_short(&self, short: ShortString) -> Option<u32> {
        let mask = self.short.len().wrapping_sub(1);
        let mut place = short.place(self.seed, self.short.len());
        loop {
            let (found, number) = self.short.get(place)?;
            if *found == short {
                return Some(*number);
            }
            if *found == ShortString::default() {
                return None;
            }
            place = (place + 1) & mask;
        }
    }

    fn find_long(&self, word: &[u8]) -> Option<u32> {
        let hash = self.state.hash_one(word);
        let same =
            |entry: &Long| entry.hash == hash && self.bytes(entry.start, entry.end) == Some(word);
        self.long.find(hash, same).map(|entry| entry.number)
    }

    /// Adds a word that is not there yet; gives its place for [`Self::bytes`], or `None` if there is no room.
    pub(crate) fn insert(&mut self, word: &[u8], number: u32) -> Option<(u32, u32)> {
        let start = u32::try_from(self.bytes.len()).ok()?;
        let end = u32::try_from(self.bytes.len() + word.len()).ok()?;
        self.bytes.extend_from_slice(word);
        if let Some(short) = ShortString::new(word) {
            if self.shorts * 2 >= self.short.len() {
                self.grow();
            }
            self.shorts += 1;
            put(&mut self.short, self.seed, (short, number));
        } else {
            let hash = self.state.hash_one(word);
            let entry = Long {
                start,
                end,
                number,
                hash,
            };
            self.long.insert_unique(hash, entry, |entry| entry.hash);
        }
        Some((start, end))
    }

    fn grow(&mut self) {
        let places = (self.short.len() * 2).max(MIN_PLACES);
        let before = std::mem::replace(&mut self.short, vec![Default::default(); places]);
        for entry in before {
            if entry.0 != ShortString::default() {
                put(&mut self.short, self.seed, entry);
            }
        }
    }

    /// The word at a place that was given when it was added.
    pub(crate) fn bytes(&self, start: u32, end: u32) -> Option<&[u8]> {
        self.bytes.get(start as usize..end as usize)
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.short.capacity() * size_of::<(ShortString, u32)>()
            + self.long.capacity() * size_of::<Long>()
    }
}

/// Writes an entry to the first free place; there is one.
fn put(table: &mut [(ShortString, u32)], seed: Seed, entry: (ShortString, u32)) {
    let mask = table.len().wrapping_sub(1);
    let mut place = entry.0.place(seed, table.len());
    while let Some(found) = table.get_mut(place) {
        if found.0 == ShortString::default() {
            *found = entry;
            return;
        }
        place = (place + 1) & mask;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test fails by panicking

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Dictionary, NOT_FOUND};

    proptest! {
        #[test]
        fn numbers_are_those_of_a_map(words in prop::collection::vec("[ab\\x00]{0,20}|[a-z]{1,4}", 0..600)) {
            let (mut dictionary, mut map) = (Dictionary::default(), HashMap::new());
            for (number, word) in (0..).zip(&words) {
                let known = map.get(word).copied();
                prop_assert_eq!(dictionary.find(word.as_bytes()), known);
                if known.is_none() {
                    let (start, end) = dictionary.insert(word.as_bytes(), number).unwrap();
                    prop_assert_eq!(dictionary.bytes(start, end), Some(word.as_bytes()));
                    map.insert(word, number);
                }
            }
            let text = words.concat();
            let mut start = 0;
            for word in &words {
                let end = start + word.len();
                let found = dictionary.glance(text.as_bytes(), start, end);
                prop_assert!(found == NOT_FOUND || map.get(word) == Some(&found));
                start = end;
            }
        }

        /// A table without collisions: what is short, and has 16 bytes of text from its beginning on, is seen.
        #[test]
        fn a_glance_sees_short_words(word in "[a-z]{1,20}", behind in "[a-z ]{0,20}") {
            let mut dictionary = Dictionary::default();
            dictionary.insert(word.as_bytes(), 7).unwrap();
            let text = format!("{word}{behind}");
            let seen = dictionary.glance(text.as_bytes(), 0, word.len()) == 7;
            prop_assert_eq!(seen, word.len() <= 15 && text.len() >= 16);
        }
    }
}
