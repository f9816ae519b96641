//! Characters (what Python counts) and bytes (what Rust counts), translated in one pass.

/// Translates ascending offsets; going back is not possible.
#[derive(Debug, Clone)]
pub struct OffsetConverter<'a> {
    text: &'a str,
    is_ascii: bool,
    bytes: usize,
    characters: usize,
}

impl<'a> OffsetConverter<'a> {
    /// Begins at the start of the text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            is_ascii: text.is_ascii(),
            bytes: 0,
            characters: 0,
        }
    }

    /// The byte at which a character begins (or at which the text ends); `None` if it lies behind the text or before
    /// the last one asked for.
    pub fn byte(&mut self, character: usize) -> Option<usize> {
        if self.is_ascii {
            return (character <= self.text.len()).then_some(character);
        }
        let steps = character.checked_sub(self.characters)?;
        if steps == 0 {
            return Some(self.bytes);
        }
        let rest = self.text.get(self.bytes..)?;
        let (last, width) = rest
            .char_indices()
            .nth(steps - 1)
            .map(|(place, character)| (place, character.len_utf8()))?;
        self.bytes += last + width;
        self.characters = character;
        Some(self.bytes)
    }

    /// The number of characters before a byte; `None` if it is no boundary, or before the last one asked for.
    pub fn character(&mut self, byte: usize) -> Option<usize> {
        if self.is_ascii {
            return (byte <= self.text.len()).then_some(byte);
        }
        self.characters += self.text.get(self.bytes..byte)?.chars().count();
        self.bytes = byte;
        Some(self.characters)
    }
}
