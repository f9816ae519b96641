//! The entries of a vocabulary as the bytes that they stand for in a text, in both ways of spelling them.

use rustc_hash::FxHashMap;

use super::parts::{ReadError, unsupported};
use super::spaced::MARK;

/// The byte that a character of the byte-level alphabet stands for: printable Latin-1 characters stand for themselves,
/// the other bytes, in ascending order, for U+0100 and what follows.
fn alphabet() -> FxHashMap<char, u8> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let (plain, others): (Vec<u8>, Vec<u8>) = (0..=255).partition(|&byte| is_printable(byte));
    let plain = plain.into_iter().map(|byte| (char::from(byte), byte));
    plain.chain(('\u{100}'..).zip(others)).collect()
}

/// Bytes and ids of the entries that are spelt in the byte-level alphabet.
pub(super) fn byte_entries(vocabulary: &FxHashMap<String, u32>) -> Vec<(Vec<u8>, u32)> {
    let alphabet = alphabet();
    let bytes = |text: &str| -> Option<Vec<u8>> {
        text.chars().map(|it| alphabet.get(&it).copied()).collect()
    };
    let entry = |(text, &id): (&String, &u32)| Some((bytes(text)?, id));
    vocabulary.iter().filter_map(entry).collect()
}

/// The ids of single bytes among them.
pub(super) fn single_bytes(entries: &[(Vec<u8>, u32)]) -> Result<[u32; 256], ReadError> {
    let mut ids = [u32::MAX; 256];
    for (bytes, id) in entries {
        if let [byte] = bytes.as_slice()
            && let Some(place) = ids.get_mut(usize::from(*byte))
        {
            *place = *id;
        }
    }
    if ids.contains(&u32::MAX) {
        return unsupported("a vocabulary without a token for each of the 256 bytes");
    }
    Ok(ids)
}

/// Bytes and ids of the entries that are spelt as they are, `▁` as a space; `<0x0A>` is the byte.
pub(super) fn spelt_entries(vocabulary: &FxHashMap<String, u32>) -> Vec<(Vec<u8>, u32)> {
    let entry = |(text, &id): (&String, &u32)| {
        let bytes = match named_byte(text) {
            Some(byte) => vec![byte],
            // No text has a space that is not a mark by then.
            None if text.contains(' ') => return None,
            None => text.replace(MARK, " ").into_bytes(),
        };
        Some((bytes, id))
    };
    vocabulary.iter().filter_map(entry).collect()
}

/// The ids of `<0x00>` to `<0xFF>`.
pub(super) fn named_bytes(vocabulary: &FxHashMap<String, u32>) -> Result<[u32; 256], ReadError> {
    let mut ids = [u32::MAX; 256];
    for (text, &id) in vocabulary {
        if let Some(place) = named_byte(text).and_then(|byte| ids.get_mut(usize::from(byte))) {
            *place = id;
        }
    }
    if ids.contains(&u32::MAX) {
        return unsupported("a vocabulary without a token for each of the 256 bytes");
    }
    Ok(ids)
}

/// The byte that an entry such as `<0x0A>` names.
pub(super) fn named_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    (digits.len() == 2 && digits.as_bytes().iter().all(is_digit))
        .then(|| u8::from_str_radix(digits, 16).ok())?
}
