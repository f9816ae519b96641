//! A cache of stems: few words make up most texts, and stemming costs most.

use std::cell::RefCell;

use crate::short_string::{FIXED_SEED, ShortString};

/// Number of places; each word has one place. 1.25 MiB for each thread that analyses.
const PLACES: usize = 1 << 15;

thread_local! {
    static STEMS: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Default)]
struct Remembered {
    word: ShortString,
    stem: ShortString,
    language: u8,
}

/// Makes the word at the end of `letters`, from `start` on, its stem. That is looked for among those of this thread
/// before it is asked for; `stem` gives nothing where it is the word itself.
pub(super) fn remembered(
    letters: &mut String,
    start: usize,
    language: u8,
    stem: impl FnOnce(&str) -> Option<String>,
) {
    let (_, text) = letters.split_at(start);
    let word = ShortString::new(text.as_bytes());
    let seed = (FIXED_SEED.0 ^ u64::from(language), FIXED_SEED.1);
    let place = word.map(|word| word.place(seed, PLACES));
    if let (Some(word), Some(place)) = (word, place)
        && let Some(known) = STEMS.with_borrow(|stems| stems.get(place).copied())
        && known.word == word
        && known.language == language
    {
        if known.stem != word {
            let (bytes, length) = known.stem.bytes();
            let stem = bytes.get(..length).map(str::from_utf8);
            letters.truncate(start);
            // These bytes were a `str` when they were remembered.
            letters.push_str(stem.and_then(Result::ok).unwrap_or_default());
        }
        return;
    }
    if let Some(stem) = stem(text) {
        letters.truncate(start);
        letters.push_str(&stem);
    }
    let (_, stem) = letters.split_at(start);
    if let (Some(word), Some(place), Some(stem)) = (word, place, ShortString::new(stem.as_bytes()))
    {
        STEMS.with_borrow_mut(|stems| {
            if stems.is_empty() {
                *stems = vec![Remembered::default(); PLACES];
            }
            if let Some(room) = stems.get_mut(place) {
                *room = Remembered {
                    word,
                    stem,
                    language,
                };
            }
        });
    }
}
