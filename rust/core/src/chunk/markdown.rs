//! Sections of a Markdown text by its headings.
//!
//! After CommonMark 0.31: ATX headings (4.2), setext headings (4.3), fenced code (4.5) and comments (4.6, kind 2). A line
//! that is indented by four columns is never a heading. Headings inside lists and block quotes are text; other HTML is
//! not interpreted; front matter is a first line `---` up to the next `---` or `...`.

use std::cmp::Ordering;
use std::ops::Range;

use super::boundaries::{is_blank, line_end, slice, trimmed};

/// Deepest level of a heading.
pub const LEVELS: usize = 6;
/// Longer titles are cut: they stand above every chunk of their section.
pub const MAX_TITLE_CHARACTERS: usize = 256;

/// The titles above a text by level, outermost first, as numbers into `Outline::titles`; nothing for a level without a
/// heading or with an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path(pub [Option<u32>; LEVELS]);

impl Path {
    /// The levels, from the outermost, at which both have the same heading.
    #[must_use]
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut common = Self::default();
        let both = self.0.iter().zip(&other.0);
        for (slot, (left, _)) in common
            .0
            .iter_mut()
            .zip(both.take_while(|(left, right)| left == right))
        {
            *slot = *left;
        }
        common
    }
}

/// A heading with the text up to the next heading, or the text before the first heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Heading and text, without blanks at the ends; never empty.
    pub range: Range<usize>,
    /// The text without the heading, without blanks at the ends; may be empty.
    pub body: Range<usize>,
    /// Level of the heading; 0 before the first.
    pub level: u8,
    /// The headings above the text, its own included.
    pub path: Path,
}

/// What the headings make of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// In the order of the text.
    pub sections: Vec<Section>,
    /// Titles of the headings that have one.
    pub titles: Vec<String>,
    /// Number of the first title of level 1.
    pub title: Option<u32>,
    /// Fenced code blocks with their fences.
    pub fences: Vec<Range<usize>>,
}

/// The outline of a text in which nothing is a heading.
#[must_use]
pub fn plain(text: &str) -> Outline {
    let mut outline = Outline::default();
    outline.close(text, Heading::default(), Path::default(), text.len());
    outline
}

/// Reads the headings of a Markdown text, in one pass over its lines.
#[must_use]
pub fn outline(text: &str) -> Outline {
    let mut builder = OutlineBuilder {
        text,
        outline: Outline::default(),
        path: Path::default(),
        heading: Heading::default(),
        inside: Inside::Blank,
    };
    let mut place = front_matter_end(text);
    while place < text.len() {
        let (end, next) = line_end(text, place);
        builder.inside = builder.read(place..end, next);
        place = next;
    }
    if let Inside::Fence { from, .. } = builder.inside {
        builder.outline.fences.push(from..text.len());
    }
    let (heading, path) = (builder.heading, builder.path);
    builder.outline.close(text, heading, path, text.len());
    builder.outline
}

/// Where a heading stands: its first byte, and the byte behind its last line.
#[derive(Debug, Clone, Copy, Default)]
struct Heading {
    start: usize,
    end: usize,
    level: u8,
}

/// What the line before has begun.
#[derive(Clone, Copy)]
enum Inside {
    /// Nothing.
    Blank,
    /// A paragraph, which an underline makes a heading.
    Paragraph { from: usize },
    /// A list item or a quotation: an underline is a rule there.
    Nested,
    /// A comment.
    Comment,
    /// Fenced code, opened by `length` times `mark`.
    Fence {
        mark: char,
        length: usize,
        from: usize,
    },
}

struct OutlineBuilder<'a> {
    text: &'a str,
    outline: Outline,
    path: Path,
    heading: Heading,
    inside: Inside,
}

