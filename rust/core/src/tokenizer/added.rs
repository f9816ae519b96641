//! Tokens beside the vocabulary of pairs: found in the text as they are spelt, before it is cut into pieces.

use std::collections::HashSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::parts::ReadError;

/// A token that is found as it is spelt.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    /// The text that is searched for; in normal form if texts are searched in normal form.
    pub(super) spelling: String,
    pub(super) is_special: bool,
    /// Found only where no letter, digit, mark or `_` stands beside it.
    pub(super) is_whole_word: bool,
    /// White space before it belongs to it.
    pub(super) takes_blanks_before: bool,
    /// White space behind it belongs to it.
    pub(super) takes_blanks_behind: bool,
}

/// A part of a text: a token, or what stands between tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) token: Option<u32>,
    pub(super) bytes: Range<usize>,
}

/// Tokens that are searched for together: of those that begin first, the longest.
pub(super) struct AddedTokens {
    search: Option<AhoCorasick>,
    tokens: Vec<AddedToken>,
}

impl AddedTokens {
    pub(super) fn new(tokens: Vec<AddedToken>) -> Result<Self, ReadError> {
        let spellings: HashSet<&str> = tokens.iter().map(|token| &*token.spelling).collect();
        if spellings.len() < tokens.len() {
            return Err(ReadError::Unsupported(
                "two added tokens with the same spelling".into(),
            ));
        }
        let begins_blank = |token: &AddedToken| token.spelling.starts_with(char::is_whitespace);
        if tokens.iter().any(|token| token.takes_blanks_behind) && tokens.iter().any(begins_blank) {
            // The blanks behind the one could be the other.
            return Err(ReadError::Unsupported(
                "an added token with rstrip true, together with one that begins with white space"
                    .into(),
            ));
        }
        let search = if tokens.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(tokens.iter().map(|token| &token.spelling));
            Some(built.map_err(|error| ReadError::Unsupported(format!("added tokens: {error}")))?)
        };
        Ok(Self { search, tokens })
    }

    /// Cuts a text, in its order; together the spans are the text, and none is empty.
    pub(super) fn split(&self, text: &str, special_as_text: bool) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut passed = 0;
        let found = self
            .search
            .iter()
            .filter_map(|it| it.try_find_iter(text).ok());
        for found in found.flatten() {
            let Some(token) = self.tokens.get(found.pattern().as_usize()) else {
                continue;
            };
            let (mut start, mut end) = (found.start(), found.end());
            let before = text.get(..start).unwrap_or_default();
            let behind = text.get(end..).unwrap_or_default();
            let is_glued = || {
                before.chars().next_back().is_some_and(is_word)
                    || behind.chars().next().is_some_and(is_word)
            };
            // A refused token still hides the tokens inside it.
            if (special_as_text && token.is_special) || (token.is_whole_word && is_glued()) {
                continue;
            }
            if token.takes_blanks_before {
                start = before.trim_end().len().max(passed);
            }
            if token.takes_blanks_behind {
                end += behind.len() - behind.trim_start().len();
            }
            if passed < start {
                spans.push(Span {
                    token: None,
                    bytes: passed..start,
                });
            }
            spans.push(Span {
                token: Some(token.id),
                bytes: start..end,
            });
            passed = end;
        }
        if passed < text.len() {
            spans.push(Span {
                token: None,
                bytes: passed..text.len(),
            });
        }
        spans
    }
}

/// `\w`, without tables that could be missing: `None` there means that the tables are built in.
fn is_word(character: char) -> bool {
    regex_syntax::try_is_word_character(character).unwrap_or(false)
}
