//! Lines that only steer a renderer: directives and labels of reStructuredText and MyST, fences, comments, templates.

pub(super) const BLANKS: [char; 2] = [' ', '\t'];
const COMMENT_END: &str = "-->";
const RULES: [&str; 2] = ["+++", "---"];
/// Beginnings of lines that may steer a renderer, besides `RULES`.
const SIGNS: [&str; 10] = [
    "..", "__", ":::", "```", "~~~", "(", "[", "<!--", "{%", "{{",
];
/// Directives of reStructuredText whose argument only steers a renderer; the arguments of others are text.
const STEERING: [&str; 49] = [
    "code",
    "code-block",
    "sourcecode",
    "highlight",
    "parsed-literal",
    "literalinclude",
    "include",
    "image",
    "figure",
    "toctree",
    "contents",
    "index",
    "module",
    "currentmodule",
    "automodule",
    "only",
    "table",
    "csv-table",
    "list-table",
    "raw",
    "container",
    "class",
    "rst-class",
    "cssclass",
    "role",
    "default-role",
    "default-domain",
    "productionlist",
    "math",
    "tabularcolumns",
    "sectionauthor",
    "codeauthor",
    "meta",
    "doctest",
    "testsetup",
    "testcode",
    "testoutput",
    "console",
    "highlightlang",
    "tabs",
    "tab",
    "code-tab",
    "grid",
    "dropdown",
    "sidebar",
    "topic",
    "epigraph",
    "plot",
    "graphviz",
];

/// Whether some line of a text may steer a renderer.
pub(super) fn may_steer(text: &str) -> bool {
    let has_sign = |line: &str| {
        let bare = line.trim_start_matches(BLANKS);
        let mut signs = SIGNS.iter().chain(&RULES);
        // Most lines begin with a word.
        !bare.starts_with(|it: char| it.is_ascii_alphanumeric())
            && signs.any(|sign| bare.starts_with(sign))
    };
    text.split('\n').any(has_sign) || text.contains(COMMENT_END)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Where the argument of a directive begins, if the line opens one whose argument is text.
pub(super) fn opened_directive(line: &str) -> Option<usize> {
    let behind = line.strip_prefix("..")?;
    let bare = behind.trim_start_matches(BLANKS);
    if bare.len() == behind.len() {
        return None;
    }
    let argument = match bare.strip_prefix('[') {
        Some(note) => note.split_once(']').filter(|(name, _)| !name.is_empty())?.1,
        None => argument_of(bare)?,
    };
    Some(line.len() - argument.trim_start_matches(BLANKS).len())
}

/// What is behind `name::`, unless the directive of that name steers.
fn argument_of(directive: &str) -> Option<&str> {
    let is_name = |it: char| is_word(it) || matches!(it, ':' | '+' | '-');
    let name = directive.split(|it| !is_name(it)).next()?;
    let behind = |at: usize| name.get(at..).filter(|it| it.starts_with("::"));
    if STEERING
        .iter()
        .any(|own| name.starts_with(own) && behind(own.len()).is_some())
    {
        return None;
    }
    // A name may hold colons itself: the last ones count.
    let words = name.char_indices().filter(|&(_, it)| is_word(it));
    let mut ends = words.map(|(at, it)| at + it.len_utf8());
    let end = ends.rfind(|&end| behind(end).is_some())?;
    directive.get(end + "::".len()..)
}

/// Whether all of a line steers a renderer.
pub(super) fn is_steering(line: &str) -> bool {
    let line = line.trim_end_matches(BLANKS);
    let is_mark = |mark: &str| {
        let behind = line.strip_prefix(mark);
        behind.is_some_and(|behind| behind.starts_with(BLANKS))
    };
    let marks = [":::", "```", "~~~", "<!--"];
    line == ".."
        || is_mark("..")
        || is_mark("__")
        || marks.iter().any(|mark| line.starts_with(mark))
        || line.ends_with(COMMENT_END)
        || RULES.contains(&line)
        || is_label(line)
        || is_link_target(line)
        || is_template(line)
}

/// `(label)=`
fn is_label(line: &str) -> bool {
    let inside = line.strip_prefix('(').and_then(|it| it.strip_suffix(")="));
    let is_name = |it: char| is_word(it) || matches!(it, '.' | ':' | '-');
    inside.is_some_and(|inside| !inside.is_empty() && inside.chars().all(is_name))
}

/// `[name]: address`
fn is_link_target(line: &str) -> bool {
    let Some((name, behind)) = line.strip_prefix('[').and_then(|it| it.split_once("]:")) else {
        return false;
    };
    let address = behind.trim_start_matches(BLANKS);
    let is_apart = address.len() < behind.len() && !address.starts_with(char::is_whitespace);
    is_apart && !name.is_empty() && !name.contains(']')
}

/// `{% ... %}`, `{{< ... >}}`, `{{% ... %}}`
fn is_template(line: &str) -> bool {
    let inside = |start: &str, end: &str| line.strip_prefix(start)?.strip_suffix(end);
    let long = inside("{{", "}}").and_then(|it| it.strip_prefix(['<', '%']));
    inside("{%", "%}").is_some() || long.is_some_and(|it| it.ends_with(['>', '%']))
}

/// Whether a line is an option of a directive: `:name: value`.
pub(super) fn is_option(line: &str) -> bool {
    behind_option(line).is_some_and(|behind| behind.is_empty() || behind.starts_with(BLANKS))
}

/// A text without the options at its beginning.
pub(super) fn behind_options(text: &str) -> &str {
    let mut rest = text;
    while let Some(behind) = behind_option(rest.trim_start_matches(BLANKS)) {
        rest = behind.split_once('\n').map_or("", |(_, next)| next);
    }
    rest
}

fn behind_option(line: &str) -> Option<&str> {
    let (name, behind) = line.strip_prefix(':')?.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|it| is_word(it) || it == '-');
    is_name.then_some(behind)
}
