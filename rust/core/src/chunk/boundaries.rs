//! Where a text may be cut: seven levels, from paragraphs down to characters.
//!
//! Every level cuts a range into parts that leave out only blanks.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// The levels, coarse to fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Paragraphs between blank lines, and fenced code.
    Blocks,
    /// Lines.
    Lines,
    /// Sentences inside a line.
    Sentences,
    /// Characters between blanks.
    Words,
    /// Unicode words, and the marks between them.
    WordParts,
    /// Grapheme clusters: what readers see as one character.
    Graphemes,
    /// Characters.
    Characters,
}

impl Level {
    pub(super) fn finer(self) -> Option<Self> {
        match self {
            Self::Blocks => Some(Self::Lines),
            Self::Lines => Some(Self::Sentences),
            Self::Sentences => Some(Self::Words),
            Self::Words => Some(Self::WordParts),
            Self::WordParts => Some(Self::Graphemes),
            Self::Graphemes => Some(Self::Characters),
            Self::Characters => None,
        }
    }
}

/// Whether Python's `str.isspace` is true for a character: Unicode's white space and the four separators of ASCII.
pub(crate) fn is_blank(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// The range without the blanks at its ends; empty if it has only blanks.
pub(super) fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let whole = slice(text, &range);
    let rest = whole.trim_start_matches(is_blank);
    let start = range.start + (whole.len() - rest.len());
    start..start + rest.trim_end_matches(is_blank).len()
}

/// The text of a range; empty if the range is not in this text.
pub(super) fn slice<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    text.get(range.clone()).unwrap_or_default()
}

/// Whether a range lies inside one of the ascending fences.
pub(super) fn lies_in_fence(range: &Range<usize>, fences: &[Range<usize>]) -> bool {
    let after = fences.partition_point(|fence| fence.start <= range.start);
    after
        .checked_sub(1)
        .and_then(|last| fences.get(last))
        .is_some_and(|fence| range.end <= fence.end)
}

/// Where the line that begins at `start` ends: without and with its line break.
pub(super) fn line_end(text: &str, start: usize) -> (usize, usize) {
    let rest = text.as_bytes().get(start..).unwrap_or_default();
    let Some(length) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
        return (text.len(), text.len());
    };
    let wide = rest
        .get(length..)
        .is_some_and(|end| end.starts_with(b"\r\n"));
    (start + length, start + length + 1 + usize::from(wide))
}

/// The parts of a range at a level, in order, none of them blank. `fences` are the fenced code blocks of the text.
pub(super) fn parts<'a>(
    text: &'a str,
    range: &Range<usize>,
    level: Level,
    fences: &'a [Range<usize>],
) -> Box<dyn Iterator<Item = Range<usize>> + 'a> {
    let offset = range.start;
    let whole = slice(text, range);
    let placed = move |(start, part): (usize, &str)| offset + start..offset + start + part.len();
    match level {
        Level::Blocks => Box::new(successive(
            text,
            range.clone(),
            move |rest: &Range<usize>| block_end(text, rest, fences),
        )),
        Level::Lines => Box::new(successive(
            text,
            range.clone(),
            move |rest: &Range<usize>| line_end(text, rest.start).1,
        )),
        Level::Sentences => Box::new(successive(
            text,
            range.clone(),
            move |rest: &Range<usize>| rest.start + sentence_length(slice(text, rest)),
        )),
        Level::Words => Box::new(successive(
            text,
            range.clone(),
            move |rest: &Range<usize>| {
                let ahead = slice(text, rest);
                rest.start + ahead.find(is_blank).unwrap_or(ahead.len())
            },
        )),
        Level::WordParts => Box::new(whole.split_word_bound_indices().map(placed)),
        Level::Graphemes => Box::new(whole.grapheme_indices(true).map(placed)),
        Level::Characters => Box::new(
            whole
                .char_indices()
                .map(move |(start, c)| offset + start..offset + start + c.len_utf8()),
        ),
    }
}

/// The parts of a range at the level of blocks or lines; what belongs to the part before is one with it. `joined` are the
/// first characters of what does.
pub(super) fn units<'a>(
    text: &'a str,
    range: &Range<usize>,
    level: Level,
    fences: &'a [Range<usize>],
    joined: &'a [usize],
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut parts = parts(text, range, level, fences).peekable();
    std::iter::from_fn(move || {
        let mut unit = parts.next()?;
        while let Some(next) = parts.next_if(|next| joined.binary_search(&next.start).is_ok()) {
            unit.end = next.end;
        }
        Some(unit)
    })
}

