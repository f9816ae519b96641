//! The parts of a text that show why it was found.

use std::ops::Range;

use super::Analyzer;
use super::matching::{MAX_KNOWN, leads_only};
use super::token_terms::TokenTerms;
use super::tokens::scan;
use crate::hashing::WordMap;

/// Around a matched word, and between two parts.
const MARK: &str = "**";
const BETWEEN: &str = " … ";

impl Analyzer {
    /// The part of the text with the most of the wanted terms, the first of equals; or two parts of half the size where
    /// they hold more. Matched words stand between `**`. Without a match, the beginning of the text.
    ///
    /// Parts are slices of the text, `max_characters` in all, marks not counted. They are cut at white space where
    /// there is some, and joined by ` … `. Of more than 128 wanted terms, those behind count as one.
    #[must_use]
    pub fn excerpt(&self, text: &str, wanted: &[String], max_characters: usize) -> String {
        self.excerpt_knowing(text, wanted, max_characters, &mut Known::default())
    }

    /// Excerpts of several texts. Most of their words are the same ones, which are looked at once.
    pub fn excerpts<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        wanted: &[String],
        max_characters: usize,
    ) -> Vec<String> {
        let mut known = Known::default();
        let texts = texts.into_iter();
        texts
            .map(|text| self.excerpt_knowing(text, wanted, max_characters, &mut known))
            .collect()
    }

    fn excerpt_knowing<'t>(
        &self,
        text: &'t str,
        wanted: &[String],
        max_characters: usize,
        known: &mut Known<'t>,
    ) -> String {
        let passage = Passage::new(self, text.trim(), wanted, known);
        let all = 0..passage.characters();
        let Some((terms, part)) = passage.best(&all, max_characters, 0) else {
            let beginning = passage.cut(&all, &(0..0), max_characters);
            return passage.slice(&beginning).to_owned();
        };
        let half = max_characters / 2;
        let parts = passage.best(&all, half, 0).and_then(|(known, one)| {
            let before = passage.best(&(0..one.start), half, known);
            let behind = passage.best(&(one.end..all.end), half, known);
            let gain = |found: &Option<(u128, _)>| {
                found
                    .as_ref()
                    .map_or(0, |(terms, _)| (terms & !known).count_ones())
            };
            let other = if gain(&behind) > gain(&before) {
                behind
            } else {
                before
            };
            let (more, other) = other?;
            ((known | more).count_ones() > terms.count_ones()).then_some([one, other])
        });
        match parts {
            Some(mut parts) => {
                parts.sort_by_key(|part| part.start);
                parts.map(|part| passage.marked(&part)).join(BETWEEN)
            }
            None => passage.marked(&part),
        }
    }
}

/// Which of the wanted terms a token stands for, one bit each.
type Known<'t> = WordMap<&'t str, u128>;

/// A place of the text to be marked.
struct Match {
    /// In characters.
    place: Range<usize>,
    /// Which of the wanted terms stand there, one bit each.
    terms: u128,
}

struct Passage<'t> {
    text: &'t str,
    /// Byte at which each character begins, and the end of the last.
    bytes: Vec<usize>,
    /// In order, without overlap.
    matches: Vec<Match>,
}

impl<'t> Passage<'t> {
    fn new(analyzer: &Analyzer, text: &'t str, wanted: &[String], known: &mut Known<'t>) -> Self {
        let starts = text.char_indices().map(|(byte, _)| byte);
        let bytes: Vec<usize> = starts.chain([text.len()]).collect();
        let ignores_single = analyzer.ignores_single(wanted);
        let mut matches: Vec<Match> = Vec::new();
        scan(text, analyzer.characters, |start, end| {
            let Some(token) = text.get(start..end) else {
                return;
            };
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            let terms = *known.entry(token).or_insert_with(|| {
                let leads_only = leads_only(analyzer, token, ignores_single);
                TokenTerms::of(analyzer, token)
                    .terms()
                    .filter(|term| term.leads || !leads_only)
                    .filter_map(|term| wanted.iter().position(|it| *it == term.text))
                    .fold(0, |terms, bit| terms | 1_u128 << bit.min(127))
            });
            if terms == 0 {
                return;
            }
            let character = |byte| bytes.partition_point(|&it| it < byte);
            let place = character(start)..character(end);
            match matches.last_mut() {
                Some(last) if last.place.end > place.start => {
                    last.place.end = last.place.end.max(place.end);
                    last.terms |= terms;
                }
                _ => matches.push(Match { place, terms }),
            }
        });
        Self {
            text,
            bytes,
            matches,
        }
    }

