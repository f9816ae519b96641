//! Languages: their names, stemmers and stop words.

use std::collections::HashSet;
use std::fmt;

use frostem::{Algorithm, Stemmer};

use crate::hashing::WordState;

/// A language as it is written in a table of this file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Language {
    pub(super) name: &'static str,
    /// ISO 639-1 where there is one.
    codes: &'static [&'static str],
    stemmer: Option<Algorithm>,
    /// Code of its list of stop words; the lists are those of NLTK.
    ///
    /// The lists for Arabic, Basque, Chinese and Indonesian hold words that people search for, and are not used.
    stop_words: Option<&'static str>,
    pub(super) apostrophe: Apostrophe,
}

/// What an apostrophe between letters means. Everywhere a final `'s` is dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apostrophe {
    /// Part of a word (`O'Brien`): the word without it, and its parts of two letters or more.
    Letter,
    /// The end of an article or pronoun that lost its vowel (`l'homme`): two words.
    Elision,
    /// The beginning of a suffix (`Ankara'da`): what stands before it.
    Suffix,
}

use Apostrophe::{Elision, Letter, Suffix};

#[rustfmt::skip]
const TABLE: &[Language] = &[
    stemmed("arabic", &["ar"], Algorithm::Arabic, None, Letter),
    stemmed("armenian", &["hy"], Algorithm::Armenian, None, Letter),
    stemmed("basque", &["eu"], Algorithm::Basque, None, Letter),
    unstemmed("burmese", &["my"]),
    stemmed("catalan", &["ca"], Algorithm::Catalan, Some("ca"), Elision),
    unstemmed("chinese", &["zh"]),
    stemmed("czech", &["cs"], Algorithm::Czech, None, Letter),
    stemmed("danish", &["da"], Algorithm::Danish, Some("da"), Letter),
    stemmed("dutch", &["nl"], Algorithm::Dutch, Some("nl"), Letter),
    stemmed("english", &["en"], Algorithm::English, Some("en"), Letter),
    stemmed("esperanto", &["eo"], Algorithm::Esperanto, None, Elision),
    stemmed("estonian", &["et"], Algorithm::Estonian, None, Letter),
    stemmed("finnish", &["fi"], Algorithm::Finnish, Some("fi"), Letter),
    stemmed("french", &["fr"], Algorithm::French, Some("fr"), Elision),
    stemmed("german", &["de"], Algorithm::German, Some("de"), Letter),
    stemmed("greek", &["el"], Algorithm::Greek, Some("el"), Elision),
    stemmed("hindi", &["hi"], Algorithm::Hindi, None, Letter),
    stemmed("hungarian", &["hu"], Algorithm::Hungarian, Some("hu"), Letter),
    stemmed("indonesian", &["id"], Algorithm::Indonesian, None, Letter),
    stemmed("irish", &["ga"], Algorithm::Irish, None, Elision),
    stemmed("italian", &["it"], Algorithm::Italian, Some("it"), Elision),
    unstemmed("japanese", &["ja"]),
    unstemmed("khmer", &["km"]),
    unstemmed("korean", &["ko"]),
    unstemmed("lao", &["lo"]),
    stemmed("lithuanian", &["lt"], Algorithm::Lithuanian, None, Letter),
    stemmed("nepali", &["ne"], Algorithm::Nepali, Some("ne"), Letter),
    stemmed("norwegian", &["no", "nb", "nn"], Algorithm::Norwegian, Some("no"), Letter),
    stemmed("persian", &["fa"], Algorithm::Persian, None, Letter),
    stemmed("polish", &["pl"], Algorithm::Polish, None, Letter),
    stemmed("portuguese", &["pt"], Algorithm::Portuguese, Some("pt"), Elision),
    stemmed("romanian", &["ro"], Algorithm::Romanian, Some("ro"), Letter),
    stemmed("russian", &["ru"], Algorithm::Russian, Some("ru"), Letter),
    stemmed("serbian", &["sr"], Algorithm::Serbian, None, Letter),
    stemmed("sesotho", &["st"], Algorithm::Sesotho, None, Letter),
    unstemmed("simple", &[]),
    stemmed("spanish", &["es"], Algorithm::Spanish, Some("es"), Letter),
    stemmed("swedish", &["sv"], Algorithm::Swedish, Some("sv"), Letter),
    stemmed("tamil", &["ta"], Algorithm::Tamil, Some("ta"), Letter),
    unstemmed("thai", &["th"]),
    stemmed("turkish", &["tr"], Algorithm::Turkish, Some("tr"), Suffix),
    stemmed("ukrainian", &["uk"], Algorithm::Ukrainian, None, Letter),
    unstemmed("vietnamese", &["vi"]),
    stemmed("yiddish", &["yi"], Algorithm::Yiddish, None, Letter),
];

