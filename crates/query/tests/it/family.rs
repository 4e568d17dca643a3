//! Rows of a family when nobody looked at one of its streams while others were looked at.

use barograph_model::{Kind, Quality, Sample, ValueType};

use crate::demo::{Demo, S, START_NS, descriptor};
use crate::{answer, open};

#[test]
fn a_value_is_not_held_past_its_last_look() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let mut stream = |name: &str, samples: &[(i64, i64, Quality)]| {
        let labels = &[("device", "vda")];
        demo.add(&descriptor(name, labels, ValueType::Int, Kind::Gauge), []);
        for &(seconds, value, quality) in samples {
            let sample = Sample {
                quality,
                ..Sample::measured(START_NS + seconds * S, value)
            };
            demo.writers.last_mut().unwrap().append(&sample).unwrap();
        }
    };
    let (is, ended) = (Quality::Measured, Quality::Ended);
    // Nobody looks at the queue between 2 s and 5 s, or after 6 s.
    stream(
        "disk.queue.count",
        &[(0, 7, is), (2, 7, ended), (5, 8, is), (6, 8, ended)],
    );
    let steady: Vec<_> = (0..8).map(|second| (second, second, is)).collect();
    stream("disk.busy.count", &steady);
    let mut database = open(dir.path());
    let rows = |from: i64| {
        format!(
            "SELECT (ts - {START_NS}) / {S}, queue_count, busy_count \
             FROM family('disk', {START_NS} + {from} * {S})"
        )
    };
    let all = [
        "0|7|0", "1|7|1", "2|7|2", "3|NULL|3", "4|NULL|4", "5|8|5", "6|8|6", "7|NULL|7",
    ];
    assert_eq!(answer(&mut database, &rows(0)), all);
    // The value that held before the first row is looked up; it does not hold at 4 s any longer.
    for from in [1, 3, 4, 6, 7] {
        let expect = &all[from..];
        assert_eq!(answer(&mut database, &rows(from as i64)), expect, "{from}");
    }
}

/// The same in steps: a stream that is looked at has a bucket in each of them, others are known up
/// to their end.
#[test]
fn a_bucket_is_not_held_where_nobody_looked() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::empty(dir.path());
    let mut stream = |name: &str, seconds: &[i64], ended: i64| {
        let labels = &[("device", "vda")];
        demo.add(&descriptor(name, labels, ValueType::Int, Kind::Gauge), []);
        for &second in seconds {
            // The last look at a stream repeats the sample before it.
            let (quality, value) = match second == ended {
                true => (Quality::Ended, second - 1),
                false => (Quality::Measured, second),
            };
            let sample = Sample {
                quality,
                ..Sample::measured(START_NS + second * S, value)
            };
            demo.writers.last_mut().unwrap().append(&sample).unwrap();
        }
        if name != "disk.put.count" {
            demo.segment
                .expect_interval(demo.writers.last().unwrap(), S);
        }
    };
    let steady: Vec<_> = (0..60).collect();
    stream("disk.busy.count", &steady, -1);
    let mut queue: Vec<_> = (0..60).collect();
    queue.retain(|second| !(16..42).contains(second));
    stream("disk.queue.count", &queue, 15);
    // A value that a program puts is not looked at: it holds.
    stream("disk.put.count", &[5, 45], -1);
    let mut database = open(dir.path());
    let rows = format!(
        "SELECT (ts - {START_NS}) / {S} AS s, busy_count, queue_count, put_count \
         FROM family('disk', {START_NS}, NULL, '10s')"
    );
    assert_eq!(
        answer(&mut database, &rows),
        [
            "0|9|9|5",
            "10|19|14|5",
            "20|29|NULL|5",
            "30|39|NULL|5",
            "40|49|49|45",
            "50|59|59|45",
        ]
    );
}