    fn characters(&self) -> usize {
        self.bytes.len().saturating_sub(1)
    }

    /// The part of at most `size` characters inside of `region` that holds the most terms which are not known, with all
    /// terms that it holds.
    fn best(
        &self,
        region: &Range<usize>,
        size: usize,
        known: u128,
    ) -> Option<(u128, Range<usize>)> {
        let inside = |it: &&Match| it.place.start >= region.start && it.place.end <= region.end;
        let mut best: Option<(u128, Range<usize>)> = None;
        for (number, first) in self.matches.iter().enumerate() {
            if !inside(&first) {
                continue;
            }
            let (mut terms, mut end) = (first.terms, first.place.end);
            for next in self.matches.iter().skip(number + 1).take_while(inside) {
                if next.place.end - first.place.start > size {
                    break;
                }
                terms |= next.terms;
                end = next.place.end;
            }
            let gain = (terms & !known).count_ones();
            let least = best
                .as_ref()
                .map_or(0, |(terms, _)| (terms & !known).count_ones());
            if gain > least {
                best = Some((terms, first.place.start..end));
            }
        }
        best.map(|(terms, core)| (terms, self.cut(region, &core, size)))
    }

    /// At most `size` characters of the region with the core among them, begun and ended at white space where there is
    /// some.
    fn cut(&self, region: &Range<usize>, core: &Range<usize>, size: usize) -> Range<usize> {
        let core_end = core.end.min(core.start + size);
        let spare = size - (core_end - core.start);
        // More is shown behind a match than before it.
        let start = core.start.saturating_sub(spare / 3).max(region.start);
        let end = (start + size).min(region.end);
        let start = end.saturating_sub(size).max(region.start).min(start);
        let start = if start == region.start || self.is_blank(start - 1) {
            start
        } else {
            (start..core.start)
                .find(|&it| self.is_blank(it))
                .map_or(start, |blank| blank + 1)
        };
        let end = if end == region.end || self.is_blank(end) {
            end
        } else {
            (core_end..end)
                .rfind(|&it| self.is_blank(it))
                .unwrap_or(end)
        };
        self.trimmed(start..end)
    }

    fn trimmed(&self, mut part: Range<usize>) -> Range<usize> {
        while part.start < part.end && self.is_blank(part.start) {
            part.start += 1;
        }
        while part.start < part.end && self.is_blank(part.end - 1) {
            part.end -= 1;
        }
        part
    }

    fn is_blank(&self, character: usize) -> bool {
        self.slice(&(character..character + 1))
            .starts_with(char::is_whitespace)
    }

    fn slice(&self, part: &Range<usize>) -> &'t str {
        let byte = |character: usize| self.bytes.get(character).copied();
        let range = byte(part.start).zip(byte(part.end));
        range
            .and_then(|(start, end)| self.text.get(start..end))
            .unwrap_or_default()
    }

    /// The part with marks around its matches, but where Markdown has some there already.
    fn marked(&self, part: &Range<usize>) -> String {
        let mut marked = String::new();
        let mut done = part.start;
        let inside = |it: &&Match| it.place.start >= part.start && it.place.end <= part.end;
        for found in self.matches.iter().filter(inside) {
            let before = self.slice(&(done..found.place.start));
            let behind = self.slice(&(found.place.end..part.end));
            let is_marked = before.ends_with(MARK) && behind.starts_with(MARK);
            let mark = if is_marked { "" } else { MARK };
            for piece in [before, mark, self.slice(&found.place), mark] {
                marked.push_str(piece);
            }
            done = found.place.end;
        }
        marked.push_str(self.slice(&(done..part.end)));
        marked
    }
}
