//! JSON text for `jsonb`, under the rules that Postgres has and the two that it lacks: depth and size.
//!
//! RFC 8259. Whoever makes the value serializable keeps the rules of its parts, and ends at the first that is broken.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::field_error::{Code, RuleError};

/// Digits of an integer: what Python reads back at its default setting (`sys.int_info.default_max_str_digits`).
pub const MAX_DIGITS: usize = 4300;
/// The shortest form of numbers from here on has an exponent and no point.
const EXACT_DIGITS: f64 = 1e16;
/// Two numbers can be equally near to a float64, and shortest, only if they have at least this many digits.
const TIED_DIGITS: usize = 16;

/// Bounds of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Levels of nesting: Postgres takes 5,000, but so deep a document cannot be read back by every client.
    pub max_depth: usize,
    /// Bytes of its text.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 64,
            max_bytes: 1024 * 1024,
        }
    }
}

/// Appends the text of a value, or nothing.
///
/// # Errors
/// `too_long`, also where the value refused to be serialized.
pub fn append(
    out: &mut Vec<u8>,
    value: &impl Serialize,
    max_bytes: usize,
) -> Result<(), RuleError> {
    let start = out.len();
    let left = max_bytes;
    let mut serializer = Serializer::with_formatter(Limited { out, left }, ExactNumbers);
    let written = value.serialize(&mut serializer);
    written.map_err(|_| {
        out.truncate(start);
        RuleError::new(Code::TooLong).limit(format!("{max_bytes} bytes"))
    })
}

/// A string that `jsonb` can hold.
///
/// # Errors
/// `nul`.
pub fn string(text: &str) -> Result<&str, RuleError> {
    if text.contains('\0') {
        let place = text.chars().take_while(|&letter| letter != '\0').count();
        return Err(RuleError::new(Code::Nul).actual(format!("character {place} of a string")));
    }
    Ok(text)
}

/// Refuses what does not fit.
struct Limited<'o> {
    out: &'o mut Vec<u8>,
    left: usize,
}

impl io::Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(io::ErrorKind::StorageFull)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a number so that it is read back as the same number, out of `jsonb` too: there a number without a point is a
/// whole one, and exponents are lost.
struct ExactNumbers;

impl Formatter for ExactNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        if value.abs() < EXACT_DIGITS {
            out.write_all(shortest(value).as_bytes())
        } else {
            write!(out, "{value:.1}")
        }
    }
}

/// The shortest text that is read back as this number: of two that are equally near the one with an even last digit, as
/// Python writes it.
fn shortest(value: f64) -> String {
    let text = format!("{value:?}");
    let mantissa = text.split('e').next().unwrap_or(&text);
    let significant = mantissa.trim_start_matches(['-', '0', '.']);
    let count = significant.bytes().filter(u8::is_ascii_digit).count();
    if count < TIED_DIGITS {
        return text;
    }
    let even = format!("{value:.*e}", count - 1);
    let mut digits = even.bytes().filter(u8::is_ascii_digit).take(count);
    let mut begun = false;
    let digit = |letter: char| {
        begun |= matches!(letter, '1'..='9');
        let even = (begun && letter.is_ascii_digit()).then(|| digits.next());
        even.flatten().map_or(letter, char::from)
    };
    let out: String = text.chars().map(digit).collect();
    // Below a power of two the numbers lie closer: there the even one may be another number.
    if out.parse() == Ok(value) { out } else { text }
}
