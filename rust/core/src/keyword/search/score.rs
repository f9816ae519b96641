//! Searching one snapshot: candidates in single precision, their scores in double precision, always in the same order
//! of terms, so that equal chunks have equal scores wherever they stand.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bm25::{Parameters, idf};
use super::candidates::{Accumulator, ScoringContext, Weighted};
use super::live_segment::LiveSegment;
use super::top::Top;
use super::view::View;
use crate::keyword::format::list::{Cursor, List, Unpacked};
use crate::segments::bitmap::Bitmap;
use crate::segments::spans::Hint;
use crate::segments::{SegmentError, impossible};

/// Where fewer than one chunk in this many may be found, these are looked up and no list is read in whole.
const SELECTIVE_FILTER_RATIO: u32 = 64;

/// Sums of as many products as a query has words are off by less.
const ROUNDED: f64 = 1.0 + 1e-9;

/// The conversion to single precision must not round a margin down.
const ROUNDED_UP: f64 = 1.001;

/// The lists of one segment that a query needs.
#[derive(Debug, Default)]
pub(crate) struct SegmentLists {
    /// By number of the slot.
    pub(crate) wanted: Vec<(usize, Arc<List>)>,
    /// The slots that have a term in the segment's language, whether it is in the segment or not.
    pub(crate) asked: Arc<[usize]>,
    /// Lists that must all contain the chunk.
    pub(crate) required: Vec<Arc<List>>,
    /// Whether a required term is in no chunk of the segment.
    pub(crate) unsatisfiable: bool,
    /// Lists of which none may contain the chunk.
    pub(crate) excluded: Vec<Arc<List>>,
}

/// A query over one snapshot of the tables, everything at hand.
#[derive(Debug)]
pub struct Snapshot {
    view: Arc<View>,
    /// For each segment of the view.
    lists: Vec<SegmentLists>,
    /// For each slot, in how many living chunks it occurs.
    frequencies: Vec<u64>,
    /// For each slot the one of the folded term, if its own keeps the accents of the word.
    folded: Vec<Option<usize>>,
    languages: Vec<String>,
    missing_languages: Vec<String>,
    is_latest: bool,
}

/// What a search did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Postings that were unpacked, once for each time.
    pub postings: u64,
    /// Blocks of up to 128 postings that candidates were found without.
    pub skipped_blocks: u64,
    /// Candidates that were scored once more, in double precision.
    pub rescored: u64,
}

/// What a search gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// (score, id) of the best, by score descending, then by id.
    pub best: Vec<(f64, i64)>,
    /// Scores of `score_ids`; NaN for the chunks that cannot be found.
    pub scores: Vec<f64>,
    /// The work of the search, without that for `score_ids`.
    pub work: Work,
}

/// What a search found a little earlier.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// A snapshot of the same plan.
    pub snapshot: &'a Snapshot,
    /// How many chunks were sought in it, with the same parameters, all chunks allowed.
    pub k: usize,
    /// All that were found.
    pub best: &'a [(f64, i64)],
}

/// What is known of the best before a search.
#[derive(Default)]
struct Known {
    /// A score that `k` chunks reach.
    threshold: f64,
    /// (score, id) of those that were found before, in segments that stood then.
    scored: Vec<(f64, i64)>,
    /// For each segment whether none of its other chunks can be among the best. Empty if that is not known.
    old: Vec<bool>,
}

impl Snapshot {
    pub(crate) fn new(
        view: Arc<View>,
        folded: Vec<Option<usize>>,
        lists: Vec<SegmentLists>,
        (languages, missing_languages): (Vec<String>, Vec<String>),
        is_latest: bool,
    ) -> Result<Self, SegmentError> {
        let mut frequencies = vec![0_u64; folded.len()];
        for (segment, lists) in view.segments.iter().zip(&lists) {
            for (slot, list) in &lists.wanted {
                let dead = segment.dead_postings(list, is_latest)?;
                let alive = list.count().checked_sub(dead);
                let frequency = frequencies.get_mut(*slot).zip(alive);
                let (frequency, alive) =
                    frequency.ok_or_else(|| impossible("more postings are deleted than exist"))?;
                *frequency += u64::from(alive);
            }
        }
        Ok(Self {
            view,
            lists,
            frequencies,
            folded,
            languages,
            missing_languages,
            is_latest,
        })
    }

