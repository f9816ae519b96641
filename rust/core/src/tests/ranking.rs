//! Fusion and batch plans against their obvious twins.

use std::collections::BTreeMap;

use proptest::prelude::*;
use semlex_core::batch::{PlanError, TokenError, TokenPlan, common_prefix, plan_batches};
use semlex_core::fusion::{
    Completed, Spread, completed_fusion, linear_fusion, reciprocal_rank_fusion,
};

fn ranked(totals: BTreeMap<i64, f64>) -> Vec<(i64, f64)> {
    let mut ranked: Vec<(i64, f64)> = totals.into_iter().collect();
    ranked.sort_by(|left, right| {
        right
            .1
            .partial_cmp(&left.1)
            .expect("no NaN")
            .then(left.0.cmp(&right.0))
    });
    ranked
}

/// Scores of candidates: (vector, keyword), each of them NaN now and then.
fn candidates() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let vector = prop_oneof![4 => -1.0..1.0, 1 => Just(f64::NAN), 1 => Just(0.25)];
    let keyword = prop_oneof![4 => 0.0..30.0, 1 => Just(f64::NAN), 1 => Just(0.0)];
    prop::collection::vec((vector, keyword), 0..40)
}

fn complete(candidates: &[(f64, f64)], spread: Spread, weight: f64) -> Completed {
    let (vector, keyword): (Vec<f64>, Vec<f64>) = candidates.iter().copied().unzip();
    completed_fusion(&vector, &keyword, spread, weight).expect("good input")
}

