//! A server that is slower than its peers at equal load. CLARISSE assumes that somebody detects it
//! (its slides, "Scale-down protocol").
//!
//! Times of service depend on load, on sizes, and on what all servers suffer together, so no time
//! is slow by itself. Only requests of one class of load are compared, and a server only with its
//! peers in the same window of time. In each window the slowest server is found by the median of
//! its times: of `n` equal servers it is each one with probability `1 / n`, whatever the
//! distribution of times is. A server that is slow is the slowest much more often. So each server
//! has a sum of logarithms of likelihoods, which is never below 0 (a CUSUM test, Page 1954):
//! between two false alarms of one server lie at least `e^h` windows on average when `h` is the sum
//! at which it counts as slow (Lorden 1971). That takes windows that do not depend on each other.

use std::collections::{BTreeMap, VecDeque};

use crate::epoch::ProcessId;

/// Most pairs of a server and a class of load in a window.
const PAIRS_MAX: usize = 4_096;
/// Most samples of one server and class in a window; those beyond are left out, and counted.
const SAMPLES_MAX: usize = 256;

/// The share of windows in which a slow server is the slowest, as far as the test assumes.
const SLOWEST_SHARE: f64 = 0.9;
/// The largest sum: a server that was slow for a day is known to be sound again after as many
/// windows as it took to find it, and not after a day.
const SUM_MAX: f64 = 40.0;
/// Most ratios of a server whose median is told.
const RATIOS_MAX: usize = 32;

/// When a server counts as slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowConfig {
    /// The length of a window, in ns. What slows requests should have changed from one to the next.
    pub window_ns: i64,
    /// Fewest samples of a server in a class and window that are compared.
    pub samples_min: usize,
    /// Fewest servers that are compared.
    pub servers_min: usize,
    /// The most false alarms in a window, on average, when all servers are equal.
    pub false_alarms_max: f64,
    /// The least ratio of its median to that of its peers that matters.
    pub ratio_min: f64,
}

impl Default for SlowConfig {
    fn default() -> Self {
        Self {
            window_ns: 1_000_000_000,
            samples_min: 5,
            servers_min: 3,
            false_alarms_max: 1e-4,
            ratio_min: 1.5,
        }
    }
}

/// One request that a server has served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerSample {
    /// The server.
    pub server: ProcessId,
    /// The time at which it was answered, in ns on the caller's clock.
    pub ts_ns: i64,
    /// The bytes of the request, times one more than the requests that were before it.
    pub load: u64,
    /// Seconds from the request to the answer.
    pub service_s: f64,
}

/// A server that is slower than its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowServer {
    /// The server.
    pub server: ProcessId,
    /// The times of its requests by those of its peers, at equal load: the median of the windows.
    pub ratio: f64,
    /// The number of windows since it began to be the slowest more often than others.
    pub windows: u32,
    /// The number of servers that were compared in the last one.
    pub servers: usize,
    /// False alarms in a window, on average and at most, at what speaks against this server.
    pub false_alarms: f64,
}

/// The times of servers in the present window, and what speaks against each from those before.
#[derive(Clone, Debug)]
pub struct SlowServers {
    config: SlowConfig,
    /// Times by class of load and server.
    times: BTreeMap<(u32, ProcessId), Vec<f64>>,
    end_ns: Option<i64>,
    suspicions: BTreeMap<ProcessId, Suspicion>,
    left_out: u64,
}

/// What speaks against a server.
#[derive(Clone, Debug, Default)]
struct Suspicion {
    /// The sum of the logarithms of likelihoods, above 0.
    sum: f64,
    /// The windows since it was 0.
    windows: u32,
    /// Its newest ratios, each of which is that of a window.
    ratios: VecDeque<f64>,
}

impl SlowServers {
    /// A detector that has seen nothing.
    pub fn new(config: SlowConfig) -> Self {
        Self {
            config,
            times: BTreeMap::new(),
            end_ns: None,
            suspicions: BTreeMap::new(),
            left_out: 0,
        }
    }

    /// The number of samples that were not compared: there were too many, or their time was none.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Forgets what speaks against a server, for example since it was taken out of the map: if it
    /// comes back, it is judged by what it does then.
    pub fn forget(&mut self, server: ProcessId) {
        self.suspicions.remove(&server);
        self.times.retain(|(_, of), _| *of != server);
    }

