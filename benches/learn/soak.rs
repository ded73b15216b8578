//! (d) What a large fleet costs in memory over hours of labels, in a process of its own.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    process::{Command, id},
    sync::Arc,
    time::Duration,
};

use benches::{is_short, resident_mb};
use features::{Column, FeatureRow, WIDTH};
use predict::{ClassKey, Learner, Models, Options, Outcome, Ticket, Whole};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use types::{Accelerator, Role};

/// Name of this process when it is started to soak.
pub(crate) const ROLE: &str = "soak";
/// Labels per second of virtual time.
const RATE: u32 = 200;
/// Requests in flight on each endpoint: their labels come that much later.
const IN_FLIGHT: usize = 8;
/// Labels between two publications.
const PUBLISH_EVERY: usize = 500;
/// Of so many labels, one is of a model whose name a caller has made up, of so many names.
const MADE_UP: (u32, u32) = (500, 10_000);

/// Tenants, more than are told apart.
const TENANTS: u32 = 5_000;

/// How large a fleet, and for how long.
#[derive(Clone, Copy, Debug)]
struct Size {
    endpoints: usize,
    models: usize,
    classes: usize,
    labels: usize,
    /// Fits run, evenly over the first part of the labels.
    fits: usize,
    /// That part.
    fitting: f64,
}

/// The fleet that the target is about.
const FULL: Size = Size {
    endpoints: 1_000,
    models: 20,
    classes: 10,
    labels: 2_000_000,
    fits: 1_500,
    fitting: 1.0,
};
/// One that is done in less than a minute.
const QUICK: Size =
    Size { endpoints: 200, models: 4, classes: 10, labels: 300_000, fits: 90, fitting: 0.5 };
/// One that only shows that this works.
const TINY: Size =
    Size { endpoints: 20, models: 2, classes: 2, labels: 3_000, fits: 3, fitting: 0.5 };

/// Whether the whole of it is asked for.
fn is_full() -> bool {
    std::env::args().any(|argument| argument == "--full")
}

/// Soaks in a process of its own, so that what was measured before does not count.
pub(crate) fn in_child() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let flags = std::env::args().skip(1).filter(|argument| argument.starts_with("--"));
    let ended = command.args(["--as", ROLE]).args(flags).status().unwrap();
    assert!(ended.success(), "the soak failed");
}

/// Soaks here.
pub(crate) fn run() {
    let size = match (is_short(), is_full()) {
        (true, _) => TINY,
        (false, true) => FULL,
        (false, false) => QUICK,
    };
    let Size { endpoints, models, classes, labels, fits, .. } = size;
    let hours = f64::from(labels as u32) / f64::from(RATE) / 3_600.0;
    println!(
        "    {endpoints} endpoints that each serve {models} models, {classes} accelerators, {labels} labels \
         ({hours:.1} h at {RATE} a second), {fits} fits"
    );
    let mut soak = Soak::new(size);
    let mut resident = Vec::new();
    println!("    {:.0} MB before the first label", resident_mb(id()));
    for tenth in 1..=10 {
        for _ in 0..labels / 10 {
            soak.label();
        }
        resident.push(resident_mb(id()));
        println!(
            "    {:3} %: {:.1} MB resident, {}",
            tenth * 10,
            resident[tenth - 1],
            soak.state()
        );
    }
    let growth = 100.0 * (resident[9] / resident[4] - 1.0);
    println!("    the second half added {growth:+.1} %");
    println!("    {} endpoints are remembered, {endpoints} are there", soak.remembered());
}

/// An endpoint as it is now.
#[derive(Clone, Copy, Debug)]
struct Placed {
    slot: u32,
    class: usize,
}

struct Soak {
    size: Size,
    rng: SmallRng,
    learner: Learner,
    models: Models,
    names: Vec<Arc<str>>,
    accelerators: Vec<Accelerator>,
    endpoints: Vec<Placed>,
    next_slot: u32,
    in_flight: VecDeque<(Ticket, Outcome)>,
    learned: usize,
    fitted: usize,
    gone: usize,
}

impl Soak {
    fn new(size: Size) -> Self {
        let placed = |at: usize| Placed { slot: at as u32, class: at % size.classes };
        Self {
            size,
            rng: SmallRng::seed_from_u64(1),
            learner: Learner::new(&Options::default()).unwrap(),
            models: Models::default(),
            names: (0..size.models).map(|at| format!("model-{at}").into()).collect(),
            accelerators: (0..size.classes)
                .map(|at| Accelerator::new(&format!("accelerator-{at}")))
                .collect(),
            endpoints: (0..size.endpoints).map(placed).collect(),
            next_slot: size.endpoints as u32,
            in_flight: VecDeque::new(),
            learned: 0,
            fitted: 0,
            gone: 0,
        }
    }

    /// Decides one request, and learns what came of the oldest in flight.
    fn label(&mut self) {
        let decided = self.decide();
        self.in_flight.push_back(decided);
        if self.in_flight.len() <= self.size.endpoints * IN_FLIGHT {
            self.learned += 1;
            return;
        }
        let (ticket, outcome) = self.in_flight.pop_front().unwrap();
        self.learner.learn(&ticket, &outcome);
        self.learned += 1;
        self.fit();
        if self.learned.is_multiple_of(PUBLISH_EVERY) {
            self.models = self.learner.publish();
        }
        // Every endpoint is replaced twice.
        if self.learned.is_multiple_of(self.size.labels.div_ceil(2 * self.size.endpoints)) {
            self.replace();
        }
    }

