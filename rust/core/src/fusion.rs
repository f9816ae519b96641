//! One ranking out of several. Ranks count from 1; ties go to the smaller id.

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

/// Why rankings cannot be fused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FusionFault {
    /// Another number of weights, or of lists of scores, than of rankings.
    Count {
        /// `weights` or `scores`.
        name: &'static str,
        /// Number of rankings.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A list of scores is longer or shorter than its ranking.
    Length {
        /// The list, from 0.
        list: usize,
        /// Ids of the ranking.
        expected: usize,
        /// Scores.
        found: usize,
    },
    /// A weight is negative or not finite.
    Weight {
        /// Its ranking, from 0.
        list: usize,
        /// The weight.
        found: f64,
    },
    /// The weights are finite, their sum is not.
    WeightSum,
    /// The constant is negative or not finite.
    Constant {
        /// The constant.
        found: f64,
    },
    /// More ids than 32 bits can count.
    TooManyIds {
        /// Ids of all rankings.
        found: usize,
    },
    /// A score is not finite.
    Score {
        /// Its list, from 0.
        list: usize,
        /// Its place in the list, from 0.
        place: usize,
    },
}

impl fmt::Display for FusionFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count {
                name,
                expected,
                found,
            } => {
                write!(
                    out,
                    "{name}: one per ranking, expected {expected}, found {found}"
                )
            }
            Self::Length {
                list,
                expected,
                found,
            } => {
                write!(
                    out,
                    "scores[{list}]: one per id of rankings[{list}], expected {expected}, found {found}"
                )
            }
            Self::Weight { list, found } => {
                write!(
                    out,
                    "weights[{list}]: must be finite and at least 0, found {found}"
                )
            }
            Self::WeightSum => write!(out, "weights: their sum must be finite, found inf"),
            Self::Constant { found } => {
                write!(out, "k: must be finite and at least 0, found {found}")
            }
            Self::TooManyIds { found } => {
                write!(out, "rankings: at most 2**32 - 1 ids, found {found}")
            }
            Self::Score { list, place } => {
                write!(
                    out,
                    "scores[{list}][{place}]: must be finite, found NaN or infinity"
                )
            }
        }
    }
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
) -> Result<Fused, FusionFault> {
    check_weights(rankings.len(), weights)?;
    if !(k.is_finite() && k >= 0.0) {
        return Err(FusionFault::Constant { found: k });
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
) -> Result<Fused, FusionFault> {
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

/// An id in a list, at its best place. Compared by id, then list, then place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    id: i64,
    list: u32,
    place: u32,
}

/// Every (id, list) once, by id and then list. Sorting has no bad inputs, and at the size of a search it is as fast as
/// a table.
fn members(rankings: &[&[i64]]) -> Result<Vec<Member>, FusionFault> {
    let total: usize = rankings.iter().map(|ranking| ranking.len()).sum();
    if u32::try_from(total.max(rankings.len())).is_err() {
        return Err(FusionFault::TooManyIds { found: total });
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

fn check_weights(lists: usize, weights: Option<&[f64]>) -> Result<(), FusionFault> {
    let Some(weights) = weights else {
        return Ok(());
    };
    if weights.len() != lists {
        return Err(FusionFault::Count {
            name: "weights",
            expected: lists,
            found: weights.len(),
        });
    }
    for (list, &found) in weights.iter().enumerate() {
        if !(found.is_finite() && found >= 0.0) {
            return Err(FusionFault::Weight { list, found });
        }
    }
    if weights.iter().sum::<f64>().is_finite() {
        Ok(())
    } else {
        Err(FusionFault::WeightSum)
    }
}

fn check_scores(rankings: &[&[i64]], scores: &[&[f64]]) -> Result<(), FusionFault> {
    if scores.len() != rankings.len() {
        return Err(FusionFault::Count {
            name: "scores",
            expected: rankings.len(),
            found: scores.len(),
        });
    }
    for (list, (ranking, values)) in rankings.iter().zip(scores).enumerate() {
        if ranking.len() != values.len() {
            return Err(FusionFault::Length {
                list,
                expected: ranking.len(),
                found: values.len(),
            });
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(FusionFault::Score { list, place });
        }
    }
    Ok(())
}
