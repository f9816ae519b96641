//! What a reader of a format finds in a text: sections under their headings, blocks that stay whole, and what belongs to
//! what stands before it.

use std::cmp::Ordering;
use std::ops::Range;

use super::boundaries::{is_blank, line_end, slice, trimmed};

/// Deepest level of a heading.
pub const LEVELS: usize = 6;
/// Longer titles are cut, because every chunk of their section repeats them.
pub const MAX_TITLE_CHARACTERS: usize = 256;
/// Longer introductions are not repeated above the later parts of a list, table or code.
const MAX_INTRODUCTION_BYTES: usize = 600;

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

/// A heading with the text up to the next heading, or text without a heading of its own.
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

/// A list, a table or code, and the words that introduce it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduced {
    /// What is introduced.
    pub content: Range<usize>,
    /// The paragraph before a list or code, or the header rows of a table.
    pub introduction: Range<usize>,
}

/// What a reader makes of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// In the order of the text.
    pub sections: Vec<Section>,
    /// Titles of the headings that have one.
    pub titles: Vec<String>,
    /// Number of the first title of level 1.
    pub title: Option<u32>,
    /// Blocks of code, ascending.
    pub fences: Vec<Range<usize>>,
    /// First characters of what is not cut from what stands before it while both fit, ascending.
    pub joined: Vec<usize>,
    /// What has an introduction, by the start of its content.
    pub introduced: Vec<Introduced>,
    /// Whether the whole text is code.
    pub is_code: bool,
}

impl Outline {
    /// The introduction of the innermost content that a place lies in, behind its introduction.
    #[must_use]
    pub fn introduction(&self, place: usize) -> Option<&Range<usize>> {
        // Contents overlap only where one lies in the other, a few deep.
        let behind = self
            .introduced
            .partition_point(|one| one.content.start <= place);
        self.introduced
            .get(behind.saturating_sub(LEVELS)..behind)?
            .iter()
            .rev()
            .find(|one| place < one.content.end && one.introduction.end <= place)
            .map(|one| &one.introduction)
    }

    /// Keeps a title with single spaces and returns its number; `None` for an empty title.
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

/// The outline of a text in which nothing is a heading.
#[must_use]
pub fn plain(text: &str) -> Outline {
    OutlineBuilder::new(text).finish()
}

/// Makes an outline while a reader goes through a text from its beginning to its end.
pub(super) struct OutlineBuilder<'a> {
    pub(super) text: &'a str,
    outline: Outline,
    path: Path,
    heading: Heading,
    /// The block before, if it announces what follows.
    lead_in: Option<LeadIn>,
    list: Option<List>,
}

/// What a block of lines is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A paragraph, a quotation.
    Prose,
    /// A list item.
    Item,
    /// Code, with its marks.
    Code,
    /// A table, and where its header rows end.
    Table(usize),
    /// What stands for something else and announces what follows, as a label does.
    Mark,
}

enum LeadIn {
    /// A heading or a mark: it says nothing that the path does not say.
    Heading,
    Words(Range<usize>),
}

/// An open list with the words that announce it.
struct List {
    content: Range<usize>,
    indent: usize,
    introduction: Range<usize>,
}

/// Where a heading stands: its first byte, and the byte behind its last line.
#[derive(Debug, Clone, Copy, Default)]
struct Heading {
    start: usize,
    end: usize,
    level: u8,
}

