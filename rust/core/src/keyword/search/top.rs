//! The best chunks so far, with those whose score equals that of the last.

/// Ids beyond `k` that are kept because their score equals the k-th.
const MAX_TIES: usize = 1_000;

/// Collects (score, id) and keeps the best.
pub(crate) struct Top {
    k: usize,
    most: usize,
    kept: Vec<(f64, i64)>,
    threshold: f64,
    sort_at: usize,
}

impl Top {
    /// `threshold` is a score that at least `k` reach; 0 if none is known.
    pub(crate) fn new(k: usize, threshold: f64) -> Self {
        let most = if k == 0 {
            0
        } else {
            k.saturating_add(MAX_TIES)
        };
        Self {
            k,
            most,
            kept: Vec::new(),
            threshold,
            sort_at: k.saturating_mul(2).saturating_add(64),
        }
    }

    /// The k-th best score so far, or that from which it began; what lies below is out.
    pub(crate) fn threshold(&self) -> f64 {
        self.threshold
    }

    pub(crate) fn push(&mut self, score: f64, id: i64) {
        if self.k == 0 || score < self.threshold {
            return;
        }
        self.kept.push((score, id));
        if self.kept.len() >= self.sort_at {
            self.settle();
        }
    }

    /// Sorts, drops what is out, and raises the threshold.
    ///
    /// Ties with the smallest ids stay, in whatever order they came.
    pub(crate) fn settle(&mut self) {
        self.kept
            .sort_unstable_by(|(left, first), (right, second)| {
                right.total_cmp(left).then(first.cmp(second))
            });
        self.kept.truncate(self.most);
        if let Some((last, _)) = self.k.checked_sub(1).and_then(|last| self.kept.get(last)) {
            self.threshold = *last;
            let out = self
                .kept
                .partition_point(|(score, _)| *score >= self.threshold);
            self.kept.truncate(out);
        }
        self.sort_at = self.kept.len().saturating_mul(2).max(self.sort_at);
    }

    /// The best, by score descending, then by id.
    pub(crate) fn finish(mut self) -> Vec<(f64, i64)> {
        self.settle();
        self.kept
    }
}
