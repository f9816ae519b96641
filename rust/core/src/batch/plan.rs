//! Batches of rows of similar length, within a budget of tokens.

use std::cmp::Reverse;
use std::fmt;

/// Rows in batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// Row numbers, longest row first; rows of equal length in their own order.
    pub order: Vec<i64>,
    /// Batch i is `order[boundaries[i]..boundaries[i + 1]]`; begins with 0 and ends with the number of rows.
    pub boundaries: Vec<i64>,
    /// `inverse[row]` is the row's place in `order`.
    pub inverse: Vec<i64>,
    /// Tokens of all rows.
    pub real_tokens: i64,
    /// Tokens that a model computes, padding included.
    pub computed_tokens: i64,
}

/// Why no plan can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanError {
    /// A row has a negative length.
    NegativeLength {
        /// The row, from 0.
        row: usize,
        /// Its length.
        length: i64,
    },
    /// The tokens of all rows pass the range of 64 bits.
    TooManyTokens,
}

impl fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeLength { row, length } => {
                write!(
                    formatter,
                    "lengths: row {row} must be at least 0, found {length}"
                )
            }
            Self::TooManyTokens => write!(formatter, "lengths: their sum exceeds 2**63 - 1 tokens"),
        }
    }
}

/// Plans batches: rows sorted by length (longest first, so that memory peaks at once and not after hours), cut before a
/// batch costs more than `token_budget` or has more than `max_rows` rows. A row above the budget is a batch of its own.
///
/// A padded batch costs its longest row times its rows; a packed one the sum of its rows.
///
/// # Errors
///
/// A negative length, or more tokens than 64 bits can count.
pub fn plan_batches(
    lengths: &[i64],
    token_budget: i64,
    max_rows: i64,
    padded: bool,
) -> Result<BatchPlan, PlanError> {
    let mut rows: Vec<(i64, i64)> = Vec::with_capacity(lengths.len());
    for ((row, &length), number) in lengths.iter().enumerate().zip(0_i64..) {
        if length < 0 {
            return Err(PlanError::NegativeLength { row, length });
        }
        rows.push((length, number));
    }
    rows.sort_by_key(|&(length, _)| Reverse(length));

    let mut boundaries = vec![0];
    let (mut real_tokens, mut computed_tokens) = (0_i64, 0_i64);
    let (mut count, mut cost, mut longest) = (0_i64, 0_i64, 0_i64);
    for (&(length, _), place) in rows.iter().zip(0_i64..) {
        if count == 0 {
            longest = length;
        }
        let grown = if padded {
            longest.checked_mul(count + 1)
        } else {
            cost.checked_add(length)
        };
        let fits = grown.is_some_and(|grown| grown <= token_budget) && count < max_rows;
        (count, cost) = match grown {
            Some(grown) if fits || count == 0 => (count + 1, grown),
            _ => {
                boundaries.push(place);
                computed_tokens = computed_tokens
                    .checked_add(cost)
                    .ok_or(PlanError::TooManyTokens)?;
                longest = length;
                (1, length)
            }
        };
        real_tokens = real_tokens
            .checked_add(length)
            .ok_or(PlanError::TooManyTokens)?;
    }
    if count > 0 {
        boundaries.push(i64::try_from(rows.len()).map_err(|_| PlanError::TooManyTokens)?);
        computed_tokens = computed_tokens
            .checked_add(cost)
            .ok_or(PlanError::TooManyTokens)?;
    }

    let order: Vec<i64> = rows.into_iter().map(|(_, row)| row).collect();
    let mut inverse = vec![0; order.len()];
    for (&row, place) in order.iter().zip(0_i64..) {
        if let Some(slot) = usize::try_from(row)
            .ok()
            .and_then(|row| inverse.get_mut(row))
        {
            *slot = place;
        }
    }
    Ok(BatchPlan {
        order,
        boundaries,
        inverse,
        real_tokens,
        computed_tokens,
    })
}
