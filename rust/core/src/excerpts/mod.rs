//! Excerpts: the sentences of a found text that hold the query's words, with these words between `**`.
//!
//! [`pieces`] finds the sentences, [`steering`] knows the lines that are not for readers, [`choice`] chooses; [`lengths`]
//! holds the limits.

mod choice;
mod lengths;
mod pieces;
mod steering;

use std::ops::Range;

use choice::chosen;
use lengths::{LONGEST_SENTENCE, MAX_CHARACTERS, MAX_CODE_LINES};
use pieces::{Piece, characters, pieces};

/// Characters before the first match that are shown of a sentence that is cut.
const BEFORE_MATCH: usize = MAX_CHARACTERS / 3;
const MARK: &str = "**";
const ELLIPSIS: char = '…';

/// What is shown of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Sentences with marks; `…` stands where text was left out.
    pub shown: String,
    /// Character of the text at which the first shown matched word begins, else the first matched word of all.
    pub first_match: Option<usize>,
}

/// The sentences of a text that hold most of the matched words; without a match, the first ones.
///
/// `matches` are bytes of the text, in order and without overlap.
#[must_use]
pub fn excerpt(text: &str, matches: &[Range<usize>]) -> Excerpt {
    let first = matches.first().map(|place| place.start);
    let (shown, first) = if is_short_line(text) {
        (marked(text, 0..text.len(), matches), first)
    } else {
        let pieces = pieces(text);
        let chosen = chosen(text, &pieces, matches);
        let shown = match chosen.is_empty() {
            true => beginning(text, matches),
            false => joined(text, &pieces, &chosen, matches),
        };
        let is_shown = |at: &usize| {
            let mut shown = chosen.iter().filter_map(|&number| pieces.get(number));
            shown.any(|piece| piece.range.contains(at))
        };
        let inside = matches.iter().map(|place| place.start).find(is_shown);
        (shown, inside.or(first))
    };
    let first_match = first.map(|at| characters(text, 0..at));
    Excerpt { shown, first_match }
}

/// The byte that is this many characters after another one, at most the end of the text.
fn forward(text: &str, from: usize, characters: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let found = rest.char_indices().nth(characters);
    found.map_or(text.len(), |(at, _)| from + at)
}

/// The byte that is this many characters before another one, at least the first.
fn back(text: &str, from: usize, characters: usize) -> usize {
    let before = text.get(..from).unwrap_or_default();
    let found = characters
        .checked_sub(1)
        .map(|number| before.char_indices().rev().nth(number));
    found.map_or(from, |found| found.map_or(0, |(at, _)| at))
}

/// Whether a text is a paragraph of one short line, which is all shown.
fn is_short_line(text: &str) -> bool {
    text.len() > 1
        && text.len() <= MAX_CHARACTERS * char::MAX.len_utf8()
        && text.starts_with(char::is_alphanumeric)
        && !text.ends_with(char::is_whitespace)
        && !text.contains('\n')
        && characters(text, 0..text.len()) <= MAX_CHARACTERS
}

/// What is shown of a text without sentences.
fn beginning(text: &str, matches: &[Range<usize>]) -> String {
    let all = marked(text, 0..text.len(), matches);
    let bare = all.trim();
    let end = forward(bare, 0, 2 * MAX_CHARACTERS);
    bare.get(..end).unwrap_or_default().to_owned()
}

/// The chosen pieces, with an ellipsis wherever something is left out.
fn joined(text: &str, pieces: &[Piece], chosen: &[usize], matches: &[Range<usize>]) -> String {
    let mut shown = String::new();
    let mut last: Option<(usize, &Piece)> = None;
    for &number in chosen {
        let Some(piece) = pieces.get(number) else {
            continue;
        };
        let part = cut(text, piece, matches);
        let next = last.map_or(0, |(number, _)| number + 1);
        let is_cut = number > next || part.start > piece.range.start;
        match last {
            None if is_cut => shown.extend([ELLIPSIS, apart(piece)]),
            None => {}
            Some((_, before)) if is_cut || shown.ends_with(ELLIPSIS) => {
                let apart = if before.is_code { '\n' } else { apart(piece) };
                if !shown.ends_with(ELLIPSIS) {
                    shown.extend([apart, ELLIPSIS]);
                }
                shown.push(apart);
            }
            Some((_, before)) => {
                let between = text.get(before.range.end..piece.range.start);
                let between = between.unwrap_or_default();
                let is_blank = between.chars().all(|it| it.is_whitespace() && it != '\n');
                shown.push_str(if is_blank { between } else { "\n" });
            }
        }
        let is_whole = part.end == piece.range.end;
        shown.push_str(&marked(text, part, matches));
        if !is_whole {
            shown.extend([apart(piece), ELLIPSIS]);
        }
        last = Some((number, piece));
    }
    if let Some((number, piece)) = last
        && number + 1 < pieces.len()
        && !shown.ends_with(ELLIPSIS)
    {
        shown.extend([apart(piece), ELLIPSIS]);
    }
    shown
}

