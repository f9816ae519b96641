//! The structure of source code: its definitions are headings, one below another by indentation.
//!
//! One reader for many languages, by what they have in common: a definition begins with a word like `class` or `fn`, or
//! is a name with parameters before a brace; what belongs to it is indented deeper. Inside a function nothing is a
//! heading. Comments and decorators right above a definition belong to it.

use super::boundaries::{is_blank, slice};
use super::outline::{LEVELS, Line, Outline, OutlineBuilder, lines};

/// How a language is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Blocks by indentation, texts in three quotes.
    Python,
    /// Blocks in braces, comments from `/*` to `*/`.
    Braces,
    /// Blocks that end with a word.
    Words,
    /// Statements of SQL.
    Sql,
    /// Sections in brackets, as of TOML.
    Brackets,
    /// Data, or a language of which nothing is known.
    Other,
}

impl Language {
    /// The language of files with this suffix, in lower case and without its dot.
    #[must_use]
    pub fn of_suffix(suffix: &str) -> Self {
        match suffix {
            "py" | "pyi" | "pyx" | "nim" => Self::Python,
            "c" | "cc" | "cpp" | "cs" | "dart" | "go" | "graphql" | "h" | "hpp" | "hs" | "java"
            | "js" | "jsx" | "kt" | "kts" | "m" | "mm" | "php" | "proto" | "rs" | "scala"
            | "sol" | "swift" | "ts" | "tsx" | "v" | "zig" | "bash" | "sh" | "zsh" | "pl"
            | "pm" | "r" | "ps1" | "tcl" => Self::Braces,
            "ex" | "exs" | "rb" | "lua" | "jl" | "vb" | "erl" => Self::Words,
            "sql" => Self::Sql,
            "toml" | "ini" | "cfg" | "conf" => Self::Brackets,
            _ => Self::Other,
        }
    }
}

/// Words that may precede the keyword of a definition.
const MODIFIERS: &[&str] = &[
    "export",
    "default",
    "async",
    "static",
    "public",
    "private",
    "protected",
    "internal",
    "final",
    "abstract",
    "sealed",
    "unsafe",
    "const",
    "inline",
    "virtual",
    "override",
    "open",
    "data",
    "partial",
    "readonly",
    "declare",
    "suspend",
    "local",
    "pub",
    "extern",
    "\"C\"",
    "fileprivate",
    "mutating",
    "constexpr",
    "typedef",
    "noncopyable",
];
/// Keywords of definitions that contain other definitions.
const CONTAINERS: &[&str] = &[
    "class",
    "struct",
    "enum",
    "union",
    "trait",
    "impl",
    "interface",
    "module",
    "mod",
    "namespace",
    "object",
    "protocol",
    "extension",
    "record",
    "actor",
    "defmodule",
    "service",
    "contract",
    "library",
];
/// Keywords of definitions that contain statements or fields.
const LEAVES: &[&str] = &[
    "def",
    "fn",
    "func",
    "function",
    "fun",
    "sub",
    "proc",
    "defp",
    "defmacro",
    "macro_rules!",
    "rpc",
    "message",
    "type",
];
/// Words before parentheses that define nothing.
const CONTROL: &[&str] = &[
    "if",
    "for",
    "foreach",
    "while",
    "switch",
    "catch",
    "return",
    "else",
    "do",
    "try",
    "with",
    "using",
    "lock",
    "match",
    "when",
    "synchronized",
    "new",
    "throw",
    "await",
    "elif",
    "elsif",
    "until",
    "unless",
    "case",
    "guard",
    "defer",
    "select",
    "sizeof",
    "and",
    "or",
    "not",
];
/// Quotes of Python's texts of several lines.
const QUOTES: [&str; 2] = ["\"\"\"", "'''"];
const MAX_LINE: usize = 2_000; // bytes; no definition is longer, and generated lines are

/// Reads the definitions of a text, in one pass over its lines.
#[must_use]
pub fn outline(text: &str, language: Language) -> Outline {
    let mut reader = Reader {
        builder: OutlineBuilder::new(text),
        language,
        open: Vec::new(),
        comments: None,
        inside: None,
    };
    let mut lines = lines(text, 0).peekable();
    while let Some(line) = lines.next() {
        let next = lines
            .peek()
            .map_or("", |next| slice(text, &(next.start..next.end)));
        reader.read(&line, next);
    }
    let mut outline = reader.builder.finish();
    outline.is_code = true;
    outline
}

