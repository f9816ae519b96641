//! Words as Unicode defines them: the token counter where no model brings one.

use unicode_segmentation::UnicodeSegmentation;

use super::offsets::OffsetConverter;

/// Start and end, in characters, of every word that holds a letter or a digit (Unicode Standard Annex 29, section 4).
/// Han characters, kana and scripts without spaces count about a word per character.
#[must_use]
pub fn word_offsets(text: &str) -> Vec<(usize, usize)> {
    let mut words = word_ranges(text);
    if !text.is_ascii() {
        let mut cursor = OffsetConverter::new(text);
        for (start, end) in &mut words {
            // Both are boundaries, and ascend.
            *start = cursor.character(*start).unwrap_or(*start);
            *end = cursor.character(*end).unwrap_or(*end);
        }
    }
    words
}

/// Start and end, in bytes, of the same words.
#[must_use]
pub fn word_ranges(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::with_capacity(text.len() / 6);
    each_word(text, |start, end| words.push((start, end)));
    words
}

/// The number of words in [`word_ranges`].
#[must_use]
pub fn count_words(text: &str) -> usize {
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| {
            if line.is_ascii() && !line.as_bytes().contains(&b'_') {
                return count_plain_words(line.as_bytes());
            }
            let mut count = 0;
            each_word(line, |_, _| count += 1);
            count
        })
        .sum()
}

/// The number of words in ASCII without underscores. A word begins at a letter or digit that follows neither another one
/// nor a mark that joins. Without branches the compiler takes many bytes at a time.
fn count_plain_words(text: &[u8]) -> usize {
    let starts = |before: u8, mark: u8, byte: u8| {
        let (alphabetic, digit) = (byte.is_ascii_alphabetic(), byte.is_ascii_digit());
        let both = (mark == b'.') | (mark == b'\'');
        let joins_letters = (both | (mark == b':')) & before.is_ascii_alphabetic() & alphabetic;
        let joins_digits =
            (both | (mark == b',') | (mark == b';')) & before.is_ascii_digit() & digit;
        (alphabetic | digit) & !(mark.is_ascii_alphanumeric() | joins_letters | joins_digits)
    };
    let first = text.first().is_some_and(u8::is_ascii_alphanumeric);
    let second = matches!(*text, [mark, byte, ..] if starts(b' ', mark, byte));
    let (marks, bytes) = (
        text.get(1..).unwrap_or_default(),
        text.get(2..).unwrap_or_default(),
    );
    let blocks = text
        .chunks(BLOCK)
        .zip(marks.chunks(BLOCK))
        .zip(bytes.chunks(BLOCK));
    let others = blocks.map(|((before, marks), bytes)| {
        let places = before.iter().zip(marks).zip(bytes);
        let found = places.map(|((before, mark), byte)| u8::from(starts(*before, *mark, *byte)));
        usize::from(found.fold(0, u8::wrapping_add))
    });
    usize::from(first) + usize::from(second) + others.sum::<usize>()
}

/// Bytes whose words are counted in one byte.
const BLOCK: usize = 128;

fn each_word(text: &str, mut found: impl FnMut(usize, usize)) {
    let mut start = 0;
    // Every line is a text of its own here: a word boundary stands before and after each line end (WB3a, WB3b).
    for line in text.split_inclusive('\n') {
        if line.is_ascii() {
            each_ascii_word(line.as_bytes(), |first, end| {
                found(start + first, start + end);
            });
        } else {
            for (at, word) in line.unicode_word_indices() {
                found(start + at, start + at + word.len());
            }
        }
        start += line.len();
    }
}

/// The same rules for ASCII, of which few are left: most texts are mostly that, and need a fifth of the time.
fn each_ascii_word(text: &[u8], mut found: impl FnMut(usize, usize)) {
    let mut place = 0;
    while let Some(first) = text.get(place) {
        let start = place;
        place += 1;
        if !is_word_byte(*first) {
            continue;
        }
        let mut counts = first.is_ascii_alphanumeric();
        while let Some(&next) = text.get(place) {
            if is_word_byte(next) {
                counts |= next.is_ascii_alphanumeric();
                place += 1;
            } else if joins(text, place) {
                place += 2;
            } else {
                break;
            }
        }
        if counts {
            found(start, place);
        }
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a mark stands between two letters or two digits that it joins: rules WB6, WB7, WB11 and WB12.
fn joins(text: &[u8], place: usize) -> bool {
    let (Some(mark), Some(before), Some(after)) = (
        text.get(place),
        place.checked_sub(1).and_then(|before| text.get(before)),
        text.get(place + 1),
    ) else {
        return false;
    };
    match mark {
        b':' => before.is_ascii_alphabetic() && after.is_ascii_alphabetic(),
        b',' | b';' => before.is_ascii_digit() && after.is_ascii_digit(),
        b'.' | b'\'' => {
            (before.is_ascii_alphabetic() && after.is_ascii_alphabetic())
                || (before.is_ascii_digit() && after.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    use super::{count_words, word_offsets, word_ranges};

    proptest! {
        #[test]
        fn ascii_words_are_those_of_unicode(text in "[ -~\n\t]{0,60}|[a-c1-3_.,:;' \"-]{0,40}") {
            let expected: Vec<_> = text.unicode_word_indices().map(|(start, word)| (start, start + word.len())).collect();
            prop_assert_eq!(count_words(&text), expected.len());
            prop_assert_eq!(word_offsets(&text), expected);
        }

        #[test]
        fn words_of_lines_are_those_of_the_text(text in "([a-c.' \n\r\u{301}\u{200d}é日ア🙂\u{85}]|\r\n){0,40}") {
            let expected: Vec<_> = text.unicode_word_indices().map(|(start, word)| (start, start + word.len())).collect();
            prop_assert_eq!(count_words(&text), expected.len());
            prop_assert_eq!(word_ranges(&text), expected);
        }
    }
}
