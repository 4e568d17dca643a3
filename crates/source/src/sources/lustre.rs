//! Lustre on clients and on servers: bytes read and written, latencies of the servers, and targets
//! that cannot be reached.
//!
//! Sources: the Lustre manual ("Lustre Parameters", "Lustre Monitoring"), `lctl-get_param(8)` and
//! the Lustre sources named in the files below. The parameters that are read:
//!
//! | what | parameter |
//! | --- | --- |
//! | a mounted file system | `llite.*.stats` |
//! | a client's targets: traffic | `osc.*.stats`, `mdc.*.stats` |
//! | a client's targets: state | `*.import`, `cur_dirty_bytes`, `max_rpcs_in_flight`… |
//! | a server's targets: traffic | `obdfilter.*.stats`, `mdt.*.md_stats` |
//! | a server's targets: state | `recovery_status`, `num_exports`, space |
//! | the node | `health_check`, `lnet/stats` |
//!
//! The space of a mounted file system (`llite.*.kbytesfree`) is not read here: the kernel would ask
//! the servers, and hang with them. The source `filesystem` reads it so that nothing else waits.
//!
//! This is a slow source: reading a file of a connection waits for the connection's lock, which an
//! unmount holds for as long as it waits for a server.

mod flow;
mod import;
mod node;
pub(crate) mod places;
mod server;
mod stats;
mod tables;

use std::path::Path;

use barograph_model::NS_PER_S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::FactSet;
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::util::parse::escape;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use flow::{Flow, FlowTable, Scratch};
use import::Connection;
use node::NodeFacts;
use places::{Param, Places, filesystem_of, target_of};
use server::Served;
pub(crate) use tables::{
    ClientFact, ImportFact, MdcFact, MdtFact, NodeFact, OscFact, OstFact, TargetFact,
};

/// Most descriptors that are kept open; files beyond that are opened for each poll.
const DESCRIPTORS_MAX: usize = 512;
/// Most mounts of one file system whose counters are added up.
const INSTANCES_MAX: usize = 16;
/// Most names that a report lists.
const NAMES_SHOWN_MAX: usize = 8;

/// The configuration of the source `lustre`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LustreConfig {
    /// Most file systems, and most targets of each kind, that are followed.
    pub targets_max: usize,
    /// Milliseconds between searches for new file systems and targets. Slowly changing values are
    /// read at the same times: space, recovery, limits.
    pub scan_interval_ms: u64,
}

impl Default for LustreConfig {
    fn default() -> Self {
        Self {
            targets_max: 256,
            scan_interval_ms: 10_000,
        }
    }
}

impl LustreConfig {
    fn scan_interval_ns(&self) -> i64 {
        let ns = i64::try_from(self.scan_interval_ms).unwrap_or(i64::MAX);
        ns.saturating_mul(NS_PER_S / 1000)
    }
}

/// The source `lustre`.
pub struct Lustre {
    root: SysRoot,
    places: Places,
    config: LustreConfig,
    present: bool,
    scan_next_ns: i64,
    node: NodeFacts,
    clients: Roster<Named<Mounted>>,
    osc: Roster<Named<Connection<OscFact>>>,
    mdc: Roster<Named<Connection<MdcFact>>>,
    ost: Roster<Named<Served<OstFact>>>,
    mdt: Roster<Named<Served<MdtFact>>>,
    scratch: Scratch,
}

/// Something that is followed, or cannot be followed because of its name.
enum Named<T> {
    Followed(Box<T>),
    Unnameable(String),
}

/// A file system that is mounted here, possibly more than once.
struct Mounted {
    label: String,
    devices: Vec<Vec<u8>>,
    flow: Flow<ClientFact>,
}

