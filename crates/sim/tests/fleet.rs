//! A fleet in virtual time: what happens to its engines shows in what the router records.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use router::{Recorded, Recorder};
use sim::{Bundled, Change, Member, Options, Profile, Scenario, Trace, TraceOptions, simulate};
use types::{Slo, Time};

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Recorded>>);

impl Recorder for Kept {
    fn record(&self, row: &Recorded) {
        self.0.lock().push(row.clone());
    }
}

#[test]
fn a_slowdown_shows_in_the_rows_from_its_instant_on() {
    let profile = Profile::named("H100", "llama-3.1-8b").unwrap();
    let member = Member {
        name: "a".to_owned(),
        options: Options { slowdown: 1.5, ..Options::new(&profile) },
        profile,
    };
    let trace = Trace::bundled(Bundled::AzureConversation, &TraceOptions::default()).unwrap();
    let kept = Arc::new(Kept::default());
    let change = Duration::from_mins(5);
    let scenario = Scenario {
        router: router::Options::default(),
        slo: Slo::default(),
        scrape_every: Duration::from_millis(50),
        model: "m".to_owned(),
        events: vec![(change, Change::Slowdown { factor: 3.0 })],
        recorder: Some(Arc::clone(&kept) as Arc<dyn Recorder>),
    };
    // So little load that slower steps do not become fuller ones.
    let trace = trace.scaled(0.1).slice(Duration::ZERO, Duration::from_mins(10));
    simulate("slowed", &[member], &trace, &scenario).unwrap();
    let rows = kept.0.lock();
    assert_eq!(rows.len(), trace.arrivals.len());
    let change = Time::ZERO.after(change);
    let median = |late: bool| {
        let mut steps: Vec<_> = rows
            .iter()
            .filter(|row| {
                if late {
                    row.decided_at > change
                } else {
                    row.itl.is_some_and(|itl| itl.at < change)
                }
            })
            .filter_map(|row| row.itl)
            .map(|itl| itl.ms)
            .collect();
        steps.sort_unstable_by(f32::total_cmp);
        steps[steps.len() / 2]
    };
    let factor = median(true) / median(false);
    assert!((2.7..3.4).contains(&factor), "{factor}");
}