    /// Takes in a sample. If it is the first of a new window, the one before is judged, and a
    /// server that counts as slow is returned.
    pub fn observe(&mut self, sample: &ServerSample) -> Option<SlowServer> {
        let found = self.advance(sample.ts_ns);
        let end_ns = sample.ts_ns.saturating_add(self.config.window_ns.max(1));
        self.end_ns.get_or_insert(end_ns);
        let class = sample.load.max(1).ilog2();
        let is_new = !self.times.contains_key(&(class, sample.server));
        let is_sound = sample.service_s.is_finite() && sample.service_s > 0.0;
        if !is_sound || (is_new && self.times.len() >= PAIRS_MAX) {
            self.left_out += 1;
            return found;
        }
        let times = self.times.entry((class, sample.server)).or_default();
        match times.len() < SAMPLES_MAX {
            true => times.push(sample.service_s),
            false => self.left_out += 1,
        }
        found
    }

    /// Judges the window that is over at a time, if there is one.
    pub fn advance(&mut self, now_ns: i64) -> Option<SlowServer> {
        if self.end_ns.is_none_or(|end_ns| now_ns < end_ns) {
            return None;
        }
        self.end_ns = None;
        let times = std::mem::take(&mut self.times);
        let ratios = self.ratios(times);
        let servers = ratios.len();
        let slowest = ratios.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let (slowest, _) = slowest.filter(|_| servers >= self.config.servers_min.max(2))?;
        let slowest = *slowest;
        for (server, ratio) in &ratios {
            let suspicion = self.suspicions.entry(*server).or_default();
            suspicion.take(*server == slowest, *ratio, servers);
        }
        self.suspicions.retain(|_, suspicion| suspicion.sum > 0.0);
        self.judged(slowest, servers)
    }

    /// The median times of each server by those of its peers, over all classes in which both
    /// have enough samples.
    fn ratios(&self, times: BTreeMap<(u32, ProcessId), Vec<f64>>) -> BTreeMap<ProcessId, f64> {
        let mut classes: BTreeMap<u32, Vec<(ProcessId, f64)>> = BTreeMap::new();
        for ((class, server), mut times) in times {
            if times.len() >= self.config.samples_min.max(1) {
                let median = median(&mut times);
                classes.entry(class).or_default().push((server, median));
            }
        }
        let mut ratios: BTreeMap<ProcessId, Vec<f64>> = BTreeMap::new();
        for medians in classes.into_values().filter(|medians| medians.len() > 1) {
            for (server, of_server) in &medians {
                let peers = medians.iter().filter(|(peer, _)| peer != server);
                let mut peers: Vec<f64> = peers.map(|(_, median)| *median).collect();
                let ratio = of_server / median(&mut peers);
                ratios.entry(*server).or_default().push(ratio);
            }
        }
        let of_classes = ratios.into_iter();
        of_classes
            .map(|(server, mut ratios)| (server, median(&mut ratios)))
            .collect()
    }

    fn judged(&self, server: ProcessId, servers: usize) -> Option<SlowServer> {
        let suspicion = self.suspicions.get(&server)?;
        let false_alarms = servers as f64 * (-suspicion.sum).exp();
        let mut ratios: Vec<f64> = suspicion.ratios.iter().copied().collect();
        let ratio = median(&mut ratios);
        let is_slow =
            false_alarms <= self.config.false_alarms_max && ratio >= self.config.ratio_min;
        is_slow.then_some(SlowServer {
            server,
            ratio,
            windows: suspicion.windows,
            servers,
            false_alarms,
        })
    }
}

impl Suspicion {
    /// Takes in a window in which so many servers were compared.
    fn take(&mut self, is_slowest: bool, ratio: f64, servers: usize) {
        let by_chance = 1.0 / servers as f64;
        let likelihood = match is_slowest {
            true => SLOWEST_SHARE / by_chance,
            false => (1.0 - SLOWEST_SHARE) / (1.0 - by_chance),
        };
        self.sum = (self.sum + likelihood.ln()).clamp(0.0, SUM_MAX);
        self.windows = self.windows.saturating_add(1);
        if self.ratios.len() == RATIOS_MAX {
            self.ratios.pop_front();
        }
        self.ratios.push_back(ratio);
    }
}

/// The median of some numbers; 1 of none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 1.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
