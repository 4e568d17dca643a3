//! Health of whole disks: what they say of themselves (SMART, through the privileged helper), and
//! what the kernel knows of them (temperature sensors, lists of bad blocks), which everybody may
//! read. A disk that sleeps is not woken: smartctl looks at its power mode first, and the sensor of
//! one that turns (drivetemp) is read only when smartctl just found it awake. To be asked may count
//! as work with some disks, which then go to sleep later or not at all; those that shall sleep go into
//! `sources.health.skip`, and are touched neither way.

mod local;
mod smart;

use barograph_model::NS_PER_S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Globs;
use crate::error::Faults;
use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::command::{Commands, Refusal};
use crate::util::file::SysRoot;
use crate::util::helper::{HELPER_TIMEOUT, HelperConfig, REMEDY};
use crate::util::roster::Roster;
use crate::{Batch, Missing, Report, Source, SourceError, SourcesConfig};

use local::BadBlocks;
use smart::{Answer, Smart};

/// Most disks that are followed.
const DISKS_MAX: usize = 256;
/// After how many disks that took too long the others wait for the next read.
const SILENT_MAX: usize = 2;
/// A disk that had nothing to say, or did not answer, is asked again so many reads later.
const ASK_AGAIN_READS: u32 = 10;
/// Each late answer doubles that, as a program that hangs in the kernel with the disk may stay there;
/// but it is asked again when this time has passed.
const REST_NS_MAX: i64 = 24 * 3600 * NS_PER_S;
/// After so many vain answers in a row, what a disk said of itself before holds no more.
const VAIN_MAX: u32 = 3;
/// What only a disk itself says.
const OF_SMART: [Fact; 11] = [
    Fact::Ok,
    Fact::Wear,
    Fact::Spare,
    Fact::Read,
    Fact::Write,
    Fact::PowerOn,
    Fact::PowerCycles,
    Fact::Media,
    Fact::Unsafe,
    Fact::Logged,
    Fact::Critical,
];

/// A read waits for two disks that are late, and asks the others one after the other.
const STALL_NS: i64 = 120 * NS_PER_S;

facts! {
    /// Facts of one disk's health. Blocks are of 512 bytes.
    pub(crate) enum Fact in "health" {
        Ok: State Bool "ok.flag" "flag" "Whether the disk considers itself healthy.";
        Temperature: Gauge Float "temperature.celsius" "celsius" "Temperature of the disk.";
        Wear: Gauge Float "wear.ratio" "ratio" "Share of the rated endurance that is used; above 1 where it is exceeded.";
        Spare: Gauge Float "spare.ratio" "ratio" "Share of the spare blocks that is left.";
        Bad: Gauge Int "bad.blocks" "blocks" "Blocks of 512 bytes that are bad: reallocated, about to be, or listed by the kernel. NVMe drives count none.";
        Total: Gauge Int "total.blocks" "blocks" "Blocks of 512 bytes that the disk has.";
        Read: Counter Int "read.blocks" "blocks" "Blocks of 512 bytes read in the life of the disk.";
        Write: Counter Int "write.blocks" "blocks" "Blocks of 512 bytes written in the life of the disk.";
        PowerOn: Counter Float "power_on.seconds" "seconds" "Time that the disk was powered in its life.";
        PowerCycles: Counter Int "power_cycles.count" "count" "How often the disk was powered up.";
        Media: Counter Int "media.errors.count" "count" "Errors that the disk could not correct.";
        Unsafe: Counter Int "unsafe_shutdowns.count" "count" "How often the disk lost power unprepared.";
        Logged: Counter Int "logged.errors.count" "count" "Errors in the log of the disk, of any kind.";
        Critical: Gauge Int "critical.count" "count" "Warnings that the disk raises now: bits of NVMe's critical warning, attributes below their threshold.";
        From: State Text "source.name" "name" "Where its health is known from: smart, kernel, or smart and kernel.";
    }
}

/// Health of disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Patterns over the names of disks that are never asked, such as ones behind a bridge that
    /// does not bear it, or ones that shall sleep.
    pub skip: Vec<String>,
}

/// The source `health`.
pub struct Health {
    root: SysRoot,
    commands: Commands,
    helper: HelperConfig,
    skip: Globs,
    disks: Roster<Disk>,
    absent: Option<String>,
    unnameable: Vec<Missing>,
}

