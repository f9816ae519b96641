//! What a query asks for: words, phrases in quotes, exclusions behind a dash.

use std::collections::HashSet;

use super::words::Words;
use super::{Analyzer, TermSource};

/// Opening quotes with what closes each.
const QUOTES: [(char, &[char]); 6] = [
    ('"', &['"']),
    ('\u{201C}', &['\u{201D}', '"']),             // “ ”
    ('\u{201E}', &['\u{201C}', '\u{201D}', '"']), // „ “
    ('\u{201D}', &['\u{201D}']),                  // ” ”
    ('\u{AB}', &['\u{BB}']),                      // « »
    ('\u{BB}', &['\u{AB}', '\u{BB}']),            // » «
];

/// Terms that a token may have before their units meet those of the next.
const UNITS_PER_TOKEN: u32 = 256;

/// A query, cut into what it asks for; all parts are slices of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ParsedQuery<'q> {
    /// What is wanted, phrases among it, in order.
    pub wanted: Vec<&'q str>,
    /// What must stand in the text as it is.
    pub phrases: Vec<&'q str>,
    /// Words and phrases that must not stand in it.
    pub excluded: Vec<&'q str>,
}

/// The terms of a query in one language.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct QueryTerms {
    /// (unit, term): each term once, in order. The unit is that of the word in the query: in every language the same.
    pub wanted: Vec<(u32, String)>,
    /// The terms of each phrase, one for every place that [`Analyzer::contains_phrase`] counts; none is empty.
    pub phrases: Vec<Vec<String>>,
    /// Likewise.
    pub excluded: Vec<Vec<String>>,
    /// Distinct terms before they were cut.
    pub total: usize,
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
    while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
        let Some(found) = special(rest, before) else {
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
    /// All of it, with dash and quotes.
    bytes: usize,
}

/// The phrase or exclusion that the rest of a query begins with.
fn special(rest: &str, before: Option<char>) -> Option<Special<'_>> {
    let dashed = rest
        .strip_prefix('-')
        .filter(|_| before.is_none_or(char::is_whitespace));
    let Some(dashed) = dashed else {
        let content = quoted(rest).filter(|_| !before.is_some_and(char::is_alphanumeric))?;
        let bytes = content.1;
        return Some(Special {
            content: content.0,
            is_excluded: false,
            bytes,
        });
    };
    if let Some((content, bytes)) = quoted(dashed) {
        return Some(Special {
            content,
            is_excluded: true,
            bytes: bytes + 1,
        });
    }
    let is_word = dashed.starts_with(|it: char| it.is_alphanumeric() && !it.is_numeric());
    let end = dashed.find(char::is_whitespace).unwrap_or(dashed.len());
    is_word.then_some(Special {
        content: dashed.get(..end)?,
        is_excluded: true,
        bytes: end + 1,
    })
}

/// What stands between the quotes that the text begins with, and the bytes of all of it.
fn quoted(text: &str) -> Option<(&str, usize)> {
    let opening = text.chars().next()?;
    let (_, closing) = QUOTES.iter().find(|(quote, _)| *quote == opening)?;
    let inner = text.get(opening.len_utf8()..)?;
    let end = inner.find(*closing)?;
    let closed = inner.get(end..)?.chars().next()?;
    let bytes = opening.len_utf8() + end + closed.len_utf8();
    Some((inner.get(..end)?, bytes))
}

impl Analyzer {
    /// The terms of a query.
    ///
    /// A term that is asked for several times is asked for once: it measured better than counting. At most `max_terms`
    /// are kept, the first ones; `total` says how many there were.
    #[must_use]
    pub fn query(&self, parsed: &ParsedQuery<'_>, max_terms: usize) -> QueryTerms {
        let mut terms = QueryTerms::default();
        let mut known = HashSet::new();
        let mut tokens = 0_u32;
        for piece in &parsed.wanted {
            self.tokens(piece, |token| {
                for term in Words::of(self, token).terms() {
                    if known.contains(term.text) {
                        continue;
                    }
                    if terms.wanted.len() < max_terms {
                        let number = term.number.min(UNITS_PER_TOKEN - 1);
                        let unit = tokens
                            .saturating_mul(UNITS_PER_TOKEN)
                            .saturating_add(number);
                        terms.wanted.push((unit, term.text.to_owned()));
                    }
                    known.insert(term.text.to_owned());
                }
                tokens = tokens.saturating_add(1);
            });
        }
        terms.total = known.len();
        terms.phrases = self.phrases(&parsed.phrases);
        terms.excluded = self.phrases(&parsed.excluded);
        terms
    }

    fn phrases(&self, texts: &[&str]) -> Vec<Vec<String>> {
        let phrases = texts.iter().map(|text| {
            let mut phrase = Vec::new();
            self.tokens(text, |token| {
                let words = Words::of(self, token);
                let leading = words.terms().filter(|it| it.leads);
                phrase.extend(leading.map(|term| term.text.to_owned()));
            });
            phrase
        });
        phrases.filter(|phrase| !phrase.is_empty()).collect()
    }
}
