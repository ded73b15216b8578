//! What the first rows of every class were predicted like: how good a start is.

use std::{collections::BTreeMap, sync::Arc};

use predict::{Judged, Labelled, Learner, Options, Priors, Target};
use serde::Serialize;

/// Rows of a class that are its first, and the end of those that follow.
const FIRST: usize = 50;
const NEXT: usize = 150;

/// How far TTFT was off on the first rows of one class, by order of decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FirstRows {
    /// `model/accelerator/role`.
    pub(super) class: String,
    /// Mean absolute relative error on rows 1 to 50, predicted by the prior with no row learned.
    pub(super) prior_only_mape_ratio: Option<f64>,
    /// The same, each row predicted with what was known by then; of those that were predicted at all.
    pub(super) first_50_mape_ratio: Option<f64>,
    /// The same of rows 51 to 150.
    pub(super) rows_51_to_150_mape_ratio: Option<f64>,
    /// How many of rows 1 to 50 were predicted.
    pub(super) first_50_judged: usize,
}

/// By class, in order of name.
pub(super) fn rows(
    rows: &[Labelled],
    judged: &[Judged],
    options: &Options,
    priors: &Arc<Priors>,
) -> regress::Result<Vec<FirstRows>> {
    let models = Learner::with_priors(options, Arc::clone(priors))?.publish();
    let served: BTreeMap<usize, f64> = judged
        .iter()
        .filter(|j| j.target == Target::Ttft)
        .map(|j| (j.row, off(j.promised.p50(), j.observed_ms)))
        .collect();
    let mut classes = BTreeMap::<String, Vec<usize>>::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.ttft.is_some()) {
        classes.entry(row.class.to_string()).or_default().push(at);
    }
    let alone = |at: &usize| {
        let row = &rows[*at];
        let of = models.of(&row.class.model);
        let predicted = of.predict(&row.class.accelerator, row.class.role, row.slot, &row.row)?;
        Some(off(predicted.ttft.p50(), row.ttft?.ms))
    };
    Ok(classes
        .into_iter()
        .map(|(class, mut at)| {
            at.sort_by(|a, b| rows[*a].decided_at_ms.total_cmp(&rows[*b].decided_at_ms));
            let (first, rest) = at.split_at(at.len().min(FIRST));
            let next = &rest[..rest.len().min(NEXT - FIRST)];
            let judged = |of: &[usize]| -> Vec<f64> {
                of.iter().filter_map(|at| served.get(at).copied()).collect()
            };
            FirstRows {
                class,
                prior_only_mape_ratio: mean(&first.iter().filter_map(alone).collect::<Vec<_>>()),
                first_50_mape_ratio: mean(&judged(first)),
                rows_51_to_150_mape_ratio: mean(&judged(next)),
                first_50_judged: judged(first).len(),
            }
        })
        .collect())
}

fn off(predicted: f32, observed: f32) -> f64 {
    f64::from((predicted / observed - 1.0).abs())
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
