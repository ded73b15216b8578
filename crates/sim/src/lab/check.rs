//! What a scenario may say, beyond the shape of the file.

use std::collections::BTreeSet;

use types::{Millis, Slo};

use super::{
    fleet::Fleet,
    spec::{ClassSpec, EventSpec, Spec, WhatIfSpec},
    wrong::{Wrong, above_zero, not_negative},
};
use crate::class::Class;

/// How far shares of classes may be from adding up to 1.
const SHARE_ERROR: f64 = 1e-3;
/// Seeds of one run.
const MOST_SEEDS: usize = 1_000;

impl Spec {
    /// Tells the first value that cannot be used on `fleet`.
    pub fn check(&self, fleet: &Fleet) -> Result<(), Wrong> {
        if self.name.is_empty() {
            return Err(Wrong::at("name", "must not be empty"));
        }
        self.check_classes()?;
        self.workload.check().map_err(|wrong| match wrong.split_once(": ") {
            Some((key, reason)) => Wrong::at(format!("workload.{key}"), reason),
            None => Wrong::at("workload", wrong),
        })?;
        let timing = &self.timing;
        above_zero("timing.scrape_interval_ms", timing.scrape_interval_ms)?;
        not_negative("timing.scrape_delay_ms", timing.scrape_delay_ms)?;
        not_negative("timing.network_ms", timing.network_ms)?;
        not_negative("timing.label_delay_ms", timing.label_delay_ms)?;
        for (at, event) in self.events.iter().enumerate() {
            check_event(event, &format!("events[{at}]"), fleet)?;
        }
        self.check_policies()?;
        above_zero("horizon_s", self.horizon_s)?;
        not_negative("warm_up_s", self.warm_up_s)?;
        if self.warm_up_s >= self.horizon_s {
            return Err(Wrong::at("warm_up_s", "must be shorter than `horizon_s`"));
        }
        self.check_search()
    }

    fn check_search(&self) -> Result<(), Wrong> {
        for (at, load) in self.loads.iter().enumerate() {
            above_zero(&format!("loads[{at}]"), *load)?;
        }
        if self.loads.is_empty() {
            return Err(Wrong::at("loads", "must not be empty"));
        }
        if self.seeds.0.len() > MOST_SEEDS {
            return Err(Wrong::at("seeds", format!("must be at most {MOST_SEEDS}")));
        }
        let distinct: BTreeSet<_> = self.seeds.0.iter().collect();
        if distinct.len() < self.seeds.0.len() {
            return Err(Wrong::at("seeds", "must differ from each other"));
        }
        above_zero("goodput.target", self.goodput.target)?;
        if self.goodput.target > 1.0 {
            return Err(Wrong::at("goodput.target", "is a share and must be at most 1"));
        }
        if !(0.001..=0.5).contains(&self.goodput.within) {
            return Err(Wrong::at("goodput.within", "must be between 0.001 and 0.5"));
        }
        self.what_if.as_ref().map_or(Ok(()), |what_if| self.check_what_if(what_if))
    }

    fn check_classes(&self) -> Result<(), Wrong> {
        let mut names = BTreeSet::new();
        for (at, class) in self.classes.iter().enumerate() {
            let path = |key: &str| format!("classes[{at}].{key}");
            if class.name.is_empty() || !names.insert(&class.name) {
                let reason = format!("`{}` is no name of its own", class.name);
                return Err(Wrong::at(path("name"), reason));
            }
            above_zero(&path("share"), class.share)?;
            above_zero(&path("weight"), f64::from(class.weight))?;
            for (key, limit) in [("ttft_ms", class.ttft_ms), ("itl_ms", class.itl_ms)] {
                above_zero(&path(key), f64::from(limit.unwrap_or(1.0)))?;
            }
        }
        let sum: f64 = self.classes.iter().map(|class| class.share).sum();
        if !self.classes.is_empty() && (sum - 1.0).abs() > SHARE_ERROR {
            let path = format!("classes[{}].share", self.classes.len() - 1);
            let sum = (sum * 1e6).round() / 1e6;
            return Err(Wrong::at(path, format!("the shares add up to {sum}, not to 1")));
        }
        Ok(())
    }

