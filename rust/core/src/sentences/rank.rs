//! Which sentences of the passages that were found answer a question.
//!
//! A sentence is worth the question's words that it holds, each by its idf over all sentences that are compared; then,
//! for less, those that stand beside it, above it in the titles, and elsewhere in its passage. An answer often stands one
//! sentence behind the words of its question. Words that stand near each other count for more, later passages and very
//! long or short sentences for less.

use std::ops::Range;

use super::split::{Kind, Sentence, sentences};
use crate::hashing::WordMap;
use crate::keyword::TermSource;
use crate::keyword::analyzer::Analyzer;

/// A passage to look into.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'t> {
    /// Its text.
    pub text: &'t str,
    /// What stands above it.
    pub headings: &'t str,
}

/// A sentence with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Number of its passage.
    pub passage: usize,
    /// Bytes of the passage's text.
    pub range: Range<usize>,
    /// What it is made of.
    pub kind: Kind,
    /// From 0; comparable within one question.
    pub score: f64,
    /// Share of the question's weight whose words it holds itself, 0 to 1.
    pub own: f64,
}

/// Shares of the weight of a word that does not stand in the sentence itself, but ...
const BEHIND: f64 = 1.0; // in the one before: the sentence follows what the question names
const BEFORE: f64 = 0.3; // in the one after it
const ABOVE: f64 = 0.35; // in the titles
const AROUND: f64 = 0.15; // anywhere in the passage
/// A word at most this many terms after another word of the question counts for `NEAR` more.
const NEAR_TERMS: usize = 6;
const NEAR: f64 = 0.25;
/// By how much each passage counts for less than the one before.
const LATER: f64 = 0.12;
/// Terms of a sentence of usual length; more words hold more of the question's by chance, and fewer say little. Stop
/// words are none.
const LONG: f64 = 40.0;
const SHORT: usize = 4;
const SHORT_FACTOR: f64 = 0.6;
const HEADING_FACTOR: f64 = 0.2;
const CODE_FACTOR: f64 = 0.8;
/// Wanted terms that are told apart; those behind count as one.
const MAX_TERMS: usize = 128;

/// The words of the question that a text contains.
#[derive(Clone, Default)]
struct Held {
    terms: u128,
    /// Terms that stand near another one.
    near: u128,
    /// Number of terms of all words, wanted or not.
    length: usize,
}

/// Every sentence of the passages with its score, passage by passage.
///
/// The same arguments give the same scores, to the bit.
#[must_use]
pub fn rank(analyzer: &Analyzer, wanted: &[String], passages: &[Passage<'_>]) -> Vec<Ranked> {
    let numbers: WordMap<&str, u32> = wanted
        .iter()
        .zip((0_u32..).map(|number| number.min(127)))
        .map(|(term, number)| (term.as_str(), number))
        .collect();
    let mut looked = Looked {
        analyzer,
        numbers,
        known: WordMap::default(),
    };
    let parts: Vec<Part> = passages
        .iter()
        .map(|passage| looked.part(passage))
        .collect();
    let weights = weights(&parts, wanted.len().min(MAX_TERMS));
    let whole = weight(&weights, u128::MAX);
    let mut ranked = Vec::new();
    for ((number, part), later) in parts.into_iter().enumerate().zip(0_u32..) {
        let around = part.held.iter().fold(0, |terms, held| terms | held.terms);
        let factor = 1.0 / (1.0 + LATER * f64::from(later));
        for (place, (sentence, held)) in part.sentences.into_iter().zip(&part.held).enumerate() {
            let beside =
                |at: Option<usize>| at.and_then(|at| part.held.get(at)).map_or(0, |it| it.terms);
            let own = weight(&weights, held.terms);
            let mut score = own + NEAR * weight(&weights, held.near);
            let mut seen = held.terms;
            for (terms, share) in [
                (beside(place.checked_sub(1)), BEHIND),
                (beside(Some(place + 1)), BEFORE),
                (part.above, ABOVE),
                (around, AROUND),
            ] {
                score += share * weight(&weights, terms & !seen);
                seen |= terms;
            }
            ranked.push(Ranked {
                passage: number,
                range: sentence.range,
                kind: sentence.kind,
                score: score * factor * form(sentence.kind, held.length),
                own: if whole > 0.0 { own / whole } else { 0.0 },
            });
        }
    }
    ranked
}

/// The factor of a score for a sentence's form and length.
fn form(kind: Kind, length: usize) -> f64 {
    let by_kind = match kind {
        Kind::Prose => 1.0,
        Kind::Heading => HEADING_FACTOR,
        Kind::Code => CODE_FACTOR,
    };
    let terms = f64::from(u32::try_from(length).unwrap_or(u32::MAX));
    let by_length = if length < SHORT {
        SHORT_FACTOR
    } else {
        1.0 / (1.0 + (terms / LONG).ln().max(0.0))
    };
    by_kind * by_length
}

/// The weight of each term: its idf over all sentences; what stands in titles alone is as rare as what one sentence has.
fn weights(parts: &[Part], terms: usize) -> Vec<f64> {
    let held = || parts.iter().flat_map(|part| &part.held);
    let count = |number: usize| u32::try_from(number).map_or(f64::MAX, f64::from);
    let all = count(held().count());
    let of = |term: usize| {
        let with = held().filter(|it| it.terms >> term & 1 == 1).count();
        let is_above = parts.iter().any(|part| part.above >> term & 1 == 1);
        if with == 0 && !is_above {
            return 0.0;
        }
        let with = count(with.max(1));
        ((all - with + 0.5) / (with + 0.5)).ln_1p()
    };
    (0..terms).map(of).collect()
}

fn weight(weights: &[f64], terms: u128) -> f64 {
    let held = weights
        .iter()
        .enumerate()
        .filter(|(term, _)| terms >> term & 1 == 1);
    held.map(|(_, weight)| weight).sum()
}

/// A passage, looked at.
struct Part {
    sentences: Vec<Sentence>,
    held: Vec<Held>,
    above: u128,
}

struct Looked<'a> {
    analyzer: &'a Analyzer,
    numbers: WordMap<&'a str, u32>,
    /// By token: which of the wanted terms it stands for, and how many terms in all.
    known: WordMap<String, (u128, usize)>,
}

