//! One ranking out of several. Ranks count from 1; ties go to the smaller id (for candidates: to the earlier one).

use std::cmp::Reverse;
use std::fmt;

/// Ids with their scores, best first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fused {
    /// Every id once.
    pub ids: Vec<i64>,
    /// `scores[i]` belongs to `ids[i]`.
    pub scores: Vec<f64>,
}

/// Candidates ranked by `completed_fusion`, and what each leg contributed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completed {
    /// Places of the candidates among those that were given, from 0, best first.
    pub order: Vec<i64>,
    /// `scores[i]` belongs to `order[i]`, as do the contributions; it is their sum.
    pub scores: Vec<f64>,
    /// The weighted z-score.
    pub vector: Vec<f64>,
    /// The weighted keyword score.
    pub keyword: Vec<f64>,
}

/// What a leg found, best first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LegScores<'a> {
    /// A number for each chunk, the same in both legs.
    pub numbers: &'a [i64],
    /// The leg's own scores.
    pub own: &'a [f64],
    /// The other leg's scores of these chunks, NaN for none; not read for a chunk that the other leg found as well.
    pub others: &'a [f64],
}

/// Candidates of one of two legs, best first by the fused score.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FusedLeg {
    /// Their ranks in the leg, from 1; 0 for one that it did not find.
    pub ranks: Vec<i64>,
    /// Its scores of them, NaN for none.
    pub scores: Vec<f64>,
}

/// How the vector scores of stored chunks are spread around one query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; with 0 every z-score is 0.
    pub deviation: f64,
}

/// Why rankings cannot be fused: what is given, the rule, and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FusionError(String);

impl fmt::Display for FusionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn refused<T>(message: String) -> Result<T, FusionError> {
    Err(FusionError(message))
}

/// Reciprocal rank fusion: `score(d) = sum over lists of weight / (k + rank of d in the list)`.
///
/// G. V. Cormack, C. L. A. Clarke and S. Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
/// Learning Methods", SIGIR 2009. An id that a list names twice counts there once, at its best rank; the ranks behind it
/// stay. Without weights every list weighs 1.
///
/// # Errors
///
/// A weight or the constant that is negative or not finite, or another number of weights than of rankings.
pub fn reciprocal_rank_fusion(
    rankings: &[&[i64]],
    weights: Option<&[f64]>,
    k: f64,
    limit: usize,
) -> Result<Fused, FusionError> {
    check_weights(rankings.len(), weights)?;
    if !(k.is_finite() && k >= 0.0) {
        return refused(format!("k: must be finite and at least 0, found {k}"));
    }
    let members = members(rankings)?;
    let worth =
        |member: &Member| weight(weights, member.list) / (k + (f64::from(member.place) + 1.0));
    Ok(ranked(&members, worth, limit))
}

/// Linear fusion: `score(d) = sum over lists of weight * (s - least) / (greatest - least)`, s being the score of d in the
/// list. Where all scores of a list are equal each counts as 1; a list that does not hold d adds nothing.
///
/// An id that a list names twice counts there once, with its first score. Scores may be negative (cosines are).
///
/// # Errors
///
/// A weight that is negative or not finite, a score that is not finite, or lists of different number or length.
pub fn linear_fusion(
    rankings: &[&[i64]],
    scores: &[&[f64]],
    weights: Option<&[f64]>,
    limit: usize,
) -> Result<Fused, FusionError> {
    check_weights(rankings.len(), weights)?;
    check_scores(rankings, scores)?;
    let members = members(rankings)?;
    let score = |member: &Member| {
        let list = scores
            .get(member.list as usize)
            .copied()
            .unwrap_or_default();
        list.get(member.place as usize).copied().unwrap_or_default()
    };
    let mut bounds = vec![(f64::INFINITY, f64::NEG_INFINITY); rankings.len()];
    for member in &members {
        if let Some((least, greatest)) = bounds.get_mut(member.list as usize) {
            (*least, *greatest) = (least.min(score(member)), greatest.max(score(member)));
        }
    }
    let worth = |member: &Member| {
        let (least, greatest) = bounds
            .get(member.list as usize)
            .copied()
            .unwrap_or_default();
        weight(weights, member.list) * normalised(score(member), least, greatest)
    };
    Ok(ranked(&members, worth, limit))
}

/// A z-score of this size counts as much as the best keyword score: cosines of good answers lie 3 to 6 standard
/// deviations above those of random chunks.
const FULL_Z: f64 = 6.0;

