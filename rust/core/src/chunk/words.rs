//! Words as Unicode defines them: the token counter where no model brings one.

use unicode_segmentation::UnicodeSegmentation;

use super::offsets::OffsetConverter;

/// Start and end, in characters, of every word that holds a letter or a digit (Unicode Standard Annex 29, section 4).
/// Han characters, kana and scripts without spaces count about a word per character.
#[must_use]
pub fn word_offsets(text: &str) -> Vec<(usize, usize)> {
    let mut cursor = OffsetConverter::new(text);
    text.unicode_word_indices()
        .filter_map(|(start, word)| {
            let first = cursor.character(start)?;
            Some((first, cursor.character(start + word.len())?))
        })
        .collect()
}
