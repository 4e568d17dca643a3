//! A simulated device with writers of checkpoints and one reader, for tests and for
//! `examples/interference.rs`: bandwidths of the reader, and readings of the writers' counters.

use barograph_forecast::Random;
use barograph_forecast::interference::{
    Arrival, CounterReading, Fluid, Load, Pacing, Read, Schedule, Writer, WriterEstimate,
};

/// Capacity of the device, in bytes per second, and the reader's bytes and seconds of a step: those
/// of Tango's evaluation (IV-A), with a read that takes 2.5 s without interference.
pub(crate) const CAPACITY: f64 = 120e6;
pub(crate) const READ_BYTES: f64 = 300e6;
pub(crate) const STEP_S: f64 = 60.0;

/// The weight of all groups, Docker's default.
pub(crate) const WEIGHT: f64 = 100.0;

/// Bytes of the checkpoints of the six writers (Tango, Table IV).
pub(crate) const BYTES: [f64; 6] = [768e6, 512e6, 512e6, 1024e6, 1024e6, 1024e6];

/// Periods of the six writers, in seconds (Tango, Table IV): 1800 s are a multiple of each.
pub(crate) const TABLE_IV: [f64; 6] = [200.0, 225.0, 360.0, 180.0, 150.0, 120.0];

/// Periods nearby without a common multiple within days.
pub(crate) const INCOMMENSURATE: [f64; 6] = [193.0, 227.0, 353.0, 181.0, 149.0, 127.0];

/// A writer of checkpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoints {
    pub(crate) period_s: f64,
    pub(crate) phase_s: f64,
    pub(crate) bytes: f64,
    /// Standard deviation of a start, in seconds.
    pub(crate) jitter_s: f64,
    pub(crate) pacing: Pacing,
}

impl Checkpoints {
    fn starts(&self, until_s: f64, random: &mut Random) -> Vec<f64> {
        let mut starts = Vec::new();
        let (mut expected_s, mut delay_s) = (self.phase_s, 0.0);
        while expected_s <= until_s {
            let own_s = self.jitter_s * random.normal();
            delay_s = match self.pacing {
                Pacing::Clock => own_s,
                Pacing::AfterLast => delay_s + own_s,
            };
            starts.push((expected_s + delay_s).max(0.0));
            expected_s += self.period_s;
        }
        starts
    }
}

/// What happened on the device.
pub(crate) struct World {
    writers: Vec<Checkpoints>,
    /// The true starts, by writer.
    pub(crate) starts: Vec<Vec<f64>>,
    /// Readings of the counters, one each second, by writer.
    pub(crate) readings: Vec<Vec<CounterReading>>,
    /// Bytes outstanding at the begin of each step, by step and writer.
    outstanding: Vec<Vec<f64>>,
    /// The bandwidth of the read of each step.
    pub(crate) bandwidths: Vec<f64>,
}

impl World {
    /// Simulates some steps.
    pub(crate) fn of(writers: &[Checkpoints], steps: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let seconds = steps * STEP_S as usize;
        let starts: Vec<Vec<f64>> = writers
            .iter()
            .map(|writer| writer.starts(seconds as f64, &mut random))
            .collect();
        let load = |(writer, starts): (&Checkpoints, &Vec<f64>)| Load {
            weight: WEIGHT,
            outstanding: 0.0,
            rate: 0.0,
            bursts: starts
                .iter()
                .map(|at_s| Arrival {
                    at_s: *at_s,
                    bytes: writer.bytes,
                })
                .collect(),
        };
        let loads: Vec<Load> = writers.iter().zip(&starts).map(load).collect();
        let reads = reads(0, steps);
        let mut fluid = Fluid::new(CAPACITY, 0.0, &loads, &reads);
        let mut readings = vec![Vec::new(); writers.len()];
        let mut outstanding = Vec::new();
        for second in 0..=seconds {
            fluid.advance(second as f64);
            for (writer, readings) in readings.iter_mut().enumerate() {
                readings.push(CounterReading {
                    at_s: second as f64,
                    bytes: fluid.served(writer),
                });
            }
            if second % STEP_S as usize == 0 {
                outstanding.push((0..writers.len()).map(|at| fluid.outstanding(at)).collect());
            }
        }
        Self {
            writers: writers.to_vec(),
            starts,
            readings,
            outstanding,
            bandwidths: fluid.finish(),
        }
    }

    /// The writers as their counters tell, at the begin of a step, from the steps before.
    pub(crate) fn estimates(&self, step: usize) -> Vec<Writer> {
        let seconds = step * STEP_S as usize;
        let of = |readings: &Vec<CounterReading>| Writer {
            weight: WEIGHT,
            estimate: WriterEstimate::of(&readings[..=seconds]),
        };
        self.readings.iter().map(of).collect()
    }

    /// The writers as they are: true periods, phases and sizes, and which bursts came already; the
    /// delays of the next ones are not known. With `spread_s` as the spread of starts that is
    /// expected.
    pub(crate) fn truth(&self, step: usize, spread_s: f64) -> Vec<Writer> {
        let now_s = step as f64 * STEP_S;
        let of = |at: usize| {
            let writer = self.writers[at];
            let starts = &self.starts[at];
            let came = starts.iter().filter(|start| **start <= now_s).count();
            let (count, last_s) = (came as f64, starts[..came].last());
            let next_s = match (writer.pacing, last_s) {
                (Pacing::AfterLast, Some(last_s)) => last_s + writer.period_s,
                _ => writer.phase_s + count * writer.period_s,
            };
            let schedule = Schedule {
                period_s: writer.period_s,
                period_error_s: 0.0,
                next_s,
                phase_error_s: 0.0,
                reach: 0.0,
                start_spread_s: spread_s,
                pacing: writer.pacing,
                bytes: writer.bytes,
                bytes_spread: 0.0,
                presence: 1.0,
                bursts: came,
                confidence: 1.0,
            };
            Writer {
                weight: WEIGHT,
                estimate: WriterEstimate {
                    schedule: Ok(schedule),
                    mean_rate: writer.bytes / writer.period_s,
                    background_rate: 0.0,
                    outstanding: self.outstanding[step][at],
                },
            }
        };
        (0..self.writers.len()).map(of).collect()
    }
}

/// The reads of `count` steps from one on.
pub(crate) fn reads(from: usize, count: usize) -> Vec<Read> {
    let read = |step: usize| Read {
        at_s: step as f64 * STEP_S,
        bytes: READ_BYTES,
        weight: WEIGHT,
    };
    (from..from + count).map(read).collect()
}

/// Six writers with the sizes of Table IV.
pub(crate) fn six(
    periods: [f64; 6],
    jitter_s: f64,
    pacing: Pacing,
    phase_s: impl Fn(usize) -> f64,
) -> Vec<Checkpoints> {
    let writer = |at: usize| Checkpoints {
        period_s: periods[at],
        phase_s: phase_s(at),
        bytes: BYTES[at],
        jitter_s,
        pacing,
    };
    (0..6).map(writer).collect()
}