struct Disk {
    /// As in `/sys/block`.
    name: String,
    facts: FactSet<Fact>,
    verdict: Verdict,
    /// Reads until it is asked again.
    rest_reads: u32,
    /// How many these were after the last late answer; 0 when it answered since.
    late_reads: u32,
    /// Monotonic time at which it was last asked.
    asked_ns: i64,
    /// How often in a row it was asked and gave nothing; one that sleeps has answered.
    vain: u32,
    /// Of the last read, for the report.
    celsius: Option<f64>,
    is_smart: bool,
    is_known: bool,
    has_bad_blocks: bool,
    is_least: bool,
}

/// What came of the last time that a disk was to be asked.
#[derive(Debug)]
enum Verdict {
    NotAsked,
    Virtual,
    Skipped,
    Known,
    Asleep,
    Nothing(String),
    Refused(Refusal),
    Garbled(String),
}

/// What is shared by the disks of one read.
struct Round<'a> {
    commands: &'a Commands,
    helper: &'a HelperConfig,
    root: &'a SysRoot,
    skip: &'a Globs,
    monotonic_ns: i64,
    /// Nobody answers at all, so that asking for each disk is vain.
    is_vain: bool,
    silent: usize,
}

impl Health {
    /// Below the configured root.
    pub fn new(config: &SourcesConfig) -> Self {
        let root = SysRoot::new(&config.sys_root);
        Self {
            commands: Commands::new(&root, HELPER_TIMEOUT),
            helper: config.helper.clone(),
            skip: Globs::new(&config.health.skip),
            disks: Roster::new(DISKS_MAX),
            absent: None,
            unnameable: Vec::new(),
            root,
        }
    }

    /// Follows the disks that are there.
    fn follow(&mut self, names: &[String], batch: &mut Batch) {
        self.unnameable.clear();
        self.disks.begin();
        for name in names {
            let unnameable = &mut self.unnameable;
            self.disks.visit(name.as_bytes(), || {
                Disk::new(name)
                    .map_err(|missing| unnameable.push(missing))
                    .ok()
            });
        }
        self.disks.sweep(|disk| disk.facts.retire(batch));
    }
}

impl Source for Health {
    fn name(&self) -> &'static str {
        "health"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
        let names = match local::disks(&self.root) {
            Ok(names) => {
                self.absent = None;
                names
            }
            Err(fault) if fault.is_absent() => {
                self.absent = Some(fault.to_string());
                Vec::new()
            }
            Err(fault) => return Err(fault),
        };
        self.follow(&names, batch);
        let mut faults = Faults::default();
        let kernel = BadBlocks::read(&self.root, &names, &mut faults);
        let mut round = Round {
            commands: &self.commands,
            helper: &self.helper,
            root: &self.root,
            skip: &self.skip,
            monotonic_ns: batch.monotonic_ns(),
            is_vain: false,
            silent: 0,
        };
        for (_, disk) in self.disks.iter_mut() {
            let smart = faults.take(disk.ask(&mut round)).flatten();
            disk.put(now_ns, batch, &self.root, smart.as_deref(), &kernel);
        }
        if self.disks.refused() > 0 {
            faults.add(SourceError::TooMany {
                what: "disks",
                refused: self.disks.refused(),
                max: DISKS_MAX,
            });
        }
        faults.finish()
    }

    fn report(&self) -> Report {
        let shown = |disk: &Disk| match disk.celsius {
            Some(celsius) => format!("{} ({}, {celsius:.0} °C)", disk.name, disk.from()),
            None => format!("{} ({})", disk.name, disk.from()),
        };
        let disks = || self.disks.iter().map(|(_, disk)| disk);
        let known: Vec<_> = disks().filter(|d| d.is_known).map(shown).collect();
        let all = counted(self.disks.len(), "disk");
        let sees = match (self.disks.len(), known.len()) {
            (0, _) => "no disk whose health could be asked".to_owned(),
            (_, 0) => format!("the health of none of {all}"),
            (_, count) => format!("the health of {count} of {all}: {}", known.join(", ")),
        };
        let mut missing = self.unnameable.clone();
        match &self.absent {
            Some(why) => missing.push(Missing::new(
                "disks",
                why.as_str(),
                "mount /sys, or let the agent see the host's",
            )),
            None if self.disks.len() == 0 => missing.push(Missing::new(
                "disks",
                "/sys/block has none that is not made of others",
                "nothing: this machine has no disk of its own",
            )),
            None => {}
        }
        let mut gaps: Vec<_> = disks().filter_map(Disk::missing_smart).collect();
        gaps.extend(disks().filter_map(Disk::missing_blocks));
        missing.extend(together(gaps));
        Report { sees, missing }
    }
}

