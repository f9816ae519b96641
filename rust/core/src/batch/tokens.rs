//! Token ids of many rows, and the packed batches of a plan: rows one after the other, without padding.

use std::fmt;

use super::plan::{BatchPlan, PlanError, plan_batches};

/// Rows of token ids with a plan of packed batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlan {
    /// The plan over the tokens that the batches hold.
    pub plan: BatchPlan,
    ids: Vec<i64>,
    ends: Vec<usize>,
    skip: usize,
}

/// The rows of one batch as one sequence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenBatch {
    /// Number of each row.
    pub rows: Vec<i64>,
    /// Token ids, row behind row, without the tokens that the plan skips.
    pub ids: Vec<i64>,
    /// Place of every token in its own row; skipped tokens count.
    pub positions: Vec<i64>,
    /// Which row of the batch every token belongs to, from 0.
    pub documents: Vec<i64>,
    /// Row i is `ids[offsets[i]..offsets[i + 1]]`.
    pub offsets: Vec<i64>,
}

/// Why token rows cannot be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// The offsets do not begin with 0.
    Start {
        /// The first offset, if there is one.
        found: Option<i64>,
    },
    /// The offsets do not end with the number of ids.
    End {
        /// Number of ids.
        expected: usize,
        /// The last offset.
        found: i64,
    },
    /// A row ends before it begins.
    Descending {
        /// The row, from 0.
        row: usize,
    },
    /// A row has no token behind those that are skipped.
    TooShort {
        /// The row, from 0.
        row: usize,
        /// Its tokens.
        length: usize,
        /// How many are skipped.
        skip: usize,
    },
    /// A token id is negative.
    NegativeId {
        /// Its place among the ids, from 0.
        place: usize,
    },
    /// The lengths cannot be planned.
    Plan(PlanError),
}

impl fmt::Display for TokenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { found: None } => {
                write!(
                    formatter,
                    "offsets: must begin with 0, but there are no offsets"
                )
            }
            Self::Start { found: Some(found) } => {
                write!(formatter, "offsets: must begin with 0, found {found}")
            }
            Self::End { expected, found } => write!(
                formatter,
                "offsets: must end with the number of ids, {expected}; found {found}"
            ),
            Self::Descending { row } => {
                write!(formatter, "offsets: row {row} ends before it begins")
            }
            Self::TooShort { row, length, skip } => write!(
                formatter,
                "offsets: row {row} must have more than {skip} tokens, found {length}"
            ),
            Self::NegativeId { place } => {
                write!(formatter, "ids: the id at position {place} is negative")
            }
            Self::Plan(error) => error.fmt(formatter),
        }
    }
}

impl TokenPlan {
    /// Plans packed batches of rows without their first `skip` tokens, which a model has read already; `padded`
    /// says how the budget counts, as for `plan_batches`.
    ///
    /// # Errors
    ///
    /// Offsets that do not fit the ids, a row without a token behind the skipped ones, or a negative id.
    pub fn new(
        ids: Vec<i64>,
        offsets: &[i64],
        token_budget: i64,
        max_rows: i64,
        padded: bool,
        skip: usize,
    ) -> Result<Self, TokenError> {
        let ends = checked_ends(ids.len(), offsets)?;
        if let Some(place) = ids.iter().position(|&id| id < 0) {
            return Err(TokenError::NegativeId { place });
        }
        let mut lengths = Vec::with_capacity(ends.len());
        let mut start = 0;
        for (row, &end) in ends.iter().enumerate() {
            let length = end - start;
            let left = length.checked_sub(skip).filter(|&left| left > 0);
            let left = left.ok_or(TokenError::TooShort { row, length, skip })?;
            lengths
                .push(i64::try_from(left).map_err(|_| TokenError::Plan(PlanError::TooManyTokens))?);
            start = end;
        }
        let plan =
            plan_batches(&lengths, token_budget, max_rows, padded).map_err(TokenError::Plan)?;
        Ok(Self {
            plan,
            ids,
            ends,
            skip,
        })
    }

    /// Number of batches.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.plan.boundaries.len() - 1
    }

    /// The buffers of one batch, or `None` if there are fewer batches.
    #[must_use]
    pub fn batch(&self, number: usize) -> Option<TokenBatch> {
        let place = |at: usize| usize::try_from(*self.plan.boundaries.get(at)?).ok();
        let rows = self
            .plan
            .order
            .get(place(number)?..place(number.checked_add(1)?)?)?;
        let mut batch = TokenBatch {
            rows: rows.to_vec(),
            offsets: vec![0],
            ..TokenBatch::default()
        };
        for (&row, document) in rows.iter().zip(0_i64..) {
            let tail = self.tail(usize::try_from(row).ok()?)?;
            let first = i64::try_from(self.skip).ok()?;
            batch.ids.extend_from_slice(tail);
            batch
                .positions
                .extend(tail.iter().zip(first..).map(|(_, position)| position));
            batch.documents.extend(tail.iter().map(|_| document));
            batch.offsets.push(i64::try_from(batch.ids.len()).ok()?);
        }
        Some(batch)
    }

    fn tail(&self, row: usize) -> Option<&[i64]> {
        let start = match row.checked_sub(1) {
            None => 0,
            Some(before) => *self.ends.get(before)?,
        };
        self.ids
            .get(start.checked_add(self.skip)?..*self.ends.get(row)?)
    }
}

/// Number of tokens that all rows begin with, at most one less than the shortest row has; 0 for fewer than two rows.
///
/// # Errors
///
/// Offsets that do not fit the ids.
pub fn common_prefix(ids: &[i64], offsets: &[i64]) -> Result<usize, TokenError> {
    let ends = checked_ends(ids.len(), offsets)?;
    let mut start = 0;
    let mut rows = ends.iter().map(|&end| {
        let row = ids.get(start..end).unwrap_or_default();
        start = end;
        row
    });
    let Some(first) = rows.next() else {
        return Ok(0);
    };
    let mut shared = if ends.len() < 2 {
        0
    } else {
        first.len().saturating_sub(1)
    };
    for row in rows {
        let equal = first
            .iter()
            .zip(row)
            .take_while(|(left, right)| left == right);
        shared = equal.take(shared.min(row.len().saturating_sub(1))).count();
    }
    Ok(shared)
}

fn checked_ends(count: usize, offsets: &[i64]) -> Result<Vec<usize>, TokenError> {
    let (&first, rest) = offsets
        .split_first()
        .ok_or(TokenError::Start { found: None })?;
    if first != 0 {
        return Err(TokenError::Start { found: Some(first) });
    }
    let last = rest.last().copied().unwrap_or(0);
    if usize::try_from(last) != Ok(count) {
        return Err(TokenError::End {
            expected: count,
            found: last,
        });
    }
    let mut ends: Vec<usize> = Vec::with_capacity(rest.len());
    for (row, &offset) in rest.iter().enumerate() {
        let end = usize::try_from(offset).map_err(|_| TokenError::Descending { row })?;
        if ends.last().is_some_and(|&before| end < before) {
            return Err(TokenError::Descending { row });
        }
        ends.push(end);
    }
    Ok(ends)
}
