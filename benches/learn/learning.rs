//! (b) What it costs to learn one row, part by part, and to publish what is known.

use std::hint::black_box;

use benches::{Figures, is_short, thread_cpu};
use predict::{Learner, Options, Outcome, Step, Ticket};
use router::Recorded;
use serde_json::Value;

use crate::rows::{outcome, taught, ticket};

/// Rows learned per round, and rounds.
const ROWS: usize = 200;
const ROUNDS: usize = 40;
/// Terms of the linear models of TTFT and of ITL.
const WIDTHS: [usize; 2] = [15, 7];

/// Prints the cost of every way that a label takes.
pub(crate) fn measure(rows: &[Recorded], options: &Options) {
    let mut learner = taught(rows, options);
    let models = learner.publish();
    let pairs = || rows.iter().map(|row| (ticket(row, &models), outcome(row)));
    let whole: Vec<(Ticket, Outcome)> = pairs().collect();
    print("one row, both labels, judged and learned by all", &whole, |(ticket, outcome)| {
        learner.learn(ticket, outcome);
    });
    let ttft: Vec<_> = pairs().map(|(t, o)| (t, Outcome { itl_ms: None, ..o })).collect();
    print("  its TTFT alone", &ttft, |(ticket, outcome)| {
        learner.learn(ticket, outcome);
    });
    let itl: Vec<_> = pairs().map(|(t, o)| (t, Outcome { ttft_ms: None, ..o })).collect();
    print("  its ITL alone", &itl, |(ticket, outcome)| {
        learner.learn(ticket, outcome);
    });
    let blind: Vec<_> = pairs().map(|(t, o)| (Ticket { forecasts: None, ..t }, o)).collect();
    print("  both, nothing predicted before, so nothing judged", &blind, |(ticket, outcome)| {
        learner.learn(ticket, outcome);
    });
    print("looking for fits that are due, after each row", rows, |_| {
        black_box(learner.has_due());
    });
    print("the ticket of the endpoint that was chosen", rows, |row| {
        black_box(ticket(row, &models));
    });
    print("one sample of an endpoint's steps", rows, |row| {
        black_box(learner.observe_step(&row.class, row.slot, &step(row)));
    });
    parts(rows, options);
    publishing(rows, &mut learner);
}

fn step(row: &Recorded) -> Step {
    let at = |column| row.row.get(column);
    Step {
        step_ms: row.itl.map_or(10.0, |known| known.ms),
        streams: at(features::Column::Decoding) + 1.0,
        kv_tokens: at(features::Column::DecodeTokens),
    }
}

/// The online models by themselves.
fn parts(rows: &[Recorded], options: &Options) {
    for name in &options.regressors {
        for width in WIDTHS {
            let mut model = (regress::kind(name).unwrap().build)(width, &Value::Null).unwrap();
            print(&format!("{name} alone, {width} terms"), rows, |row| {
                let label = row.ttft.map_or(1.0, |known| known.ms);
                model.learn_one(&row.row.as_slice()[..width], label);
            });
        }
    }
}

/// What the request path reads, made after one row, so that one class and the pool of all are new.
fn publishing(rows: &[Recorded], learner: &mut Learner) {
    let rounds = if is_short() { 2 } else { ROUNDS * 10 };
    let one = |row: &Recorded| {
        learner.learn(&ticket(row, &predict::Models::default()), &outcome(row));
        let before = thread_cpu();
        black_box(learner.publish());
        (thread_cpu() - before) * 1e6
    };
    let us = Figures::new(rows.iter().take(rounds).map(one), 1);
    println!("    {us} us: publishing one class and the pool of all, each after a row");
}

/// Prints what `each` costs per item of `items`.
fn print<T>(what: &str, items: &[T], mut each: impl FnMut(&T)) {
    let rounds = if is_short() { 2 } else { ROUNDS };
    let mut next = items.iter().cycle();
    let round = |_| {
        let before = thread_cpu();
        for item in next.by_ref().take(ROWS) {
            each(item);
        }
        (thread_cpu() - before) * 1e6 / ROWS as f64
    };
    // The first round is not counted.
    let us = Figures::new((0..=rounds).map(round).skip(1), 2);
    println!("    {us} us: {what}");
}
