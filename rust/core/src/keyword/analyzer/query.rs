//! Queries: words, phrases in quotes, exclusions behind a dash.

use std::collections::HashSet;

use super::token_terms::{TYPED_BIT, TokenTerms};
use super::{Analyzer, TermSource};
use crate::keyword::is_typed;

/// Opening quotes with what closes each.
const QUOTES: [(char, &[char]); 6] = [
    ('"', &['"']),
    ('\u{201C}', &['\u{201D}', '"']),             // “ ”
    ('\u{201E}', &['\u{201C}', '\u{201D}', '"']), // „ “
    ('\u{201D}', &['\u{201D}']),                  // ” ”
    ('\u{AB}', &['\u{BB}']),                      // « »
    ('\u{BB}', &['\u{AB}', '\u{BB}']),            // » «
];

/// The slot of a query's term is the number of its token, then these bits for the number of the term in the token.
const TERM_BITS: u32 = 32;

/// A query, cut into what it asks for; all parts are slices of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ParsedQuery<'q> {
    /// What is wanted, phrases among it, in order.
    pub wanted: Vec<&'q str>,
    /// Phrases that a text must contain.
    pub phrases: Vec<&'q str>,
    /// Words and phrases that a text must not contain.
    pub excluded: Vec<&'q str>,
}

/// The terms of a query in one language.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueryTerms {
    /// (slot, term): each term once, in order. The slot is that of the word in the query: in every language the same.
    /// A term that keeps the accents of its word follows the folded one, whose slot it has, with `TYPED_BIT` in it.
    pub wanted: Vec<(u64, String)>,
    /// The terms of each phrase, one for every position that [`Analyzer::matches`] counts; none is empty.
    pub phrases: Vec<Vec<String>>,
    /// Likewise.
    pub excluded: Vec<Vec<String>>,
    /// Distinct wanted terms before they were cut.
    pub total: usize,
    /// Terms of all phrases and exclusions, repeats included. Where they are more than `max_terms`, `phrases` and
    /// `excluded` are empty, and the query must be refused: to leave some out would find what was excluded.
    pub conditions: usize,
}

/// Cuts a query into what it asks for. Every text is a query; none is wrong.
///
/// - Quotes, straight or typographic (`"a"`, `“a”`, `„a“`, `«a»`), hold a phrase. They open where no letter or number
///   stands before them (`5" pipe`); without a closing one they mean nothing.
/// - `-word` and `-"a phrase"` exclude, at the start of the text or behind white space, with a letter or quote right
///   behind the dash. `-5` is a negative number; `-"5"` excludes it.
#[must_use]
pub fn parse_query(text: &str) -> ParsedQuery<'_> {
    let mut parsed = ParsedQuery::default();
    let mut before = None;
    let mut start = 0;
    let mut place = 0;
    let mut unclosed = Unclosed::default();
    while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
        let Some(found) = special(rest, before, &mut unclosed) else {
            let character = rest.chars().next();
            before = character;
            place += character.map_or(1, char::len_utf8);
            continue;
        };
        parsed.wanted.extend(text.get(start..place));
        if found.is_excluded {
            parsed.excluded.push(found.content);
        } else {
            parsed.wanted.push(found.content);
            parsed.phrases.push(found.content);
        }
        place += found.bytes;
        start = place;
        before = text.get(..place).and_then(|it| it.chars().next_back());
    }
    parsed.wanted.extend(text.get(start..));
    parsed
        .wanted
        .retain(|it| it.contains(char::is_alphanumeric));
    parsed
        .phrases
        .retain(|it| it.contains(char::is_alphanumeric));
    parsed
        .excluded
        .retain(|it| it.contains(char::is_alphanumeric));
    parsed
}

struct Special<'q> {
    content: &'q str,
    is_excluded: bool,
    /// Length in bytes, with dash and quotes.
    bytes: usize,
}

/// The [`QUOTES`] that nothing closes from here on, so that a closing quote is searched for in vain only once.
type Unclosed = [bool; QUOTES.len()];

