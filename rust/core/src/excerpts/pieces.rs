//! The sentences and the parts of code of a text, without headings and lines that only steer a renderer.

use std::ops::Range;

use super::steering::{
    BLANKS, behind_options, is_option, is_steering, may_steer, opened_directive,
};
use crate::sentences::split::{Kind, sentences};

/// Sentences that are farther than this from the beginning of their line are prose.
const MAX_LINE: usize = 10_000;

/// A part of a text that is shown as a whole.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) is_code: bool,
}

/// How many characters a part of a text has.
pub(super) fn characters(text: &str, part: Range<usize>) -> usize {
    text.get(part).unwrap_or_default().chars().count()
}

/// The pieces of a text; its headings, if it has nothing else.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut found = Pieces {
        text,
        found: Vec::new(),
        is_directive: false,
    };
    let mut headings = Vec::new();
    let text_may_steer = may_steer(text);
    for sentence in sentences(text) {
        match sentence.kind {
            Kind::Code => found.code(sentence.range),
            Kind::Heading => headings.push(prose(sentence.range)),
            Kind::Prose if text_may_steer && found.may_steer(&sentence.range) => {
                found.lines(sentence.range);
            }
            Kind::Prose => {
                found.is_directive = false;
                found.found.push(prose(sentence.range));
            }
        }
    }
    if found.found.is_empty() {
        headings
    } else {
        found.found
    }
}

fn prose(range: Range<usize>) -> Piece {
    Piece {
        range,
        is_code: false,
    }
}

struct Pieces<'t> {
    text: &'t str,
    found: Vec<Piece>,
    /// Whether the last line belongs to a directive: its options follow.
    is_directive: bool,
}

impl<'t> Pieces<'t> {
    fn slice(&self, range: Range<usize>) -> &'t str {
        self.text.get(range).unwrap_or_default()
    }

    /// Where the line of a byte begins.
    fn line_start(&self, at: usize) -> usize {
        self.slice(0..at).rfind('\n').map_or(0, |end| end + 1)
    }

    fn code(&mut self, range: Range<usize>) {
        let mut begin = self.line_start(range.start);
        if self.is_directive {
            // Its options are indented, as its content is.
            begin = range.end - behind_options(self.slice(begin..range.end)).len();
        }
        self.is_directive = false;
        let before = self.found.last().filter(|last| last.is_code);
        let is_next =
            before.is_some_and(|last| self.slice(last.range.end..begin).trim().is_empty());
        if let (true, Some(last)) = (is_next, self.found.last_mut()) {
            last.range.end = range.end;
        } else if begin < range.end {
            self.found.push(Piece {
                range: begin..range.end,
                is_code: true,
            });
        }
    }

    /// Whether lines of a sentence may only steer a renderer.
    fn may_steer(&self, range: &Range<usize>) -> bool {
        let near = range.start.saturating_sub(MAX_LINE);
        let before = self.text.as_bytes().get(near..range.start);
        let end = before.and_then(|before| before.iter().rposition(|&it| it == b'\n'));
        let begin = match end {
            Some(end) => near + end + 1,
            None if near == 0 => 0,
            None => return false,
        };
        self.is_directive || may_steer(self.slice(begin..range.end))
    }

    /// The lines of a sentence that are for readers.
    fn lines(&mut self, sentence: Range<usize>) {
        self.is_directive &= !self.slice(0..sentence.start).ends_with("\n\n");
        let own = self.found.len();
        let mut end = sentence.start;
        for part in self
            .text
            .get(sentence)
            .unwrap_or_default()
            .split_inclusive('\n')
        {
            let begin = end;
            end += part.len();
            let last = begin + part.trim_end_matches('\n').len();
            if begin < last
                && let Some(first) = self.line(begin..last)
            {
                self.keep(own, first..last);
            }
        }
    }

    /// Where the text for readers begins in a line, or the rest of one; None if all of it steers a renderer.
    fn line(&mut self, part: Range<usize>) -> Option<usize> {
        let begin = self.line_start(part.start);
        let mut reach = part.end..=self.text.len().min(part.end + MAX_LINE);
        let near = reach.rfind(|&at| self.text.is_char_boundary(at));
        let rest = self.slice(part.end..near.unwrap_or(part.end));
        let stop = part.end + rest.find('\n').unwrap_or(rest.len());
        let line = self.slice(begin..stop).trim_end_matches('\r');
        // Without its indentation, before which a search would go back for every blank.
        let bare = line.trim_start_matches(BLANKS);
        if let Some(end) = opened_directive(bare) {
            self.is_directive = true;
            let content = begin + (line.len() - bare.len()) + end;
            return Some(content.max(part.start)).filter(|&first| first < part.end);
        }
        self.is_directive = is_steering(bare) || (self.is_directive && is_option(bare));
        (!self.is_directive).then_some(part.start)
    }

    /// Adds a line of a sentence to its last piece, or as a piece of its own.
    fn keep(&mut self, own: usize, line: Range<usize>) {
        let text = self.text;
        let last = self.found.get_mut(own..).and_then(<[Piece]>::last_mut);
        let is_next = |last: &&mut Piece| {
            let between = text.get(last.range.end..line.start).unwrap_or_default();
            matches!(between.trim_matches(BLANKS), "\n" | "\r\n")
        };
        match last.filter(is_next) {
            Some(last) => last.range.end = line.end,
            None => self.found.push(prose(line)),
        }
    }
}
