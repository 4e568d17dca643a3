//! Tests of events between the steps of the sampling loop, in an agent on virtual time. Nothing
//! here waits.

use super::*;
use crate::refusal::StatementRefusal;
use crate::simulated::{SimulatedAgent, SimulatedNode, memory_dir, virtual_time};

#[test]
fn events_are_applied_between_steps_and_counted() {
    let (dir, clock) = (memory_dir(), virtual_time());
    let node = SimulatedNode::new("n", dir.path(), &clock, 1);
    let mut agent = node.start();
    agent.run(10);
    let both = |agent: &SimulatedAgent<'_>| {
        let value = |name: &str| agent.value(name).unwrap();
        (value("filesystem.free.bytes"), value("twice.bytes"))
    };
    let make = "CREATE INSIGHT twice.bytes AS SELECT 2 * value FROM filesystem_free_bytes";
    agent.execute(make).unwrap();
    let (free, twice) = both(&agent);
    assert!((twice - 2.0 * free).abs() < 1.0);
    let half =
        "CREATE OR REPLACE INSIGHT twice.bytes AS SELECT value / 2 FROM filesystem_free_bytes";
    let made = agent.execute(half).unwrap();
    assert_eq!(made["name"], "twice.bytes");
    let (free, twice) = both(&agent);
    assert!((twice - free / 2.0).abs() < 1.0, "before the next step");
    let refused = agent.execute("CREATE INSIGHT a AS SELECT value FROM b_c");
    assert!(refused.unwrap_err().to_string().contains("b_c"));
    let absent = agent.execute("DROP POLICY none");
    assert!(matches!(absent, Err(StatementRefusal::Absent(_))));
    agent.event_loop.apply(Event::Wake);
    assert_eq!(agent.event_loop.event_counts, [1, 4, 0, 0]);
    agent.run(2);
    assert_eq!(agent.value("agent.events.count"), Some(1.0));
    agent.stop();
}

/// A turn that is late does not move the turns after it.
#[test]
fn beats_keep_their_moments() {
    for (now, expect) in [(100, 110), (103, 110), (109, 110), (110, 120), (137, 140)] {
        assert_eq!(next_after(now, 100, 10), expect, "{now}");
    }
}
