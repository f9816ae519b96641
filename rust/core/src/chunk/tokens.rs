//! Offsets of a text's tokens, and how many touch a range, so that a text is tokenised only once.

use std::fmt;
use std::ops::Range;

use super::offsets::OffsetConverter;
use super::words::word_ranges;

/// Tokens as two ascending lists of byte offsets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tokens {
    starts: Vec<usize>,
    ends: Vec<usize>,
}

/// Why token offsets are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetError {
    /// The row that is wrong, from 0.
    pub row: usize,
    /// What is wrong with it.
    pub problem: OffsetProblem,
}

/// What can be wrong with a row of token offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetProblem {
    /// Negative, or behind the end of the text.
    OutsideText,
    /// The end lies before the start.
    EndBeforeStart,
    /// The start or the end lies before that of the row above.
    NotAscending,
}

impl fmt::Display for OffsetError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            OffsetProblem::OutsideText => "lies outside the text",
            OffsetProblem::EndBeforeStart => "ends before it starts",
            OffsetProblem::NotAscending => "starts or ends before the previous row",
        };
        write!(formatter, "row {} {problem}", self.row)
    }
}

impl Tokens {
    /// The words of a text.
    #[must_use]
    pub fn of_words(text: &str) -> Self {
        let (starts, ends) = word_ranges(text).into_iter().unzip();
        Self { starts, ends }
    }

    /// Reads (start, end) pairs that count characters.
    ///
    /// # Errors
    ///
    /// The first row that lies outside the text, ends before it starts, or is not in ascending order.
    pub fn from_characters(text: &str, pairs: &[(i64, i64)]) -> Result<Self, OffsetError> {
        let mut tokens = Self {
            starts: Vec::with_capacity(pairs.len()),
            ends: Vec::with_capacity(pairs.len()),
        };
        let (mut start_cursor, mut end_cursor) =
            (OffsetConverter::new(text), OffsetConverter::new(text));
        let mut above = (0, 0);
        for (row, &(start, end)) in pairs.iter().enumerate() {
            let error = |problem| OffsetError { row, problem };
            if start < 0 || end < 0 {
                return Err(error(OffsetProblem::OutsideText));
            }
            if end < start {
                return Err(error(OffsetProblem::EndBeforeStart));
            }
            if start < above.0 || end < above.1 {
                return Err(error(OffsetProblem::NotAscending));
            }
            above = (start, end);
            let byte = |cursor: &mut OffsetConverter<'_>, character: i64| {
                usize::try_from(character)
                    .ok()
                    .and_then(|character| cursor.byte(character))
                    .ok_or_else(|| error(OffsetProblem::OutsideText))
            };
            tokens.starts.push(byte(&mut start_cursor, start)?);
            tokens.ends.push(byte(&mut end_cursor, end)?);
        }
        Ok(tokens)
    }

    /// Tokens that share at least a byte with the range. A token that is cut in two counts on both sides.
    #[must_use]
    pub fn count(&self, range: &Range<usize>) -> usize {
        let begun = self.starts.partition_point(|&start| start < range.end);
        begun.saturating_sub(self.passed(range.start))
    }

    /// The last place where a range from `start` may end to hold at most `most` tokens.
    pub(super) fn last_end(&self, start: usize, most: usize) -> usize {
        let first_too_many = self.passed(start).saturating_add(most);
        self.starts
            .get(first_too_many)
            .copied()
            .unwrap_or(usize::MAX)
    }

    /// The first place where a range up to `end` may start to hold at most `most` tokens.
    pub(super) fn first_start(&self, end: usize, most: usize) -> usize {
        let begun = self.starts.partition_point(|&start| start < end);
        let last_too_many = begun.checked_sub(most).and_then(|left| left.checked_sub(1));
        last_too_many
            .and_then(|last| self.ends.get(last))
            .copied()
            .unwrap_or(0)
    }

    /// Tokens that end at or before a place.
    fn passed(&self, place: usize) -> usize {
        self.ends.partition_point(|&end| end <= place)
    }
}
