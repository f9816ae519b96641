//! BM25: the weight of a term, and its frequency in a chunk, saturated and normed by the chunk's length (the tf norm).
//!
//! S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), formula 3.15, with the idf
//! of Lucene, which is never negative: ln(1 + (N - df + 0.5) / (df + 0.5)).

use crate::keyword::format::Header;
use crate::keyword::format::list::List;

/// Frequencies whose tf norm is looked up. Larger ones are rare, and computed.
const TABLED: u32 = 16;

/// The free parameters of BM25.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// How late a frequency saturates, 0 to 1,000.
    pub k1: f64,
    /// How much the length counts, 0 to 1.
    pub b: f64,
}

impl Parameters {
    /// What a length adds to the denominator.
    pub(crate) fn norm(self, length: u32, average_length: f64) -> f64 {
        self.k1 * (1.0 - self.b + self.b * f64::from(length) / average_length)
    }

    /// A frequency, saturated and normed: from 0 to k1 + 1.
    pub(crate) fn tf_norm(self, frequency: u32, norm: f64) -> f64 {
        let frequency = f64::from(frequency);
        frequency * (self.k1 + 1.0) / (frequency + norm)
    }
}

/// The weight of a term that `frequency` of `chunks` chunks hold.
pub(crate) fn idf(chunks: u64, frequency: u64) -> f64 {
    let (chunks, frequency) = (chunks as f64, frequency as f64);
    ((chunks - frequency + 0.5) / (frequency + 0.5)).ln_1p()
}

/// A table is rebuilt when the average length has moved from its own by more than this ratio.
const MAX_DRIFT: f64 = 1.0 / 1024.0;

/// The tf norms of one segment in single precision, for finding candidates.
///
/// Lengths count in relation to the average length, which every commit moves a little. A table also serves averages near its
/// own: the relative error of a tf norm is at most that of the average.
#[derive(Debug)]
pub(crate) struct TfNormTable {
    parameters: Parameters,
    average_length: f64,
    /// By frequency, then by number of the length in the header.
    tf_norms: Vec<f32>,
    norms: Vec<f32>,
    factor: f32,
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "candidates are found in single precision, with a margin"
)]
impl TfNormTable {
    pub(crate) fn new(parameters: Parameters, average_length: f64, header: &Header) -> Self {
        let norms = header
            .lengths
            .iter()
            .map(|length| parameters.norm(*length, average_length));
        let tf_norms = (1..=TABLED).flat_map(|frequency| {
            let norms = norms.clone();
            norms.map(move |norm| parameters.tf_norm(frequency, norm) as f32)
        });
        Self {
            parameters,
            average_length,
            tf_norms: tf_norms.collect(),
            norms: norms.map(|norm| norm as f32).collect(),
            factor: (parameters.k1 + 1.0) as f32,
        }
    }

    /// Whether the table serves searches with these parameters and this average length.
    pub(crate) fn serves(&self, parameters: Parameters, average_length: f64) -> bool {
        self.parameters == parameters && self.drift(average_length) <= MAX_DRIFT
    }

    /// The maximum relative error of a tf norm if the average length is this one.
    pub(crate) fn drift(&self, average_length: f64) -> f64 {
        let (one, other) = (self.average_length, average_length);
        one.max(other) / one.min(other) - 1.0
    }

    /// The tf norm of a frequency, given less 1, in a chunk with the length of this number; `None` if the segment lacks
    /// this length.
    #[inline]
    pub(crate) fn tf_norm(&self, number: u16, tf_minus_one: u32) -> Option<f32> {
        let number = usize::from(number);
        if tf_minus_one < TABLED {
            let place = (tf_minus_one as usize).wrapping_mul(self.norms.len());
            return self.tf_norms.get(place.wrapping_add(number)).copied();
        }
        let frequency = tf_minus_one as f32 + 1.0;
        Some(frequency * self.factor / (frequency + self.norms.get(number)?))
    }

    /// An upper bound of the tf norms of the list's postings.
    pub(crate) fn bound(&self, list: &List) -> f32 {
        let Some(impacts) = list.impacts() else {
            return self.factor;
        };
        let tf_norms = impacts.iter().map(|impact| {
            let norm = self.parameters.norm(impact.length, self.average_length);
            self.parameters.tf_norm(impact.frequency, norm) as f32
        });
        tf_norms.fold(0.0, f32::max)
    }
}
