//! Tests of server-sent events: the content for a watcher, and what happens to one that is too
//! slow.

use barograph_model::{Sample, Value, ValueType};
use serde_json::{Value as Json, json};

use crate::fixture::{Fixture, S, T0, descriptor, segment, until};

/// The next tick with any content.
fn news(events: &mut crate::client::Events) -> Json {
    loop {
        let tick = events.next_named("tick").data;
        if tick != json!({ "ts": tick["ts"], "samples": [], "looked": [] }) {
            return tick;
        }
    }
}

#[test]
fn ticks_tell_only_what_changed() {
    let mut fixture = Fixture::new();
    let mut bytes = fixture.register(&descriptor("disk.read.bytes", "vda", ValueType::Int));
    let mut ratio = fixture.register(&descriptor("disk.busy.ratio", "vda", ValueType::Float));
    let _other = fixture.register(&descriptor("memory.free", "x", ValueType::Int));
    bytes.look(&Sample::measured(T0, 1)).unwrap();
    bytes.look(&Sample::measured(T0 + 1, 2)).unwrap();
    let mut events = fixture.watch("match=disk.*&match=no.such&every_ms=50");

    let streams = events.next().unwrap();
    assert_eq!(streams.name, "streams");
    assert_eq!(
        streams.id,
        fixture.segment.reader().unwrap().incarnation().to_string()
    );
    let listed = fixture.get("/api/v1/streams?match=disk.*");
    for (index, mut expect) in listed.as_array().unwrap().clone().into_iter().enumerate() {
        expect["index"] = index.into();
        assert_eq!(streams.data[index], expect);
    }
    assert_eq!(streams.data.as_array().unwrap().len(), 2);

    let first = events.next().unwrap();
    assert_eq!(
        (first.name.as_str(), first.data),
        (
            "tick",
            json!({
                "ts": T0, "samples": [[1, T0 + 1, 2, "measured", 0.0]], "looked": [[1, T0 + 1]],
            })
        ),
        "the newest of each stream to begin with"
    );
    assert_eq!(
        events.next().unwrap().data,
        json!({ "ts": T0, "samples": [], "looked": [] })
    );

    bytes.look(&Sample::measured(T0 + 2, 2)).unwrap();
    assert_eq!(
        news(&mut events),
        json!({ "ts": T0, "samples": [], "looked": [[1, T0 + 2]] })
    );
    let guess = Sample {
        error: 0.25,
        ..Sample::derived(T0 + 3, 0.5)
    };
    ratio.look(&guess).unwrap();
    assert_eq!(
        news(&mut events),
        json!({
            "ts": T0, "samples": [[0, T0 + 3, 0.5, "derived", 0.25]], "looked": [[0, T0 + 3]],
        })
    );
    fixture.segment.expect_interval(&ratio, 2 * S);
    assert_eq!(news(&mut events)["intervals"], json!([[0, 2 * S]]));
}

#[test]
fn a_change_of_the_list_is_told_and_nothing_is_missed() {
    let mut fixture = Fixture::new();
    let mut kept = fixture.register(&descriptor("b.count", "x", ValueType::Int));
    kept.look(&Sample::measured(T0, 1)).unwrap();
    let mut events = fixture.watch("match=*.count&every_ms=50");
    assert_eq!(events.next().unwrap().name, "streams");
    assert_eq!(
        news(&mut events)["samples"],
        json!([[0, T0, 1, "measured", 0.0]])
    );

    let mut come = fixture.register(&descriptor("a.count", "x", ValueType::Int));
    let streams = events.next_named("streams").data;
    assert_eq!(
        (&streams[0]["name"], &streams[1]["name"]),
        (&json!("a.count"), &json!("b.count"))
    );
    for ts in [T0 + 1, T0 + 2] {
        come.look(&Sample::measured(ts, ts)).unwrap();
    }
    kept.look(&Sample::measured(T0 + 3, 2)).unwrap();
    let mut told = Vec::new();
    while told.len() < 3 {
        let tick = news(&mut events);
        told.extend(
            tick["samples"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| (s[0].clone(), s[1].clone())),
        );
    }
    told.sort_by_key(|(_, ts)| ts.as_i64());
    assert_eq!(
        json!(told),
        json!([[0, T0 + 1], [0, T0 + 2], [1, T0 + 3]]),
        "b is not told its old sample again"
    );

    fixture.segment.retire(kept);
    assert_eq!(
        events.next_named("streams").data.as_array().unwrap().len(),
        1
    );
    // A change that does not concern this watcher is not sent: the next list is the one with c.
    let _other = fixture.register(&descriptor("unrelated.bytes", "x", ValueType::Int));
    let _third = fixture.register(&descriptor("c.count", "x", ValueType::Int));
    assert_eq!(events.next_named("streams").data[1]["name"], "c.count");
}

#[test]
fn too_many_samples_are_thinned_and_counted() {
    let mut fixture = Fixture::new();
    let mut writer = fixture
        .segment
        .register(&descriptor("a.count", "x", ValueType::Int), Some(2048), T0)
        .unwrap();
    let mut events = fixture.watch("every_ms=1000");
    events.next_named("streams");
    events.next_named("tick");
    for i in 1..=1000 {
        writer.append(&Sample::measured(T0 + i, i)).unwrap();
    }
    let (mut lost, mut told) = (0, Vec::new());
    while told.last() != Some(&1000) {
        let tick = news(&mut events);
        lost += tick["lost"][0][1].as_u64().unwrap_or(0);
        told.extend(
            tick["samples"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s[2].as_i64().unwrap()),
        );
    }
    assert_eq!(lost as usize + told.len(), 1000);
    assert!(
        lost > 0 && told.len() >= 256,
        "{lost} lost, {} told",
        told.len()
    );
}

