//! Health of whole disks: what the disks report (SMART, through the privileged helper), and what
//! the kernel knows of them (temperature sensors, lists of bad blocks), which every user may read.
//!
//! A disk that sleeps is not woken: smartctl checks its power mode first, and the sensor of a
//! rotating disk (drivetemp) is read only when smartctl has just found the disk awake. Some disks
//! count a query as work, and then go to sleep later or not at all; disks that should sleep belong
//! in `sources.health.skip`, and are then read neither way.

mod disk;
mod local;
mod smart;

use std::path::Path;

use barograph_model::NS_PER_S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::facts;
use crate::report::counted;
use crate::util::command::Commands;
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::util::globs::Globs;
use crate::util::helper::{HELPER_TIMEOUT, HelperConfig};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use disk::{Gap, HealthDisk, HealthRound};
use local::BadBlocks;

/// Most disks that are followed.
const DISKS_MAX: usize = 256;
/// A read waits for at most two disks that are late, and asks the others one after the other.
const STALL_NS: i64 = 120 * NS_PER_S;

facts! {
    /// Facts of one disk's health. Blocks are of 512 bytes.
    pub(crate) enum Fact in "health" {
        Ok: State Bool "ok.flag" "flag" "Whether the disk reports itself healthy.";
        Temperature: Gauge Float "temperature.celsius" "celsius" "Temperature of the disk.";
        Wear: Gauge Float "wear.ratio" "ratio" "Share of the rated endurance that is used; above 1 if the disk has exceeded it.";
        Spare: Gauge Float "spare.ratio" "ratio" "Share of the spare blocks that remain.";
        Bad: Gauge Int "bad.blocks" "blocks" "Bad blocks, of 512 bytes each: reallocated, pending reallocation, or listed as bad by the kernel. NVMe drives do not count them.";
        Total: Gauge Int "total.blocks" "blocks" "Size of the disk in blocks of 512 bytes.";
        Read: Counter Int "read.blocks" "blocks" "Blocks of 512 bytes read during the life of the disk.";
        Write: Counter Int "write.blocks" "blocks" "Blocks of 512 bytes written during the life of the disk.";
        PowerOn: Counter Float "power_on.seconds" "seconds" "Time that the disk has been powered on during its life.";
        PowerCycles: Counter Int "power_cycles.count" "count" "Number of times that the disk was powered on.";
        Media: Counter Int "media.errors.count" "count" "Errors that the disk could not correct.";
        Unsafe: Counter Int "unsafe_shutdowns.count" "count" "Number of times that the disk lost power without a shutdown.";
        Logged: Counter Int "logged.errors.count" "count" "Errors of all kinds in the error log of the disk.";
        Critical: Gauge Int "critical.count" "count" "Warnings that the disk raises now: bits of NVMe's critical warning, or attributes below their threshold.";
        From: State Text "source.name" "name" "Origin of the health data: smart, kernel, or smart and kernel.";
    }
}

/// Settings of the source of disk health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// Patterns over the names of disks that are never asked, such as disks behind a bridge that
    /// does not tolerate it, or disks that should sleep.
    pub skip: Vec<String>,
}

/// The source `health`.
pub struct Health {
    root: SysRoot,
    commands: Commands,
    helper: HelperConfig,
    skip: Globs,
    disks: Roster<HealthDisk>,
    absent: Option<String>,
    unnameable: Vec<MissingPart>,
}

impl Health {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, helper: &HelperConfig, config: &HealthConfig) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            commands: Commands::new(&root, HELPER_TIMEOUT),
            helper: helper.clone(),
            skip: Globs::new(&config.skip),
            disks: Roster::new(DISKS_MAX),
            absent: None,
            unnameable: Vec::new(),
            root,
        }
    }

    /// Follows the disks that exist, and retires the others.
    fn follow(&mut self, names: &[String], batch: &mut SourceBatch) {
        self.unnameable.clear();
        self.disks.begin();
        for name in names {
            let unnameable = &mut self.unnameable;
            self.disks.visit(name.as_bytes(), || {
                HealthDisk::new(name)
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

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
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
        let mut round = HealthRound {
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
        self.disks.report_refused("disks", &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let shown = |disk: &HealthDisk| match disk.celsius {
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
            Some(why) => missing.push(MissingPart::new(
                "disks",
                why.as_str(),
                "mount /sys, or let the agent see the host's",
            )),
            None if self.disks.len() == 0 => missing.push(MissingPart::new(
                "disks",
                "/sys/block has none that is not made of others",
                "nothing: this machine has no disk of its own",
            )),
            None => {}
        }
        let mut gaps: Vec<_> = disks().filter_map(HealthDisk::missing_smart).collect();
        gaps.extend(disks().filter_map(HealthDisk::missing_blocks));
        missing.extend(together(gaps));
        SourceCoverage { sees, missing }
    }
}

/// One entry for all disks that miss the same thing for the same reason.
fn together(gaps: Vec<Gap>) -> Vec<MissingPart> {
    let mut entries: Vec<MissingPart> = Vec::new();
    for Gap {
        what,
        disk,
        why,
        remedy,
    } in gaps
    {
        let of = format!("{what} of ");
        let is_same =
            |m: &&mut MissingPart| m.what.starts_with(&of) && m.why == why && m.remedy == remedy;
        match entries.iter_mut().find(is_same) {
            Some(entry) => entry.what.extend([", ", &disk]),
            None => entries.push(MissingPart::new(of + &disk, why, remedy)),
        }
    }
    entries
}