/// What stands between a piece and an ellipsis.
fn apart(piece: &Piece) -> char {
    if piece.is_code { '\n' } else { ' ' }
}

/// The part of a piece that is shown: all of it, or the part around its first match if it is very long.
fn cut(text: &str, piece: &Piece, matches: &[Range<usize>]) -> Range<usize> {
    let Range { mut start, mut end } = piece.range;
    let is_inside = |place: &&Range<usize>| place.start >= start && place.end <= end;
    let first = matches.iter().find(is_inside).map_or(start, |it| it.start);
    if piece.is_code {
        let code = text.get(start..end).unwrap_or_default();
        let lines: Vec<usize> = code
            .match_indices('\n')
            .map(|(at, _)| start + at + 1)
            .collect();
        if lines.len() >= MAX_CODE_LINES {
            // The match is in the second line that is shown.
            let own = lines.partition_point(|&line| line <= first);
            let begin = (own.saturating_sub(1)).min(lines.len() + 1 - MAX_CODE_LINES);
            let line = |number: usize| number.checked_sub(1).and_then(|it| lines.get(it));
            start = line(begin).copied().unwrap_or(start);
            end = line(begin + MAX_CODE_LINES).map_or(end, |next| next - 1);
        }
    }
    if characters(text, start..end) <= LONGEST_SENTENCE {
        return start..end;
    }
    let wanted = back(text, first, BEFORE_MATCH).min(back(text, end, MAX_CHARACTERS));
    let mut begin = wanted.max(start);
    let stop = forward(text, begin, MAX_CHARACTERS).min(end);
    if begin > start {
        let before = text.get(begin..first).unwrap_or_default();
        if let Some(blank) = before.find(char::is_whitespace) {
            let behind = before.get(blank..).unwrap_or_default();
            begin = first - behind.trim_start().len();
        }
    }
    let part = text.get(begin..stop).unwrap_or_default();
    let last = part.rfind(char::is_whitespace).map_or(0, |blank| {
        part.get(..blank).unwrap_or_default().trim_end().len()
    });
    let is_cut_at_blank = stop < end && last > 0 && begin + last > first;
    begin..if is_cut_at_blank { begin + last } else { stop }
}

/// A part of a text with its matches marked, unless the text marks them already.
fn marked(text: &str, part: Range<usize>, matches: &[Range<usize>]) -> String {
    let slice = |range: Range<usize>| text.get(range).unwrap_or_default();
    let mut shown = String::with_capacity(part.len() + 8 * MARK.len());
    let mut done = part.start;
    for place in matches {
        if place.start < done || place.end > part.end {
            continue;
        }
        let before = slice(part.start..place.start);
        let is_marked = before.ends_with(MARK) && slice(place.end..part.end).starts_with(MARK);
        let mark = if is_marked { "" } else { MARK };
        for piece in [slice(done..place.start), mark, slice(place.clone()), mark] {
            shown.push_str(piece);
        }
        done = place.end;
    }
    shown.push_str(slice(done..part.end));
    shown
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_SENTENCE, MAX_CHARACTERS, excerpt};
    use proptest::prelude::*;

    fn matches(text: &str) -> Vec<std::ops::Range<usize>> {
        text.match_indices("key")
            .map(|(at, word)| at..at + word.len())
            .collect()
    }

    #[test]
    fn sentences_with_matches_are_shown_and_gaps_are_told() {
        let prose = "Nobody comes here at all. ".repeat(12);
        let text = format!("# Title\n\n.. note:: {prose}It has a key.\n\n:::{{tip}}\nEnd.");
        let found = excerpt(&text, &matches(&text));
        assert_eq!(found.shown, "… It has a **key**.\nEnd.");
        assert_eq!(found.first_match, text.find("key"));
    }

    proptest! {
        #[test]
        fn any_text_has_an_excerpt_within_its_bounds(
            text in "([a-zé語 .!:\n*`|(\\[<{%+-]{0,9}|key|```\n|\\.\\. |::|\\{% |:::){0,99}"
        ) {
            let found = excerpt(&text, &matches(&text));
            let shown = found.shown.replace("**", "").chars().count();
            prop_assert!(shown <= 2 * (MAX_CHARACTERS + LONGEST_SENTENCE));
            prop_assert_eq!(found.first_match.is_some(), text.contains("key"));
        }
    }
}