/// Names of all languages, in the order of the alphabet.
///
/// `simple` and the languages without a stemmer (Burmese, Chinese, Japanese, Khmer, Korean, Lao, Thai, Vietnamese) have
/// neither stems nor stop words; n-grams follow from the script, in every language.
#[allow(clippy::indexing_slicing, reason = "done by the compiler")]
pub static LANGUAGES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut place = 0;
    while place < names.len() {
        names[place] = TABLE[place].name;
        place += 1;
    }
    names
};

/// An unknown language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLanguage {
    /// The given name, cut to 40 characters.
    pub name: String,
}

impl fmt::Display for UnknownLanguage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, known) = (&self.name, LANGUAGES.join(", "));
        write!(
            formatter,
            "language: unknown {name:?}; known languages, also by their ISO 639-1 codes: {known}"
        )
    }
}

impl std::error::Error for UnknownLanguage {}

/// The name in [`LANGUAGES`] that a name or an ISO 639-1 code stands for, in any case.
///
/// # Errors
///
/// [`UnknownLanguage`], with the names that there are.
pub fn language_named(name: &str) -> Result<&'static str, UnknownLanguage> {
    find(name).map(|language| language.name)
}

pub(super) fn find(name: &str) -> Result<&'static Language, UnknownLanguage> {
    let lower = name.trim().to_lowercase();
    TABLE
        .iter()
        .find(|it| it.name == lower || it.codes.contains(&&*lower))
        .ok_or_else(|| UnknownLanguage {
            name: name.chars().take(40).collect(),
        })
}

impl Language {
    pub(super) fn stemmer(&self) -> Option<Stemmer> {
        self.stemmer.map(Stemmer::new)
    }

    /// Whether the stem of a word of `a` to `z` begins as the word does.
    pub(super) fn keeps_first_letter(&self) -> bool {
        use Algorithm::{
            Danish, English, French, German, Italian, Norwegian, Portuguese, Spanish, Swedish,
        };
        matches!(
            self.stemmer,
            None | Some(
                Danish
                    | English
                    | French
                    | German
                    | Italian
                    | Norwegian
                    | Portuguese
                    | Spanish
                    | Swedish
            )
        )
    }

    /// Its place in the table; there are fewer than 256.
    pub(super) fn number(&'static self) -> Option<u8> {
        let place = TABLE.iter().position(|it| std::ptr::eq(it, self))?;
        u8::try_from(place).ok()
    }

    /// The stop words as they are listed, each passed through `fold`.
    pub(super) fn stop_words(&self, fold: impl Fn(&str) -> String) -> HashSet<String, WordState> {
        let listed = self.stop_words.and_then(stop_words::lookup);
        let words = listed.into_iter().flatten();
        words.map(|word| fold(word)).collect()
    }
}

const fn stemmed(
    name: &'static str,
    codes: &'static [&'static str],
    stemmer: Algorithm,
    stop_words: Option<&'static str>,
    apostrophe: Apostrophe,
) -> Language {
    Language {
        name,
        codes,
        stemmer: Some(stemmer),
        stop_words,
        apostrophe,
    }
}

const fn unstemmed(name: &'static str, codes: &'static [&'static str]) -> Language {
    Language {
        name,
        codes,
        stemmer: None,
        stop_words: None,
        apostrophe: Letter,
    }
}
