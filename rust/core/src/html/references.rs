//! Character references, as Python's `html.unescape` reads them, which is after the standard of HTML.

use std::borrow::Cow;

use crate::hashing::WordMap;

/// Characters of the longest name that is looked up.
const MAX_NAME: usize = 32;
/// Python makes no number of more decimal digits, and leaves such a text as it is.
const MAX_DIGITS: usize = 4300;
const DECIMAL: u32 = 10;
/// The characters that the numbers 0x80 to 0x9f mean: those of windows-1252.
const WESTERN: &str = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";

/// The named references.
#[derive(Debug)]
pub(super) struct References {
    named: WordMap<String, String>,
    /// Bytes of the longest name that needs no semicolon.
    longest_open: usize,
}

impl References {
    pub(super) fn new(named: impl IntoIterator<Item = (String, String)>) -> Self {
        let named: WordMap<String, String> = named.into_iter().collect();
        let open = named.keys().filter(|name| !name.ends_with(';'));
        Self {
            longest_open: open.map(String::len).max().unwrap_or(0),
            named,
        }
    }

    /// The text with all references replaced.
    pub(super) fn replaced<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains('&') {
            return Cow::Borrowed(text);
        }
        self.try_replaced(text)
            .map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// As `replaced`; `None` if a number is too long.
    fn try_replaced(&self, text: &str) -> Option<String> {
        let mut pieces = text.split('&');
        let mut replaced = String::with_capacity(text.len());
        replaced.push_str(pieces.next()?);
        for piece in pieces {
            let rest = if let Some((value, rest)) = self.named(piece) {
                replaced.push_str(value);
                rest
            } else if let Some((number, rest)) = numbered(piece) {
                if number.radix == DECIMAL && number.digits.len() > MAX_DIGITS {
                    return None;
                }
                replaced.extend(number.character());
                rest
            } else {
                replaced.push('&');
                piece
            };
            replaced.push_str(rest);
        }
        Some(replaced)
    }

    /// What the longest name behind an ampersand stands for, and the rest.
    fn named<'t>(&self, piece: &'t str) -> Option<(&str, &'t str)> {
        let ends = |(number, (_, character)): &(usize, (usize, char))| {
            *number == MAX_NAME
                || matches!(character, '\t' | '\n' | '\u{c}' | ' ' | '<' | '#' | ';')
        };
        let end = piece.char_indices().enumerate().find(ends);
        let end = end.map_or(piece.len(), |(_, (place, _))| place);
        let closed = piece.as_bytes().get(end) == Some(&b';');
        let shorter = (1..=end.min(self.longest_open)).rev();
        std::iter::once(end + usize::from(closed))
            .chain(shorter)
            .find_map(|length| {
                let (name, rest) = piece.split_at_checked(length)?;
                Some((self.named.get(name)?.as_str(), rest))
            })
    }
}

struct Number<'t> {
    digits: &'t str,
    radix: u32,
}

/// The number behind an ampersand, and the rest.
fn numbered(piece: &str) -> Option<(Number<'_>, &str)> {
    let digits = piece.strip_prefix('#')?;
    let (digits, radix) = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (digits, DECIMAL),
    };
    let end = digits.find(|character: char| !character.is_digit(radix));
    let (digits, rest) = digits.split_at_checked(end.unwrap_or(digits.len()))?;
    let number = Number { digits, radix };
    (!digits.is_empty()).then_some((number, rest.strip_prefix(';').unwrap_or(rest)))
}

impl Number<'_> {
    /// The character with this number; `None` if text must not contain it, and U+FFFD if none has this number.
    fn character(&self) -> Option<char> {
        let digits = self.digits.chars().filter_map(|it| it.to_digit(self.radix));
        let code = digits.fold(0_u32, |code, digit| {
            code.saturating_mul(self.radix).saturating_add(digit)
        });
        match code {
            0 => Some(char::REPLACEMENT_CHARACTER),
            0x80..=0x9f => WESTERN.chars().nth(usize::try_from(code - 0x80).ok()?),
            0x01..=0x08 | 0x0b | 0x0e..=0x1f | 0x7f | 0xfdd0..=0xfdef => None,
            0..=0x10_ffff if code & 0xfffe == 0xfffe => None,
            _ => Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::References;

    #[test]
    fn references_are_replaced_as_python_does() {
        let named = [("not", "¬"), ("notin;", "∉"), ("lt;", "<"), ("amp", "&")];
        let references =
            References::new(named.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let replaced = |text: &str| references.replaced(text).into_owned();
        assert_eq!(
            replaced("a&notin;&notit;&not&lt;&lt&&amp&#amp"),
            "a∉¬it;¬<&lt&&&#amp"
        );
        assert_eq!(replaced("&#65;&#x41&#X4a;b&#x;&#;&;&"), "AAJb&#x;&#;&;&");
        assert_eq!(
            replaced("&#0;&#x80;&#129;&#xd800;&#x110000;"),
            "\u{fffd}€\u{81}\u{fffd}\u{fffd}"
        );
        assert_eq!(replaced("&#1;&#xfffe;&#x10FFFF;&#xfdd0;&#13;"), "\r");
        let long = "9".repeat(4300);
        assert_eq!(replaced(&format!("&lt;&#{long};")), "<\u{fffd}");
        let too_long = format!("&lt;&#{long}9;");
        assert_eq!(replaced(&too_long), too_long);
        assert_eq!(replaced(&format!("&lt;&#x{long}9;")), "<\u{fffd}");
    }
}
