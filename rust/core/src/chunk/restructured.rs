//! The structure of a reStructuredText.
//!
//! After the specification of docutils: sections by underlines, whose order of first use is their depth; literal blocks
//! behind `::`; explicit markup (`.. directive::`, labels, comments); simple and grid tables. A directive that describes
//! an object, as Sphinx has them (`.. function:: name(arguments)`), is a heading of its description. A plain text without
//! any of these is one section.

use super::boundaries::{is_blank, slice};
use super::markdown::begins_nested;
use super::outline::{Kind, LEVELS, Line, Outline, OutlineBuilder, lines};

/// Directives whose content is not prose.
const CODE: &[&str] = &[
    "code-block",
    "code",
    "sourcecode",
    "literalinclude",
    "parsed-literal",
    "doctest",
    "testcode",
    "testoutput",
    "testsetup",
    "testcleanup",
    "prompt",
    "ipython",
    "math",
    "productionlist",
    "graphviz",
    "digraph",
    "graph",
    "uml",
    "mermaid",
    "raw",
    "plot",
    "program-output",
    "command-output",
    "jupyter-execute",
    "regendoc",
];
/// Directives that describe something that has a name; so do all with the name of a domain, as `py:class`.
const OBJECTS: &[&str] = &[
    "function",
    "class",
    "method",
    "classmethod",
    "staticmethod",
    "attribute",
    "property",
    "exception",
    "data",
    "decorator",
    "decoratormethod",
    "option",
    "cmdoption",
    "program",
    "envvar",
    "confval",
    "setting",
    "fixture",
    "hook",
    "globalvar",
    "opcode",
    "describe",
    "object",
    "type",
    "macro",
    "struct",
    "enum",
    "enumerator",
    "templatetag",
    "templatefilter",
    "django-admin",
    "django-admin-option",
    "fieldlookup",
    "term",
    "rst:directive",
    "glossary-term",
];
/// Directives about what follows them, without text for readers.
const MARKS: &[&str] = &[
    "index",
    "highlight",
    "currentmodule",
    "module",
    "py:module",
    "py:currentmodule",
    "contents",
    "sectionauthor",
    "default-domain",
    "role",
    "default-role",
    "meta",
    "tabularcolumns",
    "rst-class",
    "cssclass",
];
/// An underline of this many characters makes a heading even of a longer line.
const LONG_UNDERLINE: usize = 4;

/// Reads the structure of a text, in one pass over its lines.
#[must_use]
pub fn outline(text: &str) -> Outline {
    let mut reader = Reader {
        builder: OutlineBuilder::new(text),
        lines: lines(text, 0).collect(),
        styles: Vec::new(),
        level: 0,
        objects: Vec::new(),
        block: None,
        literal: None,
        marks: None,
        has_tables: true,
    };
    let mut number = 0;
    while number < reader.lines.len() {
        number = reader.read(number).max(number + 1);
    }
    reader.end_block();
    reader.builder.finish()
}

/// Lines that belong together, so far.
struct Block {
    kind: Kind,
    start: usize,
    end: usize,
    indent: usize,
    lines: usize,
}

struct Reader<'a> {
    builder: OutlineBuilder<'a>,
    lines: Vec<Line>,
    /// By depth of the heading: character of the underline, and whether an overline exists.
    styles: Vec<(char, bool)>,
    level: u8,
    /// Descriptions that are open: by how much their directive is indented, and their level.
    objects: Vec<(usize, u8)>,
    block: Option<Block>,
    /// Indentation of a paragraph that ended with `::`.
    literal: Option<usize>,
    /// Where the labels begin that are right before this line.
    marks: Option<usize>,
    /// Whether the end of a simple table was still to be found.
    has_tables: bool,
}