proptest! {
    #[test]
    fn rank_fusion_is_its_twin(
        lists in prop::collection::vec((prop::collection::vec(-9_i64..30, 0..40), 0.0..9.0), 0..5),
        k in 0.0..100.0,
        limit in 0_usize..60,
    ) {
        let rankings: Vec<&[i64]> = lists.iter().map(|(ids, _)| ids.as_slice()).collect();
        let weights: Vec<f64> = lists.iter().map(|(_, weight)| *weight).collect();
        let mut totals = BTreeMap::new();
        for (ids, weight) in &lists {
            for (place, id) in ids.iter().enumerate() {
                if !ids[..place].contains(id) {
                    *totals.entry(*id).or_insert(0.0) += weight / (k + (place as f64 + 1.0));
                }
            }
        }
        let fused = reciprocal_rank_fusion(&rankings, Some(&weights), k, limit).expect("good input");
        let found: Vec<(i64, f64)> = fused.ids.into_iter().zip(fused.scores).collect();
        prop_assert_eq!(found, ranked(totals).into_iter().take(limit).collect::<Vec<_>>());
    }

    #[test]
    fn linear_scores_lie_between_nothing_and_all_weights(
        lists in prop::collection::vec(
            (prop::collection::vec((any::<i64>(), prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL), 0..20), 0.0..9.0),
            0..4,
        ),
    ) {
        let ids: Vec<Vec<i64>> = lists.iter().map(|(list, _)| list.iter().map(|row| row.0).collect()).collect();
        let values: Vec<Vec<f64>> = lists.iter().map(|(list, _)| list.iter().map(|row| row.1).collect()).collect();
        let weights: Vec<f64> = lists.iter().map(|(_, weight)| *weight).collect();
        let ids: Vec<&[i64]> = ids.iter().map(Vec::as_slice).collect();
        let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let fused = linear_fusion(&ids, &values, Some(&weights), usize::MAX).expect("good input");
        let most = weights.iter().sum::<f64>() * (1.0 + 1e-12);
        prop_assert!(fused.scores.iter().all(|score| (0.0..=most).contains(score)));
        prop_assert!(fused.scores.is_sorted_by(|left, right| left >= right));
    }

    #[test]
    fn completed_fusion_is_its_formula(
        candidates in candidates(), mean in -1.0..1.0, deviation in 0.0..0.5, weight in 0.0..=1.0,
    ) {
        let found = complete(&candidates, Spread { mean, deviation }, weight);
        let greatest = candidates.iter().map(|row| row.1).filter(|score| !score.is_nan()).fold(0.0, f64::max);
        let contributions = |place: usize| {
            let (vector, keyword) = candidates[place];
            let near = if vector.is_nan() { 0.0 } else { weight * ((vector - mean) / deviation / 6.0) };
            let worded = if greatest > 0.0 && !keyword.is_nan() { (1.0 - weight) * (keyword / greatest) } else { 0.0 };
            (near, worded)
        };
        let mut seen = vec![false; candidates.len()];
        for (row, &place) in found.order.iter().enumerate() {
            let place = usize::try_from(place).expect("not negative");
            prop_assert_eq!((found.vector[row], found.keyword[row]), contributions(place));
            prop_assert_eq!(found.scores[row], found.vector[row] + found.keyword[row]);
            prop_assert!(!std::mem::replace(&mut seen[place], true));
        }
        prop_assert!(seen.iter().all(|&seen| seen));
        let ranks: Vec<(f64, i64)> = found.scores.iter().map(|score| -score).zip(found.order).collect();
        prop_assert!(ranks.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn shift_and_scale_of_a_legs_scores_change_nothing(
        rows in prop::collection::vec((-64_i32..64, 0_i32..64), 0..40),
        mean in -64_i32..64, deviation in 0_i32..64, shift in -64_i32..64, scale in -20_i32..20, weight in 0.0..=1.0,
    ) {
        // Small whole numbers and powers of two: nothing is rounded before the quotients.
        let shift = f64::from(shift);
        let (vector_scale, keyword_scale) = (2.0_f64.powi(scale), 2.0_f64.powi(-scale));
        let plain: Vec<(f64, f64)> = rows.iter().map(|&(vector, keyword)| (f64::from(vector), f64::from(keyword))).collect();
        let changed: Vec<(f64, f64)> = plain
            .iter()
            .map(|&(vector, keyword)| ((vector + shift) * vector_scale, keyword * keyword_scale))
            .collect();
        let (mean, deviation) = (f64::from(mean), f64::from(deviation));
        let spread = Spread { mean: (mean + shift) * vector_scale, deviation: deviation * vector_scale };
        prop_assert_eq!(
            complete(&plain, Spread { mean, deviation }, weight),
            complete(&changed, spread, weight)
        );
    }

    #[test]
    fn the_order_of_candidates_decides_ties_only(candidates in candidates(), weight in 0.0..=1.0) {
        let spread = Spread { mean: 0.1, deviation: 0.2 };
        let backwards: Vec<(f64, f64)> = candidates.iter().rev().copied().collect();
        let (straight, reversed) = (complete(&candidates, spread, weight), complete(&backwards, spread, weight));
        prop_assert_eq!(&straight.scores, &reversed.scores);
        let last = candidates.len() as i64 - 1;
        let mut one: Vec<(u64, i64)> = straight.scores.iter().map(|score| score.to_bits()).zip(straight.order).collect();
        let mut other: Vec<(u64, i64)> =
            reversed.scores.iter().map(|score| score.to_bits()).zip(reversed.order.iter().map(|place| last - place)).collect();
        one.sort_unstable();
        other.sort_unstable();
        prop_assert_eq!(one, other);
    }

    #[test]
    fn hostile_numbers_are_ranked_or_refused(
        rows in prop::collection::vec((any::<f64>(), any::<f64>()), 0..8),
        mean: f64, deviation: f64, weight: f64,
    ) {
        let (vector, keyword): (Vec<f64>, Vec<f64>) = rows.into_iter().unzip();
        if let Ok(found) = completed_fusion(&vector, &keyword, Spread { mean, deviation }, weight) {
            prop_assert!(found.scores.iter().all(|score| score.is_finite()));
            prop_assert!(found.scores.is_sorted_by(|left, right| left >= right));
        }
        let tame: Vec<f64> = keyword.iter().map(|score| if score.is_infinite() { 1.0 } else { score.abs() }).collect();
        let vector: Vec<f64> = vector.iter().map(|score| if score.is_infinite() { 1.0 } else { *score }).collect();
        let spread = Spread { mean: f64::MIN, deviation: f64::MIN_POSITIVE };
        let found = completed_fusion(&vector, &tame, spread, 0.5).expect("good input");
        prop_assert!(found.scores.iter().all(|score| score.is_finite()));
    }

    #[test]
    fn every_row_is_in_one_batch_and_the_order_is_restored(
        lengths in prop::collection::vec(0_i64..5_000, 0..80),
        budget in 1_i64..9_000,
        max_rows in 1_i64..50,
        padded: bool,
    ) {
        let plan = plan_batches(&lengths, budget, max_rows, padded).expect("good input");
        let place = |value: i64| usize::try_from(value).expect("not negative");
        let mut computed = 0;
        for cut in plan.boundaries.windows(2) {
            let batch: Vec<i64> = plan.order[place(cut[0])..place(cut[1])].iter().map(|&row| lengths[place(row)]).collect();
            let count = cut[1] - cut[0];
            let cost = if padded { batch.iter().max().expect("a row") * count } else { batch.iter().sum() };
            prop_assert!(count == 1 || (cost <= budget && count <= max_rows));
            computed += cost;
        }
        prop_assert_eq!(computed, plan.computed_tokens);
        prop_assert_eq!(lengths.iter().sum::<i64>(), plan.real_tokens);
        for (row, &found) in plan.inverse.iter().enumerate() {
            prop_assert_eq!(place(plan.order[place(found)]), row);
        }
    }

    #[test]
    fn packed_batches_hold_every_token_once(
        rows in prop::collection::vec(prop::collection::vec(0_i64..4, 3..40), 0..20),
        budget in 1_i64..200,
        max_rows in 1_i64..9,
        skip in 0_usize..3,
    ) {
        let ids: Vec<i64> = rows.concat();
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, row| { *end += row.len() as i64; Some(*end) }));
        let plan = TokenPlan::new(ids.clone(), &offsets, budget, max_rows, false, skip).expect("good input");
        let mut seen = vec![false; rows.len()];
        for number in 0..plan.batches() {
            let batch = plan.batch(number).expect("a batch");
            for (place, &row) in batch.rows.iter().enumerate() {
                let row = usize::try_from(row).expect("not negative");
                let cut = |at: usize| usize::try_from(batch.offsets[at]).expect("not negative");
                let range = cut(place)..cut(place + 1);
                prop_assert_eq!(&batch.ids[range.clone()], &rows[row][skip..]);
                prop_assert!(batch.positions[range.clone()].iter().zip(skip as i64..).all(|(&found, place)| found == place));
                prop_assert!(batch.documents[range].iter().all(|&found| found == place as i64));
                prop_assert!(!std::mem::replace(&mut seen[row], true));
            }
        }
        prop_assert!(seen.iter().all(|&seen| seen));
        prop_assert_eq!(plan.batch(plan.batches()), None);
        let shared = common_prefix(&ids, &offsets).expect("good input");
        prop_assert!(rows.iter().all(|row| shared < row.len() && row[..shared] == rows[0][..shared]));
    }
}