    fn check_policies(&self) -> Result<(), Wrong> {
        let mut names = BTreeSet::new();
        for (at, policy) in self.policies.iter().enumerate() {
            let path = |key: &str| format!("policies[{at}].{key}");
            if policy.name.is_empty() || !names.insert(&policy.name) {
                let reason = format!("`{}` is no name of its own", policy.name);
                return Err(Wrong::at(path("name"), reason));
            }
            if policy.file.is_some() && policy.oracle.is_some() {
                return Err(Wrong::at(path("oracle"), "a policy has either `file` or `oracle`"));
            }
            above_zero(&path("window_s"), policy.window_s.unwrap_or(1.0))?;
            above_zero(&path("breadth"), policy.breadth.unwrap_or(1) as f64)?;
        }
        Ok(())
    }

    fn check_what_if(&self, what_if: &WhatIfSpec) -> Result<(), Wrong> {
        if what_if.fleets.is_empty() == what_if.counts.is_empty() {
            return Err(Wrong::at("what_if", "has either `fleets` or `counts`"));
        }
        for (at, groups) in what_if.fleets.iter().enumerate() {
            Fleet::from_groups(groups, &self.model, &format!("what_if.fleets[{at}]"))?;
        }
        for (name, (least, most)) in &what_if.counts {
            if least > most {
                let reason = format!("the least count, {least}, is above the most, {most}");
                return Err(Wrong::at(format!("what_if.counts.{name}"), reason));
            }
        }
        if let Some(name) = &what_if.policy
            && !self.policies.iter().any(|policy| policy.name == *name)
        {
            let known = self.policies.iter().map(|policy| policy.name.clone());
            let reason = format!("no policy of the scenario is called `{name}`");
            return Err(Wrong::unknown("what_if.policy", reason, name, known));
        }
        Ok(())
    }

    /// The classes for a simulation: at least one.
    pub(super) fn classes(&self) -> Vec<Class> {
        if self.classes.is_empty() {
            return vec![Class::only(Slo::default())];
        }
        self.classes.iter().map(class_of).collect()
    }

    /// Share of each class; they add up to 1.
    pub(super) fn shares(&self) -> Vec<f64> {
        if self.classes.is_empty() {
            return vec![1.0];
        }
        let sum: f64 = self.classes.iter().map(|class| class.share).sum();
        self.classes.iter().map(|class| class.share / sum).collect()
    }
}

fn class_of(class: &ClassSpec) -> Class {
    let millis = |limit: Option<f32>| limit.and_then(Millis::new);
    Class {
        name: class.name.as_str().into(),
        slo: Slo { ttft: millis(class.ttft_ms), itl: millis(class.itl_ms) },
        weight: class.weight,
        tenant: class.tenant.as_deref().map(Into::into),
    }
}

fn check_event(event: &EventSpec, path: &str, fleet: &Fleet) -> Result<(), Wrong> {
    not_negative(&format!("{path}.at_s"), event.at_s)?;
    let kinds = [event.slow.is_some(), event.fail.is_some(), event.recover.is_some()];
    if kinds.into_iter().filter(|given| *given).count() != 1 {
        return Err(Wrong::at(path, "an event is one of `slow`, `fail` and `recover`"));
    }
    let slow = event.slow.as_ref().map(|slow| ("slow", slow.endpoint.as_deref()));
    let fail = event.fail.as_ref().map(|target| ("fail", Some(&*target.endpoint)));
    let recover = event.recover.as_ref().map(|target| ("recover", Some(&*target.endpoint)));
    for (kind, endpoint) in [slow, fail, recover].into_iter().flatten() {
        if let Some(name) = endpoint
            && !fleet.names().any(|known| known == name)
        {
            let path = format!("{path}.{kind}.endpoint");
            let reason = format!("no endpoint of the fleet is called `{name}`");
            return Err(Wrong::unknown(path, reason, name, fleet.names().map(str::to_owned)));
        }
    }
    if let Some(slow) = &event.slow {
        above_zero(&format!("{path}.slow.factor"), slow.factor)?;
    }
    Ok(())
}