impl OutlineBuilder<'_> {
    fn read(&mut self, range: Range<usize>, next: usize) -> Inside {
        let (inside, from) = (self.inside, range.start);
        let line = slice(self.text, &range);
        match inside {
            Inside::Fence { mark, length, from } => {
                if !closes_fence(line, mark, length) {
                    return inside;
                }
                self.outline.fences.push(from..next);
                return Inside::Blank;
            }
            Inside::Comment => return after_comment(line),
            _ => {}
        }
        if line.chars().all(is_blank) {
            return Inside::Blank;
        }
        let Some(line) = unindented(line) else {
            return inside;
        };
        if let Some((mark, length)) = opened_fence(line) {
            return Inside::Fence { mark, length, from };
        }
        if line.starts_with("<!--") {
            return after_comment(line);
        }
        if let Some((level, title)) = atx(line) {
            self.begin(from..next, level, title);
            return Inside::Blank;
        }
        if let (Some(level), Inside::Paragraph { from: start }) = (underline(line), inside) {
            self.begin(start..next, level, slice(self.text, &(start..from)));
            return Inside::Blank;
        }
        if is_rule(line) {
            return Inside::Blank;
        }
        match inside {
            _ if begins_nested(line) => Inside::Nested,
            Inside::Blank => Inside::Paragraph { from },
            _ => inside,
        }
    }

    fn begin(&mut self, lines: Range<usize>, level: u8, title: &str) {
        self.outline
            .close(self.text, self.heading, self.path, lines.start);
        let number = self.outline.number(title);
        if level == 1 && self.outline.title.is_none() {
            self.outline.title = number;
        }
        for (slot, depth) in self.path.0.iter_mut().zip(1..) {
            match level.cmp(&depth) {
                Ordering::Equal => *slot = number,
                Ordering::Less => *slot = None,
                Ordering::Greater => {}
            }
        }
        self.heading = Heading {
            start: lines.start,
            end: lines.end,
            level,
        };
    }
}

impl Outline {
    /// Ends the section that a heading has begun.
    fn close(&mut self, text: &str, heading: Heading, path: Path, end: usize) {
        let range = trimmed(text, heading.start..end);
        if !range.is_empty() {
            self.sections.push(Section {
                body: trimmed(text, heading.end..end),
                range,
                level: heading.level,
                path,
            });
        }
    }

    /// Keeps a title, its blanks made single spaces; nothing for an empty one.
    fn number(&mut self, title: &str) -> Option<u32> {
        let mut words = title.split(is_blank).filter(|word| !word.is_empty());
        let mut kept = String::new();
        let mut room = MAX_TITLE_CHARACTERS;
        while room > 0
            && let Some(word) = words.next()
        {
            if !kept.is_empty() {
                kept.push(' ');
                room -= 1;
            }
            let taken: String = word.chars().take(room).collect();
            room -= taken.chars().count();
            kept.push_str(&taken);
        }
        kept.truncate(kept.trim_end_matches(is_blank).len());
        if kept.is_empty() {
            return None;
        }
        let number = u32::try_from(self.titles.len()).ok()?;
        self.titles.push(kept);
        Some(number)
    }
}

/// The line without its indentation; nothing when that is four columns or more.
fn unindented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() < 4 && !rest.starts_with('\t')).then_some(rest)
}

/// Level and title of `## title ##`.
fn atx(line: &str) -> Option<(u8, &str)> {
    let rest = line.trim_start_matches('#');
    let level = u8::try_from(line.len() - rest.len()).ok()?;
    let spaced = rest.is_empty() || rest.starts_with([' ', '\t']);
    if !(1..=6).contains(&level) || !spaced {
        return None;
    }
    let title = rest.trim_matches(is_blank);
    let open = title.trim_end_matches('#');
    let closed = open.is_empty() || open.ends_with([' ', '\t']);
    Some((level, if closed { open } else { title }))
}

/// Level of an underline, `===` or `---`.
fn underline(line: &str) -> Option<u8> {
    let marks = line.trim_end_matches(is_blank);
    let only = |mark: char| marks.chars().all(|character| character == mark);
    match marks.chars().next()? {
        '=' if only('=') => Some(1),
        '-' if only('-') => Some(2),
        _ => None,
    }
}

