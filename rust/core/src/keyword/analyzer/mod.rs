//! Cuts text into terms, documents and queries alike.
//!
//! [`tokens`] finds tokens, [`token_terms`] makes terms of them, [`folding`] folds, [`language`] holds stemmers and stop
//! words, [`compounds`] splits compound words, [`classes`] rules out what a text does not hold, and [`stems`] caches
//! stems. A change of any term of any text needs another [`ANALYZER_VERSION`].

mod characters;
mod classes;
mod compounds;
#[cfg(test)]
mod fingerprint;
mod folding;
mod language;
mod matching;
mod query;
mod stems;
mod token_terms;
mod tokens;

use std::collections::HashSet;
use std::fmt;

use frostem::Stemmer;

use super::TermSource;
use crate::hashing::WordState;
use characters::CharacterKinds;
use folding::{fold, fold_onto, with_accents};
pub use language::{LANGUAGES, UnknownLanguage, language_named};
pub use query::{ParsedQuery, QueryTerms, parse_query};
pub use token_terms::{MAX_TERM_BYTES, TYPED_BIT};
pub use tokens::MAX_TOKEN_BYTES;

/// Goes up with every change of the terms of any text, the versions of stemmers and of stop words included.
pub const ANALYZER_VERSION: u32 = 2;

/// SHA-256 over all that terms depend on: stemmers, stop words, and the Unicode tables of our crates and of the compiler.
/// With another hash, this build does not find what another build indexed: then the version goes up, too.
#[cfg(test)]
const FINGERPRINT: &str = "bf0313576699d5f140611bf4894e1eb04269359e8888d3943c48b551cd74e7cf";

const APOSTROPHES: [char; 5] = ['\'', '\u{2019}', '\u{2BC}', '\u{2BB}', '\u{FF07}'];

/// Makes terms of text in one language.
#[derive(Clone)]
pub struct Analyzer {
    language: &'static language::Language,
    /// Number of the language, for caches of several languages.
    number: u8,
    stemmer: Option<Stemmer>,
    stop_words: HashSet<String, WordState>,
    characters: &'static CharacterKinds,
}

/// Why there is no analyzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalyzerError {
    /// No such language.
    Language(UnknownLanguage),
    /// The tables of Unicode are missing: a defect of the build.
    Tables,
}

impl fmt::Display for AnalyzerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Language(unknown) => unknown.fmt(formatter),
            Self::Tables => {
                formatter.write_str("analyzer: the Unicode tables are missing from this build")
            }
        }
    }
}

impl std::error::Error for AnalyzerError {}

impl Analyzer {
    /// The analyzer of a language, by name or ISO 639-1 code.
    ///
    /// # Errors
    ///
    /// The language is unknown; the message lists what there is.
    pub fn new(language: &str, stop_words: bool) -> Result<Self, AnalyzerError> {
        let language = language::find(language).map_err(AnalyzerError::Language)?;
        let characters = CharacterKinds::shared().ok_or(AnalyzerError::Tables)?;
        let stop_words = if stop_words {
            // An apostrophe at the end of a word is not in its token.
            language
                .stop_words(|word| with_apostrophes(word.trim_end_matches(APOSTROPHES), characters))
        } else {
            HashSet::default()
        };
        Ok(Self {
            language,
            number: language.number().ok_or(AnalyzerError::Tables)?,
            stemmer: language.stemmer(),
            stop_words,
            characters,
        })
    }

    /// The name of its language.
    #[must_use]
    pub fn language(&self) -> &'static str {
        self.language.name
    }

    /// All terms of a text, in order.
    pub fn text_terms(&self, text: &str, mut term: impl FnMut(&str)) {
        self.tokens(text, |token| self.terms(token, &mut term));
    }

    fn is_stop_word(&self, word: &str) -> bool {
        !self.stop_words.is_empty() && self.stop_words.contains(word)
    }

    /// Makes a folded word, which stands at the end from `start` on, its stem; a word with a number has none.
    fn stem(&self, letters: &mut String, start: usize) {
        let (_, folded) = letters.split_at(start);
        let Some(stemmer) = self.stemmer else {
            return;
        };
        let has_number = if folded.is_ascii() {
            folded.bytes().any(|byte| byte.is_ascii_digit())
        } else {
            folded.contains(char::is_numeric)
        };
        if has_number {
            return;
        }
        stems::remembered(letters, start, self.number, |folded| {
            let stem = stemmer.stem(folded);
            if stem.is_empty() {
                None
            } else if stem.is_ascii() {
                (*stem != *folded).then(|| stem.into_owned())
            } else {
                // Some stemmers write letters that folding takes away.
                Some(fold(&stem, self.characters))
            }
        });
    }

    /// Appends the stem of a word with its accents, or nothing if the word or its stem has no accents.
    fn stem_with_accents(&self, letters: &mut String, written: &str) {
        let start = letters.len();
        with_accents(letters, written, self.characters);
        let (_, accented) = letters.split_at(start);
        if let Some(stemmer) = self.stemmer.filter(|_| !accented.is_empty())
            && !accented.contains(char::is_numeric)
        {
            let stem = stemmer.stem(accented).into_owned();
            letters.truncate(start);
            if fold(&stem, self.characters) != stem {
                letters.push_str(&stem);
            }
        }
    }

    /// Whether the stemmer looks for the zero-width non-joiner of the word.
    fn keeps_non_joiner(&self, written: &str) -> bool {
        self.language.name == "persian" && written.contains('\u{200C}')
    }
}

/// The folded word with its apostrophes, which distinguish `we'll` from `well`.
fn with_apostrophes(word: &str, characters: &CharacterKinds) -> String {
    let mut folded = String::with_capacity(word.len());
    for (number, part) in word.split(APOSTROPHES).enumerate() {
        if number > 0 {
            folded.push('\'');
        }
        fold_onto(&mut folded, part, characters, false);
    }
    folded
}