impl Lustre {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, config: &LustreConfig) -> Self {
        let root = SysRoot::new(sys_root);
        let max = config.targets_max;
        Self {
            places: Places::new(&root),
            config: config.clone(),
            present: false,
            scan_next_ns: i64::MIN,
            node: NodeFacts::new(),
            clients: Roster::new(max),
            osc: Roster::new(max),
            mdc: Roster::new(max),
            ost: Roster::new(max),
            mdt: Roster::new(max),
            scratch: Scratch::default(),
            root,
        }
    }

    /// Finds file systems and targets that came or went, and reads slowly changing values.
    fn scan(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        self.present = self.places.present();
        match self.present {
            true => self.node.find(&self.root, &self.places),
            false => self.node.retire(batch),
        }
        self.scan_clients(batch);
        scan_connections(&mut self.osc, "osc", &self.places, batch);
        scan_connections(&mut self.mdc, "mdc", &self.places, batch);
        scan_served(&mut self.ost, "obdfilter", "stats", &self.places, batch);
        scan_served(&mut self.mdt, "mdt", "md_stats", &self.places, batch);
        self.keep_descriptors();
        let every_ns = self.config.scan_interval_ns();
        let bytes = &mut self.scratch.bytes;
        for target in followed(&mut self.osc) {
            target.read_attributes(now_ns, batch, bytes, every_ns);
            target.read_grant(now_ns, batch, bytes, every_ns);
        }
        for target in followed(&mut self.mdc) {
            target.read_attributes(now_ns, batch, bytes, every_ns);
        }
        for target in followed(&mut self.ost) {
            target.read_attributes(now_ns, batch, bytes, every_ns);
        }
        for target in followed(&mut self.mdt) {
            target.read_attributes(now_ns, batch, bytes, every_ns);
        }
        self.refusals(faults);
    }

    fn scan_clients(&mut self, batch: &mut SourceBatch) {
        let places = &self.places;
        let devices = places.devices("llite");
        self.clients.begin();
        for (name, devices) in grouped(&devices, filesystem_of) {
            let Some(Named::Followed(mounted)) = self.clients.visit(name, || Mounted::new(name))
            else {
                continue;
            };
            mounted.find(devices, places);
        }
        self.clients.sweep(|gone| {
            if let Named::Followed(mounted) = gone {
                mounted.flow.retire(batch);
            }
        });
    }

    fn keep_descriptors(&mut self) {
        let mut room = DESCRIPTORS_MAX;
        for mounted in followed(&mut self.clients) {
            let files = mounted.flow.files.iter_mut();
            files.for_each(|file| file.keep_within(&mut room));
        }
        followed(&mut self.mdc).for_each(|t| t.keep_within(&mut room));
        followed(&mut self.mdt).for_each(|t| t.keep_within(&mut room));
        followed(&mut self.ost).for_each(|t| t.keep_within(&mut room));
        followed(&mut self.osc).for_each(|t| t.keep_within(&mut room));
    }

    fn refusals(&self, faults: &mut Faults) {
        let refused = [
            ("Lustre file systems", self.clients.refused()),
            ("Lustre object targets", self.osc.refused()),
            ("Lustre metadata targets", self.mdc.refused()),
            ("Lustre targets of this server", self.ost.refused()),
            ("Lustre metadata targets of this server", self.mdt.refused()),
        ];
        for (what, refused) in refused.into_iter().filter(|(_, refused)| *refused > 0) {
            faults.add(SourceError::TooMany {
                what,
                refused,
                max: self.config.targets_max,
            });
        }
    }
}

impl Source for Lustre {
    fn name(&self) -> &'static str {
        "lustre"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let at_ns = batch.monotonic_ns();
        if self.is_absent() || at_ns >= self.scan_next_ns {
            self.scan(now_ns, batch, &mut faults);
            self.scan_next_ns = at_ns.saturating_add(self.config.scan_interval_ns());
        }
        if !self.present {
            return faults.finish();
        }
        let Self { scratch, .. } = self;
        let mut there = true;
        self.node
            .read(now_ns, batch, &mut scratch.bytes, &mut faults);
        for mounted in followed(&mut self.clients) {
            there &= mounted.flow.read(now_ns, batch, scratch, &mut faults);
        }
        for target in followed(&mut self.ost) {
            there &= target.read(now_ns, batch, scratch, &mut faults);
        }
        for target in followed(&mut self.mdt) {
            there &= target.read(now_ns, batch, scratch, &mut faults);
        }
        for target in followed(&mut self.osc) {
            there &= target.read(now_ns, batch, scratch, &mut faults);
            target.read_cache(now_ns, batch, &mut scratch.bytes);
        }
        for target in followed(&mut self.mdc) {
            there &= target.read(now_ns, batch, scratch, &mut faults);
        }
        if !there {
            // Something was unmounted: the next poll scans.
            self.scan_next_ns = i64::MIN;
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        !self.present
    }

