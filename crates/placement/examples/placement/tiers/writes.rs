//! VPIC-IO: all processes write at each step, into buffers that are emptied to the file system.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use barograph_placement::IoDirection;

use super::{CaseRun, LastRequest, PROCESSES, STEPS};
use crate::random::Random;
use crate::storage::{Chooser, Policy, Storage, ns};

const BLOCK: f64 = 32e6;
/// Bytes of a transfer from a buffer to the file system.
const FLUSH: f64 = 128e6;
const COMPUTE_S: f64 = 20.0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process writes its block.
    Write,
    /// A transfer has read its bytes from a buffer.
    FlushRead { buffer: usize, bytes: u64 },
    /// It has written them to the file system.
    Flushed { buffer: usize, bytes: u64 },
}

struct Run {
    storage: Storage,
    chooser: Chooser,
    pfs: Vec<usize>,
    /// Events by time in ns and number.
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    number: u64,
    /// Writes that wait for room in each buffer, as bytes.
    waiting: Vec<VecDeque<f64>>,
    is_flushing: Vec<bool>,
    dirty: Vec<f64>,
    /// Writes of this step that are served, and the last of them.
    served: usize,
    last: LastRequest,
    outcome: CaseRun,
}

pub(super) fn vpic(policy: Policy, seed: u64) -> CaseRun {
    let storage = Storage::new(seed);
    let len = storage.targets.len();
    let mut run = Run {
        pfs: storage.of_tier(true),
        storage,
        chooser: Chooser::new(policy),
        events: BinaryHeap::new(),
        number: 0,
        waiting: vec![VecDeque::new(); len],
        is_flushing: vec![false; len],
        dirty: vec![0.0; len],
        served: 0,
        last: LastRequest::default(),
        outcome: CaseRun::default(),
    };
    let mut random = Random(seed + 1);
    let mut start_s = 0.0;
    for _ in 0..STEPS {
        for _ in 0..PROCESSES {
            run.push(start_s + random.between(0.0, 0.5), Event::Write);
        }
        run.served = 0;
        run.last = LastRequest::default();
        run.until(|run| run.served == PROCESSES);
        run.outcome.step(start_s, run.last);
        let end_s = run.last.end_s;
        start_s = end_s + random.between(COMPUTE_S - 2.0, COMPUTE_S + 2.0);
        let begin_ns = ns(start_s);
        run.until(|run| run.events.peek().is_none_or(|it| it.0.0 >= begin_ns));
    }
    run.outcome
}

impl Run {
    fn push(&mut self, at_s: f64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((ns(at_s), self.number, event)));
    }

    fn until(&mut self, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            let Some(Reverse((at_ns, number, event))) = self.events.pop() else {
                return;
            };
            let now_s = at_ns as f64 / 1e9;
            self.chooser.observe(&self.storage, now_s);
            match event {
                Event::Write => {
                    let target = self.chooser.choose(&self.storage, now_s, number, BLOCK);
                    self.outcome.requests += 1;
                    self.outcome.at_pfs += usize::from(self.pfs.contains(&target));
                    self.write(target, now_s);
                }
                Event::FlushRead { buffer, bytes } => {
                    let server = self.pfs[(number as usize + buffer) % self.pfs.len()];
                    let server = &mut self.storage.targets[server];
                    let end_s = server.serve(now_s, bytes as f64, IoDirection::Write);
                    self.push(end_s, Event::Flushed { buffer, bytes });
                }
                Event::Flushed { buffer, bytes } => self.flushed(buffer, bytes as f64, now_s),
            }
        }
    }

    fn write(&mut self, target: usize, now_s: f64) {
        let place = &mut self.storage.targets[target];
        if place.used + BLOCK > place.capacity {
            self.waiting[target].push_back(BLOCK);
            self.outcome.stalls += 1;
            return;
        }
        place.used += BLOCK;
        let end_s = place.serve(now_s, BLOCK, IoDirection::Write);
        self.served += 1;
        self.last.served(end_s, self.pfs.contains(&target));
        self.dirty[target] += BLOCK;
        self.flush(target, now_s);
    }

    /// Begins a transfer to the file system, unless there is one.
    fn flush(&mut self, buffer: usize, now_s: f64) {
        if self.is_flushing[buffer] || self.pfs.contains(&buffer) || self.dirty[buffer] <= 0.0 {
            return;
        }
        let bytes = FLUSH.min(self.dirty[buffer]);
        self.dirty[buffer] -= bytes;
        self.is_flushing[buffer] = true;
        let read_s = self.storage.targets[buffer].serve(now_s, bytes, IoDirection::Read);
        let bytes = bytes as u64;
        self.push(read_s, Event::FlushRead { buffer, bytes });
    }

    fn flushed(&mut self, buffer: usize, bytes: f64, now_s: f64) {
        self.is_flushing[buffer] = false;
        self.storage.targets[buffer].used -= bytes;
        while self.waiting[buffer].front().is_some() {
            let place = &self.storage.targets[buffer];
            if place.used + BLOCK > place.capacity {
                break;
            }
            self.waiting[buffer].pop_front();
            self.write(buffer, now_s);
        }
        self.flush(buffer, now_s);
    }
}
