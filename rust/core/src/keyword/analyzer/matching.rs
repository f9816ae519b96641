//! Phrase matching, and the matched words of a text.

use std::ops::Range;

use super::characters::CharacterKind;
use super::token_terms::TokenTerms;
use super::tokens::scan;
use super::{Analyzer, TermSource};
use crate::hashing::{WordMap, WordSet};
use crate::keyword::between;

/// Maximum number of tokens that are remembered from text to text.
const MAX_KNOWN: usize = 1 << 16;

impl Analyzer {
    /// For each text, whether it holds every phrase and none that is excluded.
    ///
    /// Phrases are those of [`super::QueryTerms`]: terms that stand one after the other. Stop words take no position,
    /// neither in the text nor in the phrase; a word takes one, whichever of its terms is asked for; a whole (`e-mail`
    /// as `email`) takes the positions of its words. A phrase without terms is in every text.
    pub fn matches<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        phrases: &[Vec<String>],
        excluded: &[Vec<String>],
    ) -> Vec<bool> {
        let mut numbers = WordMap::default();
        for term in phrases.iter().chain(excluded).flatten() {
            let next = numbers.len();
            numbers.entry(term.as_str()).or_insert(next);
        }
        let numbered = |groups: &[Vec<String>]| -> Vec<Vec<usize>> {
            let groups = groups.iter().map(|group| {
                let known = group.iter().filter_map(|term| numbers.get(term.as_str()));
                known.copied().collect()
            });
            groups.collect()
        };
        let (phrases, excluded) = (numbered(phrases), numbered(excluded));
        let mut known = Known::default();
        let mut occurrences = Occurrences::new(numbers.len());
        let matched = texts.into_iter().map(|text| {
            occurrences.clear();
            self.tokens(text, |token| {
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                let meaning = known.entry(token).or_insert_with(|| {
                    let words = TokenTerms::of(self, token);
                    let terms = words.terms().filter_map(|term| {
                        let number = numbers.get(term.text)?;
                        Some((*number, term.positions))
                    });
                    (terms.collect(), words.positions())
                });
                occurrences.add(&meaning.0, meaning.1);
            });
            phrases.iter().all(|phrase| occurrences.hold(phrase))
                && !excluded.iter().any(|phrase| occurrences.hold(phrase))
        });
        matched.collect()
    }

    /// For each text the places, in bytes, of the words that stand for one of the terms, in order; places that overlap
    /// are one.
    pub fn match_places<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        wanted: &[String],
    ) -> Vec<Vec<Range<usize>>> {
        let terms: WordSet<&str> = wanted.iter().map(String::as_str).collect();
        let ignores_single = self.ignores_single(wanted);
        let letters = FirstLetters::of(self, wanted);
        let mut known: WordMap<&str, bool> = WordMap::default();
        let places = texts.into_iter().map(|text| {
            let mut places: Vec<Range<usize>> = Vec::new();
            scan(text, self.characters, |start, end| {
                let token = between(text, start, end);
                if !letters.can_begin(token) {
                    return;
                }
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                let is_match = *known.entry(token).or_insert_with(|| {
                    let leads_only = leads_only(self, token, ignores_single);
                    TokenTerms::of(self, token)
                        .terms()
                        .any(|term| (term.leads || !leads_only) && terms.contains(term.text))
                });
                match places.last_mut() {
                    _ if !is_match => {}
                    Some(last) if last.end > start => last.end = last.end.max(end),
                    _ => places.push(start..end),
                }
            });
            places
        });
        places.collect()
    }

    /// Whether single characters are ignored, because a wanted term is a pair of characters, which says more.
    pub(super) fn ignores_single(&self, wanted: &[String]) -> bool {
        let of_pairs = |&it: &char| self.characters.kind(it) == CharacterKind::Pair;
        wanted
            .iter()
            .any(|term| term.chars().filter(of_pairs).count() == 2)
    }
}

/// The letters of `a` to `z` that the wanted terms begin with, a bit each: most words of a text need not be stemmed.
struct FirstLetters(u32);

impl FirstLetters {
    fn of(analyzer: &Analyzer, wanted: &[String]) -> Self {
        if !analyzer.language.keeps_first_letter() {
            return Self(u32::MAX);
        }
        let first = wanted.iter().filter_map(|term| term.as_bytes().first());
        Self(first.fold(0, |all, &letter| all | Self::bit(letter)))
    }

    fn bit(letter: u8) -> u32 {
        let number = letter.to_ascii_lowercase().wrapping_sub(b'a');
        // Other letters have no bit.
        1_u32.checked_shl(number.into()).unwrap_or(0)
    }

    /// Whether a token can stand for a term; true for all words of other characters and words with parts.
    #[inline]
    fn can_begin(&self, token: &str) -> bool {
        match token.as_bytes() {
            [first, rest @ ..]
                if first.is_ascii_alphabetic() && rest.iter().all(u8::is_ascii_lowercase) =>
            {
                self.0 & Self::bit(*first) != 0
            }
            _ => true,
        }
    }
}

/// Whether only the terms of a token that a phrase would use count.
pub(super) fn leads_only(analyzer: &Analyzer, token: &str, ignores_single: bool) -> bool {
    ignores_single && token.starts_with(|it| analyzer.characters.kind(it) == CharacterKind::Pair)
}

/// For each token: number and positions of each wanted term in it, and how many positions the token takes.
type Known<'t> = WordMap<&'t str, (Box<[(usize, Range<usize>)]>, usize)>;

/// Positions of the terms of phrases in one text.
struct Occurrences {
    /// For each term, ascending by start.
    terms: Vec<Vec<(usize, usize)>>,
    positions: usize,
    /// For each position, the step that came to it last: of even steps, of odd ones.
    reached: [Vec<u32>; 2],
    step: u32,
}

impl Occurrences {
    fn new(terms: usize) -> Self {
        Self {
            terms: vec![Vec::new(); terms],
            positions: 0,
            reached: Default::default(),
            step: 0,
        }
    }

    fn clear(&mut self) {
        self.terms.iter_mut().for_each(Vec::clear);
        self.positions = 0;
        self.reached.iter_mut().for_each(Vec::clear);
        self.step = 0;
    }

    fn add(&mut self, terms: &[(usize, Range<usize>)], positions: usize) {
        for (number, within) in terms {
            if let Some(found) = self.terms.get_mut(*number) {
                found.push((self.positions + within.start, self.positions + within.end));
            }
        }
        self.positions += positions;
    }

    /// Whether the terms follow each other in the text.
    fn hold(&mut self, phrase: &[usize]) -> bool {
        for steps in &mut self.reached {
            steps.resize(self.positions + 1, 0);
        }
        for (number, term) in phrase.iter().enumerate() {
            let [even, odd] = &mut self.reached;
            let (before, now) = match self.step % 2 {
                0 => (even, odd),
                _ => (odd, even),
            };
            let mut found = false;
            for (start, end) in self.terms.get(*term).into_iter().flatten() {
                let follows = number == 0 || before.get(*start) == Some(&self.step);
                if follows && let Some(position) = now.get_mut(*end) {
                    *position = self.step + 1;
                    found = true;
                }
            }
            self.step += 1;
            if !found {
                return false;
            }
        }
        true
    }
}
