//! Compares forecasts of the bandwidth of a reader beside six writers of checkpoints: those of
//! Tango's Table IV, and six whose periods have no common multiple. The reader reads 300 MB each
//! minute from a device of 120 MB/s; starts of checkpoints are 3 s off (one standard deviation).
//! Forecasts are made once, after a window of steps, for the next 30 steps, from the bandwidths of
//! the reader and from byte counters read once a second. It prints the root mean square error in
//! MB/s, the mean over seeds, as a Markdown table; and what an estimate and an outlook cost.
//! `cargo run --release -p barograph-forecast --example interference`.

use std::hint::black_box;

use barograph_forecast::Random;
use barograph_forecast::interference::{
    BandwidthForecast, BandwidthForecaster, ConstantTerm, InterferenceConfig, Outlook, Pacing,
    StepModel, Writer, WriterEstimate,
};

#[path = "../tests/it/checkpoints.rs"]
mod checkpoints;

use checkpoints::{CAPACITY, Checkpoints, INCOMMENSURATE, STEP_S, TABLE_IV, World, reads, six};

const SEEDS: u64 = 24;
const WINDOWS: [usize; 4] = [25, 30, 45, 60];
const AHEAD: usize = 30;
/// Past steps for which schedules are judged when they become known.
const PAST: usize = 30;
const JITTER_S: f64 = 3.0;

/// Phases of [`Phases::Apart`], in seconds.
const APART_S: [f64; 6] = [55.0, 140.0, 85.0, 160.0, 45.0, 10.0];

/// Forecasts from the past of the reader alone.
const MODELS: [(&str, StepModel); 7] = [
    ("mean", StepModel::Mean),
    ("replay", transform(0.0, ConstantTerm::Apart)),
    ("DFT 25 %", transform(0.25, ConstantTerm::Apart)),
    ("DFT 50 %", transform(0.5, ConstantTerm::Apart)),
    ("DFT 75 %", transform(0.75, ConstantTerm::Apart)),
    (
        "DFT 50 %, constant term counts",
        transform(0.5, ConstantTerm::Counts),
    ),
    ("Holt-Winters", StepModel::HoltWinters),
];

/// Forecasts that know more, and what is counted beside errors.
const OTHERS: [&str; 6] = [
    "schedules",
    "selector",
    "oracle",
    "oracle without delays",
    "periodic writers found, of 6",
    "selector within its interval, %",
];

const COLUMNS: usize = MODELS.len() + OTHERS.len();

const fn transform(share: f64, constant: ConstantTerm) -> StepModel {
    StepModel::Transform { share, constant }
}

/// A set of writers; phases may depend on random numbers.
struct Case {
    name: &'static str,
    periods: [f64; 6],
    jitter_s: f64,
    pacing: Pacing,
    phases: Phases,
}

#[derive(Clone, Copy)]
enum Phases {
    /// All begin at once.
    Equal,
    /// Each begins 20 s after the one before.
    Staggered,
    /// Those for which reads seldom meet the begin or the end of a burst, found by a search.
    Apart,
    /// Anywhere in the period.
    Random,
}

const fn case(name: &'static str, periods: [f64; 6], phases: Phases) -> Case {
    Case {
        name,
        periods,
        jitter_s: JITTER_S,
        pacing: Pacing::Clock,
        phases,
    }
}

const CASES: [Case; 9] = [
    Case {
        jitter_s: 0.0,
        ..case("Table IV, equal phases, no delays", TABLE_IV, Phases::Equal)
    },
    case("Table IV, equal phases", TABLE_IV, Phases::Equal),
    case("Table IV, staggered by 20 s", TABLE_IV, Phases::Staggered),
    case(
        "Table IV, reads seldom meet an edge",
        TABLE_IV,
        Phases::Apart,
    ),
    case("Table IV, random phases", TABLE_IV, Phases::Random),
    case(
        "incommensurate, equal phases",
        INCOMMENSURATE,
        Phases::Equal,
    ),
    case(
        "incommensurate, staggered by 20 s",
        INCOMMENSURATE,
        Phases::Staggered,
    ),
    case(
        "incommensurate, random phases",
        INCOMMENSURATE,
        Phases::Random,
    ),
    Case {
        pacing: Pacing::AfterLast,
        ..case(
            "incommensurate, random phases, delays add up",
            INCOMMENSURATE,
            Phases::Random,
        )
    },
];

impl Case {
    fn writers(&self, seed: u64) -> Vec<Checkpoints> {
        let mut random = Random::new(seed);
        let draws: Vec<f64> = (0..6).map(|_| random.unit()).collect();
        six(self.periods, self.jitter_s, self.pacing, |at| {
            match self.phases {
                Phases::Equal => 0.0,
                Phases::Staggered => 20.0 * at as f64,
                Phases::Apart => APART_S[at],
                Phases::Random => self.periods[at] * draws[at],
            }
        })
    }
}