    /// Whether no snapshot that was read before shows a later state of the tables.
    #[must_use]
    pub fn is_latest(&self) -> bool {
        self.is_latest
    }

    /// The languages of the snapshot's segments.
    #[must_use]
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// The languages that the plan lacks. Plan for them, too, before the search.
    #[must_use]
    pub fn missing_languages(&self) -> &[String] {
        &self.missing_languages
    }

    /// The number of living chunks.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.view.chunks
    }

    /// The postings of the wanted terms, those of dead chunks included: what a search would read without pruning.
    #[must_use]
    pub fn postings(&self) -> u64 {
        let lists = self.lists.iter().flat_map(|lists| &lists.wanted);
        lists.map(|(_, list)| u64::from(list.count())).sum()
    }

    /// The best `k` chunks with a wanted term, and up to 1,000 more that tie with the last of them.
    ///
    /// `allowed` restricts the best to these ids. The chunks of `score_ids` are scored in any case.
    ///
    /// # Errors
    ///
    /// Refuses parameters out of range, and a snapshot with missing languages.
    pub fn search(
        &self,
        k: usize,
        parameters: Parameters,
        allowed: Option<&[i64]>,
        score_ids: &[i64],
    ) -> Result<Found, SegmentError> {
        self.search_again(k, parameters, allowed, score_ids, None)
    }

    /// The same, faster if the best of a state of the tables little before are known.
    ///
    /// # Errors
    ///
    /// As [`Self::search`].
    pub fn search_again(
        &self,
        k: usize,
        parameters: Parameters,
        allowed: Option<&[i64]>,
        score_ids: &[i64],
        before: Option<Before<'_>>,
    ) -> Result<Found, SegmentError> {
        let Parameters { k1, b } = parameters;
        if !(0.0..=1_000.0).contains(&k1) || !(0.0..=1.0).contains(&b) {
            return Err(SegmentError::Refused(
                "k1 must be 0 to 1,000, and b must be 0 to 1",
            ));
        }
        let weights = self.weights()?;
        let norms = self.view.tf_norms(parameters);
        let allowed = allowed.map(|ids| self.allowed(ids)).transpose()?;
        let mut work = Work::default();
        let located = self.located(score_ids);
        let mut scores = vec![f64::NAN; located.len()];
        let mut located = located.iter().peekable();
        let known = match (&allowed, before) {
            (None, Some(before)) => self.known(k, parameters, &weights, before)?,
            _ => Known::default(),
        };
        let mut top = Top::new(k, known.threshold);
        if !known.old.is_empty() {
            work.rescored += known.scored.len() as u64;
            let found = known.scored.iter().filter(|(score, _)| *score > 0.0);
            found.for_each(|(score, id)| top.push(*score, *id));
            top.settle();
        }
        let mut accumulator = Accumulator::of_thread();

        let segments = self
            .view
            .segments
            .iter()
            .zip(&self.lists)
            .zip(&norms.tables);
        for (number, ((segment, lists), tf_norms)) in segments.enumerate() {
            let scorer = self.scorer(segment, lists, &weights, parameters);
            let is_asked = located.peek().is_some_and(|(of, ..)| *of == Some(number));
            if k == 0 && !is_asked {
                continue;
            }
            let mut eligible = lists.eligible(segment)?;
            let mut asked = Vec::new();
            while let Some((_, ordinal, place)) = located.next_if(|(of, _, _)| *of == Some(number))
            {
                if eligible
                    .as_deref()
                    .is_none_or(|eligible| eligible.contains(*ordinal))
                {
                    asked.push((*ordinal, *place));
                }
            }
            let ordinals = asked.iter().map(|(ordinal, _)| *ordinal);
            scorer.each_score(ordinals, |place, score| {
                let place = asked
                    .get(place)
                    .and_then(|(_, place)| scores.get_mut(*place));
                *place.ok_or_else(|| impossible("a score belongs to no chunk"))? = score;
                Ok(())
            })?;
            if k == 0 || known.old.get(number) == Some(&true) {
                continue;
            }
            if let Some(allowed) = &allowed {
                let allowed = allowed.get(number);
                let Some(allowed) =
                    allowed.ok_or_else(|| impossible("a segment is missing from the view"))?
                else {
                    continue;
                };
                match &mut eligible {
                    Some(eligible) => eligible.to_mut().intersect(allowed),
                    None => eligible = Some(Cow::Borrowed(allowed)),
                }
            }
            if let Some(few) = eligible.as_deref().filter(|eligible| {
                eligible.count() < segment.header().chunks() / SELECTIVE_FILTER_RATIO
            }) {
                let ordinals: Vec<_> = few.iter().collect();
                let unpacked = scorer.each_match(&ordinals, &mut top)?;
                work.add(&ordinals, unpacked);
                work.skipped_blocks += unpacked.skipped;
                continue;
            }
            #[allow(
                clippy::cast_possible_truncation,
                reason = "the margin covers the rounding"
            )]
            let (threshold, drift) = (top.threshold() as f32, (norms.drift * ROUNDED_UP) as f32);
            let context = ScoringContext {
                lengths: &segment.header().length_numbers,
                tf_norms,
                eligible: eligible.as_deref(),
                drift,
            };
            let mut weighted = lists.weighted(&weights, &context)?;
            let (candidates, unpacked) =
                accumulator.candidates(&context, &mut weighted, k, threshold)?;
            work.postings += unpacked.postings;
            work.skipped_blocks += unpacked.skipped;
            let again = scorer.each_match(&candidates, &mut top)?;
            work.add(&candidates, again);
        }
        accumulator.keep();
        Ok(Found {
            best: top.finish(),
            scores,
            work,
        })
    }

    /// How much of the query the chunks hold: the share of the weight (idf) of its terms that occur in them, 0 to 1.
    ///
    /// NaN for a chunk that is in no segment or deleted, and where the query has no term in the chunk's language.
    ///
    /// # Errors
    ///
    /// Refuses a snapshot with missing languages.
    pub fn coverage(&self, ids: &[i64]) -> Result<Vec<f64>, SegmentError> {
        let mut weights = self.weights()?;
        for (weight, folded) in weights.iter_mut().zip(&self.folded) {
            // A word counts once, whatever its accents.
            if folded.is_some() {
                *weight = 0.0;
            }
        }
        let mut coverage = vec![f64::NAN; ids.len()];
        let located = self.located(ids);
        for of_segment in located.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some(number) = of_segment.first().and_then(|(number, ..)| *number) else {
                continue;
            };
            let segment = self.view.segments.get(number).zip(self.lists.get(number));
            let (segment, lists) =
                segment.ok_or_else(|| impossible("a segment is missing from the view"))?;
            let mut total = 0.0;
            for slot in lists.asked.iter() {
                total += weight_of(&weights, *slot)?;
            }
            if lists.asked.is_empty() {
                continue;
            }
            let mut cursors = lists.cursors(&weights)?;
            for (_, ordinal, place) in of_segment {
                if !segment.liveness.is_alive(*ordinal) {
                    continue;
                }
                let held = cursors.iter_mut().map(|(weight, cursor)| {
                    if cursor.frequency(*ordinal) == 0 {
                        0.0
                    } else {
                        *weight
                    }
                });
                let share = coverage.get_mut(*place);
                *share.ok_or_else(|| impossible("a score belongs to no chunk"))? =
                    held.fold(0.0, |sum, weight| sum + weight) / total;
            }
            for (_, cursor) in cursors {
                cursor.finish()?;
            }
        }
        Ok(coverage)
    }

    /// The idf of each slot. A term that keeps accents adds what its idf is above that of the folded term, so that a word
    /// typed with them weighs as what was typed, and accents that all texts have weigh nothing.
    fn weights(&self) -> Result<Vec<f64>, SegmentError> {
        if !self.missing_languages.is_empty() {
            return Err(SegmentError::Refused(
                "the plan lacks languages of the snapshot: plan for them and take the snapshot again",
            ));
        }
        let idfs = self.frequencies.iter();
        let idfs: Vec<_> = idfs
            .map(|frequency| idf(self.view.chunks, *frequency))
            .collect();
        let weights = idfs.iter().zip(&self.folded);
        let weights = weights.map(|(idf, folded)| match folded {
            Some(folded) => Ok((idf - weight_of(&idfs, *folded)?).max(0.0)),
            None => Ok(*idf),
        });
        weights.collect()
    }

    /// What is known of the best from those of a little earlier.
    fn known(
        &self,
        k: usize,
        parameters: Parameters,
        weights: &[f64],
        before: Before<'_>,
    ) -> Result<Known, SegmentError> {
        let excludes = |lists: &SegmentLists| {
            lists.unsatisfiable || !lists.required.is_empty() || !lists.excluded.is_empty()
        };
        let mut known = Known::default();
        if k == 0 || self.lists.iter().any(excludes) {
            return Ok(known);
        }
        let old = self.old_segments(before.snapshot);
        let ids: Vec<_> = before.best.iter().map(|(_, id)| *id).collect();
        let mut scores = Vec::with_capacity(ids.len());
        for of_segment in self
            .located(&ids)
            .chunk_by(|(one, ..), (other, ..)| one == other)
        {
            let Some(number) = of_segment.first().and_then(|(number, ..)| *number) else {
                continue;
            };
            let segment = self.view.segments.get(number).zip(self.lists.get(number));
            let (segment, lists) =
                segment.ok_or_else(|| impossible("a segment is missing from the view"))?;
            let scorer = self.scorer(segment, lists, weights, parameters);
            let alive = of_segment.iter();
            let alive: Vec<_> = alive
                .filter(|(_, ordinal, _)| segment.liveness.is_alive(*ordinal))
                .collect();
            let ordinals = alive.iter().map(|(_, ordinal, _)| *ordinal);
            scorer.each_score(ordinals, |place, score| {
                let id = alive.get(place).and_then(|(.., place)| ids.get(*place));
                let id = id.ok_or_else(|| impossible("a score belongs to no chunk"))?;
                scores.push(score);
                if old.get(number) == Some(&true) {
                    known.scored.push((score, *id));
                }
                Ok(())
            })?;
        }
        if let Some(last) = k.checked_sub(1).filter(|last| *last < scores.len()) {
            let (_, reached, _) =
                scores.select_nth_unstable_by(last, |left, right| right.total_cmp(left));
            known.threshold = *reached;
        }
        let most = self.most_of_others(weights, before)?;
        if most.is_some_and(|most| most == 0.0 || most < known.threshold) {
            known.old = old;
        }
        Ok(known)
    }

    /// Which segments stood in an earlier snapshot of the same plan, with at least the same chunks.
    fn old_segments(&self, before: &Self) -> Vec<bool> {
        let old = before.view.segments.iter().zip(&before.lists);
        let old: FxHashMap<_, _> = old
            .map(|(segment, lists)| (segment.header().id, (segment, lists)))
            .collect();
        let segments = self.view.segments.iter().zip(&self.lists);
        let is_old = segments.map(|(segment, lists)| {
            let found = old.get(&segment.header().id);
            found.is_some_and(|(old, old_lists)| {
                let mut dead = old.liveness.dead.iter();
                Arc::ptr_eq(&old.segment, &segment.segment)
                    && Arc::ptr_eq(&old_lists.asked, &lists.asked)
                    && (Arc::ptr_eq(old, segment)
                        || dead.all(|ordinal| !segment.liveness.is_alive(*ordinal)))
            })
        });
        is_old.collect()
    }

    /// A score that no chunk of the earlier snapshot exceeds now, but those that were found in it; `None` if none is
    /// known.
    fn most_of_others(
        &self,
        weights: &[f64],
        before: Before<'_>,
    ) -> Result<Option<f64>, SegmentError> {
        // Nothing is known of the others if none was sought.
        let Some(last) = before.k.checked_sub(1) else {
            return Ok(None);
        };
        let before_weights = before.snapshot.weights()?;
        if weights.len() != before_weights.len() {
            return Ok(None);
        }
        // Each term adds the product of its weight, which changed by that factor at most, and of a tf norm, which grows
        // with the average length at most as much as that does.
        let mut growth = 1.0_f64;
        for (new, old) in weights.iter().zip(&before_weights) {
            if *old > 0.0 {
                growth = growth.max(new / old);
            } else if *new > 0.0 {
                return Ok(None);
            }
        }
        let average = self.view.average_length / before.snapshot.view.average_length;
        let growth = growth * average.max(1.0) * ROUNDED;
        // If fewer were found than sought, no other holds a term.
        let least = before.best.get(last);
        Ok(Some(least.map_or(0.0, |(score, _)| score * growth)))
    }

    fn scorer<'a>(
        &self,
        segment: &'a LiveSegment,
        lists: &'a SegmentLists,
        weights: &'a [f64],
        parameters: Parameters,
    ) -> Scorer<'a> {
        Scorer {
            segment,
            lists,
            weights,
            parameters,
            average: self.view.average_length,
        }
    }

    /// For each segment the allowed chunks; `None` if none exists.
    fn allowed(&self, ids: &[i64]) -> Result<Vec<Option<Bitmap>>, SegmentError> {
        let mut allowed: Vec<Option<Bitmap>> = vec![None; self.view.segments.len()];
        let mut hint = Hint::default();
        for id in ids {
            if let Some((number, ordinal)) = self.view.locate(*id, &mut hint) {
                let of_segment = allowed.get_mut(number).zip(self.view.segments.get(number));
                let (allowed, segment) =
                    of_segment.ok_or_else(|| impossible("a chunk belongs to no segment"))?;
                allowed
                    .get_or_insert_with(|| Bitmap::empty(segment.header().chunks()))
                    .insert(ordinal)?;
            }
        }
        Ok(allowed)
    }

    /// (segment, ordinal, place in the call), by segment and ordinal; those in no segment last.
    fn located(&self, ids: &[i64]) -> Vec<(Option<usize>, u32, usize)> {
        let mut hint = Hint::default();
        let located =
            ids.iter()
                .enumerate()
                .map(|(place, id)| match self.view.locate(*id, &mut hint) {
                    Some((number, ordinal)) => (Some(number), ordinal, place),
                    None => (None, 0, place),
                });
        let mut located: Vec<_> = located.collect();
        located.sort_unstable_by_key(|(number, ordinal, _)| (number.is_none(), *number, *ordinal));
        located
    }
}

