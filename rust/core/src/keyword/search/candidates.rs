//! Which chunks of a segment may be among the best: H. Turtle and J. Flood, "Query evaluation: strategies and
//! optimizations" (1995), MaxScore. Lists that even together cannot lift a chunk over the threshold are not read; only
//! chunks that others brought up are looked up in them.

use std::cell::Cell;

use super::bm25::TfNormTable;
use crate::keyword::format::list::{Cursor, List, POSTINGS_PER_LOOKUP, Unpacked};
use crate::segments::bitmap::Bitmap;
use crate::segments::{SegmentError, impossible};

/// A list with the weight of its term.
#[derive(Clone, Copy)]
pub(crate) struct Weighted<'a> {
    pub(crate) list: &'a List,
    pub(crate) idf: f32,
    /// An upper bound of what the list adds to a chunk's score.
    pub(crate) bound: f32,
}

/// One segment, as candidates are sought in it.
pub(crate) struct ScoringContext<'a> {
    /// Number of the length of each chunk.
    pub(crate) lengths: &'a [u16],
    pub(crate) tf_norms: &'a TfNormTable,
    /// The chunks that may be found; nothing for all.
    pub(crate) eligible: Option<&'a Bitmap>,
    /// The maximum relative error of a tf norm of the table.
    pub(crate) drift: f32,
}

