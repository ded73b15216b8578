//! The model card: how priors were made and what they are worth, in the JSON and as a page.

use std::fmt::Write as _;

use predict::Prior;
use serde::{Deserialize, Serialize};

use super::judge::{HeldOut, Reality};

/// What the page says before its tables.
const INTRODUCTION: &str = "\
# Priors: what a class of endpoints is known by before its first row

`priors.jsonl` holds one prior a line, and is part of the program (`learner.priors: builtin`). Each is the
state of the linear TTFT, ITL and step-time models, taught by one step-time profile of
`crates/sim/profiles.csv` played in virtual time under varied load, with residuals of its promises. It weighs
as many labels as its strength, so the real engine outweighs it after some dozens of rows. This page and the
file are made by one command:

```sh
cargo run --release -- train --profiles crates/sim/profiles.csv \\
  --check models/data/measured_points.csv --card models/README.md --out models/priors.jsonl
```

A prior of your own engine, from rows that `slackline serve --record rows.jsonl` has written:

```sh
slackline train --rows rows.jsonl --model llama-3.1-8b --accelerator H100-SXM --out mine.jsonl
```

A model of a size that is not listed is answered by the nearest one on the same accelerator, all times scaled
by the parameters that compute a token; such a prior weighs 8 labels.

## What they are made of, and what they are worth on simulated rows

Errors are mean absolute relative errors of the median with no row learned, on another workload and seed than
those that taught it; coverage is the share of observed values under the promised p90. They say how well the
linear models hold the simulated engine, not how well the simulation holds the real one: that is the column
of confidence, and the next table.

";
const REALITY: &str = "
## Against real engines

`data/measured_points.csv` holds measured operating points of real vLLM servers (its sources: `data/README.md`).
A steady state with that many requests is predicted from the prior alone: what is in flight follows from the
latencies by Little's law. Nothing was fitted to these points here; the H100 profiles of Llama-3.1-8B and the
fp8 ones of 70B were fitted to points of the same sources when the profiles were made, so their rows are no
test of the profile, only of the prior made from it.

";

/// How a prior was made, and what it is worth.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Card {
    pub(super) made_from: String,
    /// Rows that taught it.
    pub(super) rows: usize,
    pub(super) source: String,
    /// How far the source is to be trusted.
    pub(super) confidence: String,
    pub(super) held_out: HeldOut,
    /// How it fares on measured points.
    pub(super) reality: Vec<Reality>,
}

/// `model weights on accelerator tpN`.
pub(super) fn title(prior: &Prior) -> String {
    let weights = prior.weights.as_deref().unwrap_or("?");
    format!("{} {weights} on {} tp{}", prior.model, prior.accelerator, prior.tp)
}

/// The page about `priors`.
pub(super) fn page(priors: &[Prior]) -> anyhow::Result<String> {
    let mut page = INTRODUCTION.to_owned();
    page += "| class | strength | rows | confidence | TTFT error | TTFT p90 coverage | ITL error | \
             ITL p90 coverage | source |\n|---|--:|--:|---|--:|--:|--:|--:|---|\n";
    let cards: Vec<Card> = priors
        .iter()
        .map(|prior| serde_json::from_value(prior.card.clone()))
        .collect::<Result<_, _>>()?;
    for (prior, card) in priors.iter().zip(&cards) {
        let held_out = &card.held_out;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            title(prior),
            prior.strength,
            card.rows,
            card.confidence,
            percent(held_out.ttft_mape_ratio),
            percent(held_out.ttft_p90_coverage_ratio),
            percent(held_out.itl_mape_ratio),
            percent(held_out.itl_p90_coverage_ratio),
            card.source.replace('|', "/"),
        );
    }
    if let Some(card) = cards.first() {
        let _ = writeln!(page, "\nHeld-out workload: {}.", card.held_out.workload);
    }
    let mut reality: Vec<&Reality> = cards.iter().flat_map(|card| &card.reality).collect();
    if reality.is_empty() {
        return Ok(page);
    }
    reality.sort_by(|a, b| (&a.source, &a.class).cmp(&(&b.source, &b.class)));
    page += REALITY;
    page += "| measured | class | answered by | scale | concurrency | points | TTFT error | \
             ITL error |\n|---|---|---|--:|--:|--:|--:|--:|\n";
    for real in reality {
        let [from, to] = real.concurrency;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {:.2} | {from} to {to} | {} | {} | {} |",
            real.source,
            real.class,
            real.prior,
            real.scale,
            real.points,
            percent(real.ttft_mape_ratio),
            percent(real.itl_mape_ratio),
        );
    }
    Ok(page)
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}
