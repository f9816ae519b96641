//! Joins sections that are too small to stand alone.
//!
//! A section below `min_tokens` is joined with the one that follows, when that is its sibling or lies below it and both
//! fit together. Headings without text are joined with whatever follows (at the end of the text: with what precedes),
//! fit or not, so that a heading is not a chunk by itself; `split` cuts the result where it is too long.

use std::ops::Range;

use super::options::Options;
use super::outline::Section;
use super::tokens::Tokens;

struct Group {
    range: Range<usize>,
    shallowest: u8,
    has_body: bool,
}

/// The ranges of the joined sections, in order.
pub(super) fn groups(
    sections: &[Section],
    tokens: &Tokens,
    options: &Options,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Group> = Vec::new();
    for section in sections {
        match groups.last_mut() {
            Some(group) if joins(group, section, tokens, options) => group.take(section),
            _ => groups.push(Group {
                range: section.range.clone(),
                shallowest: section.level,
                has_body: !section.body.is_empty(),
            }),
        }
    }
    if groups.len() > 1
        && let Some(last) = groups.pop_if(|last| !last.has_body)
        && let Some(before) = groups.last_mut()
    {
        before.range.end = last.range.end;
    }
    groups.into_iter().map(|group| group.range).collect()
}

fn joins(group: &Group, section: &Section, tokens: &Tokens, options: &Options) -> bool {
    if !group.has_body {
        return true;
    }
    // A heading belongs to what follows it.
    let joined = group.range.start..section.range.end;
    !section.body.is_empty()
        && section.level >= group.shallowest
        && joined.len() <= options.max_bytes
        && tokens.count(&group.range) < options.min_tokens
        && tokens.count(&joined) <= options.max_tokens
}

impl Group {
    fn take(&mut self, section: &Section) {
        self.range.end = section.range.end;
        self.shallowest = self.shallowest.min(section.level);
        self.has_body |= !section.body.is_empty();
    }
}