    fn report(&self) -> SourceCoverage {
        if !self.present {
            let why = format!(
                "neither {} nor {} is there",
                self.root.path("proc/fs/lustre").display(),
                self.root.path("sys/fs/lustre").display()
            );
            return SourceCoverage {
                sees: "no Lustre".to_owned(),
                missing: vec![MissingPart::new(
                    "Lustre",
                    why,
                    "none is needed if no Lustre is mounted or served here; else load its modules",
                )],
            };
        }
        let places = &self.places;
        let mut missing: Vec<_> = self.node.missing().into_iter().collect();
        describe(&self.clients, &mut missing, |mounted| {
            let what = format!("file system {}", mounted.label);
            mounted.flow.missing(&what, places)
        });
        describe(&self.osc, &mut missing, |t| t.missing(places));
        describe(&self.mdc, &mut missing, |t| t.missing(places));
        describe(&self.ost, &mut missing, |t| t.missing(places));
        describe(&self.mdt, &mut missing, |t| t.missing(places));
        self.too_many(&mut missing);
        SourceCoverage {
            sees: self.sees(),
            missing,
        }
    }
}

impl Lustre {
    fn sees(&self) -> String {
        let mut parts = Vec::new();
        let mounted: Vec<_> = all(&self.clients).map(|m| m.label.clone()).collect();
        let (osc, mdc) = (all(&self.osc).count(), all(&self.mdc).count());
        if !mounted.is_empty() || osc + mdc > 0 {
            parts.push(format!(
                "client of {} ({}) by way of {} and {}",
                counted(mounted.len(), "file system"),
                shown(&mounted),
                counted(osc, "object target"),
                counted(mdc, "metadata target"),
            ));
        }
        let trouble = |label: &str, state: &str| format!("{label} ({state})");
        let osc = all(&self.osc).filter_map(|t| Some(trouble(&t.label, t.trouble()?)));
        let mdc = all(&self.mdc).filter_map(|t| Some(trouble(&t.label, t.trouble()?)));
        let lost: Vec<_> = osc.chain(mdc).collect();
        if !lost.is_empty() {
            parts.push(format!("not connected: {}", shown(&lost)));
        }
        let ost: Vec<_> = all(&self.ost).map(|t| t.label.clone()).collect();
        let mdt: Vec<_> = all(&self.mdt).map(|t| t.label.clone()).collect();
        let served: Vec<_> = mdt.into_iter().chain(ost).collect();
        if !served.is_empty() {
            let targets = counted(served.len(), "target");
            parts.push(format!("server of {targets} ({})", shown(&served)));
        }
        let ost = all(&self.ost).filter(|t| t.recovering);
        let mdt = all(&self.mdt).filter(|t| t.recovering);
        let recovering = ost.map(|t| t.label.clone());
        let recovering: Vec<_> = mdt.map(|t| t.label.clone()).chain(recovering).collect();
        if !recovering.is_empty() {
            parts.push(format!("in recovery: {}", shown(&recovering)));
        }
        if self.node.unhealthy {
            parts.push("Lustre says that it is not healthy".to_owned());
        }
        match parts.is_empty() {
            true => "Lustre is loaded, and nothing mounted or served".to_owned(),
            false => parts.join("; "),
        }
    }

    fn too_many(&self, missing: &mut Vec<MissingPart>) {
        let refused = self.clients.refused()
            + self.osc.refused()
            + self.mdc.refused()
            + self.ost.refused()
            + self.mdt.refused();
        if refused > 0 {
            missing.push(MissingPart::new(
                format!("{refused} file systems and targets"),
                format!("only {} of each kind are followed", self.config.targets_max),
                "raise lustre.targets_max",
            ));
        }
    }
}

impl Mounted {
    fn new(name: &[u8]) -> Option<Named<Self>> {
        let label = escape(name);
        Some(match FactSet::labelled([("filesystem", label.clone())]) {
            Ok(facts) => Named::Followed(Box::new(Self {
                label,
                devices: Vec::new(),
                flow: Flow::new(facts),
            })),
            Err(fault) => Named::Unnameable(fault.to_string()),
        })
    }

