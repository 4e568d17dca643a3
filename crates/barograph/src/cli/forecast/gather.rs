//! Series for training: streams of this node's past, and columns of traces, in equal steps.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use barograph_client::{History, HistoryRange, Observer, StreamInfo, SystemClock};
use barograph_forecast::delphi::{LEARNED_LEN_MIN, learned_len};
use barograph_forecast::{EqualSteps, Resampling, Shape};
use barograph_lab::{Column, Trace};
use barograph_model::{Clock as _, FORECAST_PREFIX, Kind, NS_PER_S, Selector, Value, ValueType};

use crate::cli::output;

/// Most series that are used for training.
pub(super) const SERIES_MAX: usize = 256;
/// Most samples of one series that are read, the newest.
const SAMPLES_MAX: usize = 1_000_000;
/// Most steps that are kept, over all series.
const STEPS_MAX: usize = 16_000_000;
/// Longest time for which a value holds without a new sample: an unchanged value is appended again
/// every four minutes, unless configured otherwise.
const HOLD_NS: i64 = 300 * NS_PER_S;
/// Number of looks that may be missing without a gap.
const HOLD_STEPS: i64 = 3;

/// A series in equal steps.
pub(super) struct TrainingSeries {
    /// The stream, or file and column.
    pub name: String,
    pub step_ns: i64,
    /// Values, oldest first; NaN where a value is not known.
    pub values: Vec<f64>,
}

/// The series that were found, and the number of those that were left out.
#[derive(Default)]
pub(super) struct Gathered {
    pub series: Vec<TrainingSeries>,
    /// Number of series that are too short for training.
    pub short: usize,
    /// Number of series that never change.
    pub still: usize,
    /// Number of series beyond [`SERIES_MAX`].
    pub beyond: usize,
    /// Whether the agent keeps no archive, so that only its memory was read.
    pub memory_only: bool,
}

/// Prints the progress, for people who wait.
pub(super) fn progress(text: &str) {
    output::progress(text, false);
}

impl Gathered {
    /// Adds a series if it is suitable for training.
    fn add(&mut self, name: String, step_ns: i64, values: Vec<f64>) {
        let learned = &values[..learned_len(values.len())];
        let mut known = learned.iter().copied().filter(|value| value.is_finite());
        if known.clone().count() < LEARNED_LEN_MIN {
            self.short += 1;
            return;
        }
        let first = known.next();
        if known.all(|value| Some(value) == first) {
            self.still += 1;
        } else {
            self.series.push(TrainingSeries {
                name,
                step_ns,
                values,
            });
        }
    }

    /// Adds streams of the node, from its archive and its rings.
    pub(super) fn streams(
        &mut self,
        observer: &Observer,
        from: &[Selector],
        since_ns: i64,
    ) -> anyhow::Result<()> {
        let mut streams: Vec<StreamInfo> = from.iter().flat_map(|s| observer.streams(s)).collect();
        streams.retain(is_number);
        streams.sort_by(|a, b| {
            let key = |stream: &StreamInfo| stream.descriptor.to_string();
            key(a).cmp(&key(b))
        });
        streams.dedup_by(|a, b| a.series == b.series);
        if let ([], [only]) = (&streams[..], from) {
            anyhow::ensure!(
                !observer.streams(only).is_empty(),
                observer.unknown(only).to_string()
            );
        }
        anyhow::ensure!(
            !streams.is_empty(),
            "no stream that --from names has numbers: gauges and counters can be learned"
        );
        self.memory_only = observer.archive_dir().is_none();
        let streams = self.spread(streams);
        progress(&format!("reading {} streams", streams.len()));
        let steps_max = self.steps_max(streams.len());
        let now_ns = SystemClock::new().now_ns();
        let window = HistoryRange {
            start_ns: now_ns.saturating_sub(since_ns),
            samples_max: SAMPLES_MAX.min(steps_max),
            ..HistoryRange::default()
        };
        for stream in &streams {
            let descriptor = &stream.descriptor;
            let mut selector = Selector::parse(descriptor.name.as_str())?;
            for (label, value) in descriptor.labels.iter() {
                selector = selector.with_label(label, value);
            }
            let found = observer.try_history(&selector, &window, &AtomicBool::new(false))?;
            let is_it = |history: &History| history.descriptor.labels == descriptor.labels;
            if let Some(history) = found.into_iter().find(is_it) {
                let (step_ns, values) = steps_of(&history, steps_max);
                self.add(descriptor.to_string(), step_ns, values);
            }
        }
        Ok(())
    }

