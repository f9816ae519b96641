//! A page as tags and texts, one after the other.

use std::borrow::Cow;

use crate::chunk::is_blank;

/// Elements whose content is no HTML: it ends at their end tag and nowhere else.
const RAW: [&str; 4] = ["script", "style", "title", "textarea"];

/// A piece of a page; names are in lower case.
pub(super) enum Token<'a> {
    /// Characters, references among them.
    Text(&'a str),
    /// An element begins.
    Start {
        name: Cow<'a, str>,
        /// All between the name and `>`.
        attributes: &'a str,
    },
    /// An element ends.
    End { name: Cow<'a, str> },
}

/// Cuts a page.
pub(super) struct Tokens<'a> {
    rest: &'a str,
    /// The raw element that has just begun.
    raw: Option<&'static str>,
    /// Raw elements known to have no further end tag: it is not searched for again.
    endless: Vec<&'static str>,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(html: &'a str) -> Self {
        Self {
            rest: html,
            raw: None,
            endless: Vec::new(),
        }
    }

    /// The content of a raw element up to its end tag, if it has one.
    fn raw_content(&mut self, name: &'static str) -> Option<&'a str> {
        if self.endless.contains(&name) {
            return None;
        }
        let is_end = |&(_, behind): &(usize, &str)| {
            after_word(behind, name).is_some_and(|rest| rest.starts_with(ends_name))
        };
        let whole = self.rest;
        let marks = whole.match_indices("</");
        let found = marks
            .filter_map(|(place, mark)| Some((place, whole.get(place + mark.len()..)?)))
            .find(is_end);
        let Some((text, rest)) = found.and_then(|(place, _)| whole.split_at_checked(place)) else {
            self.endless.push(name);
            return None;
        };
        self.rest = rest;
        Some(text)
    }

    /// The tag that begins here; `None` for one that never ends.
    fn tag(&mut self) -> Option<Token<'a>> {
        let behind = self.rest.strip_prefix('<')?;
        let (is_end, behind) = match behind.strip_prefix('/') {
            Some(behind) => (true, behind),
            None => (false, behind),
        };
        let (name, behind) = behind.split_at_checked(behind.find(ends_name)?)?;
        let name = lowered(name);
        let (attributes, rest) = attributes(behind)?;
        self.rest = rest;
        if is_end {
            return Some(Token::End { name });
        }
        self.raw = RAW.into_iter().find(|raw| *raw == name);
        Some(Token::Start { name, attributes })
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        if let Some(text) = self.raw.take().and_then(|name| self.raw_content(name)) {
            return Some(Token::Text(text));
        }
        loop {
            let opening = self.rest.find('<').unwrap_or(self.rest.len());
            if opening > 0 {
                let (text, rest) = self.rest.split_at_checked(opening)?;
                self.rest = rest;
                return Some(Token::Text(text));
            }
            let behind = self.rest.strip_prefix('<')?;
            if let Some(comment) = behind.strip_prefix('!').filter(|it| it.starts_with("--")) {
                self.rest = after(comment, "-->"); // "<!-->" is a whole comment
            } else if behind.starts_with(['!', '?']) {
                self.rest = after(behind, ">");
            } else if begins_name(behind.strip_prefix('/').unwrap_or(behind)) {
                let tag = self.tag();
                if tag.is_none() {
                    self.rest = ""; // browsers drop a tag that never ends, too
                }
                return tag;
            } else {
                self.rest = behind;
                return Some(Token::Text("<"));
            }
        }
    }
}

/// What follows a word of ASCII, in either case, at the beginning of a text.
pub(super) fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

/// The text after a mark; empty if the mark is missing.
fn after<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split_once(mark).map_or("", |(_, rest)| rest)
}

/// Attributes up to `>`, and what follows it. A quote opens a value only after `=`, and must be closed.
fn attributes(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    loop {
        let (_, found) = rest.split_at_checked(rest.find(['>', '='])?)?;
        if let Some(behind) = found.strip_prefix('>') {
            let (attributes, _) = text.split_at_checked(text.len() - found.len())?;
            return Some((attributes, behind));
        }
        let behind = found.strip_prefix('=')?;
        let value = behind.trim_start_matches(is_blank);
        rest = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value.strip_prefix(quote)?.split_once(quote)?.1,
            _ => behind,
        };
    }
}

fn begins_name(text: &str) -> bool {
    text.starts_with(|character: char| character.is_ascii_alphabetic())
}

fn ends_name(character: char) -> bool {
    is_blank(character) || matches!(character, '/' | '>')
}

fn lowered(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}
