//! Fleets that were tried: what they cost, and how many requests they serve in time.

use std::collections::BTreeMap;

use super::{
    Plot, View,
    frame::{Frame, guide, label, marker},
    scale::Scale,
};

/// Every fleet with the number that it has in the plot and in tables, cheapest first.
pub(in crate::simulate) fn numbered<'a>(view: &View<'a>) -> BTreeMap<&'a str, usize> {
    let mut numbers = BTreeMap::new();
    for tried in &view.report.what_if {
        let next = numbers.len() + 1;
        numbers.entry(tried.fleet.as_str()).or_insert(next);
    }
    numbers
}

/// Price against attainment, where fleets were tried.
pub(super) fn all(view: &View<'_>) -> anyhow::Result<Option<Plot>> {
    let tried = &view.report.what_if;
    if tried.is_empty() {
        return Ok(None);
    }
    let title = "What other fleets would cost, and how many requests they serve in time".to_owned();
    let target = view.report.target * 100.0;
    let prices = || tried.iter().map(|tried| tried.price_per_hour);
    let attained = tried.iter().map(|tried| tried.attainment * 100.0);
    let numbers = numbered(view);
    let (cheapest, dearest) =
        (prices().fold(f64::INFINITY, f64::min), prices().fold(f64::NEG_INFINITY, f64::max));
    let frame = Frame {
        size: (620, 400),
        left: 64,
        right: 30,
        x: Scale::around(prices(), 0.0..f64::INFINITY),
        y: Scale::around(attained.chain([target]), 0.0..100.0),
        x_desc: "price of the fleet per hour, currency of the scenario",
        y_desc: "attainment, % of requests",
    };
    let svg = frame.draw(&title, &view.inks, |chart| {
        guide(chart, [(cheapest, target), (dearest, target)])?;
        for tried in tried {
            let (ink, at) =
                (view.inks.of(&tried.policy), (tried.price_per_hour, tried.attainment * 100.0));
            marker(chart, at, ink.color, ink.marker)?;
            if let Some(number) = numbers.get(&*tried.fleet) {
                label(chart, at, (8, 0), &number.to_string())?;
            }
        }
        Ok(())
    })?;
    let caption = format!(
        "Numbers are those of the fleets in the table below. Dashed grey: the target, {target:.0} %. \
         Mean over the seeds."
    );
    let seen = |name: &str| tried.iter().any(|tried| tried.policy == name);
    let policies = view.report.policies.iter().filter(|policy| seen(&policy.name));
    let keys = super::keys(view, policies);
    Ok(Some(Plot { title, svgs: vec![svg], caption, keys }))
}
