//! The cost of insights, after Apollo's Figure 7: one insight over 640 inputs, and 32 insights in a
//! row. `cargo run --release -p barograph-insight --example insight_cost` prints ns per evaluation.

use std::hint::black_box;
use std::time::Duration;

use barograph_insight::{Graph, GraphLimits};
use barograph_model::{
    Descriptor, Kind, Labels, Name, Sample, Sink, StreamKey, Unit, Value, ValueType,
};

/// A sink that accepts everything and keeps nothing, so that only the graph is measured.
#[derive(Default)]
struct Nowhere(u32);

impl Sink for Nowhere {
    fn declare(&mut self, _: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
        self.0 += 1;
        Some(StreamKey(self.0))
    }
    fn retire(&mut self, _: StreamKey) {}
    fn put(&mut self, _: StreamKey, sample: &Sample) {
        black_box(sample);
    }
    fn expect_interval(&mut self, _: StreamKey, _: i64) {}
}

fn main() {
    const ROUNDS: i64 = 20_000;
    const HOPS: usize = 32;
    let chain: Vec<String> = std::iter::once("CREATE INSIGHT i0 AS SELECT value FROM fact".into())
        .chain(
            (1..HOPS).map(|n| format!("CREATE INSIGHT i{n} AS SELECT value + 1 FROM i{}", n - 1)),
        )
        .collect();
    let over = |function: &str| {
        vec![format!(
            "CREATE INSIGHT o AS SELECT {function}(value) FROM fact"
        )]
    };
    for (what, statements, inputs, real) in [
        ("sum of 640 integers", over("sum"), 640, false),
        ("sum of 640 reals", over("sum"), 640, true),
        ("max of 640 integers", over("max"), 640, false),
        ("32 hops", chain, 1, false),
        ("1 hop", over("sum"), 1, true),
    ] {
        let ns = mean_ns(&statements, inputs, real, ROUNDS);
        println!("{what:24} {ns:8} ns");
    }
}

/// Mean time to give every input a new sample and evaluate.
fn mean_ns(statements: &[String], inputs: u32, real: bool, rounds: i64) -> u128 {
    let mut graph = Graph::new(GraphLimits::default());
    let mut sink = Nowhere::default();
    let number = |v: i64| {
        if real {
            Value::Float(v as f64)
        } else {
            Value::Int(v)
        }
    };
    for key in 0..inputs {
        let descriptor = Descriptor {
            name: Name::new("fact").expect("a good name"),
            labels: Labels::new([("n", key.to_string())]).expect("a good label"),
            value_type: if real {
                ValueType::Float
            } else {
                ValueType::Int
            },
            unit: Unit::new("").expect("a good unit"),
            kind: Kind::Gauge,
            help: String::new(),
        };
        graph.stream_added(StreamKey(key), &descriptor);
    }
    for sql in statements {
        graph.create(sql, false).expect("a good statement");
    }
    let mut round = |ts: i64| {
        for key in 0..inputs {
            graph.sample(
                StreamKey(key),
                &Sample::measured(ts, number(ts + i64::from(key))),
            );
        }
        graph.evaluate(ts, &mut sink);
    };
    (0..100).for_each(&mut round);
    let started = now();
    (100..100 + rounds).for_each(&mut round);
    (now() - started).as_nanos() / rounds as u128
}

/// Reads a clock, which a measurement needs.
fn now() -> Duration {
    #[expect(
        clippy::disallowed_methods,
        reason = "this program measures; the crate reads no clock"
    )]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}