/// Completed fusion: `score(d) = (1 - w) * keyword(d) / greatest keyword + w * z(d) / 6`,
/// `z(d) = (vector(d) - mean) / deviation`, where both legs' scores of every candidate are known.
///
/// A candidate without a keyword score (NaN) counts as 0 there, one without a vector score has z = 0. Without any keyword
/// score above 0 the first term is 0, without a deviation the second. A quotient beyond float64 counts as its limit.
/// Shifting or scaling all vector scores, with mean and deviation, changes nothing, nor does scaling all keyword scores.
///
/// # Errors
///
/// Lists of different length, an infinite score, a negative keyword score, a spread that is not finite or negative, or a
/// weight outside 0 to 1.
pub fn completed_fusion(
    vector: &[f64],
    keyword: &[f64],
    spread: Spread,
    vector_weight: f64,
) -> Result<Completed, FusionError> {
    check_candidates(vector, keyword, spread, vector_weight)?;
    let greatest = keyword.iter().copied().fold(0.0, f64::max); // NaN loses
    let by_words = |score: f64| {
        let share = if score > 0.0 { score / greatest } else { 0.0 };
        (1.0 - vector_weight) * share
    };
    let by_vector = |score: f64| {
        if score.is_nan() || spread.deviation == 0.0 {
            return 0.0;
        }
        let z = (score - spread.mean) / spread.deviation;
        // Adding 0 makes -0.0 an ordinary zero; ties would tell the two apart.
        vector_weight * (z.clamp(f64::MIN, f64::MAX) / FULL_Z) + 0.0
    };
    let mut rows: Vec<(f64, i64, f64, f64)> = vector
        .iter()
        .zip(keyword)
        .zip(0..)
        .map(|((&vector, &keyword), place)| {
            let (near, worded) = (by_vector(vector), by_words(keyword));
            (worded + near, place, near, worded)
        })
        .collect();
    rows.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    let mut fused = Completed::default();
    for (score, place, near, worded) in rows {
        fused.order.push(place);
        fused.scores.push(score);
        fused.vector.push(near);
        fused.keyword.push(worded);
    }
    Ok(fused)
}

/// The union of what two legs found, ranked by [`completed_fusion`]; ties go to the smaller number.
///
/// Gives scores and contributions, then what the vector leg and the keyword leg know of each candidate. The order is that
/// of the numbers.
///
/// # Errors
///
/// A leg's lists are of different length, or as [`completed_fusion`].
pub fn fuse_legs(
    vector: LegScores<'_>,
    keyword: LegScores<'_>,
    spread: Spread,
    vector_weight: f64,
) -> Result<(Completed, [FusedLeg; 2]), FusionError> {
    check_legs(&[vector, keyword])?;
    let (mut near, mut worded) = (FusedLeg::default(), FusedLeg::default());
    for found in
        members(&[vector.numbers, keyword.numbers])?.chunk_by(|one, other| one.id == other.id)
    {
        let place = |list: u32| {
            let own = found.iter().find(|member| member.list == list);
            own.map(|member| member.place as usize)
        };
        let places = (place(0), place(1));
        near.push(vector, places.0, keyword, places.1);
        worded.push(keyword, places.1, vector, places.0);
    }
    let fused = completed_fusion(&near.scores, &worded.scores, spread, vector_weight)?;
    let legs = [near.in_order(&fused.order), worded.in_order(&fused.order)];
    Ok((fused, legs))
}

impl FusedLeg {
    /// Adds a candidate by its places in this leg and in the other one: what a leg found, it knows itself.
    fn push(
        &mut self,
        own: LegScores<'_>,
        place: Option<usize>,
        other: LegScores<'_>,
        otherwise: Option<usize>,
    ) {
        let known = match place {
            Some(place) => own.own.get(place),
            None => otherwise.and_then(|place| other.others.get(place)),
        };
        self.scores.push(known.copied().unwrap_or(f64::NAN));
        let rank = place.and_then(|place| i64::try_from(place + 1).ok());
        self.ranks.push(rank.unwrap_or(0));
    }

    fn in_order(&self, order: &[i64]) -> Self {
        let places = order
            .iter()
            .filter_map(|place| usize::try_from(*place).ok());
        let rows =
            places.filter_map(|place| Some((*self.ranks.get(place)?, *self.scores.get(place)?)));
        let (ranks, scores) = rows.unzip();
        Self { ranks, scores }
    }
}

/// An id in a list, at its best place. Compared by id, then list, then place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    id: i64,
    list: u32,
    place: u32,
}

/// Every (id, list) once, by id and then list. Sorting has no bad inputs, and at the size of a search it is as fast as
/// a table.
fn members(rankings: &[&[i64]]) -> Result<Vec<Member>, FusionError> {
    let total: usize = rankings.iter().map(|ranking| ranking.len()).sum();
    if u32::try_from(total.max(rankings.len())).is_err() {
        return refused(format!("rankings: at most 2**32 - 1 ids, found {total}"));
    }
    let mut members = Vec::with_capacity(total);
    for (ranking, list) in rankings.iter().zip(0..) {
        let placed = ranking.iter().zip(0..);
        members.extend(placed.map(|(&id, place)| Member { id, list, place }));
    }
    members.sort_unstable();
    members.dedup_by_key(|member| (member.id, member.list));
    Ok(members)
}