impl<'a> Reader<'a> {
    fn read(&mut self, number: usize) -> usize {
        let shown = self.shown(number);
        let Some((start, end)) = self.lines.get(number).map(|line| (line.start, line.end)) else {
            return number + 1;
        };
        if is_empty(shown) {
            self.end_block();
            return number + 1;
        }
        let indent = indent_of(shown);
        // Marks end a paragraph that is indented deeper, with no blank line between them.
        if self
            .block
            .as_ref()
            .is_some_and(|block| indent < block.indent)
            && shown.trim_start_matches(is_blank).starts_with(".. ")
        {
            self.end_block();
        }
        if self.block.is_none() {
            if let Some(before) = self.literal.take()
                && indent > before
            {
                let last = self.body_end(number, before);
                self.take(Kind::Code, number, last, indent);
                return last;
            }
            self.leave_objects(start, indent);
            if let Some(next) = self.structure(number, indent) {
                return next;
            }
        }
        let is_item = begins_item(shown.trim_start_matches(is_blank));
        match &mut self.block {
            Some(block) if !is_item || block.kind == Kind::Code => {
                if block.lines == 1 && block.kind == Kind::Prose && indent > block.indent {
                    self.builder.join(start + indent); // a term and its definition
                }
                block.end = end;
                block.lines += 1;
            }
            _ => {
                self.end_block();
                let doctest = shown.trim_start_matches(is_blank).starts_with(">>>");
                let kind = match (doctest, is_item) {
                    (true, _) => Kind::Code,
                    (_, true) => Kind::Item,
                    _ => Kind::Prose,
                };
                self.marks = None;
                self.block = Some(Block {
                    kind,
                    start,
                    end,
                    indent,
                    lines: 1,
                });
            }
        }
        number + 1
    }

    /// Reads what begins with this line, unless it is a paragraph; returns the number of the next line.
    fn structure(&mut self, number: usize, indent: usize) -> Option<usize> {
        let shown = self.shown(number);
        let words = shown.trim_matches(is_blank);
        if indent == 0
            && let Some(next) = self.title(number)
        {
            return Some(next);
        }
        if words == ".." || words.starts_with(".. ") || words.starts_with("__ ") {
            return Some(self.explicit(number, indent, words));
        }
        if is_border(words) && self.has_tables {
            let Some((header, last)) = self.simple_table(number) else {
                self.has_tables = false;
                return None;
            };
            self.take(Kind::Table(header), number, last, indent);
            return Some(last);
        }
        if words.starts_with("+-") {
            let last = (number..self.lines.len())
                .find(|line| {
                    !self
                        .shown(*line)
                        .trim_start_matches(is_blank)
                        .starts_with(['+', '|'])
                })
                .unwrap_or(self.lines.len());
            let header = (number..last).find(|line| {
                self.shown(*line)
                    .trim_start_matches(is_blank)
                    .starts_with("+=")
            });
            let start = self.lines.get(number).map_or(0, |line| line.start);
            let header = header
                .and_then(|line| self.lines.get(line))
                .map_or(start, |line| line.end);
            self.take(Kind::Table(header), number, last, indent);
            return Some(last);
        }
        None
    }

    /// A heading with its lines.
    fn title(&mut self, number: usize) -> Option<usize> {
        let first = self.shown(number).trim_end_matches(is_blank);
        let second = self.shown(number + 1).trim_end_matches(is_blank);
        let third = self.shown(number + 2).trim_end_matches(is_blank);
        let fits = |title: &str, line: &str| {
            let length = line.chars().count();
            length >= title.chars().count() || length >= LONG_UNDERLINE
        };
        let (title, mark, above, lines) =
            match (adornment(first), adornment(second), adornment(third)) {
                (Some(mark), _, Some(below))
                    if mark == below && !is_empty(second) && fits(second, third) =>
                {
                    (second.trim_matches(is_blank), mark, true, 3)
                }
                (None, Some(mark), _) if fits(first, second) => (first, mark, false, 2),
                // A rule across the page.
                (Some(_), ..) if first.len() >= LONG_UNDERLINE && is_empty(second) => {
                    self.marks = None;
                    return Some(number + 1);
                }
                _ => return None,
            };
        let style = (mark, above);
        let depth = self
            .styles
            .iter()
            .position(|known| *known == style)
            .unwrap_or_else(|| {
                self.styles.push(style);
                self.styles.len() - 1
            });
        self.level = level_of(depth + 1);
        self.objects.clear();
        let start = self.lines.get(number).map_or(0, |line| line.start);
        let end = self
            .lines
            .get(number + lines - 1)
            .map_or(start, |line| line.next);
        let title = title.to_owned();
        self.builder
            .begin(self.marks.take().unwrap_or(start)..end, self.level, &title);
        Some(number + lines)
    }