    /// Finds the statistics files if the devices changed or the files were not found yet.
    fn find(&mut self, devices: Vec<Vec<u8>>, places: &Places) {
        if self.devices == devices && !self.flow.files.is_empty() {
            return;
        }
        let found = devices.iter().map(|d| places.find("llite", d, "stats"));
        // A sum needs all of its parts.
        let found: Option<Vec<_>> = found.collect();
        let params = found.unwrap_or_default().into_iter().map(Param::new);
        self.flow.replace(params.collect());
        self.devices = devices;
    }
}

fn scan_connections<T: FlowTable>(
    roster: &mut Roster<Named<Connection<T>>>,
    kind: &str,
    places: &Places,
    batch: &mut SourceBatch,
) {
    let devices = places.devices(kind);
    roster.begin();
    for (target, devices) in grouped(&devices, |device| target_of(device, kind)) {
        let filesystem = filesystem_of(target).unwrap_or(target);
        let make = || Some(named(Connection::new(&escape(filesystem), &escape(target))));
        let Some(Named::Followed(connection)) = roster.visit(target, make) else {
            continue;
        };
        if connection.devices != devices {
            connection.follow(devices);
        }
        connection.find(kind, places);
    }
    roster.sweep(|gone| {
        if let Named::Followed(connection) = gone {
            connection.retire(batch);
        }
    });
}

fn scan_served<T: FlowTable>(
    roster: &mut Roster<Named<Served<T>>>,
    kind: &str,
    stats: &str,
    places: &Places,
    batch: &mut SourceBatch,
) {
    let devices = places.devices(kind);
    roster.begin();
    for device in &devices {
        if let Some(filesystem) = filesystem_of(device) {
            let make = || Some(named(Served::new(device, filesystem)));
            if let Some(Named::Followed(served)) = roster.visit(device, make) {
                served.find(kind, stats, device, places);
            }
        }
    }
    roster.sweep(|gone| {
        if let Named::Followed(served) = gone {
            served.retire(batch);
        }
    });
}

fn named<T>(made: Result<T, SourceError>) -> Named<T> {
    match made {
        Ok(thing) => Named::Followed(Box::new(thing)),
        Err(fault) => Named::Unnameable(fault.to_string()),
    }
}

/// Groups devices by what they are a device of. The input is sorted, and so are the groups.
fn grouped<'a>(
    devices: &'a [Vec<u8>],
    of: impl Fn(&'a [u8]) -> Option<&'a [u8]>,
) -> Vec<(&'a [u8], Vec<Vec<u8>>)> {
    let mut groups: Vec<(&[u8], Vec<Vec<u8>>)> = Vec::new();
    for device in devices {
        let Some(name) = of(device) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, devices)) if devices.len() < INSTANCES_MAX => devices.push(device.clone()),
            Some(_) => {}
            None => groups.push((name, vec![device.clone()])),
        }
    }
    groups
}

fn followed<T>(roster: &mut Roster<Named<T>>) -> impl Iterator<Item = &mut T> {
    roster.iter_mut().filter_map(|(_, thing)| match thing {
        Named::Followed(thing) => Some(&mut **thing),
        Named::Unnameable(_) => None,
    })
}

fn all<T>(roster: &Roster<Named<T>>) -> impl Iterator<Item = &T> {
    roster.iter().filter_map(|(_, thing)| match thing {
        Named::Followed(thing) => Some(&**thing),
        Named::Unnameable(_) => None,
    })
}

/// Lists the missing data of each item, the first few in full: a closed debugfs affects all of
/// them.
fn describe<T>(
    roster: &Roster<Named<T>>,
    missing: &mut Vec<MissingPart>,
    of: impl Fn(&T) -> Option<MissingPart>,
) {
    let lines = roster.iter().filter_map(|(name, thing)| match thing {
        Named::Followed(thing) => of(thing),
        Named::Unnameable(why) => Some(MissingPart::new(
            format!("Lustre device {}", escape(name)),
            why.as_str(),
            "give it a shorter name",
        )),
    });
    let lines: Vec<_> = lines.collect();
    let more = lines.len().saturating_sub(NAMES_SHOWN_MAX);
    let last = lines.last().filter(|_| more > 0).cloned();
    missing.extend(lines.into_iter().take(NAMES_SHOWN_MAX));
    if let Some(last) = last {
        let what = format!("{more} more like these");
        missing.push(MissingPart::new(what, last.why, last.remedy));
    }
}

fn shown(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    let first = names[..names.len() - more].join(", ");
    match more {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
