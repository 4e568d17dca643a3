//! The fluid model of a shared device: groups with bytes outstanding share its capacity by weight.
//!
//! This is generalised processor sharing (Parekh and Gallager 1993, A Generalized Processor Sharing
//! Approach to Flow Control in Integrated Services Networks), which the weights of BFQ and of the
//! kernel's io.weight approximate. Between two events (a burst comes, a group has nothing left, a
//! read begins or ends) all rates are constant, so the simulation is exact.

use super::{BYTES_MAX, sound_bytes, sound_time};

/// Most events of one simulation; what has not ended by then goes on at the rates of that moment.
pub const EVENTS_MAX: usize = 200_000;

/// Weights are limited to this range; the kernel's are 1 to 10,000.
const WEIGHT_MIN: f64 = 1e-3;
const WEIGHT_MAX: f64 = 1e6;

/// A group with less than this number of bytes has nothing outstanding.
const RESIDUE: f64 = 1e-3;

/// The smallest read that has a bandwidth, in bytes.
const READ_MIN: f64 = 1.0;

/// A model whose read gets less than the whole capacity by this share explains interference.
const EXPLAINED: f64 = 0.01;

/// Bytes that come at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// Time, in seconds.
    pub at_s: f64,
    /// Number of bytes.
    pub bytes: f64,
}

/// The load that one group puts on the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The group's weight.
    pub weight: f64,
    /// Bytes outstanding at the beginning.
    pub outstanding: f64,
    /// Bytes per second that come at all times.
    pub rate: f64,
    /// Bytes that come at once, in any order.
    pub bursts: Vec<Arrival>,
}

/// A read: it begins at a time, or when the read before it has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Read {
    /// Time, in seconds.
    pub at_s: f64,
    /// Number of bytes.
    pub bytes: f64,
    /// The weight of the reader.
    pub weight: f64,
}

/// A group within the simulation.
#[derive(Debug, Clone)]
struct Flow {
    weight: f64,
    rate: f64,
    backlog: f64,
    /// Bytes per second that it gets at present.
    share: f64,
    served: f64,
    arrivals: Vec<Arrival>,
    next: usize,
}

impl Flow {
    fn of(load: &Load) -> Self {
        let sound = |arrival: &Arrival| {
            Some(Arrival {
                at_s: sound_time(arrival.at_s)?,
                bytes: sound_bytes(arrival.bytes),
            })
        };
        let mut arrivals: Vec<Arrival> = load.bursts.iter().filter_map(sound).collect();
        arrivals.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Self {
            weight: sound_weight(load.weight),
            rate: sound_bytes(load.rate),
            backlog: sound_bytes(load.outstanding),
            share: 0.0,
            served: 0.0,
            arrivals,
            next: 0,
        }
    }

    fn reader() -> Self {
        Self {
            weight: WEIGHT_MIN,
            rate: 0.0,
            backlog: 0.0,
            share: 0.0,
            served: 0.0,
            arrivals: Vec::new(),
            next: 0,
        }
    }

    /// Whether it gets a share of the device.
    fn competes(&self) -> bool {
        self.backlog > 0.0 || self.rate > 0.0
    }

    fn arrive(&mut self, now_s: f64) {
        while let Some(arrival) = self
            .arrivals
            .get(self.next)
            .filter(|next| next.at_s <= now_s)
        {
            self.backlog = (self.backlog + arrival.bytes).min(BYTES_MAX);
            self.next += 1;
        }
    }

    /// Seconds until nothing is outstanding, or bytes come.
    fn until_event_s(&self, now_s: f64) -> f64 {
        let empty_s = if self.backlog > 0.0 && self.share > self.rate {
            self.backlog / (self.share - self.rate)
        } else {
            f64::INFINITY
        };
        match self.arrivals.get(self.next) {
            Some(next) => empty_s.min(next.at_s - now_s),
            None => empty_s,
        }
    }