    /// A directive, a label, a comment.
    fn explicit(&mut self, number: usize, indent: usize, words: &str) -> usize {
        let (name, argument) = directive(words).unwrap_or_default();
        let start = self.lines.get(number).map_or(0, |line| line.start);
        if CODE.contains(&name) {
            let last = self.body_end(number + 1, indent);
            self.take(Kind::Code, number, last, indent);
            return last;
        }
        let is_footnote = words.starts_with(".. [");
        if name.is_empty() && !is_footnote || MARKS.contains(&name) {
            let from = self.marks.unwrap_or(start);
            let last = self.body_end(number + 1, indent);
            self.take(Kind::Mark, number, last, indent);
            self.marks = Some(from);
            return last;
        }
        let is_object = OBJECTS.contains(&name) || name.contains(':');
        if is_object && !argument.is_empty() {
            let level = level_of(usize::from(self.level) + self.objects.len() + 1);
            self.objects.push((indent, level));
            let end = self.lines.get(number).map_or(start, |line| line.next);
            let title = argument.to_owned();
            self.builder
                .begin(self.marks.take().unwrap_or(start)..end, level, &title);
            return number + 1;
        }
        // The lines up to the first blank one; what is indented behind that belongs to them.
        let last = (number + 1..self.lines.len())
            .find(|line| is_empty(self.shown(*line)) || indent_of(self.shown(*line)) <= indent)
            .unwrap_or(self.lines.len());
        let body = (last..self.lines.len()).find(|line| !is_empty(self.shown(*line)));
        let has_body = body.is_some_and(|line| indent_of(self.shown(line)) > indent);
        self.take(
            if has_body { Kind::Mark } else { Kind::Prose },
            number,
            last,
            indent,
        );
        last
    }

    /// Where what is indented more than `indent` ends, from a line on.
    fn body_end(&self, from: usize, indent: usize) -> usize {
        let mut last = from;
        for number in from..self.lines.len() {
            let shown = self.shown(number);
            if is_empty(shown) {
                continue;
            }
            if indent_of(shown) <= indent {
                break;
            }
            last = number + 1;
        }
        last
    }

    /// Where the header of a simple table ends, and the line behind the table.
    fn simple_table(&self, number: usize) -> Option<(usize, usize)> {
        let mut borders = 0;
        let mut header = self.lines.get(number)?.start;
        for line in number..self.lines.len() {
            if !is_border(self.shown(line).trim_matches(is_blank)) {
                continue;
            }
            borders += 1;
            if borders > 1 && is_empty(self.shown(line + 1)) {
                return Some((header, line + 1));
            }
            if borders == 2 {
                header = self.lines.get(line)?.end;
            }
        }
        None
    }

    /// After a description, the section above it continues.
    fn leave_objects(&mut self, start: usize, indent: usize) {
        let open = self.objects.iter().position(|(own, _)| indent <= *own);
        if let Some((_, level)) = open.and_then(|open| self.objects.drain(open..).next()) {
            self.builder.resume(self.marks.unwrap_or(start), level);
        }
    }

    /// Gives lines to the builder.
    fn take(&mut self, kind: Kind, first: usize, last: usize, indent: usize) {
        let start = self.lines.get(first).map_or(0, |line| line.start);
        let end = self
            .lines
            .get(last.max(first + 1) - 1)
            .map_or(start, |line| line.end);
        self.marks = None;
        self.builder.block(kind, start..end, indent);
    }

    fn end_block(&mut self) {
        if let Some(block) = self.block.take() {
            let shown = slice(self.builder.text, &(block.start..block.end));
            self.literal = shown
                .trim_end_matches(is_blank)
                .ends_with("::")
                .then_some(block.indent);
            self.builder
                .block(block.kind, block.start..block.end, block.indent);
        }
    }

    fn shown(&self, number: usize) -> &'a str {
        let line = self.lines.get(number);
        line.map_or("", |line| slice(self.builder.text, &(line.start..line.end)))
    }
}

fn is_empty(line: &str) -> bool {
    line.chars().all(is_blank)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

fn level_of(depth: usize) -> u8 {
    u8::try_from(depth.min(LEVELS)).unwrap_or(1)
}

/// The character of a line that repeats one punctuation character.
fn adornment(line: &str) -> Option<char> {
    let mark = line.chars().next().filter(char::is_ascii_punctuation)?;
    (line.len() > 1 && line.chars().all(|one| one == mark)).then_some(mark)
}

/// `====  ====`
fn is_border(line: &str) -> bool {
    line.starts_with("==")
        && line.contains("= ")
        && line.chars().all(|one| matches!(one, '=' | ' '))
}

/// Name and argument of `.. name:: argument`.
fn directive(words: &str) -> Option<(&str, &str)> {
    let (name, argument) = words.strip_prefix(".. ")?.split_once("::")?;
    let is_name =
        |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | ':' | '+' | '.');
    (!name.is_empty() && name.chars().all(is_name))
        .then_some((name, argument.trim_matches(is_blank)))
}

fn begins_item(line: &str) -> bool {
    let hash = line
        .strip_prefix("#.")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    hash || (!line.starts_with('>') && begins_nested(line))
}
