//! The structure of a Markdown text.
//!
//! After CommonMark 0.31: ATX headings (4.2), setext headings (4.3), fenced code (4.5) and comments (4.6, kind 2), and the
//! tables of GitHub's (4.10). A line that is indented by four columns is never a heading. Headings inside lists and block
//! quotes are text; other HTML is not interpreted; front matter is a first line `---` up to the next `---` or `...`.

use super::boundaries::{is_blank, line_end, slice};
use super::outline::{Kind, Line, Outline, OutlineBuilder, lines};

/// Reads the structure of a Markdown text, in one pass over its lines.
#[must_use]
pub fn outline(text: &str) -> Outline {
    let mut reader = Reader {
        builder: OutlineBuilder::new(text),
        inside: Inside::Blank,
        block: None,
    };
    for line in lines(text, front_matter_end(text)) {
        reader.inside = reader.read(&line);
    }
    if let Inside::Fence { from, indent, .. } = reader.inside {
        reader.builder.block(Kind::Code, from..text.len(), indent);
    }
    reader.end_block();
    reader.builder.finish()
}

/// What the line before has begun.
#[derive(Clone, Copy)]
enum Inside {
    /// Nothing.
    Blank,
    /// A paragraph, which an underline makes a heading.
    Paragraph { from: usize },
    /// A list item, a quotation or a table: an underline is a rule there.
    Nested,
    /// A comment.
    Comment,
    /// Fenced code, opened by `length` times `mark`.
    Fence {
        mark: char,
        length: usize,
        from: usize,
        indent: usize,
    },
}

/// Lines that belong together, so far.
struct Block {
    kind: Kind,
    start: usize,
    end: usize,
    /// Where its last line begins.
    last: usize,
    indent: usize,
}

struct Reader<'a> {
    builder: OutlineBuilder<'a>,
    inside: Inside,
    block: Option<Block>,
}

impl Reader<'_> {
    fn read(&mut self, line: &Line) -> Inside {
        let text = self.builder.text;
        let shown = slice(text, &(line.start..line.end));
        let indent = shown.len() - shown.trim_start_matches([' ', '\t']).len();
        match self.inside {
            Inside::Fence {
                mark,
                length,
                from,
                indent: opened,
            } => {
                let closed = closes_fence(shown, mark, length, opened);
                // Code in a list ends with its item.
                let left = opened >= CODE_INDENT && indent < opened && !shown.chars().all(is_blank);
                if !closed && !left {
                    return self.inside;
                }
                let end = if closed { line.next } else { line.start };
                self.builder.block(Kind::Code, from..end, opened);
                if closed {
                    return Inside::Blank;
                }
                self.inside = Inside::Blank;
            }
            Inside::Comment => return after_comment(shown),
            _ => {}
        }
        if shown.chars().all(is_blank) {
            self.end_block();
            return Inside::Blank;
        }
        if let Some((mark, length)) = opened_fence(shown.trim_start_matches([' ', '\t']))
            && (indent < CODE_INDENT || !matches!(self.inside, Inside::Paragraph { .. }))
        {
            self.end_block();
            return Inside::Fence {
                mark,
                length,
                from: line.start,
                indent,
            };
        }
        let Some(unindented) = unindented(shown) else {
            self.add(
                line,
                indent,
                begins_nested(shown.trim_start_matches([' ', '\t'])),
            );
            return self.inside;
        };
        if unindented.starts_with("<!--") {
            self.end_block();
            return after_comment(unindented);
        }
        if let Some((level, title)) = atx(unindented) {
            self.end_block();
            self.builder.begin(line.start..line.next, level, title);
            return Inside::Blank;
        }
        if let (Some(level), Inside::Paragraph { from }) = (underline(unindented), self.inside) {
            self.block = None;
            let title = slice(text, &(from..line.start));
            self.builder.begin(from..line.next, level, title);
            return Inside::Blank;
        }
        if self.ends_table_header(unindented) {
            self.begin_table(line, indent);
            return Inside::Nested;
        }
        if is_rule(unindented) {
            self.end_block();
            return Inside::Blank;
        }
        let nested = begins_nested(unindented);
        self.add(line, indent, nested && !unindented.starts_with('>'));
        match self.inside {
            _ if nested => Inside::Nested,
            Inside::Blank => Inside::Paragraph { from: line.start },
            inside => inside,
        }
    }

    /// Adds a line to the block, or begins another.
    fn add(&mut self, line: &Line, indent: usize, is_item: bool) {
        match &mut self.block {
            Some(block) if !is_item => {
                block.end = line.end;
                block.last = line.start;
            }
            _ => {
                self.end_block();
                self.block = Some(Block {
                    kind: if is_item { Kind::Item } else { Kind::Prose },
                    start: line.start,
                    end: line.end,
                    last: line.start,
                    indent,
                });
            }
        }
    }

    fn end_block(&mut self) {
        if let Some(block) = self.block.take() {
            self.builder
                .block(block.kind, block.start..block.end, block.indent);
        }
    }

    /// Whether a line is the row of dashes under the header of a table.
    fn ends_table_header(&self, line: &str) -> bool {
        let is_row = |block: &Block| {
            matches!(block.kind, Kind::Prose)
                && slice(self.builder.text, &(block.last..block.end)).contains('|')
        };
        line.contains('|')
            && line.contains('-')
            && line
                .chars()
                .all(|mark| matches!(mark, '|' | '-' | ':') || is_blank(mark))
            && self.block.as_ref().is_some_and(is_row)
    }

    /// The last line of the block is the header of a table.
    fn begin_table(&mut self, line: &Line, indent: usize) {
        let Some(mut before) = self.block.take() else {
            return;
        };
        let start = before.last;
        if before.start < start {
            before.end = start;
            self.builder
                .block(before.kind, before.start..before.end, before.indent);
        }
        self.block = Some(Block {
            kind: Kind::Table(line.end),
            start,
            end: line.end,
            last: line.start,
            indent,
        });
    }
}

/// A line that is indented so far begins no block of its own outside a list.
const CODE_INDENT: usize = 4;

/// The line without its indentation; `None` if that is four columns or more.
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
pub(super) fn begins_nested(line: &str) -> bool {
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

fn closes_fence(line: &str, mark: char, length: usize, opened: usize) -> bool {
    let rest = line.trim_start_matches([' ', '\t']);
    let marks = rest.trim_end_matches(is_blank);
    line.len() - rest.len() < opened + CODE_INDENT
        && marks.len() >= length
        && marks.chars().all(|character| character == mark)
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
        let named = |path: crate::chunk::outline::Path| {
            path.0.into_iter().flatten().filter_map(title).collect()
        };
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