impl Work {
    /// Adds what scoring chunks once more took.
    fn add(&mut self, ordinals: &[u32], unpacked: Unpacked) {
        self.rescored += ordinals.len() as u64;
        self.postings += unpacked.postings;
    }
}

/// What a slot weighs.
fn weight_of(weights: &[f64], slot: usize) -> Result<f64, SegmentError> {
    let weight = weights.get(slot).copied();
    weight.ok_or_else(|| impossible("a word of the query has no weight"))
}

impl SegmentLists {
    /// The living chunks with all required and no excluded terms; nothing for all chunks.
    fn eligible<'a>(
        &self,
        segment: &'a LiveSegment,
    ) -> Result<Option<Cow<'a, Bitmap>>, SegmentError> {
        let size = segment.header().chunks();
        if self.unsatisfiable {
            return Ok(Some(Cow::Owned(Bitmap::empty(size))));
        }
        let mut eligible = segment.liveness.alive.as_ref().map(Cow::Borrowed);
        for list in &self.required {
            let mut holding = Bitmap::empty(size);
            list.each_ordinal(|ordinal| holding.insert(ordinal))?;
            match &mut eligible {
                Some(eligible) => eligible.to_mut().intersect(&holding),
                None => eligible = Some(Cow::Owned(holding)),
            }
        }
        for list in &self.excluded {
            let eligible = eligible
                .get_or_insert_with(|| Cow::Owned(Bitmap::full(size)))
                .to_mut();
            list.each_ordinal(|ordinal| {
                eligible.remove(ordinal);
                Ok(())
            })?;
        }
        Ok(eligible)
    }

    /// The weight of each wanted word, and a cursor of its list.
    fn cursors(&self, weights: &[f64]) -> Result<Vec<(f64, Cursor<'_>)>, SegmentError> {
        let wanted = self.wanted.iter();
        let cursors =
            wanted.map(|(slot, list)| Ok((weight_of(weights, *slot)?, Cursor::new(list))));
        cursors.collect()
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the margin covers the rounding"
    )]
    fn weighted(
        &self,
        weights: &[f64],
        context: &ScoringContext<'_>,
    ) -> Result<Vec<Weighted<'_>>, SegmentError> {
        let weighted = self.wanted.iter().map(|(slot, list)| {
            let idf = weight_of(weights, *slot)? as f32;
            Ok(Weighted {
                list,
                idf,
                bound: idf * context.tf_norms.bound(list),
            })
        });
        weighted.collect()
    }
}

