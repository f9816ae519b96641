//! Markdown out of tags and texts.

use std::borrow::Cow;

use super::attributes::values;
use super::references::References;
use crate::chunk::is_blank;

/// Elements whose content is not shown to readers.
const HIDDEN: [&str; 5] = ["script", "style", "template", "noscript", "svg"];
/// Menus, side bars and the like: the same words on every page of a site, which would be found for any of them.
const SURROUNDINGS: [&str; 3] = ["nav", "aside", "footer"];
/// Classes, ids and roles of other elements that are menus, side bars and the like.
const SURROUNDING_NAMES: [&str; 13] = [
    "navigation",
    "search",
    "banner",
    "contentinfo",
    "menu",
    "sidebar",
    "sphinxsidebar",
    "sidemenu",
    "breadcrumb",
    "breadcrumbs",
    "toc",
    "headerlink",
    "headeranchor",
];
/// Elements that are surroundings if their class, id or role says so; they end at their end tag.
const NAMED: [&str; 7] = ["a", "div", "header", "ol", "section", "table", "ul"];
/// Elements that begin and end a line of their own, beside headings; sorted.
const BLOCKS: [&str; 37] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "nav",
    "ol",
    "option",
    "p",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "ul",
];

/// What a page becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkdownText {
    /// Blocks with blank lines between them.
    pub text: String,
    /// The content of `<title>`, else of the first `<h1>`; never empty.
    pub title: Option<String>,
}