/// Sums what the members of every id are worth (in the order of the lists, so that the sum is the same on every
/// machine) and ranks.
fn ranked(members: &[Member], worth: impl Fn(&Member) -> f64, limit: usize) -> Fused {
    let mut totals: Vec<(f64, i64)> = Vec::with_capacity(members.len());
    for member in members {
        match totals.last_mut() {
            Some((score, id)) if *id == member.id => *score += worth(member),
            // Adding 0 makes -0.0 an ordinary zero; ties would tell the two apart.
            _ => totals.push((worth(member) + 0.0, member.id)),
        }
    }
    // No score is negative or NaN, and such numbers order as their bits do.
    totals.sort_unstable_by_key(|&(score, id)| (Reverse(score.to_bits()), id));
    totals.truncate(limit);
    let (scores, ids) = totals.into_iter().unzip();
    Fused { ids, scores }
}

fn weight(weights: Option<&[f64]>, list: u32) -> f64 {
    weights.map_or(1.0, |weights| {
        weights.get(list as usize).copied().unwrap_or(0.0)
    })
}

fn normalised(score: f64, least: f64, greatest: f64) -> f64 {
    if greatest <= least {
        return 1.0;
    }
    let width = greatest - least;
    if width.is_finite() {
        (score - least) / width
    } else {
        (score / 2.0 - least / 2.0) / (greatest / 2.0 - least / 2.0)
    }
}

fn check_count(rule: impl fmt::Display, expected: usize, found: usize) -> Result<(), FusionError> {
    if found == expected {
        return Ok(());
    }
    refused(format!("{rule}, expected {expected}, found {found}"))
}

/// Refuses a list that has not one score for each id.
fn check_scored(list: usize, ids: usize, scores: usize) -> Result<(), FusionError> {
    let rule = format_args!("scores[{list}]: one per id of rankings[{list}]");
    check_count(rule, ids, scores)
}

fn check_weights(lists: usize, weights: Option<&[f64]>) -> Result<(), FusionError> {
    let Some(weights) = weights else {
        return Ok(());
    };
    check_count("weights: one per ranking", lists, weights.len())?;
    for (list, &found) in weights.iter().enumerate() {
        if !(found.is_finite() && found >= 0.0) {
            return refused(format!(
                "weights[{list}]: must be finite and at least 0, found {found}"
            ));
        }
    }
    if weights.iter().sum::<f64>().is_finite() {
        Ok(())
    } else {
        refused("weights: their sum must be finite, found inf".to_owned())
    }
}

fn check_scores(rankings: &[&[i64]], scores: &[&[f64]]) -> Result<(), FusionError> {
    check_count("scores: one per ranking", rankings.len(), scores.len())?;
    for (list, (ranking, values)) in rankings.iter().zip(scores).enumerate() {
        check_scored(list, ranking.len(), values.len())?;
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return refused(format!(
                "scores[{list}][{place}]: must be finite, found NaN or infinity"
            ));
        }
    }
    Ok(())
}

fn check_legs(legs: &[LegScores<'_>]) -> Result<(), FusionError> {
    for (list, leg) in legs.iter().enumerate() {
        for found in [leg.own.len(), leg.others.len()] {
            check_scored(list, leg.numbers.len(), found)?;
        }
    }
    Ok(())
}

fn check_candidates(
    vector: &[f64],
    keyword: &[f64],
    spread: Spread,
    vector_weight: f64,
) -> Result<(), FusionError> {
    check_count(
        "keyword: one score per candidate",
        vector.len(),
        keyword.len(),
    )?;
    if !(spread.mean.is_finite() && spread.deviation.is_finite() && spread.deviation >= 0.0) {
        return refused(format!(
            "mean, deviation: must be finite, the deviation at least 0, found {}, {}",
            spread.mean, spread.deviation
        ));
    }
    if !(0.0..=1.0).contains(&vector_weight) {
        return refused(format!(
            "vector_weight: must be 0 to 1, found {vector_weight}"
        ));
    }
    if let Some(place) = vector.iter().position(|score| score.is_infinite()) {
        return refused(format!(
            "vector[{place}]: must be finite, or NaN for none, found infinity"
        ));
    }
    let unusable = |&&found: &&f64| found < 0.0 || found.is_infinite();
    if let Some((place, &found)) = keyword
        .iter()
        .enumerate()
        .find(|(_, found)| unusable(found))
    {
        return refused(format!(
            "keyword[{place}]: must be finite and at least 0, or NaN for none, found {found}"
        ));
    }
    Ok(())
}