/// Scores in double precision.
struct Scorer<'a> {
    segment: &'a LiveSegment,
    lists: &'a SegmentLists,
    weights: &'a [f64],
    parameters: Parameters,
    average: f64,
}

impl Scorer<'_> {
    /// Offers those of the ascending ordinals that hold a wanted term.
    fn each_match(&self, ordinals: &[u32], top: &mut Top) -> Result<Unpacked, SegmentError> {
        let unpacked = self.each_score(ordinals.iter().copied(), |place, score| {
            let ids = &self.segment.header().ids;
            let id = ordinals.get(place).and_then(|ordinal| ids.id(*ordinal));
            let id = id.ok_or_else(|| impossible("a candidate belongs to no chunk"))?;
            if score > 0.0 {
                top.push(score, id);
            }
            Ok(())
        })?;
        top.settle();
        Ok(unpacked)
    }

    /// Calls `give` with the place and the score of each of the ascending ordinals.
    fn each_score(
        &self,
        ordinals: impl Iterator<Item = u32>,
        mut give: impl FnMut(usize, f64) -> Result<(), SegmentError>,
    ) -> Result<Unpacked, SegmentError> {
        let mut ordinals = ordinals.enumerate().peekable();
        let mut unpacked = Unpacked::default();
        if ordinals.peek().is_none() {
            let lists = self.lists.wanted.iter();
            unpacked.skipped = lists.map(|(_, list)| list.all_blocks()).sum();
            return Ok(unpacked);
        }
        let mut cursors = self.lists.cursors(self.weights)?;
        for (place, ordinal) in ordinals {
            let length = self.segment.header().length(ordinal)?;
            let norm = self.parameters.norm(length, self.average);
            let scores = cursors.iter_mut().map(|(weight, cursor)| {
                let frequency = cursor.frequency(ordinal);
                if frequency == 0 {
                    0.0
                } else {
                    *weight * self.parameters.tf_norm(frequency, norm)
                }
            });
            // Not `sum`, which makes -0.0 of nothing.
            give(place, scores.fold(0.0, |sum, score| sum + score))?;
        }
        for (_, cursor) in cursors {
            unpacked.add(cursor.finish()?);
        }
        Ok(unpacked)
    }
}
