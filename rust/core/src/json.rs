//! JSON text for `jsonb`, under the rules that Postgres has and the two that it lacks: depth and size.
//!
//! RFC 8259. Whoever walks the value calls the writer; the first broken rule ends the walk.

use crate::fault::{Code, Fault};

/// Levels of nesting: Postgres takes 5,000, but so deep a document cannot be read back by every client.
pub const MAX_DEPTH: usize = 64;
/// Bytes of one document.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Digits of an integer: what Python reads back at its default setting (`sys.int_info.default_max_str_digits`).
pub const MAX_DIGITS: usize = 4300;
/// From here on the shortest form of a number has an exponent and no point.
const EXACT_DIGITS: f64 = 1e16;

/// Writes one JSON value after another into one buffer.
#[derive(Debug)]
pub struct JsonWriter {
    out: Vec<u8>,
    start: usize,
    max_depth: usize,
    max_bytes: usize,
    /// One entry a level: true once something stands in the container, so that a comma comes before the next.
    filled: Vec<bool>,
    /// True between a key and its value, where no comma is due.
    after_key: bool,
}

impl Default for JsonWriter {
    fn default() -> Self {
        Self::new(MAX_DEPTH, MAX_BYTES)
    }
}

impl JsonWriter {
    /// A writer with its own bounds.
    #[must_use]
    pub fn new(max_depth: usize, max_bytes: usize) -> Self {
        Self {
            out: Vec::new(),
            start: 0,
            max_depth,
            max_bytes,
            filled: Vec::new(),
            after_key: false,
        }
    }

    /// Begins the next document; what a broken walk left is removed.
    pub fn begin_document(&mut self, length: usize) {
        self.out.truncate(length);
        self.start = self.out.len();
        self.filled.clear();
        self.after_key = false;
    }

    /// Bytes written so far, over all documents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// True when nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Everything written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Opens an object.
    ///
    /// # Errors
    /// `too_deep`, `too_long`.
    pub fn begin_object(&mut self) -> Result<(), Fault> {
        self.begin(b'{')
    }

    /// Closes an object.
    ///
    /// # Errors
    /// `too_long`.
    pub fn end_object(&mut self) -> Result<(), Fault> {
        self.end(b'}')
    }

    /// Opens an array.
    ///
    /// # Errors
    /// `too_deep`, `too_long`.
    pub fn begin_array(&mut self) -> Result<(), Fault> {
        self.begin(b'[')
    }

    /// Closes an array.
    ///
    /// # Errors
    /// `too_long`.
    pub fn end_array(&mut self) -> Result<(), Fault> {
        self.end(b']')
    }

    /// Writes the key of the value that comes next.
    ///
    /// # Errors
    /// `nul`, `too_long`.
    pub fn key(&mut self, key: &str) -> Result<(), Fault> {
        self.string(key)?;
        self.raw(b":")?;
        self.after_key = true;
        Ok(())
    }

    /// Writes a string.
    ///
    /// # Errors
    /// `nul`, `too_long`.
    pub fn string(&mut self, text: &str) -> Result<(), Fault> {
        if let Some(place) = text
            .contains('\0')
            .then(|| text.chars().take_while(|&letter| letter != '\0').count())
        {
            return Err(Fault::new(Code::Nul).actual(format!("character {place} of a string")));
        }
        self.separate()?;
        self.raw(b"\"")?;
        let mut rest = text.as_bytes();
        while let Some(place) = rest
            .iter()
            .position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\')
        {
            let (plain, special) = rest.split_at(place);
            self.raw(plain)?;
            if let Some((&byte, after)) = special.split_first() {
                self.escape(byte)?;
                rest = after;
            }
        }
        self.raw(rest)?;
        self.raw(b"\"")
    }

    fn escape(&mut self, byte: u8) -> Result<(), Fault> {
        match byte {
            b'"' => self.raw(b"\\\""),
            b'\\' => self.raw(b"\\\\"),
            0x08 => self.raw(b"\\b"),
            0x0c => self.raw(b"\\f"),
            b'\n' => self.raw(b"\\n"),
            b'\r' => self.raw(b"\\r"),
            b'\t' => self.raw(b"\\t"),
            other => self.raw(format!("\\u{other:04x}").as_bytes()),
        }
    }

    /// Writes an integer.
    ///
    /// # Errors
    /// `too_long`.
    pub fn i64(&mut self, value: i64) -> Result<(), Fault> {
        self.scalar(value.to_string().as_bytes())
    }

    /// Writes an integer that is larger than an `i64`.
    ///
    /// # Errors
    /// `too_long`.
    pub fn u64(&mut self, value: u64) -> Result<(), Fault> {
        self.scalar(value.to_string().as_bytes())
    }

    /// Writes an integer of any size from its decimal digits.
    ///
    /// # Errors
    /// `out_of_range` above [`MAX_DIGITS`] digits or when the text is no integer, `too_long`.
    pub fn integer_text(&mut self, text: &str) -> Result<(), Fault> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !number || digits.len() > MAX_DIGITS || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(Fault::new(Code::OutOfRange).limit(format!("{MAX_DIGITS} digits")));
        }
        self.scalar(text.as_bytes())
    }

    /// Writes a number so that it is read back as the same number, out of `jsonb` too: there a number without a point is
    /// a whole one, and exponents are lost.
    ///
    /// # Errors
    /// `not_finite`, `too_long`.
    pub fn f64(&mut self, value: f64) -> Result<(), Fault> {
        if !value.is_finite() {
            return Err(Fault::new(Code::NotFinite).actual("a number in JSON"));
        }
        let text = if value.abs() < EXACT_DIGITS {
            format!("{value:?}")
        } else {
            format!("{value:.1}")
        };
        self.scalar(text.as_bytes())
    }

    /// Writes true or false.
    ///
    /// # Errors
    /// `too_long`.
    pub fn bool(&mut self, value: bool) -> Result<(), Fault> {
        self.scalar(if value { b"true" } else { b"false" })
    }

    /// Writes null.
    ///
    /// # Errors
    /// `too_long`.
    pub fn null(&mut self) -> Result<(), Fault> {
        self.scalar(b"null")
    }

    fn scalar(&mut self, text: &[u8]) -> Result<(), Fault> {
        self.separate()?;
        self.raw(text)
    }

    fn begin(&mut self, bracket: u8) -> Result<(), Fault> {
        if self.filled.len() >= self.max_depth {
            return Err(Fault::new(Code::TooDeep).limit(format!("{} levels", self.max_depth)));
        }
        self.separate()?;
        self.filled.push(false);
        self.raw(&[bracket])
    }

    fn end(&mut self, bracket: u8) -> Result<(), Fault> {
        self.filled.pop();
        self.raw(&[bracket])
    }

    /// A comma, where one is due.
    fn separate(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.after_key) {
            return Ok(());
        }
        match self
            .filled
            .last_mut()
            .map(|filled| std::mem::replace(filled, true))
        {
            Some(true) => self.raw(b","),
            _ => Ok(()),
        }
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let size = self
            .out
            .len()
            .saturating_sub(self.start)
            .saturating_add(bytes.len());
        if size > self.max_bytes {
            return Err(Fault::new(Code::TooLong).limit(format!("{} bytes", self.max_bytes)));
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}
