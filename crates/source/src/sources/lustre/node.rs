//! Facts of the whole node: health, and LNet, which carries all of Lustre's traffic.
//!
//! `lnet/stats` is one line of eleven numbers (`proc_lnet_stats` in `lnet/lnet/router_proc.c`):
//! messages held now and at most, errors, messages sent, received, routed and dropped, and the
//! bytes of these four.

use crate::fact::FactSet;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::SysRoot;
use crate::util::parse::{lines, sole_text, words};
use crate::util::rate::Meter;
use crate::{MissingPart, SourceBatch, SourceError};

use super::places::{Param, Places, is_denied, missing_denied};
use super::tables::NodeFact;

/// Places of the LNet statistics, those of newer releases first.
const LNET: [&str; 2] = ["sys/kernel/debug/lnet/stats", "proc/sys/lnet/stats"];
/// Count of numbers in that line.
const NUMBERS: usize = 11;
/// The numbers that are used: position in the line and fact.
const FACTS: [(usize, NodeFact); 10] = [
    (0, NodeFact::Messages),
    (2, NodeFact::Errors),
    (3, NodeFact::Sent),
    (4, NodeFact::Received),
    (5, NodeFact::Routed),
    (6, NodeFact::Dropped),
    (7, NodeFact::SentBytes),
    (8, NodeFact::ReceivedBytes),
    (9, NodeFact::RoutedBytes),
    (10, NodeFact::DroppedBytes),
];

/// The facts of the node and their files.
pub(super) struct NodeFacts {
    facts: FactSet<NodeFact>,
    health: Option<Param>,
    lnet: Option<Param>,
    sent: Meter,
    received: Meter,
    missing: Option<MissingPart>,
    pub(super) unhealthy: bool,
}

impl NodeFacts {
    pub(super) fn new() -> Self {
        Self {
            facts: FactSet::new(barograph_model::Labels::none()),
            health: None,
            lnet: None,
            sent: Meter::default(),
            received: Meter::default(),
            missing: None,
            unhealthy: false,
        }
    }

    /// Finds the files.
    pub(super) fn find(&mut self, root: &SysRoot, places: &Places) {
        if self.health.is_none() {
            self.health = places.find_node("health_check").map(Param::new);
        }
        if self.lnet.is_none() {
            let paths = LNET.iter().map(|path| root.path(path));
            let found = paths.into_iter().find(|path| path.is_file());
            self.lnet = found.map(Param::new);
        }
        self.missing = None;
        if self.lnet.is_none() {
            let (why, remedy) = places.why_not_found();
            self.missing = Some(MissingPart::new("statistics of LNet", why, remedy));
        }
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        *self = Self::new();
    }

    pub(super) fn missing(&self) -> Option<MissingPart> {
        self.missing.clone()
    }

    pub(super) fn read(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        // The file is not held open: an open file of debugfs keeps its module from being unloaded.
        if read(&mut self.health, bytes, &mut self.missing, faults) {
            let healthy = sole_text(bytes).map(|text| text == "healthy");
            match healthy {
                Some(healthy) => {
                    self.facts
                        .measured(batch, now_ns, NodeFact::Healthy, healthy);
                    self.unhealthy = !healthy;
                }
                None => fault(&self.health, bytes, faults),
            }
        }
        if read(&mut self.lnet, bytes, &mut self.missing, faults) {
            match parse_lnet(bytes) {
                Some(numbers) => self.put_lnet(now_ns, batch, &numbers),
                None => fault(&self.lnet, bytes, faults),
            }
        }
    }

    fn put_lnet(&mut self, now_ns: i64, batch: &mut SourceBatch, numbers: &[u64; NUMBERS]) {
        for (place, fact) in FACTS {
            self.facts.count(batch, now_ns, fact, numbers[place]);
        }
        let at_ns = batch.monotonic_ns();
        let rates = [
            (NodeFact::SentRate, self.sent.rate(at_ns, numbers[7])),
            (
                NodeFact::ReceivedRate,
                self.received.rate(at_ns, numbers[8]),
            ),
        ];
        for (fact, rate) in rates {
            if let Some(rate) = rate {
                self.facts.derived(batch, now_ns, fact, rate);
            }
        }
    }
}

/// Reads a file and returns whether it had contents. A file that is gone is searched anew.
fn read(
    file: &mut Option<Param>,
    bytes: &mut Vec<u8>,
    missing: &mut Option<MissingPart>,
    faults: &mut Faults,
) -> bool {
    let Some(param) = file else { return false };
    match param.read(bytes) {
        Ok(()) => return true,
        Err(SourceError::Read { errno, .. }) if is_denied(errno) => {
            let what = "a part of the state of the node".to_owned();
            *missing = Some(missing_denied(what, param.path(), errno));
        }
        Err(fault) if fault.is_absent() => *file = None,
        Err(fault) => faults.add(fault),
    }
    false
}

fn fault(file: &Option<Param>, bytes: &[u8], faults: &mut Faults) {
    if let Some(file) = file {
        let mut bad = BadLines::default();
        bad.add(bytes);
        bad.report(file.path(), faults);
    }
}

fn parse_lnet(bytes: &[u8]) -> Option<[u64; NUMBERS]> {
    let mut words = words(lines(bytes).next()?);
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = words.number()?;
    }
    Some(numbers)
}
