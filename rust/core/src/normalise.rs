//! The leading part of vectors, scaled to norm 1.

/// Why vectors cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormaliseError {
    /// More components are wanted than a row has, or none.
    Dimensions {
        /// Components of a row.
        width: usize,
        /// Components wanted.
        wanted: usize,
    },
}

/// The first `wanted` components of every row of `width` components, divided by their Euclidean norm.
///
/// Squares are summed in float64: those of float32 may overflow float32. A row without direction (all zero, or not
/// finite) has no norm 1; zeros stay as they are.
///
/// # Errors
///
/// `wanted` is 0 or more than `width`.
pub fn normalise_rows(
    values: &[f32],
    width: usize,
    wanted: usize,
) -> Result<Vec<f32>, NormaliseError> {
    if wanted == 0 || wanted > width {
        return Err(NormaliseError::Dimensions { width, wanted });
    }
    let mut normalised = Vec::with_capacity(values.len() / width * wanted);
    for row in values.chunks_exact(width) {
        let kept = row.get(..wanted).unwrap_or_default();
        let norm = sum_of_squares(kept).sqrt();
        let norm = if norm == 0.0 { 1.0 } else { norm };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "rounds to the nearest float32"
        )]
        normalised.extend(
            kept.iter()
                .map(|&component| (f64::from(component) / norm) as f32),
        );
    }
    Ok(normalised)
}

/// Eight sums side by side: one alone would wait for each addition before the next.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let square = |&value: &f32| f64::from(value) * f64::from(value);
    let (blocks, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for block in blocks {
        for (sum, value) in sums.iter_mut().zip(block) {
            *sum += square(value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(square).sum::<f64>()
}