/// Whether the line is a rule across the page.
fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|character| !is_blank(*character));
    let Some(first @ ('-' | '*' | '_')) = marks.next() else {
        return false;
    };
    let mut count = 1;
    marks.all(|mark| {
        count += 1;
        mark == first
    }) && count >= 3
}

/// Whether the line begins a list item or a quotation.
fn begins_nested(line: &str) -> bool {
    let marked = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t']);
    if line.starts_with('>') {
        return true;
    }
    if let Some(rest) = line.strip_prefix(['-', '*', '+']) {
        return marked(rest);
    }
    let rest = line.trim_start_matches(|character: char| character.is_ascii_digit());
    let digits = line.len() - rest.len();
    (1..=9).contains(&digits) && rest.strip_prefix(['.', ')']).is_some_and(marked)
}

/// Mark and length of a fence that opens a block of code.
fn opened_fence(line: &str) -> Option<(char, usize)> {
    let mark = line
        .chars()
        .next()
        .filter(|mark| matches!(mark, '`' | '~'))?;
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    (length >= 3 && (mark == '~' || !rest.contains('`'))).then_some((mark, length))
}

fn closes_fence(line: &str, mark: char, length: usize) -> bool {
    unindented(line).is_some_and(|line| {
        let marks = line.trim_end_matches(is_blank);
        marks.len() >= length && marks.chars().all(|character| character == mark)
    })
}

fn after_comment(line: &str) -> Inside {
    if line.contains("-->") {
        Inside::Blank
    } else {
        Inside::Comment
    }
}

/// Where the front matter ends; 0 without one. A blank second line makes the first one a rule.
fn front_matter_end(text: &str) -> usize {
    let first = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_fence = |line: &str, marks: &[&str]| marks.contains(&line.trim_end_matches(is_blank));
    let (end, mut place) = line_end(text, text.len() - first.len());
    let opening = slice(text, &(text.len() - first.len()..end));
    let second = slice(text, &(place..line_end(text, place).0));
    if !is_fence(opening, &["---"]) || second.chars().all(is_blank) {
        return 0;
    }
    while place < text.len() {
        let (end, next) = line_end(text, place);
        if is_fence(slice(text, &(place..end)), &["---", "..."]) {
            return next;
        }
        place = next;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::outline;

    fn paths(text: &str) -> Vec<Vec<String>> {
        let found = outline(text);
        let title = |number: u32| found.titles.get(number as usize).cloned();
        let named = |path: super::Path| path.0.into_iter().flatten().filter_map(title).collect();
        found
            .sections
            .iter()
            .map(|section| named(section.path))
            .collect()
    }

    #[test]
    fn headings_nest_by_level() {
        let text = "before\n# A\na\n## B ##\nb\n#### C#\n## \n# D";
        let expected: [&[&str]; 6] = [&[], &["A"], &["A", "B"], &["A", "B", "C#"], &["A"], &["D"]];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn underlines_make_headings_of_paragraphs_only() {
        let text = "A\nlong\n===\n\n- item\n---\n\n> quote\n---\n\n---\nB\n-\nb";
        let expected: [&[&str]; 2] = [&["A long"], &["A long", "B"]];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn code_comments_and_front_matter_hold_no_headings() {
        let text = "---\ntitle: x\n# y\n---\n```\n# a\n~~~\n```\n~~~~\n# b\n~~~\n~~~~\n<!--\n# c\n-->\n    # d\n#e\n# F";
        let expected: [&[&str]; 2] = [&[], &["F"]];
        assert_eq!(paths(text), expected);
        assert_eq!(outline(text).fences.len(), 2);
    }

    #[test]
    fn an_open_fence_ends_with_the_text() {
        assert_eq!(outline("# A\n```\n# b").fences, vec![4..11; 1]);
        assert_eq!(outline("---\n\n# A\n---").sections.len(), 2);
    }
}