impl<'a> OutlineBuilder<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            outline: Outline::default(),
            path: Path::default(),
            heading: Heading::default(),
            lead_in: None,
            list: None,
        }
    }

    /// Begins a section under a heading.
    pub(super) fn begin(&mut self, lines: Range<usize>, level: u8, title: &str) {
        if self.lead_in.is_some() {
            self.join(trimmed(self.text, lines.clone()).start);
        }
        self.close(lines.start);
        let number = self.outline.number(title);
        if level == 1 && self.outline.title.is_none() {
            self.outline.title = number;
        }
        self.leave(level);
        if let Some(slot) = self.path.0.get_mut(usize::from(level.max(1)) - 1) {
            *slot = number;
        }
        self.heading = Heading {
            start: lines.start,
            end: lines.end,
            level,
        };
        self.lead_in = Some(LeadIn::Heading);
    }

    /// Continues the section above `level` after a section that has ended without another heading.
    pub(super) fn resume(&mut self, start: usize, level: u8) {
        self.close(start);
        self.leave(level);
        self.heading = Heading {
            start,
            end: start,
            level: level.saturating_sub(1),
        };
    }

    /// Takes the next block.
    ///
    /// `lines` are its bytes; `indent` is by how many columns they stand in.
    pub(super) fn block(&mut self, kind: Kind, lines: Range<usize>, indent: usize) {
        let range = trimmed(self.text, lines);
        if range.is_empty() {
            return;
        }
        let lead_in = self.lead_in.take();
        if lead_in.is_some() {
            self.join(range.start);
        }
        self.follow_list(kind, &range, indent);
        if let Some(LeadIn::Words(introduction)) = lead_in {
            match kind {
                Kind::Code => self.introduce(range.clone(), introduction),
                Kind::Item if self.list.is_none() => {
                    self.list = Some(List {
                        content: range.clone(),
                        indent,
                        introduction,
                    });
                }
                _ => {}
            }
        }
        match kind {
            Kind::Code => {
                self.join_ends(&range);
                self.outline.fences.push(range);
            }
            Kind::Table(header_end) => {
                let header = range.start..header_end.clamp(range.start, range.end);
                self.join_lines(header.start..header.end.saturating_add(1).min(range.end));
                self.introduce(header.end..range.end, header);
            }
            Kind::Mark => self.lead_in = Some(LeadIn::Heading),
            Kind::Prose | Kind::Item if leads_in(slice(self.text, &range)) => {
                self.lead_in = Some(LeadIn::Words(range));
            }
            Kind::Prose | Kind::Item => {}
        }
    }

    /// A list continues as long as items follow, or lines indented below them.
    fn follow_list(&mut self, kind: Kind, range: &Range<usize>, indent: usize) {
        let Some(list) = &mut self.list else {
            return;
        };
        if indent > list.indent || (kind == Kind::Item && indent == list.indent) {
            list.content.end = range.end;
        } else {
            self.end_list();
        }
    }

    fn end_list(&mut self) {
        if let Some(list) = self.list.take() {
            self.introduce(list.content, list.introduction);
        }
    }

    /// Keeps a line together with what stands before it.
    pub(super) fn join(&mut self, start: usize) {
        self.outline.joined.push(start);
    }

    /// The first two lines of code stay together, and the last two: a mark is no line by itself.
    fn join_ends(&mut self, range: &Range<usize>) {
        let mut starts = lines(slice(self.text, range), 0).filter_map(|line| {
            let shown = trimmed(self.text, range.start + line.start..range.start + line.end);
            (!shown.is_empty()).then_some(shown.start)
        });
        let (second, last) = (starts.nth(1), starts.last());
        self.outline.joined.extend(second.into_iter().chain(last));
    }

    /// Every line of a range stays with the one before.
    fn join_lines(&mut self, range: Range<usize>) {
        let starts = lines(slice(self.text, &range), 0).skip(1);
        let starts = starts.map(|line| {
            trimmed(self.text, range.start + line.start..range.start + line.next).start
        });
        self.outline.joined.extend(starts);
    }

    fn introduce(&mut self, content: Range<usize>, introduction: Range<usize>) {
        let introduction = self.worth_saying(introduction);
        if !introduction.is_empty() && introduction.end <= content.start && !content.is_empty() {
            self.outline.introduced.push(Introduced {
                content,
                introduction,
            });
        }
    }

    pub(super) fn finish(mut self) -> Outline {
        self.close(self.text.len());
        self.outline.introduced.sort_by_key(|one| one.content.start);
        self.outline.joined.sort_unstable();
        self.outline
    }

    /// The paragraph, or its last line where it is long.
    fn worth_saying(&self, range: Range<usize>) -> Range<usize> {
        let whole = trimmed(self.text, range);
        if whole.len() <= MAX_INTRODUCTION_BYTES {
            return whole;
        }
        let last = slice(self.text, &whole)
            .rfind(['\n', '\r'])
            .map_or(whole.start, |end| whole.start + end + 1);
        let line = trimmed(self.text, last..whole.end);
        if line.len() <= MAX_INTRODUCTION_BYTES {
            line
        } else {
            0..0
        }
    }

    fn leave(&mut self, level: u8) {
        for (slot, depth) in self.path.0.iter_mut().zip(1..) {
            if level.cmp(&depth) != Ordering::Greater {
                *slot = None;
            }
        }
    }

    /// Ends the section that a heading has begun.
    fn close(&mut self, end: usize) {
        self.end_list();
        self.lead_in = None;
        let range = trimmed(self.text, self.heading.start..end);
        if !range.is_empty() {
            self.outline.sections.push(Section {
                body: trimmed(self.text, self.heading.end.min(end)..end),
                range,
                level: self.heading.level,
                path: self.path,
            });
        }
    }
}

/// The lines of a text: where each begins and ends, and where the next begins.
pub(super) struct Line {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) next: usize,
}

/// All lines from a place.
pub(super) fn lines(text: &str, mut place: usize) -> impl Iterator<Item = Line> + '_ {
    std::iter::from_fn(move || {
        if place >= text.len() {
            return None;
        }
        let (end, next) = line_end(text, place);
        let start = std::mem::replace(&mut place, next);
        Some(Line { start, end, next })
    })
}

/// Whether the last line of a text announces what follows, as one with a colon does; an option (`:name:`) does not.
pub(super) fn leads_in(text: &str) -> bool {
    let words =
        text.trim_end_matches(|character| is_blank(character) || matches!(character, '*' | '_'));
    let last = words.rsplit(['\n', '\r']).next().unwrap_or(words);
    let last = last.trim_start_matches(is_blank);
    last.ends_with([':', '：']) && (!last.starts_with(':') || last.ends_with("::"))
}