#[test]
fn a_stopped_agent_is_told_once_and_its_return_is_seen() {
    let fixture = Fixture::new();
    let mut events = fixture.watch("every_ms=50");
    assert_eq!(events.next().unwrap().name, "streams");
    fixture.clock.advance(6 * S);
    assert_eq!(events.next_named("stale").data, json!({ "since": T0 }));
    fixture.segment.heartbeat(T0 + 6 * S);
    let next = events.next().unwrap();
    assert_eq!(
        (next.name.as_str(), &next.data["ts"]),
        ("tick", &json!(T0 + 6 * S))
    );
}

#[test]
fn a_new_agent_is_followed() {
    let mut fixture = Fixture::new();
    let mut old = fixture.register(&descriptor("a.count", "x", ValueType::Int));
    old.look(&Sample::measured(T0, 1)).unwrap();
    let mut events = fixture.watch("every_ms=50");
    let before = events.next_named("streams");
    fixture.clock.advance(S);
    fixture.segment = segment(&fixture.run_dir);
    let mut new = fixture.register(&descriptor("a.count", "x", ValueType::Int));
    new.look(&Sample::measured(T0 + S, 7)).unwrap();
    let mut lists = Vec::new();
    let told = loop {
        let event = events.next().unwrap();
        match event.name.as_str() {
            "streams" => lists.push(event),
            "tick"
                if event.data["samples"]
                    .as_array()
                    .is_some_and(|s| s.iter().any(|s| s[2] == 7)) =>
            {
                break event;
            }
            _ => {}
        }
    };
    let last = lists.last().expect("the list is told again");
    assert_eq!(last.data[0]["name"], "a.count");
    assert_eq!(
        last.id,
        fixture.segment.reader().unwrap().incarnation().to_string()
    );
    assert_ne!(last.id, before.id);
    assert_eq!(
        told.data["samples"],
        json!([[0, T0 + S, 7, "measured", 0.0]])
    );
}

#[test]
fn a_slow_client_loses_ticks_and_is_told() {
    let mut fixture = Fixture::new();
    let mut writers: Vec<_> = (0..50)
        .map(|i| {
            fixture.register(&descriptor(
                "disk.tier.name",
                &i.to_string(),
                ValueType::Text,
            ))
        })
        .collect();
    let mut events = fixture.watch("every_ms=50");
    let mut round = 0;
    until(|| fixture.server().counts().watchers == 1);
    until(|| {
        round += 1;
        let text = Value::text(&format!("{round} {}", "x".repeat(100)));
        for writer in &mut writers {
            writer
                .look(&Sample {
                    value: text.clone(),
                    ..Sample::measured(T0 + round, 0)
                })
                .unwrap();
        }
        fixture.server().counts().skipped_ticks >= 3
    });
    let mut skipped = 0;
    let mut newest = 0;
    while skipped == 0 || newest < T0 + round {
        let event = events.next().unwrap();
        skipped += event.data["skipped"].as_u64().unwrap_or(0);
        for sample in event.data["samples"].as_array().into_iter().flatten() {
            newest = newest.max(sample[1].as_i64().unwrap());
        }
    }
    assert!(skipped >= 3, "{skipped}");
}

#[test]
fn watchers_are_bounded_and_counted() {
    // One user's share is a quarter of them.
    let fixture = Fixture::with(|limits| limits.watchers_max = 8);
    let first = fixture.watch("every_ms=50");
    let mut second = fixture.watch("every_ms=50");
    fixture
        .ask("GET /api/v1/watch", &[], b"")
        .expect_fault(503, "busy", "too many watchers");
    assert_eq!(fixture.server().counts().refused_watchers, 1);
    drop(first);
    until(|| fixture.server().counts().watchers == 1);
    let mut third = fixture.watch("every_ms=50");
    assert_eq!(second.next().unwrap().name, "streams");
    assert_eq!(third.next().unwrap().name, "streams");
}

#[test]
fn one_watcher_follows_a_bounded_number_of_streams() {
    let mut fixture = Fixture::with(|limits| limits.watch_streams_max = 2);
    let device = |i: i32| descriptor("a.count", &i.to_string(), ValueType::Int);
    let mut writers: Vec<_> = (0..2).map(|i| fixture.register(&device(i))).collect();
    let mut events = fixture.watch("every_ms=50");
    events.next_named("streams");
    writers.push(fixture.register(&device(2)));
    assert_eq!(news(&mut events)["left_out"], 1);
    fixture
        .ask("GET /api/v1/watch", &[], b"")
        .expect_fault(422, "limit", "3 streams match");
    assert_eq!(
        fixture.ask("GET /api/v1/watch?match=a{b", &[], b"").status,
        400
    );
}

#[test]
fn a_quiet_watch_is_kept_alive() {
    let fixture = Fixture::with(|limits| {
        limits.keep_alive_every = std::time::Duration::from_millis(50);
    });
    let mut events = fixture.watch("every_ms=60000");
    for _ in 0..3 {
        assert_eq!(events.next_comment(), "still here");
    }
}
