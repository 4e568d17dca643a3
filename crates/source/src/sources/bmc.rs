//! Measurements of the management controller (BMC): the power of the whole node, as its power
//! supplies measure it, by the DCMI command Get Power Reading.
//!
//! Documents: `ipmitool(1)`, `dcmi power reading`; DCMI Specification 1.5, 6.6.1 (Get Power
//! Reading) for the meaning and range of the fields. Only root may open the device of the BMC, so
//! the privileged helper runs the program. The source is usually off: a reading takes the
//! controller up to seconds, and a program is run for each.
//!
//! Redfish, the other way to a BMC, is left out: it needs a TLS client and the controller's
//! credentials on every node, and gives the same reading.

use std::path::Path;

use barograph_model::NS_PER_S;

use crate::fact::{FactSet, facts};
use crate::util::command::{Commands, Refusal};
use crate::util::file::SysRoot;
use crate::util::helper::{HELPER_TIMEOUT, HelperConfig, REMEDY};
use crate::util::parse::{cut, lines, number, words};
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

/// The program that answers, as named in reports.
const PROGRAM: &str = "ipmitool dcmi power reading";
/// The helper's timeout and a little more.
const STALL_NS: i64 = 35 * NS_PER_S;
/// Number of reads without an answer after which the last answer no longer counts.
const UNANSWERED_MAX: u32 = 3;
/// Largest value in watts: the fields of the answer are 16 bits wide.
const WATTS_MAX: u64 = u16::MAX as u64;

facts! {
    /// Facts of one thing that the BMC measures.
    pub(crate) enum Fact in "bmc" {
        Draw: Gauge Float "draw.watts" "watts" "Power of the node now, as the BMC measures it.";
        Average: Gauge Float "draw.average.watts" "watts" "Average power over the sampling period of the BMC.";
        Minimum: Gauge Float "draw.minimum.watts" "watts" "Least power since the BMC began its statistics.";
        Maximum: Gauge Float "draw.maximum.watts" "watts" "Greatest power since the BMC began its statistics.";
    }
}

/// The lines of the answer that are used, as ipmitool words them.
const LINES: [(&[u8], Fact); 4] = [
    (b"Instantaneous power reading", Fact::Draw),
    (b"Average power reading over sample period", Fact::Average),
    (b"Minimum during sampling period", Fact::Minimum),
    (b"Maximum during sampling period", Fact::Maximum),
];
/// The last line: whether the others are valid.
const STATE: &[u8] = b"Power reading state is";

/// The source `bmc`.
pub struct Bmc {
    commands: Commands,
    helper: HelperConfig,
    facts: FactSet<Fact>,
    watts: Option<u64>,
    missing: Option<MissingPart>,
    /// Number of reads since the last answer.
    unanswered: u32,
}

impl Bmc {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, helper: &HelperConfig) -> Self {
        let zone = FactSet::labelled([("zone", "node".to_owned())]);
        Self {
            commands: Commands::new(&SysRoot::new(sys_root), HELPER_TIMEOUT),
            helper: helper.clone(),
            facts: zone.expect("a short label"),
            watts: None,
            missing: None,
            unanswered: 0,
        }
    }

    fn ask(&self) -> Result<Vec<u8>, Refusal> {
        self.commands
            .ask_helper(&self.helper, "bmc-power", "", "ipmitool-dcmi-power")
    }

    /// Handles a refusal. Without a helper, the right to it or a BMC it is no fault.
    fn refused(&mut self, refusal: Refusal) -> Result<(), SourceError> {
        let (why, remedy) = match refusal {
            Refusal::Absent => (
                format!(
                    "barograph-helper does not listen at {}",
                    self.helper.socket.display()
                ),
                REMEDY,
            ),
            Refusal::Denied(why) => (why, "add the agent's user to the group barograph"),
            Refusal::Failed(why) if why.starts_with("the helper says") => (
                why,
                "install ipmitool and load ipmi_devintf and ipmi_si; without a BMC turn sources.poll.bmc off",
            ),
            failed => return Err(failed.into_fault("barograph-helper")),
        };
        self.missing = Some(MissingPart::new("power that the BMC measures", why, remedy));
        Ok(())
    }
}

impl Source for Bmc {
    fn name(&self) -> &'static str {
        "bmc"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        self.watts = None;
        self.missing = None;
        let result = self.read_once(now_ns, batch);
        match self.watts {
            Some(_) => self.unanswered = 0,
            None => self.unanswered = self.unanswered.saturating_add(1),
        }
        if self.unanswered == UNANSWERED_MAX {
            self.facts.retire(batch);
        }
        result
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage {
            sees: match self.watts {
                Some(watts) => format!("the BMC measures {watts} W"),
                None => "no power reading of a BMC".to_owned(),
            },
            missing: self.missing.iter().cloned().collect(),
        }
    }
}

