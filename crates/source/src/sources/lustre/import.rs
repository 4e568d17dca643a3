//! A client's connections to its targets: `import` files (`lprocfs_import_seq_show` in
//! `lustre/obdclass/lprocfs_status.c`), and the attributes of the targets beside them.
//!
//! ```text
//! import:
//!     name: scratch-OST0003-osc-ffff9a0c12345000
//!     target: scratch-OST0003_UUID
//!     state: FULL
//!     connection:
//!        connection_attempts: 1
//!     rpcs:
//!        inflight: 2
//!        timeouts: 0
//!     service_estimates:
//!        services: 1 sec
//! ```

use barograph_model::Value;

use crate::fact::{FactSet, int};
use crate::util::faults::{BadLines, Faults};
use crate::util::parse::{cut, lines, number, sole_number, words};
use crate::{MissingPart, SourceBatch, SourceError};

use super::flow::{Flow, FlowTable, Scratch};
use super::places::{Param, Places, is_denied, missing_denied};
use super::tables::{ImportFact, OscFact};

/// Longest word that is accepted as a state, in bytes.
const STATE_BYTES_MAX: usize = 32;

/// The contents of an `import` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said<'a> {
    state: Option<&'a str>,
    inflight: Option<u64>,
    timeouts: Option<u64>,
    attempts: Option<u64>,
    /// Estimated service time in seconds.
    estimate: Option<u64>,
}

/// A connection to a target of a file system that is mounted here, through one device per mount.
pub(super) struct Connection<T> {
    pub(super) label: String,
    pub(super) devices: Vec<Vec<u8>>,
    pub(super) flow: Flow<T>,
    facts: FactSet<ImportFact>,
    imports: Vec<Param>,
    /// The value that was put last, kept so that an unchanged one is not allocated again.
    state: Value,
    refused: Option<MissingPart>,
    /// Attribute files of the first device.
    active: Option<Param>,
    inflight_max: Option<Param>,
    dirty: Vec<Param>,
    grant: Vec<Param>,
}

impl<T: FlowTable> Connection<T> {
    /// Creates the connection to a target of a file system.
    ///
    /// # Errors
    ///
    /// The reason why the two cannot be labels.
    pub(super) fn new(filesystem: &str, target: &str) -> Result<Self, SourceError> {
        let labels = || {
            [
                ("target", target.to_owned()),
                ("filesystem", filesystem.to_owned()),
            ]
        };
        Ok(Self {
            label: target.to_owned(),
            devices: Vec::new(),
            flow: Flow::new(FactSet::labelled(labels())?),
            facts: FactSet::labelled(labels())?,
            imports: Vec::new(),
            state: Value::text(""),
            refused: None,
            active: None,
            inflight_max: None,
            dirty: Vec::new(),
            grant: Vec::new(),
        })
    }

    /// Replaces the devices that are read.
    pub(super) fn follow(&mut self, devices: Vec<Vec<u8>>) {
        self.flow.replace(Vec::new());
        for files in [&mut self.imports, &mut self.dirty, &mut self.grant] {
            files.clear();
        }
        (self.active, self.inflight_max) = (None, None);
        self.devices = devices;
    }

    /// Finds the files that were not found yet.
    pub(super) fn find(&mut self, kind: &str, places: &Places) {
        let devices = &self.devices;
        let all = |name: &str| {
            let found = devices.iter().map(|d| places.find(kind, d, name));
            // A sum needs all of its parts.
            let found: Option<Vec<_>> = found.collect();
            let params = found.unwrap_or_default().into_iter().map(Param::new);
            params.collect::<Vec<_>>()
        };
        if self.flow.files.is_empty() {
            self.flow.replace(all("stats"));
        }
        for (files, name) in [
            (&mut self.imports, "import"),
            (&mut self.dirty, "cur_dirty_bytes"),
            (&mut self.grant, "cur_grant_bytes"),
        ] {
            if files.is_empty() {
                *files = all(name);
            }
        }
        for (file, name) in [
            (&mut self.active, "active"),
            (&mut self.inflight_max, "max_rpcs_in_flight"),
        ] {
            if file.is_none() {
                *file = all(name).into_iter().next();
            }
        }
    }

