//! Stems that were asked for lately: most words of most texts are few, and stemming is what costs most.

use std::cell::RefCell;

use crate::hashing::{FIXED_SEED, halves, table_hash};

/// Longest word that is remembered, and longest stem.
const LONGEST: usize = 14;

/// Each has one place in which it may stand; 1 MiB a thread that analyses.
const PLACES: u64 = 1 << 15;

thread_local! {
    static STEMS: RefCell<Vec<(Word, Word)>> = const { RefCell::new(Vec::new()) };
}

/// A short word, its length and its language; the default is none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word(u128);

impl Word {
    fn new(word: &str, language: u8) -> Option<Self> {
        if word.is_empty() || word.len() > LONGEST {
            return None;
        }
        let mut bytes = [0; 16];
        let [text @ .., length, tag] = &mut bytes;
        text.get_mut(..word.len())?.copy_from_slice(word.as_bytes());
        *length = u8::try_from(word.len()).ok()?;
        *tag = language;
        Some(Self(u128::from_le_bytes(bytes)))
    }

    /// Takes the place of what stands in `letters` from `start` on.
    fn write(self, letters: &mut String, start: usize) {
        let bytes = self.0.to_le_bytes();
        let [word @ .., length, _] = &bytes;
        let word = word.get(..usize::from(*length));
        letters.truncate(start);
        letters.push_str(
            word.and_then(|it| str::from_utf8(it).ok())
                .unwrap_or_default(),
        );
    }

    /// Where it may stand.
    fn place(self) -> usize {
        usize::try_from(table_hash(halves(self.0), FIXED_SEED) % PLACES).unwrap_or(0)
    }
}

/// Makes the word at the end of `letters`, from `start` on, its stem. That is looked for among those of this thread
/// before it is asked for; `stem` gives nothing where it is the word itself.
pub(super) fn remembered(
    letters: &mut String,
    start: usize,
    language: u8,
    stem: impl FnOnce(&str) -> Option<String>,
) {
    let word = letters.get(start..).unwrap_or_default();
    let key = Word::new(word, language);
    if let Some(key) = key {
        let known = STEMS.with_borrow(|stems| stems.get(key.place()).copied());
        if let Some((known, stem)) = known
            && known == key
        {
            if stem != key {
                stem.write(letters, start);
            }
            return;
        }
    }
    if let Some(stem) = stem(word) {
        letters.truncate(start);
        letters.push_str(&stem);
    }
    let stem = letters.get(start..).unwrap_or_default();
    if let (Some(key), Some(value)) = (key, Word::new(stem, language)) {
        STEMS.with_borrow_mut(|stems| {
            if stems.is_empty() {
                *stems = vec![Default::default(); usize::try_from(PLACES).unwrap_or(0)];
            }
            if let Some(place) = stems.get_mut(key.place()) {
                *place = (key, value);
            }
        });
    }
}
