//! A whole agent beside control groups that write checkpoints: the schedules that it finds, and the
//! bandwidth that it forecasts.

use barograph_model::{Projection, Value};
use barograph_stream::{INTERFERENCE_DOCUMENT, InterferenceRow};

use super::*;

/// Runs an agent for an hour, and returns its rows and the newest samples of its streams.
fn hour(seed: u64) -> (Vec<InterferenceRow>, Option<f64>, Vec<f64>) {
    let (dir, clock) = (memory_dir(), virtual_time());
    let mut node = SimulatedNode::new("n", dir.path(), &clock, seed);
    node.has_writers = true;
    let mut agent = node.start();
    agent.run(3_606);
    let run_dir = RunDir::new(&node.config.run_dir);
    let bytes = run_dir.document(INTERFERENCE_DOCUMENT).unwrap().unwrap();
    let rows = serde_json::from_slice(&bytes).unwrap();
    let value = agent.value("disk.bandwidth.available");
    let floats = agent.floats("forecast.disk.bandwidth.available").unwrap();
    agent.stop();
    (rows, value, floats)
}

#[test]
fn checkpoints_are_found_and_the_bandwidth_beside_them_is_forecast() {
    let (rows, value, floats) = hour(1);
    let periods: Vec<_> = rows[1..]
        .iter()
        .map(|row| {
            let period_s = row
                .period_ns
                .map(|ns| (ns as f64 / NS_PER_S as f64).round());
            (row.writer.as_deref().unwrap(), period_s)
        })
        .collect();
    let expect = [
        ("/backup", Some(450.0)),
        ("/log", None),
        ("/simulation", Some(200.0)),
        ("/training", Some(330.0)),
    ];
    assert_eq!(periods, expect);
    let device = &rows[0];
    assert_eq!(device.device, "vda");
    assert_eq!(device.capacity_source.as_deref(), Some("told"));
    assert!(
        device.reason.contains("3 of 4 writers are periodic"),
        "{}",
        device.reason
    );
    assert_eq!(device.steps.len(), 30);
    let (of_row, of_stream) = (device.bandwidth.unwrap(), value.unwrap());
    assert!((of_row - of_stream).abs() < 1.0, "{of_row} {of_stream}");
    let projection = Projection::from_floats(&floats).unwrap();
    let known: Vec<(f64, f64)> = projection
        .knots()
        .iter()
        .map(|knot| (knot.value, knot.half_width))
        .collect();
    let said = device.steps.iter().map(|step| (step.bandwidth, step.error));
    assert_eq!(known, said.collect::<Vec<_>>());
    assert!(known.iter().all(|(value, half_width)| {
        (0.0..=1.6e8).contains(value) && (0.0..=1.6e8).contains(half_width)
    }));
    let schedules = device
        .steps
        .iter()
        .filter(|step| step.follows == "schedules");
    assert!(schedules.count() > 0, "{}", device.reason);
}

#[test]
fn two_hours_with_the_same_seed_are_the_same() {
    assert_eq!(hour(2), hour(2));
}

#[test]
fn without_groups_nothing_is_said() {
    let (dir, clock) = (memory_dir(), virtual_time());
    let node = SimulatedNode::new("n", dir.path(), &clock, 1);
    let mut agent = node.start();
    agent.run(200);
    assert_eq!(agent.value("disk.bandwidth.available"), None);
    let run_dir = RunDir::new(&node.config.run_dir);
    let bytes = run_dir.document(INTERFERENCE_DOCUMENT).unwrap().unwrap();
    assert_eq!(bytes, b"[]");
    agent.stop();
}

impl SimulatedAgent<'_> {
    /// The newest array of the stream of this name.
    fn floats(&self, name: &str) -> Option<Vec<f64>> {
        let directory = self.reader.directory();
        let mut entries = directory.entries.iter();
        let entry = entries.find(|entry| entry.descriptor.name.as_str() == name)?;
        match self.reader.stream(entry).latest() {
            LatestSample::Sample { sample, .. } => match sample.value {
                Value::Floats(floats) => Some(floats.to_vec()),
                _ => None,
            },
            _ => None,
        }
    }
}