    /// Fits as many as are to be fitted by now, one at a time as a router does.
    fn fit(&mut self) {
        let part = self.size.labels as f64 * self.size.fitting;
        let by_now = (self.size.fits as f64 * self.learned as f64 / part) as usize;
        while self.fitted < by_now.min(self.size.fits) {
            let Some(refit) = self.learner.take_refits(1).pop() else { return };
            self.learner.install(refit.run());
            self.fitted += 1;
        }
    }

    /// One endpoint goes, with requests in flight, and another comes.
    fn replace(&mut self) {
        let at = self.gone % self.endpoints.len();
        self.endpoints[at].slot = self.next_slot;
        let live = self.endpoints.iter().map(|endpoint| endpoint.slot).collect();
        self.learner.keep_only(&live);
        self.next_slot += 1;
        self.gone += 1;
    }

    fn decide(&mut self) -> (Ticket, Outcome) {
        let rng = &mut self.rng;
        let endpoint = self.endpoints[rng.random_range(0..self.endpoints.len())];
        let (of, names) = MADE_UP;
        let model: Arc<str> = if rng.random_range(0..of) == 0 {
            format!("made-up-{}", rng.random_range(0..names)).into()
        } else {
            Arc::clone(&self.names[rng.random_range(0..self.names.len())])
        };
        let accelerator = self.accelerators[endpoint.class].clone();
        let row = row(rng);
        let speed = 1.0 + endpoint.class as f32 / 4.0;
        let outcome = outcome(rng, &row, speed);
        let known = self.models.of(&model);
        let (role, slot) = (Role::Both, endpoint.slot);
        let ticket = Ticket {
            scope: Some(format!("tenant-{}", rng.random_range(0..TENANTS)).into()),
            slot,
            row,
            prediction: known.predict(&accelerator, role, slot, &row),
            forecasts: known.forecasts(&accelerator, role, slot, &row).map(Box::new),
            class: ClassKey { model, accelerator, role },
        };
        (ticket, outcome)
    }

    /// Endpoints of which the learner keeps something.
    fn remembered(&self) -> usize {
        let slots = RefCell::new(BTreeSet::new());
        let asked = |slot| {
            slots.borrow_mut().insert(slot);
            None
        };
        self.learner.save(&asked).unwrap();
        slots.into_inner().len()
    }

    fn state(&self) -> String {
        let hours =
            Duration::from_secs((self.learned as u64) / u64::from(RATE)).as_secs_f64() / 3_600.0;
        format!(
            "{hours:.1} h, {} classes, {} fits run, {} endpoints replaced",
            self.learner.errors().len(),
            self.fitted,
            self.gone
        )
    }
}

/// A row of a random load: idle, loaded and queued equally often.
fn row(rng: &mut SmallRng) -> FeatureRow {
    let regime = rng.random_range(0..3);
    let uncached = rng.random_range(30.0..6_000.0_f32);
    let decoding = if regime == 0 { 0.0 } else { rng.random_range(1.0..60.0_f32).floor() };
    let ahead = if regime == 2 { rng.random_range(1.0..6.0_f32).floor() } else { 0.0 };
    let values: [f32; WIDTH] = std::array::from_fn(|_| rng.random_range(0.0..100.0));
    FeatureRow::from(values)
        .with(Column::Prompt, uncached * 1.5)
        .with(Column::Uncached, uncached)
        .with(Column::UncachedPairs, uncached * uncached / 1e6)
        .with(Column::Decoding, decoding)
        .with(Column::DecodeTokens, decoding * rng.random_range(200.0..900.0))
        .with(Column::AheadRequests, ahead)
        .with(Column::AheadTokens, ahead * rng.random_range(100.0..2_000.0))
        .with(Column::AheadPairs, ahead)
}

/// What an engine `speed` times as slow as the fastest does with it.
fn outcome(rng: &mut SmallRng, row: &FeatureRow, speed: f32) -> Outcome {
    let at = |column| row.get(column);
    let tokens = at(Column::Uncached) + at(Column::AheadTokens);
    let step = 6.0 + 0.1 * at(Column::Decoding) + at(Column::DecodeTokens) / 20_000.0;
    let mut noisy = |ms: f32| speed * ms * rng.random_range(0.85..1.2_f32);
    let ttft_ms = noisy(step + tokens / 30.0 + at(Column::UncachedPairs));
    let itl_ms = noisy(step);
    let output_tokens = rng.random_range(20..400_u32);
    let seen = Outcome {
        output_tokens: Some(output_tokens),
        prompt: Some((at(Column::Prompt) as u32 * 4, at(Column::Prompt) as u32)),
        ..Outcome::default()
    };
    // One answer in ten comes in one piece.
    if rng.random_range(0..10) == 0 {
        let ms = ttft_ms + itl_ms * output_tokens as f32;
        return Outcome { e2e: Some(Whole { ms, output_tokens }), ..seen };
    }
    Outcome { ttft_ms: Some(ttft_ms), itl_ms: Some(itl_ms), ..seen }
}