thread_local! {
    /// The sums of this thread's last search, to be used again: allocating 256 KiB takes longer than many searches.
    static KEPT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Memory of the collector, used for one segment after the other.
pub(crate) struct Accumulator {
    /// All 0 between segments.
    scores: Vec<f32>,
}

/// Chunks read one by one cost about as much as this many in a row.
const SPARSE_QUERY_RATIO: usize = 64;

/// Chunks whose sums are looked at together.
const STRIDE: usize = 32;

impl Accumulator {
    pub(crate) fn of_thread() -> Self {
        Self {
            scores: KEPT.take(),
        }
    }

    /// Keeps the memory for the thread's next search; after one that has failed its sums may not be 0.
    pub(crate) fn keep(self) {
        KEPT.set(self.scores);
    }

    /// The ordinals, ascending, of at least all chunks that are among the best `k` of the segment and reach `threshold`.
    pub(crate) fn candidates(
        &mut self,
        context: &ScoringContext<'_>,
        lists: &mut [Weighted<'_>],
        k: usize,
        threshold: f32,
    ) -> Result<(Vec<u32>, Unpacked), SegmentError> {
        if k == 0 || lists.is_empty() {
            return Ok(Default::default());
        }
        // Sums in single precision are off by less than one unit of the last place a term; four times that are allowed.
        // The norms are off by up to the drift of the average length.
        let rounding = 1.0 + (lists.len() as f32 + 16.0) * (2.0 * f32::EPSILON);
        let slack = rounding * (1.0 + context.drift);
        let mut collector = CandidateCollector::new(context, k, slack, threshold);
        lists.sort_unstable_by(|left, right| left.bound.total_cmp(&right.bound));
        let mut looked_up = 0;
        for weighted in lists.iter() {
            let rest = collector.rest + weighted.bound;
            if rest * slack >= collector.floor {
                break;
            }
            collector.rest = rest;
            looked_up += 1;
        }
        collector.level();
        let (looked_up, read) = lists.split_at(looked_up);
        if read.is_empty() {
            let skipped = looked_up.iter().map(|weighted| weighted.list.all_blocks());
            let unpacked = Unpacked {
                postings: 0,
                skipped: skipped.sum(),
            };
            return Ok((Vec::new(), unpacked));
        }
        self.scores
            .resize(context.lengths.len().max(self.scores.len()), 0.0);
        let postings: usize = read
            .iter()
            .map(|weighted| weighted.list.count() as usize)
            .sum();
        let left = if postings < context.lengths.len() / SPARSE_QUERY_RATIO {
            self.scattered(read, &mut collector)?;
            looked_up
        } else {
            self.in_a_row(read, looked_up, &mut collector)?
        };
        for weighted in left.iter().rev() {
            collector.look_up(weighted)?;
        }
        let found = collector.found.into_iter().map(|(ordinal, _)| ordinal);
        Ok((found.collect(), collector.unpacked))
    }

    /// Sums up and looks at every chunk; gives the lists that are left to look chunks up in.
    fn in_a_row<'l, 'a>(
        &mut self,
        read: &[Weighted<'_>],
        mut left: &'l [Weighted<'a>],
        collector: &mut CandidateCollector<'_>,
    ) -> Result<&'l [Weighted<'a>], SegmentError> {
        let chunks = collector.context.lengths.len();
        let scores = self.scores.get_mut(..chunks);
        let scores = scores.ok_or_else(|| impossible("fewer sums than chunks"))?;
        for weighted in read {
            collector.add(weighted, scores, |_| {})?;
        }
        let mut reached = chunks;
        let mut read_since = chunks;
        while let Some((weighted, others)) = left.split_last() {
            let count = weighted.list.count() as usize;
            // Counting costs something as well: it is done again when about as much was read.
            if read_since >= chunks / 8 {
                reached = count_from(scores, collector.least);
                read_since = 0;
            }
            if reached * POSTINGS_PER_LOOKUP < count {
                break;
            }
            collector.add(weighted, scores, |_| {})?;
            collector.pass(weighted);
            read_since += count;
            left = others;
        }
        for (first, sums) in (0_u32..).step_by(STRIDE).zip(scores.chunks_mut(STRIDE)) {
            let least = collector.least;
            // Without branches, so that the compiler can take several at once.
            let any = sums.iter().fold(false, |any, sum| any | (*sum >= least));
            if any {
                for (ordinal, sum) in (first..).zip(sums.iter()) {
                    collector.offer(ordinal, *sum);
                }
            }
            sums.fill(0.0);
        }
        collector.tighten();
        Ok(left)
    }

    /// Sums up, and looks only at the chunks that were met.
    fn scattered(
        &mut self,
        read: &[Weighted<'_>],
        collector: &mut CandidateCollector<'_>,
    ) -> Result<(), SegmentError> {
        let mut met = Vec::new();
        for weighted in read {
            collector.add(weighted, &mut self.scores, |ordinal| met.push(ordinal))?;
        }
        met.sort_unstable();
        for ordinal in met {
            let sum = self.scores.get_mut(ordinal as usize);
            let sum = sum.ok_or_else(|| impossible("fewer sums than chunks"))?;
            collector.offer(ordinal, std::mem::take(sum));
        }
        collector.tighten();
        Ok(())
    }
}

/// How many sums reach the least one.
fn count_from(scores: &[f32], least: f32) -> usize {
    let strides = scores.chunks(STRIDE).map(|sums| {
        // Without checks, so that the compiler can take several at once.
        let reached = sums.iter().map(|sum| u32::from(*sum >= least));
        reached.fold(0_u32, u32::wrapping_add) as usize
    });
    strides.sum()
}

struct CandidateCollector<'a> {
    context: &'a ScoringContext<'a>,
    k: usize,
    slack: f32,
    /// An upper bound of what the lists that are not yet read can add.
    rest: f32,
    /// The least score that a chunk must be able to reach.
    floor: f32,
    /// The least sum that can still reach the floor.
    least: f32,
    found: Vec<(u32, f32)>,
    /// The number of finds at which the floor is raised again.
    tighten_at: usize,
    unpacked: Unpacked,
}

/// Finds beyond twice the wanted ones before the floor is raised.
const HEAP_SLACK: usize = 64;

impl<'a> CandidateCollector<'a> {
    fn new(context: &'a ScoringContext<'a>, k: usize, slack: f32, threshold: f32) -> Self {
        let tighten_at = k.saturating_mul(2).saturating_add(HEAP_SLACK);
        let floor = threshold / slack;
        Self {
            context,
            k,
            slack,
            rest: 0.0,
            floor,
            least: 0.0,
            found: Vec::new(),
            tighten_at,
            unpacked: Unpacked::default(),
        }
    }

    fn level(&mut self) {
        self.least = ((self.floor / self.slack - self.rest) / self.slack).max(f32::MIN_POSITIVE);
    }

    #[inline]
    fn offer(&mut self, ordinal: u32, sum: f32) {
        let eligible = self.context.eligible;
        if sum >= self.least && eligible.is_none_or(|eligible| eligible.contains(ordinal)) {
            self.found.push((ordinal, sum));
            if self.found.len() >= self.tighten_at {
                self.tighten();
                // Many equal sums stay: then the next look comes when there are twice as many.
                self.tighten_at = self
                    .found
                    .len()
                    .saturating_mul(2)
                    .saturating_add(HEAP_SLACK);
            }
        }
    }

    /// Raises the floor to the k-th best sum so far, and drops what cannot reach it.
    fn tighten(&mut self) {
        if let Some(last) = self
            .k
            .checked_sub(1)
            .filter(|last| *last < self.found.len())
        {
            let mut sums: Vec<f32> = self.found.iter().map(|(_, sum)| *sum).collect();
            let (_, kth, _) =
                sums.select_nth_unstable_by(last, |left, right| right.total_cmp(left));
            self.floor = self.floor.max(*kth / self.slack);
        }
        self.level();
        self.found.retain(|(_, sum)| *sum >= self.least);
    }

    /// Adds a list to the sums; calls `new` with the chunks whose sum was 0.
    fn add(
        &mut self,
        weighted: &Weighted<'_>,
        scores: &mut [f32],
        mut new: impl FnMut(u32),
    ) -> Result<(), SegmentError> {
        let context = self.context;
        let read = weighted.list.each_block(|ordinals, tf_minus_one| {
            let mut beyond = false;
            for (ordinal, tf_minus_one) in ordinals.iter().zip(tf_minus_one) {
                let place = *ordinal as usize;
                if let (Some(sum), Some(length)) =
                    (scores.get_mut(place), context.lengths.get(place))
                    && let Some(tf_norm) = context.tf_norms.tf_norm(*length, *tf_minus_one)
                {
                    if *sum == 0.0 {
                        new(*ordinal);
                    }
                    *sum += weighted.idf * tf_norm;
                } else {
                    beyond = true;
                }
            }
            match beyond {
                true => Err(impossible("a posting names an unknown chunk")),
                false => Ok(()),
            }
        })?;
        self.unpacked.add(read);
        Ok(())
    }

    /// Removes a list from those that can still add to a score.
    fn pass(&mut self, weighted: &Weighted<'_>) {
        self.rest = (self.rest - weighted.bound).max(0.0) * self.slack;
        self.level();
    }

    /// Adds one list to the sums of what was found.
    fn look_up(&mut self, weighted: &Weighted<'_>) -> Result<(), SegmentError> {
        self.pass(weighted);
        let mut cursor = Cursor::new(weighted.list);
        for (ordinal, sum) in &mut self.found {
            if let Some(tf_minus_one) = cursor.frequency(*ordinal).checked_sub(1) {
                let length = self.context.lengths.get(*ordinal as usize);
                let tf_norms = self.context.tf_norms;
                let tf_norm = length.and_then(|length| tf_norms.tf_norm(*length, tf_minus_one));
                *sum +=
                    weighted.idf * tf_norm.ok_or_else(|| impossible("a chunk has no length"))?;
            }
        }
        self.unpacked.add(cursor.finish()?);
        self.tighten();
        Ok(())
    }
}
