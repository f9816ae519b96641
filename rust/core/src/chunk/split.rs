//! Cuts one range into chunks: greedy packing of parts, each level finer only where a part does not fit.

use std::ops::Range;

use super::boundaries::{Level, lies_in_fence, parts, slice, trimmed, units};
use super::options::Options;
use super::outline::Outline;
use super::tokens::Tokens;

// What is repeated has at most this share of the bytes that a chunk may hold, so that each one moves on even where one
// token is longer than a chunk.
const OVERLAP_SHARE_OF_BYTES: usize = 4;

/// Appends the chunks of `range` to `chunks`.
pub(super) fn split(
    text: &str,
    range: Range<usize>,
    outline: &Outline,
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
        outline,
        tokens,
        options,
        open: None,
        chunks,
    };
    if whole.end <= packer.last_end(whole.start) {
        packer.chunks.push(whole);
        return;
    }
    packer.add_units(&whole, Level::Blocks);
    if let Some(open) = packer.open {
        packer.chunks.push(open.range);
    }
}

/// The chunk that is being filled.
struct Open {
    range: Range<usize>,
    /// Where its own text begins, after what it repeats of the chunk before.
    own_start: usize,
    /// The last place where it may end.
    last_end: usize,
}

struct Packer<'a> {
    text: &'a str,
    outline: &'a Outline,
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
        let fits_alone = self.fits(&part);
        let may_close = level >= Level::Words
            || self.open_is_large_enough()
            || (level == Level::Blocks && self.stays_whole(&part));
        if fits_alone && may_close {
            let start = self.overlap_start(&part).unwrap_or(part.start);
            self.begin(start, part);
            return;
        }
        match level {
            Level::Blocks if !fits_alone => self.add_large(&part),
            Level::Blocks => self.add_units(&part, Level::Lines),
            _ => match level.finer() {
                Some(finer) => {
                    for smaller in parts(self.text, &part, finer, &[]) {
                        self.add(smaller, finer);
                    }
                }
                // One character of more tokens than a chunk may hold: nothing can be cut any more.
                None => self.begin(part.start, part),
            },
        }
    }

    fn add_units(&mut self, range: &Range<usize>, level: Level) {
        let Outline { fences, joined, .. } = self.outline;
        for unit in units(self.text, range, level, fences, joined) {
            self.add(unit, level);
        }
    }

    /// Adds blocks that belong together and do not fit together. Where the last one fits, it stays whole, and with it as
    /// much as fits of what announces it: the block before, else its last line.
    fn add_large(&mut self, unit: &Range<usize>) {
        let blocks = parts(self.text, unit, Level::Blocks, &self.outline.fences);
        let (mut announcing, mut content) = (unit.start, unit.start);
        for block in blocks {
            (announcing, content) = (content, block.start);
        }
        let last_block = content..unit.end;
        if content == unit.start || !self.fits(&last_block) {
            self.add_units(unit, Level::Lines);
            return;
        }
        let before = trimmed(self.text, announcing..content);
        let last_line = slice(self.text, &before)
            .rfind(['\n', '\r'])
            .map_or(before.start, |end| before.start + end + 1);
        let last_line = trimmed(self.text, last_line..before.end).start;
        let start = [before.start, last_line]
            .into_iter()
            .find(|start| self.fits(&(*start..unit.end)))
            .unwrap_or(content);
        self.add_units(&trimmed(self.text, unit.start..start), Level::Lines);
        self.add(start..unit.end, Level::Blocks);
    }

    /// Whether a part fits into one chunk.
    fn fits(&self, part: &Range<usize>) -> bool {
        part.end <= self.last_end(part.start)
    }

    /// Code, and what belongs to what stands before it, do not fill up the chunk before.
    fn stays_whole(&self, part: &Range<usize>) -> bool {
        let joined = &self.outline.joined;
        let behind = joined.partition_point(|start| *start <= part.start);
        let is_joined = joined.get(behind).is_some_and(|start| *start < part.end);
        is_joined || lies_in_fence(part, &self.outline.fences)
    }

    fn begin(&mut self, start: usize, part: Range<usize>) {
        let open = Open {
            range: start..part.end,
            own_start: part.start,
            last_end: self.last_end(start),
        };
        if let Some(full) = self.open.replace(open) {
            self.chunks.push(full.range);
        }
    }

    /// The last place where a chunk from `start` may end.
    fn last_end(&self, start: usize) -> usize {
        let by_tokens = self.tokens.last_end(start, self.options.max_tokens);
        by_tokens.min(start.saturating_add(self.options.max_bytes))
    }

    /// Whether the open chunk has enough text of its own; if not, a piece of the next part fills it up.
    fn open_is_large_enough(&self) -> bool {
        self.open.as_ref().is_none_or(|open| {
            let own = open.own_start..open.range.end;
            self.tokens.count(&own) >= self.options.min_tokens
        })
    }

    /// Where in the open chunk the next one begins, to repeat at most `overlap_tokens` and still hold `next` as a whole:
    /// at the first sentence or line in reach, else at the first word. Never more than half of what the open chunk does
    /// not repeat itself, so no text stands in three chunks.
    fn overlap_start(&self, next: &Range<usize>) -> Option<usize> {
        let Options {
            max_tokens,
            overlap_tokens,
            max_bytes,
            ..
        } = *self.options;
        let Open {
            range: open,
            own_start,
            ..
        } = self.open.as_ref()?;
        if overlap_tokens == 0 {
            return None;
        }
        let most_bytes =
            (open.end.saturating_sub(*own_start) / 2).min(max_bytes / OVERLAP_SHARE_OF_BYTES);
        let earliest = self
            .tokens
            .first_start(open.end, overlap_tokens)
            .max(self.tokens.first_start(next.end, max_tokens))
            .max(open.end.saturating_sub(most_bytes))
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
