//! Sums up the requests of one simulation as they end.

use std::{sync::Arc, time::Duration};

use types::{Slo, Time};

use super::{
    Scenario,
    detail::{ClassDetail, Detail, MemberDetail, Predicted},
    member::Member,
    requests::Live,
};
use crate::{
    class::Class,
    engine::Engine,
    report::{Collector, Failure, PolicyReport, RequestResult},
    workload::Trace,
};

/// Requests whose predictions are kept.
const SAMPLES: usize = 2_000;

/// What has ended so far.
#[derive(Debug)]
pub(super) struct Tally {
    collector: Collector,
    classes: Vec<Account>,
    members: Vec<Serving>,
    detail: Detail,
    /// Requests that arrive before are not judged.
    judged_from: Time,
    /// One request in so many has its prediction kept.
    stride: usize,
}

/// One class.
#[derive(Debug)]
struct Account {
    slo: Slo,
    detail: ClassDetail,
    /// How far each request that succeeded was from its objective: 1 is just met.
    ratios: Vec<f32>,
}

/// One member.
#[derive(Debug)]
struct Serving {
    name: Arc<str>,
    requests: u64,
    tokens: u64,
}

impl Tally {
    pub(super) fn new(scenario: &Scenario, fleet: &[Member], trace: &Trace) -> Self {
        let account = |class: &Class| Account {
            slo: class.slo,
            detail: ClassDetail {
                name: class.name.to_string(),
                weight: class.weight,
                ..ClassDetail::default()
            },
            ratios: Vec::new(),
        };
        let serving =
            |member: &Member| Serving { name: member.name.as_str().into(), requests: 0, tokens: 0 };
        Self {
            collector: Collector::new(
                scenario.classes.first().map_or_else(Slo::default, |c| c.slo),
            ),
            classes: scenario.classes.iter().map(account).collect(),
            members: fleet.iter().map(serving).collect(),
            detail: Detail::default(),
            judged_from: Time::ZERO.after(scenario.warm_up),
            stride: trace.arrivals.len().div_ceil(SAMPLES).max(1),
        }
    }

    /// Whether the prediction of arrival `index` is kept.
    pub(super) fn samples(&self, index: usize) -> bool {
        index.is_multiple_of(self.stride)
    }

    /// One more decision by `rung`.
    pub(super) fn decided(&mut self, rung: &'static str) {
        *self.detail.rungs.entry(rung).or_default() += 1;
    }

    /// The first token of `live`, with `prompt_tokens`, has come.
    pub(super) fn began(&mut self, live: &Live, prompt_tokens: u32) {
        let member = &mut self.members[live.member];
        member.requests += 1;
        member.tokens += u64::from(prompt_tokens.saturating_sub(live.cached));
        if live.arrived >= self.judged_from {
            self.detail.prompt_tokens += u64::from(prompt_tokens);
            self.detail.cached_tokens += u64::from(live.cached);
        }
    }

    /// `live` has ended at `now`, with `failure` or well.
    pub(super) fn ended(
        &mut self,
        live: &Live,
        failure: Option<Failure>,
        is_placed: bool,
        now: Time,
    ) {
        let member = &mut self.members[live.member];
        member.tokens += u64::from(live.tokens);
        self.detail.end = self.detail.end.max(now.since(Time::ZERO));
        if live.arrived < self.judged_from {
            return;
        }
        let endpoint = is_placed.then(|| Arc::clone(&member.name));
        let result =
            result_of(live, (failure, endpoint), live.arrived.since(self.judged_from), now);
        let account = &mut self.classes[usize::from(live.class)];
        let met = self.collector.record_for(&result, &live.gaps_ms, account.slo);
        account.detail.requests += 1;
        account.detail.met += u64::from(met);
        self.detail.met_output_tokens += if met { u64::from(live.tokens) } else { 0 };
        let Some(ttft_ms) = result.ttft_ms.filter(|_| failure.is_none()) else { return };
        account.add(ttft_ms, result.itl_ms);
        if let Some((ttft, itl)) = live.predicted {
            let itl_ms = result.itl_ms.map(|seen| (itl, seen));
            self.detail.predicted.push(Predicted { ttft_ms: (ttft, ttft_ms), itl_ms });
        }
    }