/// The phrase or exclusion that the rest of a query begins with.
fn special<'q>(
    rest: &'q str,
    before: Option<char>,
    unclosed: &mut Unclosed,
) -> Option<Special<'q>> {
    let dashed = rest
        .strip_prefix('-')
        .filter(|_| before.is_none_or(char::is_whitespace));
    let Some(dashed) = dashed else {
        if before.is_some_and(char::is_alphanumeric) {
            return None;
        }
        let (content, bytes) = quoted(rest, unclosed)?;
        return Some(Special {
            content,
            is_excluded: false,
            bytes,
        });
    };
    if let Some((content, bytes)) = quoted(dashed, unclosed) {
        return Some(Special {
            content,
            is_excluded: true,
            bytes: bytes + 1,
        });
    }
    let is_word = dashed.starts_with(|it: char| it.is_alphanumeric() && !it.is_numeric());
    let end = dashed.find(char::is_whitespace).unwrap_or(dashed.len()); // to the end of the text
    is_word.then_some(Special {
        content: dashed.get(..end)?,
        is_excluded: true,
        bytes: end + 1,
    })
}

/// What stands between the quotes that the text begins with, and the bytes of all of it.
fn quoted<'q>(text: &'q str, unclosed: &mut Unclosed) -> Option<(&'q str, usize)> {
    let opening = text.chars().next()?;
    let mut kinds = QUOTES.iter().zip(unclosed);
    let ((_, closing), unclosed) = kinds.find(|((quote, _), _)| *quote == opening)?;
    let inner = text.get(opening.len_utf8()..).filter(|_| !*unclosed)?;
    let found = inner.find(*closing);
    *unclosed = found.is_none();
    let end = found?;
    let closed = inner.get(end..)?.chars().next()?;
    let bytes = opening.len_utf8() + end + closed.len_utf8();
    Some((inner.get(..end)?, bytes))
}

impl Analyzer {
    /// The terms of a query.
    ///
    /// A term that is asked for several times is asked for once: it measured better than counting. At most `max_terms`
    /// are kept, the first ones, each with the term that keeps its accents; `total` says how many there were. As many terms
    /// may phrases and exclusions have together.
    #[must_use]
    pub fn query(&self, parsed: &ParsedQuery<'_>, max_terms: usize) -> QueryTerms {
        let mut terms = QueryTerms::default();
        let mut known = HashSet::new();
        let mut tokens = 0_u64;
        for piece in &parsed.wanted {
            self.tokens(piece, |token| {
                // The number of the term that was added last.
                let mut added = None;
                for term in TokenTerms::of(self, token).terms() {
                    let slot = tokens << TERM_BITS | u64::from(term.number);
                    if is_typed(term.text) {
                        // Beside the folded term of the same word, which may have been asked for before.
                        if added == Some(term.number & !TYPED_BIT) {
                            terms.wanted.push((slot, term.text.to_owned()));
                        }
                        continue;
                    }
                    if known.contains(term.text) {
                        continue;
                    }
                    if known.len() < max_terms {
                        terms.wanted.push((slot, term.text.to_owned()));
                        added = Some(term.number);
                    }
                    known.insert(term.text.to_owned());
                }
                tokens += 1;
            });
        }
        terms.total = known.len();
        let (phrases, excluded) = (
            self.phrases(&parsed.phrases),
            self.phrases(&parsed.excluded),
        );
        terms.conditions = phrases.iter().chain(&excluded).map(Vec::len).sum();
        if terms.conditions <= max_terms {
            (terms.phrases, terms.excluded) = (phrases, excluded);
        }
        terms
    }

    fn phrases(&self, texts: &[&str]) -> Vec<Vec<String>> {
        let phrases = texts.iter().map(|text| {
            let mut phrase = Vec::new();
            self.tokens(text, |token| {
                let words = TokenTerms::of(self, token);
                let leading = words.terms().filter(|it| it.leads);
                phrase.extend(leading.map(|term| term.text.to_owned()));
            });
            phrase
        });
        phrases.filter(|phrase| !phrase.is_empty()).collect()
    }
}