    pub(super) fn keep_within(&mut self, room: &mut usize) {
        let files = self.flow.files.iter_mut().chain(&mut self.imports);
        files
            .chain(&mut self.dirty)
            .for_each(|file| file.keep_within(room));
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.flow.retire(batch);
        self.facts.retire(batch);
    }

    /// Reads and puts the facts. Returns whether all files existed.
    pub(super) fn read(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        scratch: &mut Scratch,
        faults: &mut Faults,
    ) -> bool {
        let there = self.flow.read(now_ns, batch, scratch, faults);
        there & self.read_imports(now_ns, batch, &mut scratch.bytes, faults)
    }

    fn read_imports(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> bool {
        self.refused = None;
        let mut all = Said::default();
        for at in 0..self.imports.len() {
            let file = &mut self.imports[at];
            match file.read(bytes) {
                Ok(()) => {}
                Err(SourceError::Read { errno, .. }) if is_denied(errno) => {
                    let what = format!("state of {}", self.label);
                    self.refused = Some(missing_denied(what, file.path(), errno));
                    return true;
                }
                Err(fault) if fault.is_absent() => {
                    self.imports.clear();
                    return false;
                }
                Err(fault) => {
                    faults.add(fault);
                    return true;
                }
            }
            let (said, bad) = parse(bytes);
            bad.report(file.path(), faults);
            // If the target is mounted twice, the worse of the two states is reported.
            let worse = at == 0 || said.state.is_some_and(|state| !is_connected(state));
            if let Some(state) = said.state.filter(|_| worse) {
                if !matches!(&self.state, Value::Text(old) if **old == *state) {
                    self.state = Value::text(state);
                }
                all.state = Some("");
            }
            all.add(&said, at == 0);
        }
        if all.state.is_some() {
            let connected = matches!(&self.state, Value::Text(state) if is_connected(state));
            let state = self.state.clone();
            self.facts.measured(batch, now_ns, ImportFact::State, state);
            self.facts
                .measured(batch, now_ns, ImportFact::Connected, connected);
        }
        let counts = [
            (ImportFact::Inflight, all.inflight),
            (ImportFact::Timeouts, all.timeouts),
            (ImportFact::Attempts, all.attempts),
        ];
        for (fact, value) in counts {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, value);
            }
        }
        if let Some(seconds) = all.estimate {
            self.facts
                .measured(batch, now_ns, ImportFact::Estimate, seconds as f64);
        }
        true
    }

    /// Reads values that hardly ever change.
    pub(super) fn read_attributes(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        if let Some(active) = sole(&mut self.active, bytes).filter(|v| *v <= 1) {
            self.facts
                .attribute(batch, now_ns, ImportFact::Active, active == 1, every_ns);
        }
        if let Some(max) = sole(&mut self.inflight_max, bytes) {
            self.facts
                .attribute(batch, now_ns, ImportFact::InflightMax, int(max), every_ns);
        }
    }

    /// The state of the connection, if the target cannot be used.
    pub(super) fn trouble(&self) -> Option<&str> {
        match &self.state {
            Value::Text(state) if !state.is_empty() && !is_connected(state) => Some(state),
            _ => None,
        }
    }

    pub(super) fn missing(&self, places: &Places) -> Option<MissingPart> {
        let of_flow = || self.flow.missing(&self.label, places);
        self.refused.clone().or_else(of_flow)
    }
}

impl Connection<OscFact> {
    /// Reads the dirty bytes in the client's cache and the grant for more.
    pub(super) fn read_cache(&mut self, now_ns: i64, batch: &mut SourceBatch, bytes: &mut Vec<u8>) {
        let facts = self.flow.facts();
        if let Some(dirty) = sum(&mut self.dirty, bytes) {
            facts.count(batch, now_ns, OscFact::Dirty, dirty);
        }
    }

    /// Reads the facts of the grant, like [`Self::read_attributes`].
    pub(super) fn read_grant(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        if let Some(grant) = sum(&mut self.grant, bytes) {
            let facts = self.flow.facts();
            facts.attribute(batch, now_ns, OscFact::Grant, int(grant), every_ns);
        }
    }
}