    /// Everything, for the policy called `name`.
    pub(super) fn close(
        self,
        name: &str,
        trace: &Trace,
        fleet: &[Member],
        engines: &[Engine],
    ) -> (PolicyReport, Detail) {
        let span = trace.span();
        let judged = span.saturating_sub(self.judged_from.since(Time::ZERO));
        let report = self.collector.report(name, judged);
        let mut detail = Detail { span, ..self.detail };
        let mut ratios = Vec::new();
        let mut all = ClassDetail { name: "all".to_owned(), weight: 1.0, ..ClassDetail::default() };
        for mut account in self.classes {
            ratios.extend_from_slice(&account.ratios);
            let mut class = account.detail;
            class.worst_tenth_ratio = worst_tenth(&mut account.ratios);
            all.requests += class.requests;
            all.met += class.met;
            all.ttft.merge(&class.ttft);
            all.itl.merge(&class.itl);
            detail.classes.push(class);
        }
        all.worst_tenth_ratio = worst_tenth(&mut ratios);
        detail.all = all;
        let members = self.members.iter().zip(fleet).zip(engines);
        detail.members = members
            .map(|((serving, member), engine)| MemberDetail {
                name: member.name.clone(),
                accelerator: member.profile.gpu.clone(),
                busy: engine.counts().busy,
                requests: serving.requests,
                tokens: serving.tokens,
            })
            .collect();
        (report, detail)
    }
}

impl Account {
    /// A request that succeeded.
    fn add(&mut self, ttft_ms: f32, itl_ms: Option<f32>) {
        self.detail.ttft.record(ttft_ms, 1);
        if let Some(itl_ms) = itl_ms {
            self.detail.itl.record(itl_ms, 1);
        }
        let over = |seen: Option<f32>, limit: Option<types::Millis>| Some(seen? / limit?.get());
        let ratios = [over(Some(ttft_ms), self.slo.ttft), over(itl_ms, self.slo.itl)];
        self.ratios.extend(ratios.into_iter().flatten().max_by(f32::total_cmp));
    }
}

/// Mean of the largest tenth, at least one; `None` of none.
fn worst_tenth(ratios: &mut [f32]) -> Option<f64> {
    if ratios.is_empty() {
        return None;
    }
    ratios.sort_unstable_by(|a, b| b.total_cmp(a));
    let worst = &ratios[..ratios.len().div_ceil(10)];
    Some(worst.iter().map(|ratio| f64::from(*ratio)).sum::<f64>() / worst.len() as f64)
}

fn result_of(
    live: &Live,
    (failure, endpoint): (Option<Failure>, Option<Arc<str>>),
    scheduled: Duration,
    now: Time,
) -> RequestResult {
    let gaps = live.tokens.saturating_sub(1);
    let itl_of = |first: Time| live.last.ms_since(first) / gaps as f32;
    RequestResult {
        scheduled,
        ttft_ms: live.first.map(|first| first.ms_since(live.arrived)),
        itl_ms: live.first.filter(|_| gaps > 0).map(itl_of),
        e2e_ms: now.ms_since(live.arrived),
        endpoint,
        failure,
        output_tokens: live.tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_tenth_is_a_mean_of_the_largest() {
        let mut ratios: Vec<f32> = (1..=20_u8).map(f32::from).collect();
        assert_eq!(worst_tenth(&mut ratios), Some(19.5));
        assert_eq!(worst_tenth(&mut [0.5, 0.25]), Some(0.5));
        assert_eq!(worst_tenth(&mut []), None);
    }
}
