//! Stems that were asked for lately: most words of most texts are few, and stemming is what costs most.

use std::cell::RefCell;

use crate::hashing::{halves, table_hash};

/// Longest word that is remembered, and longest stem.
const LONGEST: usize = 14;

/// Each has one place in which it may stand; 256 KiB a thread that analyses.
const PLACES: u64 = 1 << 13;

thread_local! {
    static STEMS: RefCell<Vec<(Word, Word)>> = const { RefCell::new(Vec::new()) };
}

/// A short word, its length and its language; the default is none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word(u128);

impl Word {
    fn new(word: &str, language: u8) -> Option<Self> {
        if word.is_empty() || word.len() > LONGEST || !word.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        let [text @ .., length, tag] = &mut bytes;
        text.get_mut(..word.len())?.copy_from_slice(word.as_bytes());
        *length = u8::try_from(word.len()).ok()?;
        *tag = language;
        Some(Self(u128::from_le_bytes(bytes)))
    }

    fn write(self, text: &mut String) {
        let bytes = self.0.to_le_bytes();
        let [letters @ .., length, _] = &bytes;
        let word = letters.get(..usize::from(*length));
        text.clear();
        text.push_str(
            word.and_then(|it| str::from_utf8(it).ok())
                .unwrap_or_default(),
        );
    }

    /// Where it may stand.
    fn place(self) -> usize {
        usize::try_from(table_hash(halves(self.0)) % PLACES).unwrap_or(0)
    }
}

/// Makes the word its stem, which is looked for among those of this thread before it is asked for.
pub(super) fn remembered(
    mut word: String,
    language: u8,
    stem: impl FnOnce(String) -> String,
) -> String {
    let Some(key) = Word::new(&word, language) else {
        return stem(word);
    };
    let known = STEMS.with_borrow(|stems| stems.get(key.place()).copied());
    if let Some((known, stem)) = known
        && known == key
    {
        stem.write(&mut word);
        return word;
    }
    let stem = stem(word);
    if let Some(value) = Word::new(&stem, language) {
        STEMS.with_borrow_mut(|stems| {
            if stems.is_empty() {
                *stems = vec![Default::default(); usize::try_from(PLACES).unwrap_or(0)];
            }
            if let Some(place) = stems.get_mut(key.place()) {
                *place = (key, value);
            }
        });
    }
    stem
}