/// A definition that is not left yet.
struct Open {
    indent: usize,
    holds_definitions: bool,
}

struct Reader<'a> {
    builder: OutlineBuilder<'a>,
    language: Language,
    open: Vec<Open>,
    /// Where comments and decorators began that stand right above this line.
    comments: Option<usize>,
    /// What ends the comment or text of several lines that this line lies in.
    inside: Option<&'static str>,
}

impl Reader<'_> {
    fn read(&mut self, line: &Line, next: &str) {
        let shown = slice(self.builder.text, &(line.start..line.end));
        let words = shown.trim_matches(is_blank);
        if let Some(end) = self.inside {
            if self.language == Language::Python {
                self.inside = open_text(words, Some(end));
            } else if words.contains(end) {
                self.inside = None;
            }
            return;
        }
        if words.is_empty() {
            self.comments = None;
            return;
        }
        let was_inside = self.begins_text(words);
        let indent = shown.len() - shown.trim_start_matches([' ', '\t']).len();
        if self.is_comment(words) {
            self.comments.get_or_insert(line.start);
            return;
        }
        if words.starts_with(['}', ')', ']'])
            || words == "end"
            || words.starts_with("end;")
            || words == "{"
        {
            self.comments = None;
            return;
        }
        if self.language != Language::Brackets || words.starts_with('[') {
            self.leave(self.comments.unwrap_or(line.start), indent);
        }
        let may_define = self.open.last().is_none_or(|open| open.holds_definitions);
        if may_define
            && !was_inside
            && words.len() <= MAX_LINE
            && let Some((name, holds_definitions)) =
                definition(words, next.trim_matches(is_blank), self.language)
        {
            let level = u8::try_from((self.open.len() + 1).min(LEVELS)).unwrap_or(1);
            let start = self.comments.take().unwrap_or(line.start);
            // What is defined on one line is no heading of what follows.
            let end = if is_whole(words, next, indent) {
                line.start
            } else {
                line.next
            };
            self.builder.begin(start..end, level, &name);
            self.open.push(Open {
                indent,
                holds_definitions,
            });
        }
        self.comments = None;
    }

    /// After a definition, the section above it continues.
    fn leave(&mut self, start: usize, indent: usize) {
        let kept = self.open.iter().position(|open| indent <= open.indent);
        if let Some(kept) = kept {
            self.open.truncate(kept);
            let level = u8::try_from((kept + 1).min(LEVELS)).unwrap_or(1);
            self.builder.resume(start, level);
        }
    }

    /// Notes a comment or text that continues after this line; returns whether the line is one.
    fn begins_text(&mut self, words: &str) -> bool {
        match self.language {
            Language::Python => {
                self.inside = open_text(words, None);
                QUOTES.iter().any(|quotes| words.starts_with(quotes))
            }
            Language::Braces | Language::Sql if words.starts_with("/*") => {
                self.inside = (!words.contains("*/")).then_some("*/");
                self.inside.is_some()
            }
            _ => false,
        }
    }

    fn is_comment(&self, words: &str) -> bool {
        let marks: &[&str] = match self.language {
            Language::Python => &["#", "@"],
            Language::Braces => &["//", "/*", "*", "#", "@", "[["],
            Language::Words => &["#", "@", "--"],
            Language::Sql => &["--", "/*", "*"],
            Language::Brackets => &["#", ";"],
            Language::Other => &[],
        };
        marks.iter().any(|mark| words.starts_with(mark))
    }
}