/// Parts found from the front, one by one; `end` says where the first part ends of a range that begins with a character
/// that is not blank.
fn successive<'a>(
    text: &'a str,
    range: Range<usize>,
    mut end: impl FnMut(&Range<usize>) -> usize + 'a,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut place = range.start;
    std::iter::from_fn(move || {
        let blanks = slice(text, &(place..range.end));
        let start = place + blanks.find(|character| !is_blank(character))?;
        place = end(&(start..range.end)).max(start + 1).min(range.end);
        Some(trimmed(text, start..place))
    })
}

/// Where the block at the front of a range ends: behind its fence, or before a blank line or the next fence.
fn block_end(text: &str, range: &Range<usize>, fences: &[Range<usize>]) -> usize {
    let behind = fences.partition_point(|fence| fence.end <= range.start);
    let fence = fences.get(behind);
    if let Some(fence) = fence
        && fence.start <= range.start
    {
        return fence.end;
    }
    let stop = fence.map_or(range.end, |fence| fence.start.min(range.end));
    let mut place = range.start;
    while place < stop {
        let (end, next) = line_end(text, place);
        if slice(text, &(place..end)).chars().all(is_blank) {
            break;
        }
        place = next;
    }
    place.min(stop)
}

/// Length of the first sentence of a text, with the blanks behind it; a line break ends a sentence too.
///
/// A full stop, question or exclamation mark ends a sentence when blanks follow and then no lower-case letter ("e.g.
/// this"); those of Chinese and Japanese need neither. The rule is our own because it looks at each character once;
/// Unicode's looks ahead without bound.
fn sentence_length(text: &str) -> usize {
    let (mut closed, mut closed_wide, mut gap) = (false, false, false);
    for (place, character) in text.char_indices() {
        let blank = is_blank(character);
        if matches!(character, '\n' | '\r') {
            return place + 1;
        }
        if (closed_wide || gap) && !blank {
            let closes = closed_wide && !gap && is_closing(character);
            if !closes && (closed_wide || !character.is_lowercase()) {
                return place;
            }
        }
        match character {
            '.' | '!' | '?' | '…' => closed = true,
            '。' | '！' | '？' | '｡' => closed_wide = true,
            _ if blank => gap = closed || closed_wide,
            _ if is_closing(character) && !gap => {}
            _ => (closed, closed_wide) = (false, false),
        }
        gap &= blank;
    }
    text.len()
}

fn is_closing(character: char) -> bool {
    matches!(
        character,
        '"' | '\'' | ')' | ']' | '}' | '”' | '’' | '»' | '」' | '』' | '）' | '】'
    )
}

#[cfg(test)]
mod tests {
    use super::{Level, parts};

    fn cut(text: &str, level: Level) -> Vec<&str> {
        parts(text, &(0..text.len()), level, &[])
            .map(|part| text.get(part).unwrap_or("?"))
            .collect()
    }

    #[test]
    fn sentences_end_where_readers_end_them() {
        let text = "One, e.g. this. \"Two!\" (Three?) 3.5 is four. 五。「六」。七";
        let expected = [
            "One, e.g. this.",
            "\"Two!\"",
            "(Three?)",
            "3.5 is four.",
            "五。",
            "「六」。",
            "七",
        ];
        assert_eq!(cut(text, Level::Sentences), expected);
    }

    #[test]
    fn blocks_end_at_blank_lines_of_any_kind() {
        let text = "a\nb\n \t\nc\r\n\r\nd\r\re";
        assert_eq!(cut(text, Level::Blocks), ["a\nb", "c", "d", "e"]);
        assert_eq!(cut(text, Level::Lines), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn a_fence_is_one_block() {
        let text = "a\n```\nb\n\nc\n```\nd";
        let fence = 2..15;
        let fences = std::slice::from_ref(&fence);
        let found: Vec<_> = parts(text, &(0..text.len()), Level::Blocks, fences).collect();
        assert_eq!(found, [0..1, 2..14, 15..16]);
    }

    #[test]
    fn graphemes_stay_whole_above_characters() {
        let text = "e\u{301}👩‍👧";
        assert_eq!(cut(text, Level::Graphemes), ["e\u{301}", "👩‍👧"]);
        assert_eq!(cut(text, Level::Characters).len(), 5);
    }
}
