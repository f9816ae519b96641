//! Analyzers, and texts for them.

use proptest::prelude::*;
use semlex_core::keyword::analyzer::{Analyzer, LANGUAGES};

pub fn analyzer(language: &str) -> Analyzer {
    Analyzer::new(language, true).expect("a language of the list")
}

pub fn terms(analyzer: &Analyzer, text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    analyzer.text_terms(text, |term| terms.push(term.to_owned()));
    terms
}

/// Texts as hostile as they come, with what the rules look at in unusual numbers.
pub fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9._/@:,'#+_-]{0,12}",
        "[a-cA-C]{1,9}",
        "[À-ÿß-żЀ-ӿΆ-ώא-תء-ي]{1,8}",
        "[\u{300}-\u{308}\u{5b0}-\u{5b9}\u{64b}-\u{655}\u{3099}\u{200b}-\u{200f}\u{ad}\u{fe0f}\u{fffd}]{1,3}",
        "[一-丁手机的、。ぁ-んァ-ンｦ-ﾟー々]{1,6}",
        "[ก-๛ກ-ໝក-៹က-႟]{1,6}",
        "[가-힣ᄀ-ᇿ]{1,4}",
        "[ऀ-ॿ஀-௿]{1,6}",
        "[-\"“”„«»’*\\[\\](){}|`~<>…–—!?]{1,4}",
        any::<String>(),
    ];
    let gap = prop_oneof![3 => Just(""), 2 => Just(" "), 1 => Just("\n")];
    prop::collection::vec((piece, gap), 0..12)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, gap)| piece + gap).collect())
}

pub fn language() -> impl Strategy<Value = &'static str> {
    prop::sample::select(LANGUAGES.to_vec())
}
