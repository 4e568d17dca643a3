//! The error of this node's clock, as known to the kernel (`adjtimex`, read only) and, if chrony
//! runs, to chrony.
//!
//! Documents: `adjtimex(2)` and the kernel's `include/uapi/linux/timex.h`; `chronyc(1)`, `tracking`
//! and `-c`; `adjtimex(8)`, `--print`, for recordings.
//!
//! chrony's values take precedence: it does not use the kernel's offset, and reports the
//! synchronisation to the kernel only with its directive `rtcsync`. The bound of the error is then
//! the one that chronyc(1) gives: offset + root dispersion + half the root delay. While nothing
//! synchronises the clock, or it follows only itself (`local`), there is no offset and no bound:
//! the values that the kernel and chrony then print are fillers.
//!
//! Signs: an offset is positive when the clock is ahead, a frequency when the clock, left alone,
//! would run too fast. The offset in chrony's CSV has the opposite sign, and so have both values of
//! the kernel.

mod chrony;
mod kernel;

use std::path::Path;
use std::time::Duration;

use barograph_model::{Labels, NS_PER_S, Value};

use crate::fact::{FactSet, facts};
use crate::util::command::{Commands, Refusal};
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use chrony::Tracking;
use kernel::Kernel;

/// Timeout of a program; chronyc gives up after about the same time.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Up to two programs are run, and each may take until its timeout.
const STALL_NS: i64 = 15 * NS_PER_S;
/// Rounding error of a present time, in seconds since 1970, as a float.
const RESOLUTION_SECONDS: f64 = 1.2e-7;

facts! {
    /// Facts of the node's clock.
    pub(crate) enum Fact in "clock" {
        Time: Gauge Float "time.seconds" "seconds" "Time of the node's clock at the poll, in seconds since 1970. The error of the sample is the greatest difference from true time; it is infinite while nothing synchronises the clock.";
        Offset: Gauge Float "offset.seconds" "seconds" "Estimated time by which the clock is ahead of true time.";
        ErrorMax: Gauge Float "error.max.seconds" "seconds" "Greatest difference between the clock and true time.";
        ErrorEstimated: Gauge Float "error.estimated.seconds" "seconds" "Estimated typical difference between the clock and true time.";
        Synchronised: State Bool "synchronised.flag" "flag" "Whether the clock is synchronised.";
        Frequency: Gauge Float "frequency.ratio" "ratio" "Ratio by which the clock would run too fast without correction.";
        Source: State Text "source.name" "name" "Time server or reference clock that the node follows.";
        Stratum: Gauge Int "stratum.count" "count" "Number of hops to a reference clock (stratum).";
        RootDelay: Gauge Float "root.delay.seconds" "seconds" "Network delay to the reference clock, summed over all hops.";
        RootDispersion: Gauge Float "root.dispersion.seconds" "seconds" "Uncertainty of the time that accumulated over all hops to the reference clock.";
        Skew: Gauge Float "skew.ratio" "ratio" "Estimated bound of the error of clock.frequency.ratio.";
    }
}

/// The source `clock`.
pub struct Clock {
    root: SysRoot,
    commands: Commands,
    facts: FactSet<Fact>,
    sees: String,
    missing: Vec<MissingPart>,
}

/// The values to put; a field that is `None` then has no value.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    synchronised: Option<bool>,
    offset: Option<f64>,
    error_max: Option<f64>,
    error_estimated: Option<f64>,
    frequency: Option<f64>,
    source: Option<String>,
    stratum: Option<u64>,
    root_delay: Option<f64>,
    root_dispersion: Option<f64>,
    skew: Option<f64>,
}

