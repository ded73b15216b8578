//! Work that many threads share, with results in the order of the work.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;

/// Told after each piece of work: how many are done, and of how many.
pub type Tick<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Runs `work` for `0..count` on up to `jobs` threads. The first error ends it, once what runs has ended.
pub(super) fn map<T: Send, E: Send>(
    jobs: usize,
    count: usize,
    tick: Tick<'_>,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<Option<Result<T, E>>>> =
        Mutex::new(std::iter::repeat_with(|| None).take(count).collect());
    let serve = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count || failed.load(Ordering::Relaxed) {
                return;
            }
            let result = work(at);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock()[at] = Some(result);
            tick(done.fetch_add(1, Ordering::Relaxed) + 1, count);
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.min(count) {
            scope.spawn(serve);
        }
        serve();
    });
    results.into_inner().into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_work() {
        for jobs in [1, 3, 50] {
            let ticks = AtomicUsize::new(0);
            let tick = |_, count| {
                assert_eq!(count, 20);
                ticks.fetch_add(1, Ordering::Relaxed);
            };
            let squares = map(jobs, 20, &tick, |at| Ok::<_, ()>(at * at)).unwrap();
            assert_eq!(squares, (0..20).map(|at| at * at).collect::<Vec<_>>());
            assert_eq!(ticks.into_inner(), 20);
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let run = |at| if at == 3 { Err(at) } else { Ok(at) };
        assert_eq!(map(2, 1_000, &|_, _| {}, run), Err(3));
    }
}
