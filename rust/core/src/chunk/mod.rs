//! Texts into chunks: slices of the text, in order, each within a bound of tokens.
//!
//! Three steps: a reader of the format (`markdown`, `restructured`, `code`) makes an `outline`, `joined_sections` joins
//! sections that are too small to stand alone, `split` cuts what is too long. All positions inside are bytes; `offsets`
//! turns them into characters and back.
//!
//! What holds for every answer: chunks begin and end with a character that is not blank; starts and ends ascend; every
//! character that is not blank lies in a chunk; a chunk holds at most `max_tokens` tokens (unless one character alone
//! holds more) and at most `max_bytes` bytes; two neighbours share at most `overlap_tokens` tokens;
//! no character stands in more than two chunks.

mod boundaries;
pub mod code;
mod joined_sections;
pub mod markdown;
pub mod offsets;
mod options;
pub mod outline;
pub mod restructured;
mod split;
pub mod tokens;
pub mod words;

use std::ops::Range;

pub(crate) use boundaries::is_blank;
use boundaries::lies_in_fence;
pub use options::{MIN_MAX_BYTES, Options, Structure};
use outline::{Outline, Path, Section};
use tokens::Tokens;

/// One chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes of the text that it is.
    pub range: Range<usize>,
    /// Tokens that touch the range.
    pub tokens: usize,
    /// Line on which it begins, from 1.
    pub line: usize,
    /// Whether it is code, or lies inside one block of it.
    pub code: bool,
    /// The headings above it, by level, as numbers into `Chunks::titles`.
    pub path: Path,
    /// What announces the list, the table or the code that it is a piece of, where that stands in a chunk before.
    pub introduction: Option<Range<usize>>,
}

/// The chunks of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// In the order of the text.
    pub chunks: Vec<Chunk>,
    /// The titles of the headings that have one.
    pub titles: Vec<String>,
    /// Number of the first title of level 1.
    pub title: Option<u32>,
}

/// Cuts a text. Linear in its length: each of the seven levels of cutting visits a character at most once, and no
/// character stands in more than two chunks.
#[must_use]
pub fn split_text(text: &str, tokens: &Tokens, options: &Options) -> Chunks {
    let outline = match options.structure {
        Structure::Plain => outline::plain(text),
        Structure::Markdown => markdown::outline(text),
        Structure::Restructured => restructured::outline(text),
        Structure::Code(language) => code::outline(text, language),
    };
    let mut ranges = Vec::new();
    for group in joined_sections::groups(&outline.sections, tokens, options) {
        split::split(text, group, &outline, tokens, options, &mut ranges);
    }
    let lines = line_numbers(text, ranges.iter().map(|range| range.start));
    let chunks = ranges
        .into_iter()
        .zip(lines)
        .map(|(range, line)| Chunk {
            tokens: tokens.count(&range),
            line,
            code: outline.is_code || lies_in_fence(&range, &outline.fences),
            path: path(&range, &outline),
            introduction: outline.introduction(range.start).cloned(),
            range,
        })
        .collect();
    Chunks {
        chunks,
        titles: outline.titles,
        title: outline.title,
    }
}

/// What the paths of the sections in a chunk have in common, so that every title of it holds for the whole text. Where
/// the chunk holds text under headings, headings without text of their own do not count: they stand above it.
fn path(range: &Range<usize>, outline: &Outline) -> Path {
    let first = outline
        .sections
        .partition_point(|section| section.range.end <= range.start);
    let touched = || {
        let sections = outline.sections.get(first..).unwrap_or_default();
        sections
            .iter()
            .take_while(|section| section.range.start < range.end)
    };
    let holds_body = |section: &&Section| {
        !section.body.is_empty() && section.body.start < range.end && range.start < section.body.end
    };
    let common = |left: Path, right: Path| left.common(&right);
    let with_body = touched()
        .filter(holds_body)
        .map(|section| section.path)
        .reduce(common);
    with_body
        .or_else(|| touched().map(|section| section.path).reduce(common))
        .unwrap_or_default()
}

/// Lines of ascending positions, from 1. A line ends with a line feed, a carriage return, or both.
fn line_numbers(text: &str, positions: impl Iterator<Item = usize>) -> Vec<usize> {
    let bytes = text.as_bytes();
    let (mut line, mut seen) = (1, 0);
    positions
        .map(|position| {
            while seen < position {
                let next = bytes.get(seen + 1);
                match bytes.get(seen) {
                    Some(b'\n') => line += 1,
                    Some(b'\r') if next != Some(&b'\n') => line += 1,
                    _ => {}
                }
                seen += 1;
            }
            line
        })
        .collect()
}
