//! Texts as files that stem from SentencePiece's models read them: a `▁` in front, and one for every space.
//!
//! Nothing tells a `▁` of the text from one that stands for a space, so both are held as a space, which is shorter.

use rustc_hash::{FxHashMap, FxHashSet};

use super::normal::Aligned;

/// What the file writes for a space.
pub(super) const MARK: char = '▁';
const ASCII: usize = 128;

/// A text with a space in front, and a space for every mark.
pub(super) fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() + 1);
    for part in text.split(MARK) {
        spaced.push(' ');
        spaced.push_str(part);
    }
    spaced
}

/// The characters of that. The space in front stands for the first character, as the tokenizers library has it.
pub(super) fn aligned(text: &str) -> impl Iterator<Item = Aligned> + '_ {
    let front = Aligned {
        bytes: 1,
        start: 0,
        end: 1,
    };
    let characters = text.chars().enumerate().map(|(start, character)| Aligned {
        bytes: if character == MARK {
            1
        } else {
            character.len_utf8()
        },
        start,
        end: start + 1,
    });
    std::iter::once(front).chain(characters)
}

/// The tokens that a piece begins as: one of each character, or of each of its bytes where it has none.
#[derive(Clone)]
pub(super) struct CharacterTokens {
    ascii: [u32; ASCII],
    others: FxHashMap<char, u32>,
    bytes: [u32; 256],
}

impl CharacterTokens {
    /// `bytes` are the tokens of single bytes. Nothing where the vocabulary lacks the mark.
    pub(super) fn new(vocabulary: &FxHashMap<String, u32>, bytes: [u32; 256]) -> Option<Self> {
        let mut ascii = [0; ASCII];
        ascii.copy_from_slice(bytes.get(..ASCII)?);
        let mut others = FxHashMap::default();
        for (text, &id) in vocabulary {
            let mut characters = text.chars();
            let (Some(character), None) = (characters.next(), characters.next()) else {
                continue;
            };
            match ascii.get_mut(character as usize) {
                Some(place) => *place = id,
                None => {
                    others.insert(character, id);
                }
            }
        }
        *ascii.get_mut(usize::from(b' '))? = *others.get(&MARK)?;
        Some(Self {
            ascii,
            others,
            bytes,
        })
    }

    /// Gives the tokens of a piece to `take`; none where it is not UTF-8.
    pub(super) fn each(&self, piece: &[u8], mut take: impl FnMut(u32)) {
        for character in std::str::from_utf8(piece).unwrap_or_default().chars() {
            let id = self.ascii.get(character as usize);
            if let Some(&id) = id.or_else(|| self.others.get(&character)) {
                take(id);
                continue;
            }
            for &byte in character.encode_utf8(&mut [0; 4]).as_bytes() {
                take(
                    self.bytes
                        .get(usize::from(byte))
                        .copied()
                        .unwrap_or_default(),
                );
            }
        }
    }
}

/// Which characters a merge can join: a left token ends with the one, a right token begins with the other.
///
/// No token reaches over two neighbours that none joins, so a text may be cut there, and its pieces are short.
pub(super) struct Joints {
    /// `ascii[first * 128 + second]`.
    ascii: Vec<bool>,
    others: FxHashSet<(char, char)>,
}

impl Joints {
    /// Reads left and right token of every merge.
    pub(super) fn new<'a>(merges: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut joints = Self {
            ascii: vec![false; ASCII * ASCII],
            others: FxHashSet::default(),
        };
        let held = |character| if character == MARK { ' ' } else { character };
        for (left, right) in merges {
            let (Some(first), Some(second)) = (left.chars().next_back(), right.chars().next())
            else {
                continue;
            };
            let (first, second) = (held(first), held(second));
            match place(first, second).and_then(|place| joints.ascii.get_mut(place)) {
                Some(joint) => *joint = true,
                None => {
                    joints.others.insert((first, second));
                }
            }
        }
        joints
    }

    /// Where the piece ends that begins at `start`, a character's first byte; behind `start` unless the text ends there.
    #[inline]
    pub(super) fn piece_end(&self, text: &str, start: usize) -> usize {
        let Some((mut last, mut end)) = at(text, start) else {
            return text.len();
        };
        while let Some((next, behind)) = at(text, end) {
            if !self.join(last, next) {
                break;
            }
            (last, end) = (next, behind);
        }
        end
    }

    #[inline]
    fn join(&self, first: char, second: char) -> bool {
        match place(first, second) {
            Some(place) => self.ascii.get(place).copied().unwrap_or_default(),
            None => self.others.contains(&(first, second)),
        }
    }
}

#[inline]
fn place(first: char, second: char) -> Option<usize> {
    (first.is_ascii() && second.is_ascii()).then_some(first as usize * ASCII + second as usize)
}

/// The character that begins at `place`, and where the next one begins; nothing at the end.
#[inline]
fn at(text: &str, place: usize) -> Option<(char, usize)> {
    let &byte = text.as_bytes().get(place)?;
    if byte.is_ascii() {
        return Some((char::from(byte), place + 1));
    }
    let character = text.get(place..)?.chars().next()?;
    Some((character, place + character.len_utf8()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // a test fails by panicking

    use super::*;

    #[test]
    fn pieces_end_where_no_merge_joins() {
        let merges = [
            ("▁", "▁"),
            ("▁", "a"),
            ("▁a", "b"),
            ("漢", "字"),
            ("b", "é"),
        ];
        let joints = Joints::new(merges.into_iter());
        for (text, expected) in [
            ("", &[""; 0][..]),
            ("a b", &[" a", " ", "b"]),
            ("ab  ab", &[" ab", "  ab"]),
            ("a▁ bé", &[" a", "  ", "bé"]),
            ("ba\n\n漢字漢", &[" ", "b", "a", "\n", "\n", "漢字", "漢"]),
            (" ", &["  "]),
        ] {
            let spaced = if text.is_empty() {
                String::new()
            } else {
                spaced(text)
            };
            let (mut found, mut start) = (Vec::new(), 0);
            while start < spaced.len() {
                let end = joints.piece_end(&spaced, start);
                assert!(end > start);
                found.push(spaced.get(start..end).expect("boundaries of characters"));
                start = end;
            }
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn characters_without_a_token_are_bytes() {
        let ids = std::array::from_fn(|byte| 100 + u32::try_from(byte).unwrap_or_default());
        let vocabulary = [("▁", 1), ("a", 2), ("é", 3), (" ", 4), ("ab", 5)];
        let vocabulary: FxHashMap<String, u32> = vocabulary
            .map(|(text, id)| (text.to_owned(), id))
            .into_iter()
            .collect();
        let tokens = CharacterTokens::new(&vocabulary, ids).expect("a vocabulary with the mark");
        let mut found = Vec::new();
        tokens.each(" aéb\u{e8}".as_bytes(), |id| found.push(id));
        assert_eq!(found, [1, 2, 3, 100 + 98, 100 + 0xC3, 100 + 0xA8]);
        assert!(CharacterTokens::new(&FxHashMap::default(), ids).is_none());
    }
}
