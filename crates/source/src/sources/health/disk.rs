//! One disk: when it is asked, its answer, and how long the answer is valid.

use barograph_model::NS_PER_S;

use crate::fact::FactSet;
use crate::util::command::{Commands, Refusal};
use crate::util::file::SysRoot;
use crate::util::globs::Globs;
use crate::util::helper::{HelperConfig, REMEDY};
use crate::{MissingPart, SourceBatch, SourceError};

use super::Fact;
use super::local::{self, BadBlocks};
use super::smart::{self, Smart, SmartAnswer};

/// Number of late disks in one read after which the others wait for the next read.
const SILENT_MAX: usize = 2;
/// Number of reads after which a disk that had nothing to report, or did not answer, is asked
/// again.
const ASK_AGAIN_READS: u32 = 10;
/// Longest time until a disk is asked again. Each late answer doubles the number of reads until
/// then, because a program that hangs in the kernel with the disk may remain there.
const REST_NS_MAX: i64 = 24 * 3600 * NS_PER_S;
/// Number of unsuccessful queries in a row after which the disk's earlier answer is no longer
/// valid.
const VAIN_MAX: u32 = 3;
/// Facts that only the disk itself reports.
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

pub(super) struct HealthDisk {
    /// The name in `/sys/block`.
    pub(super) name: String,
    pub(super) facts: FactSet<Fact>,
    verdict: Verdict,
    /// Number of reads until it is asked again.
    rest_reads: u32,
    /// The value of that number after the last late answer; 0 if the disk has answered since.
    late_reads: u32,
    /// Monotonic time at which it was last asked.
    asked_ns: i64,
    /// Number of unsuccessful queries in a row; the answer that it sleeps is a success.
    vain: u32,
    /// Temperature of the last read, for the report.
    pub(super) celsius: Option<f64>,
    is_smart: bool,
    pub(super) is_known: bool,
    has_bad_blocks: bool,
    is_least: bool,
}

/// The result of the last time that a disk was to be asked.
#[derive(Debug)]
pub(super) enum Verdict {
    NotAsked,
    Virtual,
    Skipped,
    Known,
    Asleep,
    Nothing(String),
    Refused(Refusal),
    Garbled(String),
}

/// State that the disks of one read share.
pub(super) struct HealthRound<'a> {
    pub(super) commands: &'a Commands,
    pub(super) helper: &'a HelperConfig,
    pub(super) root: &'a SysRoot,
    pub(super) skip: &'a Globs,
    pub(super) monotonic_ns: i64,
    /// Whether the helper does not answer at all, so that asking each disk is pointless.
    pub(super) is_vain: bool,
    pub(super) silent: usize,
}

/// Something unknown about one disk, for the report.
pub(super) struct Gap {
    pub(super) what: &'static str,
    pub(super) disk: String,
    pub(super) why: String,
    pub(super) remedy: String,
}

impl HealthDisk {
    pub(super) fn new(name: &str) -> Result<Self, MissingPart> {
        let facts = FactSet::labelled([("device", name.replace('!', "/"))]);
        let facts = facts.map_err(|fault| {
            let remedy = "give the device a shorter name";
            MissingPart::new(format!("health of {name}"), fault.to_string(), remedy)
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

    /// Asks the disk, unless that is pointless or failed a short while ago.
    pub(super) fn ask(
        &mut self,
        round: &mut HealthRound,
    ) -> Result<Option<Box<Smart>>, SourceError> {
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

    fn ask_now(&mut self, round: &mut HealthRound) -> Result<Option<Box<Smart>>, SourceError> {
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
            Ok(SmartAnswer::Known(smart)) => {
                self.verdict = Verdict::Known;
                Ok(Some(smart))
            }
            Ok(SmartAnswer::Asleep) => {
                self.verdict = Verdict::Asleep;
                Ok(None)
            }
            Ok(SmartAnswer::Nothing(why)) => {
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
        round: &mut HealthRound,
    ) -> Result<Option<Box<Smart>>, SourceError> {
        // A missing recording does not mean that those of other disks are missing.
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

    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
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
        // Blocks that the disk replaced are not in the kernel's list, and those that it is about to
        // replace may be: the greater count is a valid lower bound.
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

    /// Retires the facts of the disk's outdated answer, as far as the kernel does not give them
    /// now.
    fn forget_smart(&mut self, batch: &mut SourceBatch) {
        let bad = (!self.has_bad_blocks).then_some(Fact::Bad);
        let celsius = self.celsius.is_none().then_some(Fact::Temperature);
        for fact in OF_SMART.into_iter().chain(bad).chain(celsius) {
            self.facts.retire_one(batch, fact);
        }
    }

    pub(super) fn from(&self) -> &'static str {
        match self.is_smart {
            true => "SMART",
            false => "the kernel",
        }
    }

    /// The facts that SMART would give but does not.
    pub(super) fn missing_smart(&self) -> Option<Gap> {
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

    /// Bad blocks that are not counted, or not all of them.
    pub(super) fn missing_blocks(&self) -> Option<Gap> {
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

fn put_smart(facts: &mut FactSet<Fact>, now_ns: i64, batch: &mut SourceBatch, smart: &Smart) {
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
    use crate::util::helper::HELPER_TIMEOUT;

    /// After each late answer, the number of reads, a minute apart, until the disk is asked again.
    #[test]
    fn a_disk_that_is_late_again_and_again_rests_longer_and_longer() {
        let tree = tempfile::tempdir().unwrap();
        let root = SysRoot::new(tree.path());
        let commands = Commands::new(&root, HELPER_TIMEOUT);
        let (helper, skip) = (HelperConfig::default(), Globs::new(&[] as &[&str]));
        let mut monotonic_ns = 0;
        let mut disk = HealthDisk::new("sda").unwrap();
        let round = |monotonic_ns| HealthRound {
            commands: &commands,
            helper: &helper,
            root: &root,
            skip: &skip,
            monotonic_ns,
            is_vain: false,
            silent: 0,
        };
        // Nothing is recorded, so the verdict changes each time the disk is asked.
        let mut reads_until_asked = |disk: &mut HealthDisk| {
            disk.verdict = Verdict::NotAsked;
            (1..5000).find(|_| {
                monotonic_ns += 60 * NS_PER_S;
                let _ = disk.ask(&mut round(monotonic_ns));
                !matches!(disk.verdict, Verdict::NotAsked)
            })
        };
        let late = |disk: &mut HealthDisk| {
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
