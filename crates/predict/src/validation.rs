//! Progressive validation: recorded rows are predicted in the order of their decisions, and learned when
//! their labels came, so that no prediction has seen a label from its future.

use std::sync::Arc;

use features::FeatureRow;

use crate::{
    class::Quantiles,
    drift::Step,
    key::ClassKey,
    learner::Learner,
    models::Models,
    options::Options,
    prior::Priors,
    regime::Regime,
    target::Forecast,
    terms::Target,
    ticket::{Outcome, Ticket, Whole},
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
    /// Mean times between the tokens so far, while the stream went on.
    pub itl_so_far: Vec<Label>,
    /// Samples of the endpoint's steps that its tokens completed, and when.
    pub steps: Vec<(f64, Step)>,
    /// Time of the whole answer, where no token was seen by itself.
    pub e2e: Option<Label>,
    /// Output tokens.
    pub output_tokens: u32,
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
    /// The p90 that residuals alone would have promised, without what adapts it, in milliseconds.
    pub uncorrected_p90_ms: f32,
    /// What every model said, in milliseconds, by name; `None` where one abstained.
    pub models: Vec<(&'static str, Option<f32>)>,
}

/// Something that happens at an instant: a label becomes known before a decision at the same instant.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
enum What {
    /// Steps of an endpoint, by their number in the row.
    Stepped(usize),
    Known(Known),
    Decided,
}

/// Which label has become known.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
enum Known {
    Target(Target),
    /// The mean so far of that number.
    SoFar(usize),
    Whole,
}

/// Predicts and learns `rows` (in any order) with a fresh learner. Batch models are fitted at once when
/// they are due. A row decided while too little is known is learned but not judged.
pub fn validate(rows: &[Labelled], options: &Options) -> regress::Result<Vec<Judged>> {
    validate_from(rows, options, Arc::default())
}

/// The same with a learner that starts from `priors`.
pub fn validate_from(
    rows: &[Labelled],
    options: &Options,
    priors: Arc<Priors>,
) -> regress::Result<Vec<Judged>> {
    let mut learner = Learner::with_priors(options, priors)?;
    let names = learner.model_names();
    let mut judged = Vec::new();
    replay(&mut learner, rows, |learner, row, ticket, which| {
        if let Known::Target(target) = which {
            judged.extend(judge(&rows[row], row, target, ticket, &names));
        }
        learner.learn(ticket, &outcome(&rows[row], which));
        for refit in learner.take_refits(usize::MAX) {
            learner.install(refit.run());
        }
    });
    Ok(judged)
}

/// Teaches `learner` rows that were recorded, as if they happened now: each is predicted with what is
/// known at its decision, and learned when its labels are known. Batch models are not fitted; the first
/// fits are due with the next label.
pub fn teach(learner: &mut Learner, rows: &[Labelled]) {
    replay(learner, rows, |learner, row, ticket, which| {
        let row = &rows[row];
        let mut outcome = outcome(row, which);
        // The answer has ended with its last label.
        let is_last = match which {
            Known::Whole | Known::Target(Target::Itl) => true,
            Known::Target(Target::Ttft) => row.itl.is_none() && row.e2e.is_none(),
            Known::SoFar(_) => false,
        };
        outcome.output_tokens = (is_last && row.output_tokens > 0).then_some(row.output_tokens);
        learner.learn(ticket, &outcome);
    });
}

/// Walks through decisions and labels in the order of time; `learn` is told of every label, with the
/// position of its row.
fn replay(
    learner: &mut Learner,
    rows: &[Labelled],
    mut learn: impl FnMut(&mut Learner, usize, &Ticket, Known),
) {
    let mut events: Vec<(f64, What, usize)> = Vec::with_capacity(rows.len() * 3);
    for (at, row) in rows.iter().enumerate() {
        events.push((row.decided_at_ms, What::Decided, at));
        let mut known = |label: &Label, which| {
            events.push((label.known_at_ms, What::Known(which), at));
        };
        row.ttft.iter().for_each(|label| known(label, Known::Target(Target::Ttft)));
        row.itl.iter().for_each(|label| known(label, Known::Target(Target::Itl)));
        row.e2e.iter().for_each(|label| known(label, Known::Whole));
        for (number, label) in row.itl_so_far.iter().enumerate() {
            known(label, Known::SoFar(number));
        }
        let steps = row.steps.iter().enumerate();
        events.extend(steps.map(|(number, (known_at, _))| (*known_at, What::Stepped(number), at)));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut models = learner.publish();
    let mut stale = false;
    let mut tickets: Vec<Option<Ticket>> = rows.iter().map(|_| None).collect();
    for (_, what, at) in events {
        match what {
            What::Decided => {
                if std::mem::take(&mut stale) {
                    models = learner.publish();
                }
                tickets[at] = Some(ticket(&rows[at], &models));
            }
            What::Stepped(number) => {
                let row = &rows[at];
                let shift = learner.observe_step(&row.class, row.slot, &row.steps[number].1);
                stale |= shift.is_some();
            }
            What::Known(which) => {
                let Some(ticket) = &tickets[at] else { continue };
                learn(learner, at, ticket, which);
                stale = true;
            }
        }
    }
}

fn ticket(row: &Labelled, models: &Models) -> Ticket {
    let of = models.of(&row.class.model);
    let class = &row.class;
    Ticket {
        class: class.clone(),
        slot: row.slot,
        scope: None,
        row: row.row,
        prediction: of.predict(&class.accelerator, class.role, row.slot, &row.row),
        forecasts: of.forecasts(&class.accelerator, class.role, row.slot, &row.row).map(Box::new),
    }
}

fn outcome(row: &Labelled, which: Known) -> Outcome {
    let none = Outcome::default();
    match which {
        Known::Target(Target::Ttft) => Outcome { ttft_ms: row.ttft.map(|l| l.ms), ..none },
        Known::Target(Target::Itl) => Outcome { itl_ms: row.itl.map(|l| l.ms), ..none },
        Known::SoFar(number) => {
            Outcome { itl_so_far: row.itl_so_far.get(number).map(|l| l.ms), ..none }
        }
        Known::Whole => {
            let output_tokens = row.output_tokens;
            Outcome { e2e: row.e2e.map(|l| Whole { ms: l.ms, output_tokens }), ..none }
        }
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
        uncorrected_p90_ms: forecast.point * forecast.uncorrected.exp(),
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
                itl_so_far: Vec::new(),
                steps: Vec::new(),
                e2e: None,
                output_tokens: 100,
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
    fn a_mean_so_far_corrects_a_new_endpoint_before_its_first_answer_has_ended() {
        let options = Options { batch: Vec::new(), ..Options::default() };
        // From row 200 on another endpoint serves, which is half as fast.
        let late = |mut row: Labelled| {
            row.slot = u32::from(row.decided_at_ms > 20_000.0);
            row.itl =
                row.itl.map(|label| Label { known_at_ms: row.decided_at_ms + 9_000.0, ..label });
            row
        };
        let early = |row: Labelled| {
            let now = row.itl.map(|label| Label { known_at_ms: row.decided_at_ms + 1.0, ..label });
            Labelled { itl_so_far: now.into_iter().collect(), ..late(row) }
        };
        let judged = |rows: Vec<Labelled>| validate(&rows, &options).unwrap();
        let without = judged(rows(400, 1.0).into_iter().map(late).collect());
        let with = judged(rows(400, 1.0).into_iter().map(early).collect());
        assert_eq!(without.len(), with.len());
        // Its answers take nine seconds, ninety rows.
        let off = |judged: &[Judged]| {
            let of =
                judged.iter().filter(|j| j.target == Target::Itl && (250..280).contains(&j.row));
            of.map(|j| (j.promised.p50() / j.observed_ms - 1.0).abs()).sum::<f32>() / 30.0
        };
        assert!(off(&with) < 0.75 * off(&without), "{} {}", off(&with), off(&without));
    }

    #[test]
    fn whole_answers_alone_teach_both_latencies_and_are_not_judged() {
        let whole = |row: Labelled| {
            let output_tokens = 2 + row.slot + (row.decided_at_ms as u32 / 100) * 31 % 60;
            let (ttft, itl) = (row.ttft.unwrap(), row.itl.unwrap());
            let ms = ttft.ms + itl.ms * (output_tokens - 1) as f32;
            let e2e = Some(Label { ms, known_at_ms: ttft.known_at_ms + f64::from(ms) });
            Labelled { ttft: None, itl: None, e2e, output_tokens, ..row }
        };
        let options = Options { batch: Vec::new(), ..Options::default() };
        let mut rows: Vec<_> = rows(900, 1.0).into_iter().take(440).collect();
        for row in rows.iter_mut().take(400) {
            *row = whole(row.clone());
        }
        let judged = validate(&rows, &options).unwrap();
        assert_eq!(judged.len(), 80);
        for target in [Target::Ttft, Target::Itl] {
            let mut off: Vec<_> = judged
                .iter()
                .filter(|j| j.target == target)
                .map(|j| (j.promised.p50() / j.observed_ms - 1.0).abs())
                .collect();
            off.sort_by(f32::total_cmp);
            assert!(off[20] < 0.1, "{target:?} {off:?}");
        }
    }

    #[test]
    fn every_model_is_named() {
        let judged = validate(&rows(200, 1.0), &Options::default()).unwrap();
        let names: Vec<_> = judged[0].models.iter().map(|(name, _)| *name).collect();
        let expected =
            "mean rls twin overload endpoint-rls elastic-net random-forest boosted-trees";
        assert_eq!(names.join(" "), expected);
    }
}
