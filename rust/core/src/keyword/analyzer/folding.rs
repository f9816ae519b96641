//! One form for the ways of writing a word: case, accents, widths, ligatures, digits, points of vowels.
//!
//! Compatibility decomposition (NFKD), lower case, then per script:
//!
//! - Latin, Greek, Armenian, Georgian, Hebrew, Syriac: all marks are dropped, so `é` is `e` and Hebrew loses its
//!   points.
//! - Cyrillic: marks are dropped (`ё` is `е`, signs of stress go), but `й`, `ў` and `ї` are letters of their own.
//! - Arabic: vowel points, tatweel and the hamza over or under alef go; alef maksura and the Persian yeh become yeh,
//!   the Persian kaf becomes kaf; `ؤ` and `ئ` stay.
//! - All others (Indic scripts, Thai, kana, Hangul …): marks are letters and stay.
//!
//! Letters without a decomposition that people type as others: `ß` ss, `æ` ae, `œ` oe, `þ` th, `ø` o, `đ` and `ð` d,
//! `ł` l, `ı` i, `ħ` h, `ŧ` t, `ŋ` n, `ĸ` k, `ς` σ. Digits of all scripts become ASCII. What is left is composed (NFC).

use unicode_normalization_alignments::UnicodeNormalization;

use super::characters::{CharacterKind, CharacterKinds};

const ZERO_WIDTH_NON_JOINER: char = '\u{200C}';

/// Appends the folded form of a part of a word to `folded`; what is neither letter, number nor mark is left out.
///
/// `keeps_non_joiner`: the Persian stemmer looks for the zero-width non-joiner.
pub(super) fn fold_onto(
    folded: &mut String,
    text: &str,
    characters: &CharacterKinds,
    keeps_non_joiner: bool,
) {
    if text.is_ascii() {
        let start = folded.len();
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            folded.push_str(text);
        } else {
            folded.extend(text.chars().filter(char::is_ascii_alphanumeric));
        }
        folded.split_at_mut(start).1.make_ascii_lowercase();
        return;
    }
    let mut kept = String::with_capacity(text.len());
    let mut base = '\0';
    let lower = text
        .nfkd()
        .flat_map(|(character, _)| character.to_lowercase());
    for character in lower {
        match characters.kind(character) {
            CharacterKind::Mark => {
                if keeps_mark(base, character, characters) {
                    kept.push(character);
                }
            }
            CharacterKind::Format => {
                if keeps_non_joiner && character == ZERO_WIDTH_NON_JOINER {
                    kept.push(character);
                }
            }
            CharacterKind::Break | CharacterKind::Joiner => {
                // A fraction such as ½ decomposes with a slash of its own.
                if character == '\u{2044}' {
                    kept.push('/');
                }
            }
            _ => {
                base = plain(characters.ascii_digit(character), &mut kept);
            }
        }
    }
    folded.extend(kept.nfc().map(|(character, _)| character));
}

/// The folded form of a part of a word.
pub(super) fn fold(text: &str, characters: &CharacterKinds) -> String {
    let mut folded = String::with_capacity(text.len());
    fold_onto(&mut folded, text, characters, false);
    folded
}

/// Appends the word in lower case with its accents, or nothing if it has none: what folding drops is kept, but for the
/// final sigma and tatweel, which are no letters of their own.
pub(super) fn with_accents(kept: &mut String, text: &str, characters: &CharacterKinds) {
    if text.is_ascii() {
        return;
    }
    let start = kept.len();
    let mut accented = String::with_capacity(text.len());
    let lower = text
        .nfkd()
        .flat_map(|(character, _)| character.to_lowercase());
    for character in lower {
        match characters.kind(character) {
            CharacterKind::Format | CharacterKind::Break | CharacterKind::Joiner => {}
            CharacterKind::Mark => accented.push(character),
            _ => match characters.ascii_digit(character) {
                'ς' => accented.push('σ'),
                '\u{640}' => {}
                letter => accented.push(letter),
            },
        }
    }
    kept.extend(accented.nfc().map(|(character, _)| character));
    let (_, added) = kept.split_at(start);
    if fold(added, characters) == added {
        kept.truncate(start);
    }
}

fn keeps_mark(base: char, mark: char, characters: &CharacterKinds) -> bool {
    match (base, mark) {
        // й, ў, ї, ؤ, ئ
        ('и' | 'у', '\u{306}') | ('і', '\u{308}') | ('و' | 'ي', '\u{654}') => true,
        _ => !matches!(
            characters.kind(base),
            CharacterKind::Accented | CharacterKind::Break
        ),
    }
}

/// Appends a lower-case letter as it is typed without its peculiarities, and says what marks behind it refer to.
fn plain(letter: char, kept: &mut String) -> char {
    let plain = match letter {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'þ' => "th",
        'ø' => "o",
        'đ' | 'ð' => "d",
        'ł' => "l",
        'ı' => "i",
        'ħ' => "h",
        'ŧ' => "t",
        'ŋ' => "n",
        'ĸ' => "k",
        'ς' => "σ",
        '\u{640}' => "",                    // tatweel only stretches
        '\u{649}' | '\u{6CC}' => "\u{64A}", // alef maksura, Persian yeh: yeh
        '\u{6A9}' => "\u{643}",             // Persian kaf: kaf
        _ => {
            kept.push(letter);
            return letter;
        }
    };
    kept.push_str(plain);
    // Tatweel folds to nothing.
    plain.chars().next_back().unwrap_or(letter)
}
