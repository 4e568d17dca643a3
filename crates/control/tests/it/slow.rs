//! A server that is slower than its peers is found, and equal ones are not.

use barograph_control::{ServerSample, SlowConfig, SlowServer, SlowServers};

use crate::random::Random;

const WINDOW_NS: i64 = 1_000_000_000;
const SAMPLES: i64 = 16;

/// A time with a long tail: one of ten takes ten times as long.
fn service_s(random: &mut Random, load: u64) -> f64 {
    let tail = if random.unit() < 0.1 { 10.0 } else { 1.0 };
    load as f64 * 1e-9 * (0.5 + random.unit()) * tail
}

/// Windows in which servers serve requests; server 0 takes `factor` times as long from window
/// `from` on. Returns what was found, with the number of the window.
fn run(
    servers: u64,
    windows: i64,
    (factor, from): (f64, i64),
    seed: u64,
) -> Vec<(i64, SlowServer)> {
    let mut random = Random(seed);
    let mut detector = SlowServers::new(SlowConfig::default());
    let mut found = Vec::new();
    for window in 0..windows {
        for sample in 0..SAMPLES {
            for server in 0..servers {
                // Server 1 has larger requests than the others, and so slower ones.
                let load = if server == 1 && sample % 2 == 0 {
                    64 << 20
                } else {
                    1 << 20
                };
                let is_slow = server == 0 && window >= from;
                let slower = if is_slow { factor } else { 1.0 };
                let ts_ns = window * WINDOW_NS + sample * (WINDOW_NS / SAMPLES);
                let service_s = service_s(&mut random, load) * slower;
                let sample = ServerSample {
                    server,
                    ts_ns,
                    load,
                    service_s,
                };
                let slow = detector.observe(&sample);
                found.extend(slow.map(|slow| (window - 1, slow)));
            }
        }
    }
    found
}

#[test]
fn a_slow_server_is_found_soon_after_it_became_slow() {
    for (servers, windows_max) in [(4, 14), (8, 10), (16, 8)] {
        for seed in 0..20 {
            let found = run(servers, 60, (3.0, 20), seed);
            let (window, first) = found[0];
            assert_eq!(first.server, 0, "seed {seed}: {first:?}");
            assert!(
                (20..20 + windows_max).contains(&window),
                "seed {seed}: {window}"
            );
            assert!((1.5..5.0).contains(&first.ratio), "seed {seed}: {first:?}");
            assert!(first.false_alarms <= 1e-4, "seed {seed}: {first:?}");
            assert!(found.iter().all(|(_, slow)| slow.server == 0));
        }
    }
}

#[test]
fn a_server_that_was_away_is_judged_anew() {
    let mut detector = SlowServers::new(SlowConfig::default());
    let mut found = Vec::new();
    let mut window = 0;
    let mut serve = |detector: &mut SlowServers, factor: f64, windows: i64| {
        let mut found = None;
        for _ in 0..windows {
            for sample in 0..SAMPLES {
                for server in 0..4 {
                    let slower = if server == 0 { factor } else { 1.0 };
                    // The last of equal ones is the slowest, so server 0 is not by chance.
                    let service_s = (1.0 + 0.01 * server as f64) * slower;
                    let slow = detector.observe(&ServerSample {
                        server,
                        ts_ns: window * WINDOW_NS + sample * (WINDOW_NS / SAMPLES),
                        load: 1,
                        service_s,
                    });
                    found = found.or(slow);
                }
            }
            window += 1;
        }
        found
    };
    found.extend(serve(&mut detector, 4.0, 12));
    assert_eq!(found[0].server, 0);
    let mut forgetful = detector.clone();
    forgetful.forget(0);
    // It is the slowest by chance, of almost equal ones.
    assert!(serve(&mut forgetful, 1.05, 2).is_none());
    assert!(serve(&mut detector, 1.05, 2).is_some(), "it is remembered");
    assert_eq!(
        serve(&mut forgetful, 4.0, 12).unwrap().server,
        0,
        "it is slow again"
    );
}

#[test]
fn equal_servers_are_not_called_slow_more_often_than_stated() {
    // Without a least ratio, so that chance alone decides.
    let mut alarms = 0;
    let mut windows = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut detector = SlowServers::new(SlowConfig {
            ratio_min: 0.0,
            false_alarms_max: 0.01,
            ..SlowConfig::default()
        });
        let mut was_alarm = false;
        for window in 0..500 {
            for sample in 0..SAMPLES {
                for server in 0..4 {
                    let sample = ServerSample {
                        server,
                        ts_ns: window * WINDOW_NS + sample * (WINDOW_NS / SAMPLES),
                        load: 1 << 20,
                        service_s: service_s(&mut random, 1 << 20),
                    };
                    let is_first = sample.ts_ns == window * WINDOW_NS && server == 0;
                    let is_alarm = detector.observe(&sample).is_some();
                    if is_first {
                        alarms += u32::from(is_alarm && !was_alarm);
                        was_alarm = is_alarm;
                        windows += 1;
                    }
                }
            }
        }
    }
    let share = f64::from(alarms) / f64::from(windows);
    assert!(alarms > 0 && share <= 0.01, "{alarms} of {windows}");
}

#[test]
fn equal_servers_with_the_usual_settings_are_never_called_slow() {
    for seed in 0..20 {
        assert_eq!(run(8, 400, (1.0, 0), seed), []);
    }
}

#[test]
fn a_server_that_is_slow_for_a_window_and_one_with_larger_requests_are_not_slow() {
    let mut detector = SlowServers::new(SlowConfig::default());
    let mut random = Random(1);
    for window in 0..100 {
        for sample in 0..SAMPLES {
            for server in 0..6 {
                // The slow one is another in each window.
                let slower = if window % 6 == server { 5.0 } else { 1.0 };
                let load = if server == 3 { 200 << 20 } else { 1 << 20 };
                let sample = ServerSample {
                    server: server as u64,
                    ts_ns: window * WINDOW_NS + sample * (WINDOW_NS / SAMPLES),
                    load,
                    service_s: service_s(&mut random, load) * slower,
                };
                assert_eq!(detector.observe(&sample), None);
            }
        }
    }
}

#[test]
fn absurd_samples_are_left_out_and_counted() {
    let mut detector = SlowServers::new(SlowConfig::default());
    let sample = ServerSample {
        server: 1,
        ts_ns: i64::MAX,
        load: 0,
        service_s: 1.0,
    };
    for service_s in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        assert_eq!(
            detector.observe(&ServerSample {
                service_s,
                ..sample
            }),
            None
        );
    }
    assert_eq!(detector.left_out(), 4);
    let mut detector = SlowServers::new(SlowConfig::default());
    for server in 0..10_000 {
        let ts_ns = 0;
        detector.observe(&ServerSample {
            server,
            ts_ns,
            ..sample
        });
    }
    assert!(detector.left_out() > 5_000);
    assert_eq!(detector.advance(i64::MIN), None);
}