    fn elapse(&mut self, seconds: f64) {
        self.served += self.share * seconds;
        let backlog = self.backlog + (self.rate - self.share) * seconds;
        self.backlog = if backlog < RESIDUE {
            0.0
        } else {
            backlog.min(BYTES_MAX)
        };
    }
}

/// A simulation of the device with its loads and one reader.
#[derive(Debug, Clone)]
pub struct Fluid {
    capacity: f64,
    now_s: f64,
    /// The loads, and last the reader.
    flows: Vec<Flow>,
    /// The flows by the rate that comes per weight, ascending.
    order: Vec<usize>,
    reads: Vec<Read>,
    /// Time at which the present read began.
    begun_s: Option<f64>,
    /// Bandwidths of the reads that have ended.
    bandwidths: Vec<f64>,
    events: usize,
}

impl Fluid {
    /// Creates a simulation of a device with a capacity in bytes per second. Numbers that are not
    /// finite, or negative, count as 0, weights beyond 0.001 to 1,000,000 as those; arrivals and
    /// reads at no time are left out.
    pub fn new(capacity: f64, from_s: f64, loads: &[Load], reads: &[Read]) -> Self {
        let mut flows: Vec<Flow> = loads.iter().map(Flow::of).collect();
        flows.push(Flow::reader());
        let per_weight = |flow: &usize| flows[*flow].rate / flows[*flow].weight;
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by(|a, b| per_weight(a).total_cmp(&per_weight(b)));
        let mut reads: Vec<Read> = reads
            .iter()
            .filter(|read| sound_time(read.at_s).is_some())
            .copied()
            .collect();
        reads.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let mut fluid = Self {
            capacity: sound_bytes(capacity),
            now_s: sound_time(from_s).unwrap_or(0.0),
            flows,
            order,
            reads,
            begun_s: None,
            bandwidths: Vec::new(),
            events: 0,
        };
        fluid.arrive();
        fluid
    }

    /// Bytes of a load that were written since the beginning.
    pub fn served(&self, load: usize) -> f64 {
        self.flows.get(load).map_or(0.0, |flow| flow.served)
    }

    /// Bytes of a load that are outstanding.
    pub fn outstanding(&self, load: usize) -> f64 {
        self.flows.get(load).map_or(0.0, |flow| flow.backlog)
    }

    /// Bytes that the reader has read since the beginning.
    pub fn read(&self) -> f64 {
        self.served(self.flows.len() - 1)
    }

    /// The bandwidths of the reads that have ended, in order.
    pub fn bandwidths(&self) -> &[f64] {
        &self.bandwidths
    }

    /// Goes on until a time.
    pub fn advance(&mut self, until_s: f64) {
        while self.now_s < until_s && self.event(until_s) {}
    }

    /// Goes on until all reads have ended, and returns their bandwidths. A read that does not end
    /// within [`EVENTS_MAX`] events gets what it has at that moment.
    pub fn finish(mut self) -> Vec<f64> {
        while self.bandwidths.len() < self.reads.len() && self.event(f64::INFINITY) {}
        let share = self.flows[self.flows.len() - 1].share;
        self.bandwidths.resize(self.reads.len(), share);
        self.bandwidths
    }

    /// Goes on to the next event, at most until a time. Returns whether there was one.
    fn event(&mut self, until_s: f64) -> bool {
        if self.events >= EVENTS_MAX {
            return false;
        }
        self.events += 1;
        self.allocate();
        let flows = self.flows.iter().map(|flow| flow.until_event_s(self.now_s));
        let read_s = match (self.begun_s, self.waiting()) {
            (None, Some(read)) => read.at_s - self.now_s,
            _ => f64::INFINITY,
        };
        let seconds = flows
            .fold(read_s.min(until_s - self.now_s), f64::min)
            .max(0.0);
        if !seconds.is_finite() {
            return false;
        }
        self.now_s += seconds;
        self.flows.iter_mut().for_each(|flow| flow.elapse(seconds));
        self.end_read();
        self.arrive();
        true
    }

    /// The next read that has not ended.
    fn waiting(&self) -> Option<Read> {
        self.reads.get(self.bandwidths.len()).copied()
    }