    /// Adds columns of trace files.
    pub(super) fn traces(&mut self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            let trace = read_trace(path)?;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let columns = self.spread(trace.columns.iter().collect());
            let steps_max = self.steps_max(columns.len());
            for column in &columns {
                let values = steps_of_column(&trace, column, steps_max);
                self.add(format!("{file} {}", column.name), trace.interval_ns, values);
            }
        }
        Ok(())
    }

    /// Most steps for each of `series` further series.
    fn steps_max(&self, series: usize) -> usize {
        let taken: usize = self.series.iter().map(|series| series.values.len()).sum();
        STEPS_MAX.saturating_sub(taken) / series.max(1)
    }

    /// Keeps as many elements as there is room for, spread evenly.
    fn spread<T>(&mut self, mut all: Vec<T>) -> Vec<T> {
        let room = SERIES_MAX.saturating_sub(self.series.len());
        let count = all.len();
        if count <= room {
            return all;
        }
        self.beyond += count - room;
        let mut at = 0;
        all.retain(|_| {
            at += 1;
            // Keeps one element each time its share of the room reaches the next whole number.
            at * room / count > (at - 1) * room / count
        });
        all
    }
}

fn is_number(stream: &StreamInfo) -> bool {
    let descriptor = &stream.descriptor;
    matches!(descriptor.kind, Kind::Gauge | Kind::Counter)
        && matches!(descriptor.value_type, ValueType::Int | ValueType::Float)
        && !descriptor.name.as_str().starts_with(FORECAST_PREFIX)
}

pub(crate) fn read_trace(path: &Path) -> anyhow::Result<Trace> {
    let bytes =
        std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Trace::parse(&name, &bytes).with_context(|| path.display().to_string())
}

/// Converts a history to equal steps: the step in ns, and the values.
fn steps_of(history: &History, steps_max: usize) -> (i64, Vec<f64>) {
    let step_ns = match history.interval_ns {
        0 => median_step(
            history
                .samples
                .windows(2)
                .map(|pair| pair[1].ts.saturating_sub(pair[0].ts)),
        ),
        known => known,
    };
    let mut steps = EqualSteps::new(Resampling {
        step_ns,
        hold_ns: HOLD_NS.max(step_ns.saturating_mul(HOLD_STEPS)),
        shape: match history.descriptor.kind {
            Kind::Counter => Shape::Counter,
            _ => Shape::Gauge,
        },
        steps_max,
    });
    for sample in &history.samples {
        match sample.value {
            Value::Int(value) => steps.sample_int(sample.ts, value),
            Value::Float(value) => steps.sample(sample.ts, value),
            _ => {}
        }
    }
    (step_ns, steps.finish())
}

/// The usual time between two changes, for a stream whose interval is not known.
fn median_step(steps: impl Iterator<Item = i64>) -> i64 {
    let mut steps: Vec<i64> = steps.filter(|step| *step > 0).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().unwrap_or(NS_PER_S)
}

fn steps_of_column(trace: &Trace, column: &Column, steps_max: usize) -> Vec<f64> {
    let mut steps = EqualSteps::new(Resampling {
        step_ns: trace.interval_ns,
        hold_ns: trace.interval_ns.saturating_mul(HOLD_STEPS),
        shape: Shape::Gauge,
        steps_max,
    });
    for (ts_ns, value) in trace.ts_ns.iter().zip(&column.values) {
        steps.sample(*ts_ns, *value);
    }
    steps.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_or_never_moves_is_counted() {
        let mut gathered = Gathered::default();
        let ramp = |len: u32| (0..len).map(f64::from).collect::<Vec<f64>>();
        gathered.add("short".into(), 1, ramp(100));
        gathered.add("unknown".into(), 1, vec![f64::NAN; 1_000]);
        let mut late = vec![7.0; 500];
        late[450] = 8.0;
        gathered.add("still".into(), 1, late);
        gathered.add("moves".into(), 1, ramp(200));
        assert_eq!((gathered.short, gathered.still), (2, 1));
        assert_eq!(gathered.series[0].name, "moves");
    }

    #[test]
    fn of_too_many_some_from_all_over_are_taken() {
        let mut gathered = Gathered::default();
        assert_eq!(gathered.spread((0..256).collect()).len(), 256);
        let taken = gathered.spread((0..512).collect::<Vec<u32>>());
        assert_eq!(taken.len(), 256);
        assert!(taken.windows(2).all(|pair| pair[1] - pair[0] == 2));
        assert_eq!(gathered.beyond, 256);
    }

    #[test]
    fn columns_are_made_steps() {
        let trace = Trace::parse("t", b"time_ns,a\n0,1\n10,2\n20,\n30,4\n40,5\n500,6\n").unwrap();
        let values = steps_of_column(&trace, &trace.columns[0], 1_000);
        assert_eq!(values[..5], [1.0, 2.0, 2.0, 4.0, 5.0]);
        assert_eq!((values.len(), values[69]), (70, 6.0));
        assert!(values[5..69].iter().all(|value| value.is_nan()));
        assert_eq!(median_step([3, -1, 7, 5].into_iter()), 5);
    }
}