#[test]
fn completed_fusion_without_one_of_its_terms() {
    const NONE: f64 = f64::NAN;
    let spread = Spread {
        mean: 0.5,
        deviation: 0.1,
    };
    let no_words = complete(&[(0.5, 0.0), (1.1, NONE)], spread, 0.5);
    assert_eq!(
        (no_words.order, no_words.keyword),
        (vec![1, 0], vec![0.0, 0.0])
    );
    let no_spread = Spread {
        deviation: 0.0,
        ..spread
    };
    let same = complete(&[(0.9, 1.0), (0.1, 4.0), (0.1, NONE)], no_spread, 0.5);
    assert_eq!(
        (same.order, same.scores),
        (vec![1, 0, 2], vec![0.5, 0.125, 0.0])
    );
    // Minus zero is zero: the tie goes to the earlier one.
    let tie = complete(&[(0.4, 0.0), (NONE, 0.0)], spread, 0.0);
    assert_eq!(tie.order, [0, 1]);
    assert!(tie.scores.iter().all(|score| score.is_sign_positive()));
    assert_eq!(complete(&[], spread, 0.5), Completed::default());
}

#[test]
fn errors_name_what_is_wrong() {
    let ids: &[i64] = &[1, 2];
    let ranks = |weights: &[f64], k| {
        let fused = reciprocal_rank_fusion(&[ids], Some(weights), k, 9);
        fused.expect_err("refused").to_string()
    };
    let legs = |vector: &[f64], keyword: &[f64], mean, deviation, weight| {
        let fused = completed_fusion(vector, keyword, Spread { mean, deviation }, weight);
        fused.expect_err("refused").to_string()
    };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let linear = linear_fusion(&[ids], &[&[0.5, nan]], None, 9).expect_err("refused");
    for (message, place) in [
        (ranks(&[nan], 60.0), "weights[0]: "),
        (ranks(&[1.0], inf), "k: "),
        (
            ranks(&[], 60.0),
            "weights: one per ranking, expected 1, found 0",
        ),
        (linear.to_string(), "scores[0][1]: "),
        (
            legs(&[1.0], &[], 0.0, 1.0, 0.5),
            "keyword: one score per candidate, expected 1, found 0",
        ),
        (
            legs(&[nan, -inf], &[1.0, 1.0], 0.0, 1.0, 0.5),
            "vector[1]: ",
        ),
        (legs(&[1.0], &[-1.0], 0.0, 1.0, 0.5), "keyword[0]: "),
        (legs(&[1.0], &[inf], 0.0, 1.0, 0.5), "keyword[0]: "),
        (legs(&[], &[], nan, 1.0, 0.5), "mean, deviation: "),
        (legs(&[], &[], inf, 1.0, 0.5), "mean, deviation: "),
        (legs(&[], &[], 0.0, -1.0, 0.5), "mean, deviation: "),
        (legs(&[], &[], 0.0, nan, 0.5), "mean, deviation: "),
        (legs(&[], &[], 0.0, inf, 0.5), "mean, deviation: "),
        (legs(&[], &[], 0.0, 1.0, -0.1), "vector_weight: "),
        (legs(&[], &[], 0.0, 1.0, 1.1), "vector_weight: "),
        (legs(&[], &[], 0.0, 1.0, nan), "vector_weight: "),
    ] {
        assert!(message.starts_with(place), "{message}");
    }
    assert_eq!(
        plan_batches(&[1, -1], 9, 9, true),
        Err(PlanError::NegativeLength { row: 1, length: -1 })
    );
    assert_eq!(
        plan_batches(&[i64::MAX, 1], 9, 9, true),
        Err(PlanError::TooManyTokens)
    );
    assert_eq!(
        TokenPlan::new(vec![1, 2], &[0, 1, 2], 9, 9, false, 1),
        Err(TokenError::TooShort {
            row: 0,
            length: 1,
            skip: 1
        })
    );
    assert_eq!(
        common_prefix(&[1], &[0, 9]),
        Err(TokenError::End {
            expected: 1,
            found: 9
        })
    );
}