/// Reads a file that holds a single number. Returns nothing on any error: not every release has the
/// file.
fn sole(file: &mut Option<Param>, bytes: &mut Vec<u8>) -> Option<u64> {
    file.as_mut()?.read(bytes).ok()?;
    sole_number(bytes)
}

fn sum(files: &mut [Param], bytes: &mut Vec<u8>) -> Option<u64> {
    let mut sum: Option<u64> = None;
    for file in files {
        file.read(bytes).ok()?;
        sum = Some(sum.unwrap_or(0).saturating_add(sole_number(bytes)?));
    }
    sum
}

fn is_connected(state: &str) -> bool {
    matches!(state, "FULL" | "IDLE")
}

impl Said<'_> {
    /// Adds the values of another device. A value that one device lacks is unknown for the sum.
    fn add(&mut self, other: &Said<'_>, first: bool) {
        let plus = |a: &mut Option<u64>, b: Option<u64>| {
            *a = match first {
                true => b,
                false => a.zip(b).map(|(a, b)| a.saturating_add(b)),
            };
        };
        plus(&mut self.inflight, other.inflight);
        plus(&mut self.timeouts, other.timeouts);
        plus(&mut self.attempts, other.attempts);
        self.estimate = match first {
            true => other.estimate,
            false => self.estimate.max(other.estimate),
        };
    }
}

/// Parses the known lines. Other lines differ between releases and are ignored.
fn parse(bytes: &[u8]) -> (Said<'_>, BadLines) {
    let mut said = Said::default();
    let mut bad = BadLines::default();
    for line in lines(bytes) {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        let (key, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        let wanted = match key {
            b"state" => &mut None,
            b"inflight" => &mut said.inflight,
            b"timeouts" => &mut said.timeouts,
            b"connection_attempts" => &mut said.attempts,
            b"services" => &mut said.estimate,
            _ => continue,
        };
        let understood = match key {
            b"state" => {
                said.state = state(value);
                said.state.is_some()
            }
            _ => {
                *wanted = words(value).next().and_then(number);
                wanted.is_some()
            }
        };
        if !understood {
            bad.add(line);
        }
    }
    if !cut(bytes).is_empty() || (said.state.is_none() && !bad.any()) {
        bad.add(cut(bytes));
    }
    (said, bad)
}

/// Parses a state, which is a word like those of `ptlrpc_import_state_name`; releases add some.
fn state(value: &[u8]) -> Option<&str> {
    let letter = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'_' | b'<' | b'>');
    let word = !value.is_empty() && value.len() <= STATE_BYTES_MAX && value.iter().all(letter);
    std::str::from_utf8(value).ok().filter(|_| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_import() {
        let text = "import:
    name: scratch-OST0000-osc-ffff9a0c12345000
    target: scratch-OST0000_UUID
    state: REPLAY_WAIT
    connect_flags: [ write_grant, unknown: 7 ]
    connection:
       current_connection: \"10.0.0.11@o2ib\"
       connection_attempts: 3
    rpcs:
       inflight: 12
       timeouts: 4
       avg_waittime: 1234 usec
    service_estimates:
       services: 45 sec
       network: 1 sec
";
        let (said, bad) = parse(text.as_bytes());
        let expect = Said {
            state: Some("REPLAY_WAIT"),
            inflight: Some(12),
            timeouts: Some(4),
            attempts: Some(3),
            estimate: Some(45),
        };
        assert_eq!((said, bad.any()), (expect, false));
    }

    #[test]
    fn what_is_no_import() {
        for text in [
            "",
            "import:\n",
            "    state: full\n",
            "    state: \n",
            "    state: FULL",
            "    state: FULL AND MORE\n",
            "    state: FULL\n inflight: -1\n",
            "    state: FULL\n services: 1.5 sec\n",
            "    state: FULL\n timeouts:\n",
        ] {
            assert!(parse(text.as_bytes()).1.any(), "{text:?}");
        }
        assert!(!parse(b" state: FULL\n").1.any());
    }
}
