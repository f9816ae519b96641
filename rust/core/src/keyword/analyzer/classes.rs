//! The classes of the characters of a text, found in one pass over its bytes.

use crate::byte_table::ByteTable;

/// Classes of the characters of a text: they answer most questions quickly.
#[derive(Clone, Copy)]
pub(super) struct Classes(u8);

pub(super) const LOWER: u8 = 1;
pub(super) const UPPER: u8 = 2;
pub(super) const DIGIT: u8 = 4;
pub(super) const PLAIN: u8 = LOWER | UPPER | DIGIT;
/// A separator of level 0, and twice as much of each other level.
pub(super) const SEPARATOR: u8 = 8;
pub(super) const OTHER: u8 = 64;
pub(super) const FOREIGN: u8 = 128;

/// The class of each byte.
#[allow(clippy::indexing_slicing, reason = "done by the compiler")]
static CLASSES: ByteTable<u8> = {
    let mut classes = [FOREIGN; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        classes[byte as usize] = match byte {
            b'a'..=b'z' => LOWER,
            b'A'..=b'Z' => UPPER,
            b'0'..=b'9' => DIGIT,
            b'/' | b'@' => SEPARATOR,
            b'.' | b':' => SEPARATOR << 1,
            b'-' | b'_' => SEPARATOR << 2,
            _ => OTHER,
        };
        byte += 1;
    }
    ByteTable(classes)
};

impl Classes {
    pub(super) fn of(text: &str) -> Self {
        Self(text.bytes().fold(0, |all, byte| all | CLASSES.of(byte)))
    }

    /// Whether at least one character has one of these classes.
    pub(super) fn has(self, classes: u8) -> bool {
        self.0 & classes != 0
    }

    /// Whether all characters have one of these classes.
    pub(super) fn is(self, classes: u8) -> bool {
        self.0 & !classes == 0
    }
}
