//! Cuts one range into chunks: greedy packing of parts, each level finer only where a part does not fit.

use std::ops::Range;

use super::Options;
use super::boundaries::{Level, parts, slice, trimmed};
use super::tokens::Tokens;

// A chunk repeats at most this share of the bytes that it may hold, so that each one moves on even where one token is
// longer than a chunk.
const OVERLAP_SHARE_OF_BYTES: usize = 4;

/// Appends the chunks of `range` to `chunks`.
pub(super) fn split(
    text: &str,
    range: Range<usize>,
    fences: &[Range<usize>],
    tokens: &Tokens,
    options: &Options,
    chunks: &mut Vec<Range<usize>>,
) {
    let whole = trimmed(text, range);
    if whole.is_empty() {
        return;
    }
    let mut packer = Packer {
        text,
        fences,
        tokens,
        options,
        open: None,
        chunks,
    };
    if whole.end <= packer.last_end(whole.start) {
        packer.chunks.push(whole);
        return;
    }
    for part in parts(text, &whole, Level::Blocks, fences) {
        packer.add(part, Level::Blocks);
    }
    if let Some(open) = packer.open {
        packer.chunks.push(open.range);
    }
}

/// The chunk that is being filled, and the last place where it may end.
struct Open {
    range: Range<usize>,
    last_end: usize,
}

struct Packer<'a> {
    text: &'a str,
    fences: &'a [Range<usize>],
    tokens: &'a Tokens,
    options: &'a Options,
    open: Option<Open>,
    chunks: &'a mut Vec<Range<usize>>,
}

impl Packer<'_> {
    /// Adds a part, cutting it where it must be cut. Parts come in the order of the text.
    fn add(&mut self, part: Range<usize>, level: Level) {
        if let Some(open) = &mut self.open
            && part.end <= open.last_end
        {
            open.range.end = part.end;
            return;
        }
        let fits_alone = part.end <= self.last_end(part.start);
        let may_close = level >= Level::Words
            || self.open_is_large_enough()
            || (level == Level::Blocks && super::lies_in_fence(&part, self.fences));
        if fits_alone && may_close {
            let start = self.overlap_start(&part).unwrap_or(part.start);
            self.begin(start..part.end);
            return;
        }
        match level.finer() {
            Some(finer) => {
                for smaller in parts(self.text, &part, finer, self.fences) {
                    self.add(smaller, finer);
                }
            }
            // One character of more tokens than a chunk may hold: nothing can be cut any more.
            None => self.begin(part),
        }
    }

    fn begin(&mut self, range: Range<usize>) {
        let last_end = self.last_end(range.start);
        if let Some(full) = self.open.replace(Open { range, last_end }) {
            self.chunks.push(full.range);
        }
    }

    /// The last place where a chunk from `start` may end.
    fn last_end(&self, start: usize) -> usize {
        let by_tokens = self.tokens.last_end(start, self.options.max_tokens);
        by_tokens.min(start.saturating_add(self.options.max_bytes))
    }

    /// A chunk that is smaller than wanted is filled up with a piece of the next part.
    fn open_is_large_enough(&self) -> bool {
        self.open
            .as_ref()
            .is_none_or(|open| self.tokens.count(&open.range) >= self.options.min_tokens)
    }

    /// Where in the open chunk the next one begins, to repeat at most `overlap_tokens` and still hold `next` as a whole:
    /// at the first sentence or line in reach, else at the first word.
    fn overlap_start(&self, next: &Range<usize>) -> Option<usize> {
        let Options {
            max_tokens,
            overlap_tokens,
            max_bytes,
            ..
        } = *self.options;
        let open = &self.open.as_ref()?.range;
        if overlap_tokens == 0 {
            return None;
        }
        let most_bytes = (open.len() / 2).min(max_bytes / OVERLAP_SHARE_OF_BYTES);
        let earliest = self
            .tokens
            .first_start(open.end, overlap_tokens)
            .max(self.tokens.first_start(next.end, max_tokens))
            .max(open.end - most_bytes)
            .max(next.end.saturating_sub(max_bytes));
        // From the character before, so that the first part is known to begin here or not.
        let mut before = earliest.saturating_sub(1);
        while !self.text.is_char_boundary(before) {
            before = before.saturating_sub(1);
        }
        let window = before..open.end;
        let first = |level, skipped: usize| {
            parts(self.text, &window, level, &[])
                .skip(skipped)
                .map(|part| part.start)
                .find(|&start| start >= earliest)
        };
        let after_break = slice(self.text, &window).starts_with(['\n', '\r']);
        first(Level::Sentences, usize::from(!after_break)).or_else(|| first(Level::Words, 0))
    }
}