    fn end_read(&mut self) {
        let reader = self.flows.len() - 1;
        let Some(begun_s) = self.begun_s.filter(|_| self.flows[reader].backlog <= 0.0) else {
            return;
        };
        let bytes = self.waiting().map_or(0.0, |read| read_bytes(&read));
        let seconds = self.now_s - begun_s;
        let bandwidth = if seconds > 0.0 {
            (bytes / seconds).min(self.capacity)
        } else {
            self.capacity
        };
        self.bandwidths.push(bandwidth);
        self.begun_s = None;
    }

    fn arrive(&mut self) {
        let now_s = self.now_s;
        self.flows.iter_mut().for_each(|flow| flow.arrive(now_s));
        let reader = self.flows.len() - 1;
        if let (None, Some(read)) = (self.begun_s, self.waiting())
            && read.at_s <= now_s
        {
            self.begun_s = Some(now_s);
            self.flows[reader].weight = sound_weight(read.weight);
            self.flows[reader].backlog = read_bytes(&read);
        }
    }

    /// Divides the capacity: a group with nothing outstanding gets what comes, if its share allows,
    /// and the others divide what is left by weight.
    fn allocate(&mut self) {
        let competing = self.flows.iter().filter(|flow| flow.competes());
        let mut weights: f64 = competing.map(|flow| flow.weight).sum();
        let mut capacity = self.capacity;
        let mut is_short = false;
        for at in &self.order {
            let flow = &mut self.flows[*at];
            flow.share = 0.0;
            if is_short || flow.backlog > 0.0 || flow.rate <= 0.0 {
                continue;
            }
            // Where one does not get what comes, those after it, with more per weight, do not.
            is_short = flow.rate > capacity * flow.weight / weights;
            if !is_short {
                flow.share = flow.rate;
                capacity = (capacity - flow.rate).max(0.0);
                weights -= flow.weight;
            }
        }
        let is_open = |flow: &Flow| flow.competes() && flow.share <= 0.0;
        let open = self.flows.iter().filter(|flow| is_open(flow));
        let weights: f64 = open.map(|flow| flow.weight).sum();
        for flow in self.flows.iter_mut().filter(|flow| is_open(flow)) {
            flow.share = capacity * flow.weight / weights;
        }
    }
}

/// The bandwidth that a read would have got instead of another one, from what the other one got: a
/// reader that had another weight, or another number of bytes, is made comparable.
///
/// With the loads that were there, it is the observed bandwidth by the ratio of what the model
/// gives for both reads. Where the model knows no load that explains the observed bandwidth, what
/// was missing is taken as one group that wrote all the time: then the weight counts alone.
pub fn corrected(capacity: f64, loads: &[Load], observed: f64, of: Read, to: Read) -> f64 {
    let capacity = sound_bytes(capacity);
    let observed = sound_bytes(observed).min(capacity);
    let modelled = |read: Read| {
        let fluid = Fluid::new(capacity, read.at_s, loads, &[read]);
        fluid.finish().first().copied().unwrap_or(0.0)
    };
    let (model_of, model_to) = (modelled(of), modelled(to));
    let is_explained = model_of > 0.0 && model_of < capacity * (1.0 - EXPLAINED);
    if is_explained {
        return (observed * (model_to / model_of)).min(capacity);
    }
    let (weight_of, weight_to) = (sound_weight(of.weight), sound_weight(to.weight));
    // The weight of the others, by that of the reader.
    let missing = weight_of * (capacity - observed);
    let sum = weight_to * observed + missing;
    if sum > 0.0 {
        (capacity * (weight_to * observed / sum)).min(capacity)
    } else {
        0.0
    }
}

fn read_bytes(read: &Read) -> f64 {
    sound_bytes(read.bytes).max(READ_MIN)
}

fn sound_weight(weight: f64) -> f64 {
    if weight.is_nan() {
        return WEIGHT_MIN;
    }
    weight.clamp(WEIGHT_MIN, WEIGHT_MAX)
}