impl Clock {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            commands: Commands::new(&root, TIMEOUT),
            facts: FactSet::new(Labels::none()),
            sees: "no clock".to_owned(),
            missing: Vec::new(),
            root,
        }
    }

    fn kernel(&mut self, faults: &mut Faults) -> Option<Kernel> {
        let why = match kernel::read(&self.root, &self.commands) {
            Ok(kernel) => return Some(kernel),
            Err(kernel::ClockRefusal::Format(fault)) => {
                faults.add(fault);
                return None;
            }
            Err(kernel::ClockRefusal::Missing(why)) => why,
        };
        self.missing.push(MissingPart::new(
            "what the kernel knows of its clock",
            why,
            "let the agent call adjtimex to read: SystemCallFilter=adjtimex clock_adjtime in its unit",
        ));
        None
    }

    fn chrony(&mut self, faults: &mut Faults) -> Option<Tracking> {
        let what = "time server and its stratum";
        let missing = match chrony::ask(&self.commands) {
            Ok(answer) => match Tracking::parse(&answer) {
                Ok(tracking) => return Some(tracking),
                Err(reason) => {
                    let what = "chronyc tracking".to_owned();
                    faults.add(SourceError::Format { what, reason });
                    return None;
                }
            },
            Err(Refusal::Absent) => MissingPart::new(
                what,
                "chronyc is not installed",
                "install chrony; with another daemon the kernel's values are all there is",
            ),
            Err(Refusal::Denied(why)) => MissingPart::new(what, why, "let the agent run chronyc"),
            Err(Refusal::Failed(why)) => MissingPart::new(
                what,
                format!("chronyd does not answer chronyc ({why})"),
                "start chronyd, and let it answer on 127.0.0.1 (cmdport, cmdallow in chrony.conf)",
            ),
        };
        self.missing.push(missing);
        None
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, state: &State) {
        let float = |v: Option<f64>| v.map(Value::Float);
        let values = [
            (Fact::Synchronised, state.synchronised.map(Value::Bool)),
            (Fact::Offset, float(state.offset)),
            (Fact::ErrorMax, float(state.error_max)),
            (Fact::ErrorEstimated, float(state.error_estimated)),
            (Fact::Frequency, float(state.frequency)),
            (Fact::Source, state.source.as_deref().map(Value::text)),
            (
                Fact::Stratum,
                state.stratum.map(|n| Value::Int(crate::fact::int(n))),
            ),
            (Fact::RootDelay, float(state.root_delay)),
            (Fact::RootDispersion, float(state.root_dispersion)),
            (Fact::Skew, float(state.skew)),
        ];
        for (fact, value) in values {
            match value {
                Some(value) => self.facts.measured(batch, now_ns, fact, value),
                None => self.facts.retire_one(batch, fact),
            }
        }
    }
}

impl Source for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        self.missing.clear();
        let kernel = self.kernel(&mut faults);
        let chrony = self.chrony(&mut faults);
        let state = State::of(kernel.as_ref(), chrony.as_ref());
        let known = kernel.is_some() || chrony.is_some();
        // Below another root the time of this machine is not that of the recorded one.
        if self.root.is_real() || known {
            let seconds = now_ns as f64 / 1e9;
            let error = state.error_max.unwrap_or(f64::INFINITY) + RESOLUTION_SECONDS;
            self.facts
                .measured_within(batch, now_ns, Fact::Time, seconds, error);
        }
        if known {
            self.put(now_ns, batch, &state);
        }
        self.sees = state.sees(chrony.is_some());
        if state.synchronised == Some(false) {
            self.missing.push(MissingPart::new(
                "offset and error of the clock",
                "nothing synchronises it",
                "run chronyd with rtcsync, ntpd or systemd-timesyncd, and let it reach its servers",
            ));
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage {
            sees: self.sees.clone(),
            missing: self.missing.clone(),
        }
    }
}

impl State {
    fn of(kernel: Option<&Kernel>, chrony: Option<&Tracking>) -> Self {
        match (kernel, chrony) {
            (_, Some(chrony)) => chrony.state(),
            (Some(kernel), None) => kernel.state(),
            (None, None) => Self::default(),
        }
    }

    fn sees(&self, chrony: bool) -> String {
        let by = match chrony {
            true => "chrony",
            false => "the kernel",
        };
        match (self.synchronised, &self.source) {
            (None, _) => "no clock".to_owned(),
            (Some(false), _) => format!("a clock that is not synchronised, says {by}"),
            (Some(true), None) => format!("a synchronised clock, says {by}"),
            (Some(true), Some(source)) => {
                format!("a clock that is synchronised to {source}, says {by}")
            }
        }
    }
}