/// What is not known of one disk.
struct Gap {
    what: &'static str,
    disk: String,
    why: String,
    remedy: String,
}

/// One entry for all disks of which the same is missing for the same reason.
fn together(gaps: Vec<Gap>) -> Vec<Missing> {
    let mut entries: Vec<Missing> = Vec::new();
    for Gap {
        what,
        disk,
        why,
        remedy,
    } in gaps
    {
        let of = format!("{what} of ");
        let is_same =
            |m: &&mut Missing| m.what.starts_with(&of) && m.why == why && m.remedy == remedy;
        match entries.iter_mut().find(is_same) {
            Some(entry) => entry.what.extend([", ", &disk]),
            None => entries.push(Missing::new(of + &disk, why, remedy)),
        }
    }
    entries
}

impl Disk {
    fn new(name: &str) -> Result<Self, Missing> {
        let facts = FactSet::labelled([("device", name.replace('!', "/"))]);
        let facts = facts.map_err(|fault| {
            let remedy = "give the device a shorter name";
            Missing::new(format!("health of {name}"), fault.to_string(), remedy)
        })?;
        Ok(Self {
            name: name.to_owned(),
            facts,
            verdict: Verdict::NotAsked,
            rest_reads: 0,
            late_reads: 0,
            asked_ns: 0,
            vain: 0,
            celsius: None,
            is_smart: false,
            is_known: false,
            has_bad_blocks: false,
            is_least: false,
        })
    }

    /// Asks it, unless that is vain or was in vain a short while ago.
    fn ask(&mut self, round: &mut Round) -> Result<Option<Box<Smart>>, SourceError> {
        if local::is_virtual(round.root, &self.name) {
            self.verdict = Verdict::Virtual;
            return Ok(None);
        }
        if round.skip.matches(&self.name) {
            self.verdict = Verdict::Skipped;
            return Ok(None);
        }
        let since_ns = round.monotonic_ns.saturating_sub(self.asked_ns);
        if self.rest_reads > 0 && since_ns < REST_NS_MAX {
            self.rest_reads -= 1;
            return Ok(None);
        }
        if round.silent >= SILENT_MAX {
            return Ok(None);
        }
        self.asked_ns = round.monotonic_ns;
        self.rest_reads = 0;
        let asked = self.ask_now(round);
        self.vain = match self.verdict {
            Verdict::Known | Verdict::Asleep => 0,
            _ => self.vain.saturating_add(1),
        };
        if !matches!(self.verdict, Verdict::Refused(_)) {
            self.late_reads = 0;
        }
        asked
    }

    fn ask_now(&mut self, round: &mut Round) -> Result<Option<Box<Smart>>, SourceError> {
        if round.is_vain {
            self.verdict = Verdict::Refused(Refusal::Absent);
            return Ok(None);
        }
        let recording = format!("smartctl.{}", self.name);
        let asked = round
            .commands
            .ask_helper(round.helper, "smart", &self.name, &recording);
        let bytes = match asked {
            Ok(bytes) => bytes,
            Err(refusal) => return self.refused(refusal, round),
        };
        match smart::parse(&bytes) {
            Ok(Answer::Known(smart)) => {
                self.verdict = Verdict::Known;
                Ok(Some(smart))
            }
            Ok(Answer::Asleep) => {
                self.verdict = Verdict::Asleep;
                Ok(None)
            }
            Ok(Answer::Nothing(why)) => {
                self.verdict = Verdict::Nothing(why);
                self.rest_reads = ASK_AGAIN_READS - 1;
                Ok(None)
            }
            Err(reason) => {
                self.verdict = Verdict::Garbled(reason.clone());
                let what = format!("smartctl of {}", self.name);
                Err(SourceError::Format { what, reason })
            }
        }
    }

