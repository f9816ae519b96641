//! Fusion and batch plans against their obvious twins.
#![allow(clippy::expect_used, clippy::cast_possible_wrap)] // a test fails by panicking

use std::collections::BTreeMap;

use proptest::prelude::*;
use semlex_core::batch::{PlanFault, TokenFault, TokenPlan, common_prefix, plan_batches};
use semlex_core::fusion::{FusionFault, linear_fusion, reciprocal_rank_fusion};

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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
fn faults_name_what_is_wrong() {
    let ids: &[i64] = &[1, 2];
    let fault = |weights: &[f64], k| {
        reciprocal_rank_fusion(&[ids], Some(weights), k, 9).expect_err("refused")
    };
    assert!(matches!(
        fault(&[f64::NAN], 60.0),
        FusionFault::Weight { list: 0, .. }
    ));
    assert!(matches!(
        fault(&[1.0], f64::INFINITY),
        FusionFault::Constant { .. }
    ));
    assert!(matches!(
        fault(&[], 60.0),
        FusionFault::Count { found: 0, .. }
    ));
    let scores: &[f64] = &[0.5, f64::NAN];
    let refused = linear_fusion(&[ids], &[scores], None, 9).expect_err("refused");
    assert_eq!(refused, FusionFault::Score { list: 0, place: 1 });
    assert_eq!(
        plan_batches(&[1, -1], 9, 9, true),
        Err(PlanFault::NegativeLength { row: 1, length: -1 })
    );
    assert_eq!(
        plan_batches(&[i64::MAX, 1], 9, 9, true),
        Err(PlanFault::TooManyTokens)
    );
    assert_eq!(
        TokenPlan::new(vec![1, 2], &[0, 1, 2], 9, 9, false, 1),
        Err(TokenFault::TooShort {
            row: 0,
            length: 1,
            skip: 1
        })
    );
    assert_eq!(
        common_prefix(&[1], &[0, 9]),
        Err(TokenFault::End {
            expected: 1,
            found: 9
        })
    );
}