impl Bmc {
    fn read_once(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let answer = match self.ask() {
            Ok(answer) => answer,
            Err(refusal) => return self.refused(refusal),
        };
        let reading = parse(&answer).map_err(|reason| SourceError::Format {
            what: PROGRAM.to_owned(),
            reason,
        })?;
        if let Err(why) = reading.usable() {
            let remedy = "look whether a newer firmware of the BMC measures power";
            self.missing = Some(MissingPart::new("power that the BMC measures", why, remedy));
            return Ok(());
        }
        for ((_, fact), watts) in LINES.into_iter().zip(reading.watts) {
            self.facts.measured(batch, now_ns, fact, watts as f64);
        }
        self.watts = Some(reading.watts[0]);
        Ok(())
    }
}

/// One answer of the program.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    /// Watts in the order of [`LINES`].
    watts: [u64; LINES.len()],
    active: bool,
}

impl Reading {
    fn usable(&self) -> Result<(), &'static str> {
        match (self.active, self.watts[0]) {
            (false, _) => Err("the BMC says that its power measurement is not active"),
            (true, 0) => Err("the BMC says 0 W of a node that runs"),
            (true, _) => Ok(()),
        }
    }
}

/// Parses an answer. All lines must be there, with the words and numbers that the program prints
/// without translation.
fn parse(answer: &[u8]) -> Result<Reading, String> {
    let mut watts = [None; LINES.len()];
    let mut active = None;
    for line in lines(answer) {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        let key = line[..colon].trim_ascii();
        let mut value = words(&line[colon + 1..]);
        let known = LINES.iter().position(|(wanted, _)| *wanted == key);
        match known {
            Some(place) => {
                let read = value.next().and_then(number).filter(|w| *w <= WATTS_MAX);
                let whole = value.next() == Some(b"Watts") && value.at_end();
                let name = String::from_utf8_lossy(key);
                let got = read.filter(|_| whole);
                let got = got.ok_or_else(|| format!("the line {name:?} has no number of watts"))?;
                watts[place] = Some(got);
            }
            None if key == STATE => {
                active = match value.next() {
                    Some(b"activated") => Some(true),
                    Some(b"deactivated") => Some(false),
                    _ => return Err("an unknown state of the power reading".to_owned()),
                };
            }
            None => {}
        }
    }
    if !cut(answer).is_empty() {
        return Err("the answer was cut".to_owned());
    }
    match (watts, active) {
        ([Some(a), Some(b), Some(c), Some(d)], Some(active)) => Ok(Reading {
            watts: [a, b, c, d],
            active,
        }),
        _ => Err("lines are missing in the answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "
    Instantaneous power reading:                   217 Watts
    Minimum during sampling period:                 96 Watts
    Maximum during sampling period:                388 Watts
    Average power reading over sample period:      201 Watts
    IPMI timestamp:                           Thu Nov 16 09:12:33 2023
    Sampling period:                          00000005 Seconds.
    Power reading state is:                   activated

";

    #[test]
    fn answers() {
        let reading = parse(ANSWER.as_bytes()).unwrap();
        assert_eq!(reading.watts, [217, 201, 96, 388]);
        assert_eq!(reading.usable(), Ok(()));
        let off = parse(ANSWER.replace("activated", "deactivated").as_bytes()).unwrap();
        assert!(off.usable().unwrap_err().contains("not active"));
        let zero = parse(ANSWER.replace(" 217 ", " 0 ").as_bytes()).unwrap();
        assert!(zero.usable().unwrap_err().contains("0 W"));
    }

    #[test]
    fn what_is_not_the_programs_own_wording_is_refused() {
        for (from, to) in [
            ("217 Watts", "217,5 Watts"),
            ("217 Watts", "217.5 Watts"),
            ("217 Watts", "217 Вт"),
            ("217 Watts", "217"),
            ("217 Watts", "65536 Watts"),
            ("217 Watts", "-1 Watts"),
            ("Instantaneous power", "Augenblickliche Leistung"),
            ("activated", "aktiviert"),
            ("activated\n\n", "activated"),
        ] {
            let changed = ANSWER.replacen(from, to, 1);
            assert!(parse(changed.as_bytes()).is_err(), "{from} -> {to}");
        }
        // The lines after the state are empty: a cut there loses nothing.
        let whole = ANSWER.trim_end().len() + 1;
        for end in 0..whole {
            assert!(parse(&ANSWER.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }
}