/// Takes the pieces of a page in their order.
pub(super) struct Writer<'a> {
    references: &'a References,
    without_surroundings: bool,
    /// The blocks so far.
    text: String,
    title: Option<String>,
    first_heading: Option<String>,
    /// The block that has begun. Unless it is preformatted, no blank in it follows a blank.
    block: String,
    /// Level of the heading that it is; 0 for none.
    heading: usize,
    in_item: bool,
    /// Whether it has a cell of a table.
    has_cell: bool,
    preformatted: bool,
    in_title: bool,
    /// The element whose content is dropped, and how many of its kind are open.
    dropped: Option<(Cow<'a, str>, usize)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(references: &'a References, without_surroundings: bool) -> Self {
        Self {
            references,
            without_surroundings,
            text: String::new(),
            title: None,
            first_heading: None,
            block: String::new(),
            heading: 0,
            in_item: false,
            has_cell: false,
            preformatted: false,
            in_title: false,
            dropped: None,
        }
    }

    /// The page has ended.
    pub(super) fn finish(mut self) -> MarkdownText {
        self.end_block();
        MarkdownText {
            text: self.text,
            title: self.title.or(self.first_heading),
        }
    }

    /// An element begins.
    pub(super) fn start(&mut self, name: Cow<'a, str>, attributes: &str) {
        let is_empty = attributes.ends_with('/');
        if let Some((dropped, depth)) = &mut self.dropped {
            *depth += usize::from(*dropped == name && !is_empty);
            return;
        }
        if HIDDEN.contains(&&*name) || self.without_surroundings && surrounds(&name, attributes) {
            if is_block(&name) {
                self.end_block();
            }
            self.dropped = (!is_empty).then_some((name, 1));
            return;
        }
        match &*name {
            "title" => {
                self.end_block();
                self.in_title = true;
            }
            "br" => {
                if !self.preformatted && self.block.ends_with(' ') {
                    self.block.pop();
                }
                self.block.push('\n');
            }
            "td" | "th" => {
                if self.has_cell {
                    self.push(" | ");
                }
                self.has_cell = true;
            }
            "img" => {
                if let Some(instead) = values(attributes, &["alt"]).next() {
                    self.add(&format!(" {instead} "));
                }
            }
            "pre" => {
                self.end_block();
                self.preformatted = true;
            }
            name if is_block(name) => {
                self.end_block();
                self.heading = heading_level(name);
                self.in_item |= name == "li";
            }
            _ => {}
        }
    }

    /// An element ends.
    pub(super) fn end(&mut self, name: &str) {
        if let Some((dropped, depth)) = &mut self.dropped {
            *depth -= usize::from(dropped == name);
            if *depth == 0 {
                self.dropped = None;
            }
        } else if name == "title" {
            self.end_title();
        } else if name == "pre" || is_block(name) {
            self.end_block();
            self.in_item &= name != "li";
        }
    }

    /// Characters come.
    pub(super) fn add(&mut self, text: &str) {
        if self.dropped.is_none() {
            let references = self.references;
            self.push(&references.replaced(text));
        }
    }

    fn push(&mut self, text: &str) {
        if self.preformatted {
            self.block.push_str(text);
            return;
        }
        for (number, word) in text.split([' ', '\t', '\r', '\n', '\u{c}']).enumerate() {
            if number > 0 && !self.block.ends_with([' ', '\n']) {
                self.block.push(' ');
            }
            self.block.push_str(word);
        }
    }

    /// Closes the current block, whatever it is.
    fn end_block(&mut self) {
        if self.in_title {
            self.end_title(); // never closed
        }
        let block = std::mem::take(&mut self.block);
        if self.preformatted {
            self.write_code(block.trim_matches(['\r', '\n']));
        } else {
            self.write_lines(block.trim_matches(is_blank));
        }
        self.block = block; // for its memory
        self.block.clear();
        self.heading = 0;
        self.has_cell = false;
        self.preformatted = false;
    }

    fn write_code(&mut self, code: &str) {
        if code.chars().all(is_blank) {
            return;
        }
        let runs = code.split(|character| character != '`').map(str::len);
        let fence = "`".repeat(runs.max().map_or(3, |longest| 3.max(longest + 1)));
        self.begin();
        for part in [&fence, "\n", code, "\n", &fence] {
            self.text.push_str(part);
        }
    }

    fn write_lines(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let in_item = self.in_item;
        self.begin();
        if self.heading > 0 {
            let line = words(text);
            self.text.push_str(&"#".repeat(self.heading));
            self.text.push(' ');
            self.text.push_str(&line);
            if self.heading == 1 {
                self.first_heading.get_or_insert(line);
            }
            return;
        }
        if in_item {
            self.text.push_str("- ");
        }
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.text.push('\n');
            }
            if reads_as_structure(line) {
                self.text.push('\\');
            }
            self.text.push_str(line);
        }
    }

    /// Separates the next block from the text so far; later blocks of a list item get no dash.
    fn begin(&mut self) {
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.in_item = false;
    }

    fn end_title(&mut self) {
        self.in_title = false;
        let text = words(&self.block);
        self.block.clear();
        if self.title.is_none() && !text.is_empty() {
            self.title = Some(text);
        }
    }
}

/// Whether an element is a menu, a side bar or the like, by its name, class, id or role.
fn surrounds(name: &str, attributes: &str) -> bool {
    let is_known = |word: &str| {
        SURROUNDING_NAMES
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    SURROUNDINGS.contains(&name)
        || NAMED.contains(&name)
            && values(attributes, &["class", "id", "role"])
                .any(|value| value.split(is_blank).any(is_known))
}

fn is_block(name: &str) -> bool {
    BLOCKS.binary_search(&name).is_ok() || heading_level(name) > 0
}

/// The level of a heading; 0 for other elements.
fn heading_level(name: &str) -> usize {
    match name.as_bytes() {
        [b'h', level @ b'1'..=b'6'] => usize::from(level - b'0'),
        _ => 0,
    }
}

/// Whether Markdown would read a line as a heading, a fence or the underline of a heading.
fn reads_as_structure(line: &str) -> bool {
    let Some(mark @ ('#' | '`' | '~' | '=' | '-')) = line.chars().next() else {
        return false;
    };
    let rest = line.trim_start_matches(mark);
    let count = line.len() - rest.len();
    match mark {
        '#' => count <= 6 && (rest.is_empty() || rest.starts_with(' ')),
        '`' | '~' => count >= 3,
        _ => rest.is_empty(),
    }
}

/// The words of a text with one blank between them.
fn words(text: &str) -> String {
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}
