//! Test of an agent that samples on while other users send expensive requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use barograph_agent::Agent;
use barograph_testing::wait_until;

use crate::{config, latest, observer, post};

/// Polls that must be made beside the expensive requests.
const LOOKS: f64 = 40.0;

/// Returns an expensive statement: a cross join of the fixture's streams with as many sums as are
/// allowed.
fn hostile() -> String {
    let sums: Vec<String> = (0..40).map(|n| format!("sum(a.value+{n})")).collect();
    format!(
        "SELECT {} AS value FROM source_polls_count a CROSS JOIN source_polls_count b \
         CROSS JOIN source_polls_count c",
        sums.join("+")
    )
}

#[test]
fn tests_of_insights_stop_no_sampling() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let observer = observer(dir.path());
    let polls = || -> f64 {
        let values = latest(&observer, "source.polls.count");
        let numbers = values
            .iter()
            .filter_map(|v| v.sample.as_ref()?.value.as_f64());
        numbers.sum()
    };
    let (over, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let askers: Vec<_> = (0..2)
        .map(|_| {
            let (over, asked) = (Arc::clone(&over), Arc::clone(&asked));
            let folder = dir.path().to_owned();
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let answer = post(&folder, "/api/v1/insights/test", &hostile());
                    assert!(!answer.contains("did not answer in time"), "{answer}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let before = polls();
    // Both go on: the clients get answers, and the sources are polled.
    wait_until("polls and answers", || {
        polls() >= before + LOOKS && asked.load(Ordering::Relaxed) >= 4
    });
    over.store(true, Ordering::Relaxed);
    for asker in askers {
        asker.join().unwrap();
    }
    let one = post(
        dir.path(),
        "/api/v1/insights/test",
        "SELECT sum(value) AS value FROM source_polls_count",
    );
    assert!(one.contains("\"rows\":[{\"value\":"), "{one}");
}