    fn refused(
        &mut self,
        refusal: Refusal,
        round: &mut Round,
    ) -> Result<Option<Box<Smart>>, SourceError> {
        // A recording that is not there says nothing of the other disks'.
        round.is_vain = refusal == Refusal::Absent && round.commands.is_real();
        if is_late(&refusal) {
            round.silent += 1;
            self.late_reads = self.late_reads.saturating_mul(2).max(ASK_AGAIN_READS);
            self.rest_reads = self.late_reads - 1;
        }
        let is_fault = matches!(&refusal, Refusal::Failed(why) if !is_not_installed(why));
        let fault = is_fault.then(|| SourceError::Command {
            program: format!("smartctl of {}", self.name),
            reason: refusal.to_string(),
        });
        self.verdict = Verdict::Refused(refusal);
        fault.map_or(Ok(None), Err)
    }

    fn put(
        &mut self,
        now_ns: i64,
        batch: &mut Batch,
        root: &SysRoot,
        smart: Option<&Smart>,
        kernel: &BadBlocks,
    ) {
        let listed = kernel.of(&self.name);
        let of_disk = smart.and_then(|smart| smart.bad_blocks);
        let asked = smart.and_then(|smart| smart.celsius);
        let is_asleep = matches!(self.verdict, Verdict::Asleep);
        self.celsius = match asked {
            None if !is_asleep => local::celsius(root, &self.name, smart.is_some()),
            asked => asked,
        };
        // Blocks that the disk replaced are none that the kernel met, and those that wait for it may
        // be: the greater count is one that holds.
        let bad = of_disk.max(listed.map(|count| count.blocks));
        self.has_bad_blocks = bad.is_some();
        self.is_smart = smart.is_some();
        if self.vain >= VAIN_MAX {
            self.forget_smart(batch);
        }
        self.is_least = listed.is_some_and(|count| count.is_least && Some(count.blocks) == bad);
        let is_kernel = listed.is_some() || (asked.is_none() && self.celsius.is_some());
        let from = match (smart.is_some(), is_kernel) {
            (true, false) => "smart",
            (true, true) => "smart and kernel",
            (false, true) => "kernel",
            (false, false) => {
                self.is_known = false;
                if self.vain >= VAIN_MAX {
                    self.facts.retire(batch);
                }
                return;
            }
        };
        self.is_known = true;
        let facts = &mut self.facts;
        facts.measured(
            batch,
            now_ns,
            Fact::From,
            barograph_model::Value::text(from),
        );
        if let Some(celsius) = self.celsius {
            facts.measured(batch, now_ns, Fact::Temperature, celsius);
        }
        let counts = [
            (Fact::Bad, bad),
            (Fact::Total, local::blocks(root, &self.name)),
        ];
        for (fact, value) in counts {
            if let Some(value) = value {
                facts.count(batch, now_ns, fact, value);
            }
        }
        if let Some(smart) = smart {
            put_smart(facts, now_ns, batch, smart);
        }
    }

    /// Ends what it said of itself long ago, and what of that the kernel does not say now.
    fn forget_smart(&mut self, batch: &mut Batch) {
        let bad = (!self.has_bad_blocks).then_some(Fact::Bad);
        let celsius = self.celsius.is_none().then_some(Fact::Temperature);
        for fact in OF_SMART.into_iter().chain(bad).chain(celsius) {
            self.facts.retire_one(batch, fact);
        }
    }

    fn from(&self) -> &'static str {
        match self.is_smart {
            true => "SMART",
            false => "the kernel",
        }
    }

    /// What SMART would give and does not.
    fn missing_smart(&self) -> Option<Gap> {
        let (why, remedy) = match &self.verdict {
            Verdict::Known | Verdict::NotAsked => return None,
            Verdict::Refused(Refusal::Absent) => (
                "only root may ask a disk, and the helper that does it does not answer".to_owned(),
                format!("{REMEDY}, and install smartmontools"),
            ),
            Verdict::Virtual => (
                "the disk is a virtual one, which has no SMART".to_owned(),
                "ask on the machine that has the real one".to_owned(),
            ),
            Verdict::Skipped => (
                "the configuration leaves it out".to_owned(),
                "take it out of sources.health.skip".to_owned(),
            ),
            Verdict::Asleep => (
                "the disk sleeps and is not woken: its values are those of the last time".to_owned(),
                "nothing: they come when it is used".to_owned(),
            ),
            Verdict::Nothing(why) => (
                why.clone(),
                "a disk behind a RAID controller is known to that one's own tool; one that cannot be asked goes into sources.health.skip".to_owned(),
            ),
            Verdict::Garbled(why) => (
                format!("what smartctl says of it cannot be understood: {why}"),
                "smartctl --json of smartmontools 7.0 or newer is understood".to_owned(),
            ),
            Verdict::Refused(refusal) => (refusal.to_string(), remedy(refusal)),
        };
        Some(Gap {
            what: "SMART",
            disk: self.name.clone(),
            why,
            remedy,
        })
    }

    /// Bad blocks that are not, or not all, counted.
    fn missing_blocks(&self) -> Option<Gap> {
        let (why, remedy) = match (self.is_least, &self.verdict) {
            (true, _) => (
                "the kernel lists one page of them: there may be more",
                "replace the disk",
            ),
            (false, Verdict::Known) if !self.has_bad_blocks => (
                "it counts none, as NVMe drives do not, nor some SSDs",
                "look at media errors, wear and what is left of its spare blocks",
            ),
            _ => return None,
        };
        Some(Gap {
            what: "bad blocks",
            disk: self.name.clone(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
        })
    }
}