fn error(expected: impl IntoIterator<Item = f64>, came: &[f64]) -> f64 {
    let squares: f64 = came
        .iter()
        .zip(expected)
        .map(|(came, expected)| (came - expected).powi(2))
        .sum();
    (squares / came.len() as f64).sqrt() / 1e6
}

fn outlook(writers: &[Writer], step: usize) -> Outlook {
    let now_s = step as f64 * STEP_S;
    let seed = step as u64;
    let past = step.min(PAST);
    Outlook::of(CAPACITY, writers, now_s, &reads(step, AHEAD), seed).with_past(
        CAPACITY,
        writers,
        &reads(step - past, past),
        seed,
    )
}

/// The forecast of a selector that saw the same steps as the others, one after another.
fn selected(world: &World, outlooks: &[Outlook], window: usize) -> BandwidthForecast {
    let mut forecaster = BandwidthForecaster::new(InterferenceConfig {
        window,
        steps: AHEAD,
        ..InterferenceConfig::default()
    });
    let mut forecast = forecaster.step(None, None);
    for (bandwidth, outlook) in world.bandwidths.iter().zip(outlooks).take(window) {
        forecast = forecaster.step(Some(*bandwidth), Some(outlook));
    }
    forecast
}

/// The row of one window in one world.
fn row(case: &Case, world: &World, outlooks: &[Outlook], window: usize) -> [f64; COLUMNS] {
    let (past, rest) = world.bandwidths.split_at(window);
    let came = &rest[..AHEAD];
    let mean = past.iter().sum::<f64>() / past.len() as f64;
    let mut row = [0.0; COLUMNS];
    for (cell, (_, model)) in row.iter_mut().zip(MODELS) {
        let forecast = model.forecast(past, AHEAD);
        let values = forecast.map_or(vec![mean; AHEAD], |forecast| forecast.values);
        *cell = error(values, came);
    }
    let means =
        |outlook: &Outlook| -> Vec<f64> { outlook.steps.iter().map(|step| step.mean).collect() };
    let schedules = &outlooks[window - 1];
    let selected = selected(world, outlooks, window);
    let within = selected
        .steps
        .iter()
        .zip(came)
        .filter(|(step, came)| (step.value - **came).abs() <= step.half_width)
        .count();
    let oracle = |spread_s: f64| means(&outlook(&world.truth(window, spread_s), window));
    row[MODELS.len()..].copy_from_slice(&[
        error(means(schedules), came),
        error(selected.steps.iter().map(|step| step.value), came),
        error(oracle(case.jitter_s), came),
        error(oracle(0.0), came),
        schedules.periodic as f64,
        100.0 * within as f64 / AHEAD as f64,
    ]);
    row
}

/// Mean time of a call, in ms.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn time_ms(calls: u32, mut call: impl FnMut()) -> f64 {
    let begin = std::time::Instant::now();
    (0..calls).for_each(|_| call());
    begin.elapsed().as_secs_f64() * 1e3 / f64::from(calls)
}

/// What an hour of readings of one writer costs, and the outlook of 30 steps beside 100 writers.
fn costs() {
    let case = &CASES[CASES.len() - 2];
    let world = World::of(&case.writers(1), 60, 1);
    let estimate = time_ms(100, || {
        black_box(WriterEstimate::of(black_box(&world.readings[0])));
    });
    let six = world.estimates(60);
    let many: Vec<Writer> = six.iter().copied().cycle().take(100).collect();
    let [few, many] = [&six, &many].map(|writers| {
        time_ms(5, || {
            black_box(outlook(black_box(writers), 60));
        })
    });
    println!();
    println!("estimate of 3,601 readings: {estimate:.2} ms");
    println!("outlook beside 6 writers: {few:.1} ms, beside 100: {many:.0} ms");
}

fn main() {
    let names: Vec<&str> = MODELS.iter().map(|(name, _)| *name).chain(OTHERS).collect();
    println!("| writers | window | {} |", names.join(" | "));
    println!("|{}", " --- |".repeat(COLUMNS + 2));
    let steps = WINDOWS[WINDOWS.len() - 1];
    for case in CASES {
        let mut sums = [[0.0; COLUMNS]; WINDOWS.len()];
        for seed in 0..SEEDS {
            let world = World::of(&case.writers(seed), steps + AHEAD, 1_000 + seed);
            let outlooks: Vec<Outlook> = (1..=steps)
                .map(|step| outlook(&world.estimates(step), step))
                .collect();
            for (sums, window) in sums.iter_mut().zip(WINDOWS) {
                let row = row(&case, &world, &outlooks, window);
                for (sum, cell) in sums.iter_mut().zip(row) {
                    *sum += cell / SEEDS as f64;
                }
            }
        }
        for (sums, window) in sums.iter().zip(WINDOWS) {
            let cells: Vec<String> = sums.iter().map(|sum| format!("{sum:.1}")).collect();
            println!("| {} | {window} | {} |", case.name, cells.join(" | "));
        }
    }
    costs();
}