impl Looked<'_> {
    fn part(&mut self, passage: &Passage<'_>) -> Part {
        let sentences = sentences(passage.text);
        let texts = sentences
            .iter()
            .map(|it| passage.text.get(it.range.clone()).unwrap_or_default());
        let held = texts.map(|text| self.held(text)).collect();
        Part {
            sentences,
            held,
            above: self.held(passage.headings).terms,
        }
    }

    fn held(&mut self, text: &str) -> Held {
        let mut held = Held::default();
        let mut last: Option<(usize, u128)> = None;
        let analyzer = self.analyzer;
        analyzer.tokens(text, |token| {
            let (terms, count) = self.terms(token);
            held.length += count;
            if terms == 0 {
                return;
            }
            held.terms |= terms;
            if let Some((place, before)) = last
                && held.length - place <= NEAR_TERMS
                && before & terms == 0
            {
                held.near |= terms;
            }
            last = Some((held.length, terms));
        });
        held
    }

    fn terms(&mut self, token: &str) -> (u128, usize) {
        if let Some(known) = self.known.get(token) {
            return *known;
        }
        let (mut terms, mut count) = (0_u128, 0);
        self.analyzer.terms(token, |term| {
            count += 1;
            if let Some(number) = self.numbers.get(term) {
                terms |= 1 << number;
            }
        });
        self.known.insert(token.to_owned(), (terms, count));
        (terms, count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // a test fails by panicking

    use super::{Passage, Ranked, rank};
    use crate::keyword::analyzer::{Analyzer, parse_query};
    use proptest::prelude::*;

    fn ranked(question: &str, passages: &[&str]) -> Vec<Ranked> {
        let analyzer = Analyzer::new("english", true).expect("english");
        let terms = analyzer.query(&parse_query(question), 64).wanted;
        let wanted: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
        let passages: Vec<Passage<'_>> = passages
            .iter()
            .map(|text| Passage { text, headings: "" })
            .collect();
        rank(&analyzer, &wanted, &passages)
    }

    fn best<'t>(question: &str, passages: &[&'t str]) -> &'t str {
        let found = ranked(question, passages);
        let best = found
            .into_iter()
            .max_by(|a, b| a.score.total_cmp(&b.score))
            .expect("one");
        &passages[best.passage][best.range]
    }

    #[test]
    fn the_sentence_with_the_words_is_best() {
        let text =
            "Keys are stored in a vault. A key is rotated every ninety days. Bananas are yellow.";
        assert_eq!(
            best("how often are keys rotated?", &[text]),
            "A key is rotated every ninety days."
        );
    }

    #[test]
    fn what_follows_the_words_is_better_than_what_does_not() {
        let text = "Bananas are yellow fruits. How are keys rotated? They change every ninety days. Grass is green here.";
        let found = ranked("keys rotated", &[text]);
        assert!(found[2].score > found[0].score && found[2].score > found[3].score);
    }

    #[test]
    fn an_earlier_passage_wins_among_equals() {
        let found = ranked(
            "lion",
            &["A lion sleeps in grass.", "A lion sleeps in grass."],
        );
        assert!(found[0].score > found[1].score);
        assert_eq!(found[0].own, 1.0);
    }

    #[test]
    fn no_word_of_the_question_is_no_score() {
        assert!(
            ranked("zebra", &["A lion sleeps in grass."])
                .iter()
                .all(|it| it.score == 0.0)
        );
        assert!(
            ranked("", &["A lion sleeps."])
                .iter()
                .all(|it| it.own == 0.0)
        );
    }

    proptest! {
        #[test]
        fn scores_are_finite_and_the_same_again(
            question in "[a-d ]{0,20}", texts in proptest::collection::vec("([a-e]{1,3}[ .\n]{1,2}){0,20}", 0..5)
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let found = ranked(&question, &texts);
            prop_assert_eq!(&found, &ranked(&question, &texts));
            for one in found {
                prop_assert!(one.score.is_finite() && one.score >= 0.0 && (0.0..=1.0 + 1e-9).contains(&one.own));
                prop_assert!(texts[one.passage].is_char_boundary(one.range.start));
            }
        }
    }
}
