//! Prints what the turns came to.

#![expect(clippy::print_stdout, reason = "the result is what this is for")]

use benches::Figures;

use crate::generator::Answer;

/// What one proxy did in one turn.
pub(crate) struct Turn {
    cpu_ms: f64,
    per_second: f64,
    reads: f64,
    pub(crate) first_ms: Figures,
    pub(crate) whole_ms: Figures,
}

impl Turn {
    /// A turn that gave `answers`, took `wall_s` seconds and `cpu_s` seconds of the proxy's CPU.
    pub(crate) fn of(answers: &[Answer], cpu_s: f64, wall_s: f64) -> Self {
        let count = answers.len() as f64;
        Self {
            cpu_ms: cpu_s * 1e3 / count,
            per_second: count / wall_s,
            reads: answers.iter().map(|answer| f64::from(answer.reads)).sum::<f64>() / count,
            first_ms: Figures::new(answers.iter().map(|answer| answer.first_ms), 2),
            whole_ms: Figures::new(answers.iter().map(|answer| answer.whole_ms), 2),
        }
    }
}

impl Turn {
    fn cpu_us_per_read(&self) -> f64 {
        self.cpu_ms * 1e3 / self.reads
    }
}

type Turns<'a> = (&'a str, Vec<Turn>);

/// Prints CPU per `what` of each proxy, and that of the first over each other's, pair by pair.
pub(crate) fn print_cpu(what: &str, all: &[Turns<'_>]) {
    for (name, turns) in all {
        let cpu = over(turns, |turn| turn.cpu_ms, 4);
        let rate = over(turns, |turn| turn.per_second, 0);
        println!("  {name}: {cpu} ms of CPU per {what}; {rate} a second");
    }
    print_ratios(all, |turn| turn.cpu_ms);
}

/// Prints CPU per message that reached the caller: a proxy that puts chunks together sends fewer.
pub(crate) fn print_messages(all: &[Turns<'_>]) {
    for (name, turns) in all {
        let cpu = over(turns, Turn::cpu_us_per_read, 1);
        let reads = over(turns, |turn| turn.reads, 0);
        println!("  {name}: {reads} messages per stream, {cpu} us of CPU each");
    }
    print_ratios(all, Turn::cpu_us_per_read);
}

fn print_ratios(all: &[Turns<'_>], of: impl Fn(&Turn) -> f64) {
    let Some(((ours, mine), others)) = all.split_first() else { return };
    for (name, turns) in others {
        let pairs = mine.iter().zip(turns);
        let ratio = Figures::new(pairs.map(|(a, b)| of(a) / of(b).max(1e-9)), 2);
        println!("  {ours} / {name}: {ratio} over {} pairs", mine.len());
    }
}

/// Prints how much later than without a proxy, in the same round of turns, the median is that `of`
/// gives. The first of `all` is the one without.
pub(crate) fn print_later(of: impl Fn(&Turn) -> &Figures, all: &[Turns<'_>]) {
    let Some(((name, direct), proxies)) = all.split_first() else { return };
    println!("  {name}: p50 {} ms", over(direct, |turn| of(turn).median(), 3));
    for (name, turns) in proxies {
        let later = turns.iter().zip(direct).map(|(a, b)| of(a).median() - of(b).median());
        let p99 = over(turns, |turn| of(turn).quantile(0.99), 2);
        println!("  {name}: p50 {} ms later; p99 in all {p99} ms", Figures::new(later, 3));
    }
}

fn over(turns: &[Turn], of: impl Fn(&Turn) -> f64, digits: usize) -> Figures {
    Figures::new(turns.iter().map(of), digits)
}
