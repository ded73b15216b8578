//! Progressive validation: recorded rows are predicted in the order of their decisions, and learned when
//! their labels came, so that no prediction has seen a label from its future.

use features::FeatureRow;

use crate::{
    class::Quantiles,
    key::ClassKey,
    learner::{Learner, Options, Outcome, Ticket},
    models::Models,
    regime::Regime,
    target::Forecast,
    terms::Target,
};

/// One observed latency and when it was known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    /// The latency.
    pub ms: f32,
    /// When it was known, on the clock of the decisions.
    pub known_at_ms: f64,
}

/// A recorded decision and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// When it was decided.
    pub decided_at_ms: f64,
    /// Class of the endpoint that served it.
    pub class: ClassKey,
    /// Number of that endpoint.
    pub slot: u32,
    /// The row.
    pub row: FeatureRow,
    /// Time to first token, where it was seen.
    pub ttft: Option<Label>,
    /// Mean time between tokens, where at least two were seen.
    pub itl: Option<Label>,
}

/// One prediction held against what came.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// When it was decided.
    pub decided_at_ms: f64,
    /// Position of its row.
    pub row: usize,
    /// What was predicted.
    pub target: Target,
    /// How busy the endpoint was.
    pub regime: Regime,
    /// What came, in milliseconds.
    pub observed_ms: f32,
    /// What was promised.
    pub promised: Quantiles,
    /// What every model said, in milliseconds, by name; `None` where one abstained.
    pub models: Vec<(&'static str, Option<f32>)>,
}

/// Something that happens at an instant: a label becomes known before a decision at the same instant.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
enum What {
    Known(Target),
    Decided,
}

/// Predicts and learns `rows` (in any order) with a fresh learner. Batch models are fitted at once when
/// they are due. A row decided while too little is known is learned but not judged.
pub fn validate(rows: &[Labelled], options: &Options) -> regress::Result<Vec<Judged>> {
    let mut learner = Learner::new(options)?;
    let names = learner.model_names();
    let mut events: Vec<(f64, What, usize)> = Vec::with_capacity(rows.len() * 3);
    for (at, row) in rows.iter().enumerate() {
        events.push((row.decided_at_ms, What::Decided, at));
        for (target, label) in [(Target::Ttft, row.ttft), (Target::Itl, row.itl)] {
            if let Some(label) = label {
                events.push((label.known_at_ms, What::Known(target), at));
            }
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut judged = Vec::new();
    let mut models = Models::default();
    let mut stale = false;
    let mut tickets: Vec<Option<Ticket>> = rows.iter().map(|_| None).collect();
    for (_, what, at) in events {
        let row = &rows[at];
        match what {
            What::Decided => {
                if std::mem::take(&mut stale) {
                    models = learner.publish();
                }
                tickets[at] = Some(ticket(row, &models));
            }
            What::Known(target) => {
                let Some(ticket) = &tickets[at] else { continue };
                judged.extend(judge(row, at, target, ticket, &names));
                learner.learn(ticket, &outcome(row, target));
                for refit in learner.take_refits() {
                    learner.install(refit.run());
                }
                stale = true;
            }
        }
    }
    Ok(judged)
}

fn ticket(row: &Labelled, models: &Models) -> Ticket {
    let of = models.of(&row.class.model);
    let class = &row.class;
    Ticket {
        class: class.clone(),
        slot: row.slot,
        row: row.row,
        prediction: of.predict(&class.accelerator, class.role, row.slot, &row.row),
        forecasts: of.forecasts(&class.accelerator, class.role, row.slot, &row.row).map(Box::new),
    }
}

fn outcome(row: &Labelled, target: Target) -> Outcome {
    match target {
        Target::Ttft => Outcome { ttft_ms: row.ttft.map(|l| l.ms), ..Outcome::default() },
        Target::Itl => Outcome { itl_ms: row.itl.map(|l| l.ms), ..Outcome::default() },
    }
}

fn judge(
    row: &Labelled,
    at: usize,
    target: Target,
    ticket: &Ticket,
    names: &[&'static str],
) -> Option<Judged> {
    let prediction = ticket.prediction?;
    let forecasts = ticket.forecasts.as_ref()?;
    let (label, promised, forecast): (_, _, &Forecast) = match target {
        Target::Ttft => (row.ttft?, prediction.ttft, &forecasts.ttft),
        Target::Itl => (row.itl?, prediction.itl, &forecasts.itl),
    };
    if !(label.ms.is_finite() && label.ms > 0.0) {
        return None;
    }
    let said = names
        .iter()
        .zip(forecast.raws)
        .map(|(name, raw)| (*name, raw.is_finite().then_some(raw * forecast.correction)));
    Some(Judged {
        decided_at_ms: row.decided_at_ms,
        row: at,
        target,
        regime: Regime::of(&row.row),
        observed_ms: label.ms,
        promised,
        models: said.collect(),
    })
}

#[cfg(test)]
mod tests {
    use features::{Column, WIDTH};
    use types::{Accelerator, Role};

    use super::*;

    /// A row every 100 ms whose TTFT depends on its prompt and is known `delay` later; it doubles at
    /// half time.
    fn rows(count: u16, delay: f64) -> Vec<Labelled> {
        let class =
            ClassKey { model: "m".into(), accelerator: Accelerator::new("a"), role: Role::Both };
        let one = |i: u16| {
            let uncached = f32::from(i * 37 % 900) + 100.0;
            let slow = if i > count / 2 { 2.0 } else { 1.0 };
            let label = |ms: f32| Label { ms, known_at_ms: f64::from(i) * 100.0 + delay };
            Labelled {
                decided_at_ms: f64::from(i) * 100.0,
                class: class.clone(),
                slot: 0,
                row: FeatureRow::from([0.0; WIDTH])
                    .with(Column::Uncached, uncached)
                    .with(Column::Prompt, uncached),
                ttft: Some(label(slow * (10.0 + uncached / 20.0))),
                itl: Some(label(slow * 8.0)),
            }
        };
        (0..count).map(one).collect()
    }

    fn error_after(judged: &[Judged], rows: usize) -> f32 {
        let off: Vec<f32> = judged
            .iter()
            .filter(|j| j.target == Target::Ttft && (rows..rows + 8).contains(&j.row))
            .map(|j| (j.promised.p50() / j.observed_ms - 1.0).abs())
            .collect();
        off.iter().sum::<f32>() / off.len() as f32
    }

    #[test]
    fn a_label_is_not_used_before_it_is_known() {
        let options = Options::default();
        let early = validate(&rows(400, 1.0), &options).unwrap();
        let late = validate(&rows(400, 5_000.0), &options).unwrap();
        // Some thirty rows after the change, only the early ones have seen it.
        assert!(error_after(&early, 235) < 0.4, "{}", error_after(&early, 235));
        assert!(error_after(&late, 235) > 0.4, "{}", error_after(&late, 235));
    }

    #[test]
    fn every_model_is_named() {
        let judged = validate(&rows(200, 1.0), &Options::default()).unwrap();
        let names: Vec<_> = judged[0].models.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["mean", "rls", "elastic-net", "random-forest", "boosted-trees"]);
    }
}
