//! (c) What fits in the background add to predictions beside them.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use benches::{Figures, is_short, thread_cpu};
use parking_lot::Mutex;
use predict::{Learner, Models, Options};
use regress::Window;
use router::Recorded;
use serde_json::Value;
use types::{Clock, SystemClock};

use crate::rows::{Decision, decisions, outcome, predict_all, ticket};

/// Time between two decisions.
const EVERY: Duration = Duration::from_millis(1);
/// Time for which predictions are measured without fits, each turn.
const WITHOUT: Duration = Duration::from_millis(1_500);
/// Turns: without anything beside, beside a busy thread, and beside fits.
const TURNS: usize = 2;
/// Different decisions.
const DECISIONS: usize = 50;
/// Rows that the learner whose models are installed learns in each turn: enough for fits to be due.
const LEARNED: usize = 5_000;

/// What decisions took, in microseconds.
#[derive(Default)]
struct Taken {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

/// Prints what decisions took with nothing beside, beside a thread that only burns CPU, and beside fits.
pub(crate) fn measure(rows: &[Recorded], mut learner: Learner, options: &Options) {
    let decisions = decisions(rows, DECISIONS);
    let models = ArcSwap::from_pointee(learner.publish());
    let learner = Mutex::new(learner);
    let scale = if is_short() { 40 } else { 1 };
    let (without, turns) = (WITHOUT / scale, if is_short() { 1 } else { TURNS });
    let mut measures: [(&str, Taken); 4] =
        ["nothing beside", "a busy thread", "fits to all rows", "fits installed"]
            .map(|name| (name, Taken::default()));
    let mut costs = Costs::default();
    for turn in 0..turns {
        let taken = [
            beside(&models, &decisions, || thread::sleep(without)),
            beside(&models, &decisions, || burn(without)),
            beside(&models, &decisions, || fit_all(rows, options, &mut costs)),
            beside(&models, &decisions, || {
                let newest = rows.iter().rev().skip(turn * LEARNED).take(LEARNED);
                fit_and_install(&learner, &models, newest, &mut costs);
            }),
        ];
        for ((_, all), taken) in measures.iter_mut().zip(taken) {
            all.cpu.extend(taken.cpu);
            all.wall.extend(taken.wall);
        }
    }
    costs.print(rows.len());
    println!("    beside, decisions: CPU us p50, p99, longest; wall us the same; later than 1 ms");
    for (name, taken) in &measures {
        println!("    {name:18} {}", taken.line());
    }
}

impl Taken {
    fn line(&self) -> String {
        let of = |us: &Vec<f64>| {
            let figures = Figures::new(us.iter().copied(), 0);
            [0.5, 0.99, 1.0].map(|q| figures.quantile(q))
        };
        let (cpu, wall) = (of(&self.cpu), of(&self.wall));
        let late = self.wall.iter().filter(|us| **us > wall[0] + 1_000.0).count();
        let share = 100.0 * late as f64 / self.wall.len() as f64;
        let columns = |[p50, p99, most]: [f64; 3]| format!("{p50:5.0} {p99:5.0} {most:6.0}");
        format!("{:6}; {}; {}; {share:.2} %", self.wall.len(), columns(cpu), columns(wall))
    }
}

/// What the fits themselves cost.
#[derive(Default)]
struct Costs {
    /// Seconds of CPU, by the name of the model.
    fit_s: BTreeMap<String, Vec<f64>>,
    /// Seconds of CPU of every model together, to the rows that a learner keeps.
    kept_s: Vec<f64>,
    /// Microseconds of CPU with the learner locked.
    install_us: Vec<f64>,
}

impl Costs {
    fn print(self, rows: usize) {
        for (name, seconds) in self.fit_s {
            println!("    {name} fitted to {rows} rows: {} s of CPU", Figures::new(seconds, 2));
        }
        if !self.kept_s.is_empty() {
            let kept = Figures::new(self.kept_s, 2);
            println!("    all of them to the rows that a learner keeps: {kept} s of CPU");
            let install = Figures::new(self.install_us, 0);
            println!("    to install and publish those: {install} us of CPU");
        }
    }
}

/// Decides every millisecond for as long as `work` lasts on another thread.
fn beside(models: &ArcSwap<Models>, decisions: &[Decision], work: impl FnOnce() + Send) -> Taken {
    let done = AtomicBool::new(false);
    let clock = SystemClock::start();
    let mut taken = Taken::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            work();
            done.store(true, Ordering::Relaxed);
        });
        let mut due = clock.now();
        for decision in decisions.iter().cycle() {
            if done.load(Ordering::Relaxed) {
                break;
            }
            due = due.after(EVERY).max(clock.now());
            thread::sleep(due.since(clock.now()));
            let (began, cpu) = (clock.now(), thread_cpu());
            black_box(predict_all(&models.load_full(), decision));
            taken.cpu.push((thread_cpu() - cpu) * 1e6);
            taken.wall.push(clock.now().since(began).as_secs_f64() * 1e6);
        }
    });
    taken
}

fn burn(span: Duration) {
    let clock = SystemClock::start();
    let mut number = 1_u64;
    while clock.now().since(types::Time::ZERO) < span {
        for _ in 0..1_000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005) | 1);
        }
    }
}

/// Fits every batch model to all `rows`.
fn fit_all(rows: &[Recorded], options: &Options, costs: &mut Costs) {
    let values: Vec<f32> = rows.iter().flat_map(|row| row.row.as_slice()).copied().collect();
    let labels: Vec<f32> = rows.iter().map(|row| row.ttft.map_or(1.0, |known| known.ms)).collect();
    let weights = vec![1.0; rows.len()];
    let window =
        Window { width: features::WIDTH, rows: &values, labels: &labels, weights: &weights };
    for name in &options.batch {
        let cpu = thread_cpu();
        let fitted = (regress::batch_kind(name).unwrap().fit)(&window, &Value::Null, 1);
        black_box(fitted.unwrap());
        costs.fit_s.entry(name.clone()).or_default().push(thread_cpu() - cpu);
    }
}

/// What the thread of a router does: fits what is due after `rows`, puts it in place and publishes it.
fn fit_and_install<'a>(
    learner: &Mutex<Learner>,
    models: &ArcSwap<Models>,
    rows: impl Iterator<Item = &'a Recorded>,
    costs: &mut Costs,
) {
    for row in rows {
        learner.lock().learn(&ticket(row, &models.load()), &outcome(row));
    }
    let due = learner.lock().take_refits(usize::MAX);
    for refit in due {
        let began = thread_cpu();
        let refitted = refit.run();
        let fitted = thread_cpu();
        let mut held = learner.lock();
        held.install(refitted);
        models.store(Arc::new(held.publish()));
        drop(held);
        costs.kept_s.push(fitted - began);
        costs.install_us.push((thread_cpu() - fitted) * 1e6);
    }
}