fn put_smart(facts: &mut FactSet<Fact>, now_ns: i64, batch: &mut Batch, smart: &Smart) {
    if let Some(is_ok) = smart.is_ok {
        facts.measured(batch, now_ns, Fact::Ok, is_ok);
    }
    let shares = [
        (Fact::Wear, smart.wear),
        (Fact::Spare, smart.spare),
        (Fact::PowerOn, smart.power_on_s),
    ];
    for (fact, value) in shares {
        if let Some(value) = value {
            facts.measured(batch, now_ns, fact, value);
        }
    }
    let counts = [
        (Fact::Read, smart.read_blocks),
        (Fact::Write, smart.write_blocks),
        (Fact::PowerCycles, smart.power_cycles),
        (Fact::Media, smart.media_errors),
        (Fact::Unsafe, smart.unsafe_shutdowns),
        (Fact::Logged, smart.logged_errors),
        (Fact::Critical, smart.criticals),
    ];
    for (fact, value) in counts {
        if let Some(value) = value {
            facts.count(batch, now_ns, fact, value);
        }
    }
}

fn is_late(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Failed(why) if why.contains("took too long"))
}

fn is_not_installed(why: &str) -> bool {
    why.contains("is not installed")
}

fn remedy(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Failed(why) if is_not_installed(why) => "install smartmontools".to_owned(),
        _ if is_late(refusal) => {
            "look at the disk and its cable: it is asked again in a while".to_owned()
        }
        _ => format!("{REMEDY}; a user asks as a member of its group"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many reads, a minute apart, pass until a disk is asked again after each late answer.
    #[test]
    fn a_disk_that_is_late_again_and_again_rests_longer_and_longer() {
        let tree = tempfile::tempdir().unwrap();
        let root = SysRoot::new(tree.path());
        let commands = Commands::new(&root, HELPER_TIMEOUT);
        let (helper, skip) = (HelperConfig::default(), Globs::new(&[] as &[&str]));
        let mut monotonic_ns = 0;
        let mut disk = Disk::new("sda").unwrap();
        let round = |monotonic_ns| Round {
            commands: &commands,
            helper: &helper,
            root: &root,
            skip: &skip,
            monotonic_ns,
            is_vain: false,
            silent: 0,
        };
        // Nothing is recorded, so that each time when it is asked its verdict changes.
        let mut reads_until_asked = |disk: &mut Disk| {
            disk.verdict = Verdict::NotAsked;
            (1..5000).find(|_| {
                monotonic_ns += 60 * NS_PER_S;
                let _ = disk.ask(&mut round(monotonic_ns));
                !matches!(disk.verdict, Verdict::NotAsked)
            })
        };
        let late = |disk: &mut Disk| {
            let why = "the helper says: smartctl took too long and was ended";
            let mut round = round(0);
            let refusal = Refusal::Failed(why.to_owned());
            assert!(disk.refused(refusal, &mut round).is_err());
            assert_eq!(round.silent, 1);
        };
        assert_eq!(reads_until_asked(&mut disk), Some(1));
        for reads in [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440] {
            late(&mut disk);
            assert_eq!(reads_until_asked(&mut disk), Some(reads));
        }
        let recordings = tree.path().join("commands");
        std::fs::create_dir(&recordings).unwrap();
        let known = r#"{"json_format_version":[1,0],"smart_status":{"passed":true}}"#;
        std::fs::write(recordings.join("smartctl.sda"), known).unwrap();
        assert_eq!(reads_until_asked(&mut disk), Some(1));
        late(&mut disk);
        assert_eq!(reads_until_asked(&mut disk), Some(10));
    }
}