/// The quotes of the text of several lines that is open behind a line of Python.
fn open_text(line: &str, mut open: Option<&'static str>) -> Option<&'static str> {
    let mut rest = line;
    while !rest.is_empty() {
        let skipped = match open {
            Some(quotes) => {
                let end = rest.find(quotes);
                if end.is_some() {
                    open = None;
                }
                end.map_or(rest.len(), |end| end + quotes.len())
            }
            None => {
                let next = rest.find(['#', '"', '\''])?;
                let at = rest.get(next..)?;
                if at.starts_with('#') {
                    return None;
                }
                open = QUOTES.into_iter().find(|quotes| at.starts_with(quotes));
                next + open.map_or_else(|| short_text(at), str::len)
            }
        };
        rest = rest.get(skipped..)?;
    }
    open
}

/// Length of a text in single quotes, with them; it ends with the line at the latest.
fn short_text(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    for (place, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(character) == quote => return place + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether a definition ends with its first line.
fn is_whole(words: &str, next: &str, indent: usize) -> bool {
    let rest = next.trim_start_matches([' ', '\t']);
    let goes_on = next.len() - rest.len() > indent || rest.starts_with(['{', ')', '}']);
    !words.ends_with([':', '{', '(', ',']) && !goes_on
}

/// Name of what a line defines, and whether it contains definitions.
fn definition(words: &str, next: &str, language: Language) -> Option<(String, bool)> {
    match language {
        Language::Other => return None,
        Language::Brackets => {
            let name = words.strip_prefix('[')?.trim_start_matches('[');
            return Some((name.split(']').next()?.to_owned(), false));
        }
        Language::Sql => return created(words),
        _ => {}
    }
    let mut rest = words;
    loop {
        let (word, behind) = first_word(rest);
        let plain = word.split('(').next().unwrap_or(word);
        if !MODIFIERS.contains(&plain) || behind.is_empty() {
            break;
        }
        rest = behind;
    }
    let (word, behind) = first_word(rest);
    let keyword = word.split(['<', '(']).next().unwrap_or(word);
    let holds_definitions = CONTAINERS.contains(&keyword);
    if holds_definitions || LEAVES.contains(&keyword) {
        let name = name_of(keyword, behind.trim_start_matches(is_blank));
        // `type` and the like are names in other languages, and `class` is a word of prose.
        let defines = !name.is_empty()
            && !behind
                .trim_start_matches(is_blank)
                .starts_with(['=', ':', '.', ',']);
        return defines.then(|| (format!("{keyword} {name}"), holds_definitions));
    }
    if language == Language::Braces {
        return function(words, next).map(|name| (name, false));
    }
    None
}

/// The name after a keyword; for an implementation, everything up to its brace.
fn name_of<'a>(keyword: &str, behind: &'a str) -> &'a str {
    let is_name =
        |one: char| one.is_alphanumeric() || matches!(one, '_' | '.' | ':' | '$' | '?' | '!');
    if matches!(keyword, "impl" | "extension") {
        return behind
            .split(['{', '\n'])
            .next()
            .unwrap_or(behind)
            .trim_matches(is_blank);
    }
    // A method of Go names its receiver first.
    let behind = match behind.strip_prefix('(') {
        Some(receiver) => receiver
            .split_once(')')
            .map_or("", |(_, name)| name.trim_start_matches(is_blank)),
        None => behind,
    };
    let end = behind.find(|one| !is_name(one)).unwrap_or(behind.len());
    behind.get(..end).unwrap_or_default().trim_end_matches(':')
}

/// `int name(parameters) {`, with the brace on this line or the next.
fn function(words: &str, next: &str) -> Option<String> {
    let head = match words.strip_suffix('{') {
        Some(head) => head.trim_end_matches(is_blank),
        None if next == "{" && !words.ends_with([';', ',']) => words,
        None => return None,
    };
    let open = head.find('(')?;
    let before = head.get(..open)?.trim_end_matches(is_blank);
    if before.contains(['=', '"', '\'']) || head.matches('(').count() != head.matches(')').count() {
        return None;
    }
    let start = before.rfind(|one: char| {
        !(one.is_alphanumeric() || matches!(one, '_' | ':' | '~' | '$' | '.' | '-'))
    });
    let name = before
        .get(start.map_or(0, |start| start + 1)..)?
        .trim_start_matches(['*', '&']);
    let first = first_word(before).0;
    let is_name =
        name.starts_with(|one: char| one.is_alphabetic() || matches!(one, '_' | '~' | '$'));
    (is_name && !CONTROL.contains(&name) && !CONTROL.contains(&first)).then(|| format!("{name}()"))
}

/// `CREATE TABLE name`
fn created(words: &str) -> Option<(String, bool)> {
    let mut found = words.split(is_blank).filter(|word| !word.is_empty());
    if !found.next()?.eq_ignore_ascii_case("create") {
        return None;
    }
    let skipped = [
        "or",
        "replace",
        "temp",
        "temporary",
        "unlogged",
        "unique",
        "materialized",
        "if",
        "not",
        "exists",
        "concurrently",
    ];
    let mut wanted = found.filter(|word| !skipped.iter().any(|one| word.eq_ignore_ascii_case(one)));
    let (kind, name) = (wanted.next()?.to_ascii_lowercase(), wanted.next()?);
    let end = name.find(['(', ';']).unwrap_or(name.len());
    Some((format!("{kind} {}", name.get(..end)?), false))
}

fn first_word(text: &str) -> (&str, &str) {
    let end = text.find(is_blank).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start_matches(is_blank))
}
