//! `baro weights`: the step of root that lets an agent set I/O weights, which of them have an
//! effect here and why others have none, and the restoration of what a killed agent has left. None
//! of it needs an agent.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use barograph_agent::{AGENT_DOCUMENT, AgentDocument, Config, WEIGHTS_DIR};
use barograph_client::RunDir;
use barograph_control::cgroup::{
    BlockDevice, CgroupRoots, Hierarchy, ProcessGroups, RestoreOutcome, WeightBackend,
    WeightJournal, WeightProbe, delegate, probe_groups, recover,
};
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::documents::document;
use super::output::plain;
use super::{Usage, output};

/// Most bytes of a file of `/proc` or `/sys` that a message repeats.
const SHOWN_BYTES_MAX: usize = 80;

/// Arguments of `baro weights`.
#[derive(Args)]
pub(super) struct Weights {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Give the file that sets the I/O weight of one control group to a user (root does it, once
    /// for each group), so that an agent of this user can set the weight
    Setup(Setup),
    /// Show for each disk which file sets the I/O weight of a control group, and what speaks
    /// against the others
    Status(Status),
    /// Restore the weights that a killed agent has left; the next start of an agent does the same
    Restore(Restore),
}

/// The control group that is meant.
#[derive(Args)]
struct GroupChoice {
    /// Control group, relative to the root of all groups, such as jobs/a [default for status: that
    /// of this process]
    group: Option<String>,
    /// The control group of this process instead
    #[arg(long, conflicts_with = "group")]
    pid: Option<u32>,
    /// Disk, such as sda; may be given several times [default: all]
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Tree to read instead of /
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    sys_root: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Setup {
    /// User who runs the agent, by name or number
    #[arg(long, value_name = "USER")]
    user: String,
    #[command(flatten)]
    choice: GroupChoice,
}

#[derive(Args)]
struct Status {
    #[command(flatten)]
    choice: GroupChoice,
}

#[derive(Args)]
struct Restore {
    /// State directory of the agent [default: that of the agent that was here last, or the usual
    /// one]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Tree to restore in instead of /
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    sys_root: PathBuf,
    #[command(flatten)]
    target: super::Target,
}

/// What was found for one disk.
struct DiskWeights {
    device: BlockDevice,
    found: WeightProbe,
}

/// A control group and what sets its share of each disk.
struct GroupWeights {
    roots: CgroupRoots,
    groups: ProcessGroups,
    disks: Vec<DiskWeights>,
}

impl Weights {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Setup(setup) => setup.run(),
            Verb::Status(status) => status.run(),
            Verb::Restore(restore) => restore.run(),
        }
    }
}

impl GroupChoice {
    fn groups(&self) -> anyhow::Result<ProcessGroups> {
        if let Some(group) = &self.group {
            return Ok(ProcessGroups::both(group.trim_matches('/')));
        }
        let process = self.pid.map_or("self".to_owned(), |pid| pid.to_string());
        let path = self.sys_root.join(format!("proc/{process}/cgroup"));
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read {}: name a control group, or a process that runs",
                path.display()
            )
        })?;
        Ok(ProcessGroups::parse(&text))
    }

    fn look(&self) -> anyhow::Result<GroupWeights> {
        let roots = CgroupRoots::mounted(&self.sys_root)?;
        let groups = self.groups()?;
        let names = match self.device.is_empty() {
            true => disks(roots.block()),
            false => self.device.clone(),
        };
        let mut disks = Vec::new();
        for name in names {
            let device = BlockDevice::read(roots.block(), &name);
            let device = device.map_err(|error| Usage(error.to_string()))?;
            let found = probe_groups(&roots, &groups, &device);
            disks.push(DiskWeights { device, found });
        }
        Ok(GroupWeights {
            roots,
            groups,
            disks,
        })
    }
}

impl GroupWeights {
    /// The file of a back end, if its group is there.
    fn path(&self, backend: WeightBackend) -> Option<PathBuf> {
        let root = self.roots.hierarchy(backend.hierarchy())?;
        let group = root.group(self.groups.of(backend.hierarchy())?).ok()?;
        Some(group.path_of(backend.file()))
    }

    /// The weight that the file has at present.
    fn present(&self, backend: WeightBackend) -> Option<String> {
        let text = std::fs::read_to_string(self.path(backend)?).ok()?;
        let line = text.lines().next().unwrap_or_default();
        Some(line.chars().take(SHOWN_BYTES_MAX).collect())
    }

    fn name(&self) -> String {
        let of = |hierarchy| self.groups.of(hierarchy).map(|name| format!("/{name}"));
        match (of(Hierarchy::V1), of(Hierarchy::V2)) {
            (Some(one), Some(other)) if one != other => {
                format!("{one} of version 1 and {other} of version 2")
            }
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => "none".into(),
        }
    }

    fn json(&self, disk: &DiskWeights) -> Json {
        let refused = disk.found.refused.iter();
        let refused =
            refused.map(|it| json!({ "file": it.file, "reason": it.reason, "remedy": it.remedy }));
        let backend = disk.found.backend;
        json!({
            "device": disk.device.name,
            "scheduler": disk.device.scheduler,
            "file": backend.map(|it| it.file()),
            "path": backend.and_then(|it| self.path(it)),
            "present": backend.and_then(|it| self.present(it)),
            "min": backend.and_then(|it| it.range()).map(|range| range.min()),
            "max": backend.and_then(|it| it.range()).map(|range| range.max()),
            "refused": refused.collect::<Vec<_>>(),
        })
    }

    /// Disks for which the same was found share their lines.
    fn pages(&self) -> Vec<String> {
        let mut pages: Vec<(Vec<String>, String)> = Vec::new();
        for disk in &self.disks {
            let name = &disk.device.name;
            // Texts that differ in the name of the disk alone are the same.
            let page = self.page(disk).replace(name, "DISK");
            match pages.iter_mut().find(|(_, other)| *other == page) {
                Some((names, _)) => names.push(name.clone()),
                None => pages.push((vec![name.clone()], page)),
            }
        }
        let told = pages.into_iter().map(|(names, page)| {
            let first = page.replace("DISK", &names[0]);
            format!("{}: {first}", names.join(", "))
        });
        told.collect()
    }

    fn page(&self, disk: &DiskWeights) -> String {
        let mut page = match disk.found.backend {
            Some(backend @ WeightBackend::V2Max { .. }) => format!(
                "only limits can be set, by {}, which controllers do not use\n",
                backend.file()
            ),
            Some(backend) => format!(
                "{} sets the weight, at present {}\n",
                backend.file(),
                self.present(backend).unwrap_or_else(|| "unknown".into())
            ),
            None => "no I/O weight can be set\n".to_owned(),
        };
        for refusal in &disk.found.refused {
            page += &format!(
                "  {}\n    why     {}\n    remedy  {}\n",
                refusal.file,
                plain(&refusal.reason),
                plain(&refusal.remedy)
            );
        }
        page
    }
}

/// The disks of the machine: devices of block that have a size.
fn disks(block: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(block).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| {
            let size = std::fs::read_to_string(block.join(name).join("size"));
            size.is_ok_and(|size| size.trim() != "0")
        })
        .collect();
    names.sort();
    names
}

impl Status {
    fn run(self) -> anyhow::Result<()> {
        let found = self.choice.look()?;
        if self.choice.json {
            let disks: Vec<Json> = found.disks.iter().map(|disk| found.json(disk)).collect();
            return output::print_json(&json!({
                "group_v1": found.groups.of(Hierarchy::V1),
                "group_v2": found.groups.of(Hierarchy::V2),
                "disks": disks,
            }));
        }
        output::print(&format!("control group {}\n\n", plain(&found.name())))?;
        if found.disks.is_empty() {
            return output::print("this machine has no disk\n");
        }
        output::print(&found.pages().join("\n"))
    }
}

/// What can be set for programs in the control group of this process, in few lines.
pub(super) fn state_of_weights(sys_root: &Path) -> String {
    let choice = GroupChoice {
        group: None,
        pid: None,
        device: Vec::new(),
        sys_root: sys_root.to_owned(),
        json: false,
    };
    let Ok(found) = choice.look() else {
        return String::new();
    };
    let is_weighted = |disk: &&DiskWeights| {
        let backend = disk.found.backend;
        backend.is_some_and(|it| it.range().is_some())
    };
    let name = |disk: &DiskWeights| disk.device.name.clone();
    let weighted: Vec<String> = found.disks.iter().filter(is_weighted).map(name).collect();
    let group = plain(&found.name()).into_owned();
    let mut page = format!("\nI/O weights of control group {group}: ");
    page += &match weighted.is_empty() {
        true => "none can be set\n".to_owned(),
        false => format!("set on {}\n", weighted.join(", ")),
    };
    let refused = found.disks.iter().filter(|disk| !is_weighted(disk));
    if let Some(refusal) = refused.flat_map(|disk| &disk.found.refused).next() {
        page += &format!(
            "  why     {}\n  remedy  {}; `baro weights status` has all reasons\n",
            plain(&refusal.reason),
            plain(&refusal.remedy)
        );
    }
    page
}

impl Setup {
    fn run(self) -> anyhow::Result<()> {
        if self.choice.group.is_none() && self.choice.pid.is_none() {
            return Err(Usage("name a control group, or a process by --pid".into()).into());
        }
        let uid = uid_of(&self.user)?;
        let found = self.choice.look()?;
        let mut given: Vec<(WeightBackend, Vec<String>)> = Vec::new();
        for disk in &found.disks {
            // A limit is nothing that a reader is given.
            let Some(backend) = disk.found.backend.filter(|it| it.range().is_some()) else {
                continue;
            };
            let name = disk.device.name.clone();
            match given.iter_mut().find(|(it, _)| *it == backend) {
                Some((_, names)) => names.push(name),
                None => given.push((backend, vec![name])),
            }
        }
        if given.is_empty() {
            bail!(
                "no file sets the I/O weight of this group on any disk, so none was given\n{}",
                found.pages().join("\n")
            );
        }
        let mut told = Vec::new();
        for (backend, disks) in given {
            told.push(self.give(&found, backend, &disks, uid)?);
        }
        match self.choice.json {
            true => output::print_json(&told),
            false => Ok(()),
        }
    }

    fn give(
        &self,
        found: &GroupWeights,
        backend: WeightBackend,
        disks: &[String],
        uid: u32,
    ) -> anyhow::Result<Json> {
        let group = found.groups.of(backend.hierarchy()).unwrap_or_default();
        let path = found.path(backend).context("the control group is gone")?;
        let before = std::fs::metadata(&path)
            .with_context(|| format!("cannot look at {}", path.display()))?
            .uid();
        delegate(&found.roots, group, backend, uid).context("only root can give the file away")?;
        if !self.choice.json {
            let range = backend.range();
            let (min, max) = range.map_or((0, 0), |range| (range.min(), range.max()));
            output::print(&format!(
                "gave {} to user {uid}: it sets the weight of {} on {}, {min} to {max}, and nothing else\n  \
                 undo    chown {before} {}; it also ends when the group is removed\n",
                path.display(),
                plain(group),
                disks.join(", "),
                path.display()
            ))?;
        }
        Ok(json!({
            "path": path,
            "group": group,
            "file": backend.file(),
            "devices": disks,
            "user": uid,
            "user_before": before,
            "undo": format!("chown {before} {}", path.display()),
        }))
    }
}

/// The number of a user.
fn uid_of(user: &str) -> anyhow::Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    });
    uid.ok_or_else(|| {
        Usage(format!(
            "there is no user {user:?} in /etc/passwd: give its number (id -u)"
        ))
        .into()
    })
}

impl Restore {
    fn run(self) -> anyhow::Result<()> {
        let run_dir = self.target.run_dir();
        // An agent that runs has leases; while the lock is held, none can start.
        let _lock = match run_dir.path().exists() {
            true => Some(run_dir.occupy().context(
                "an agent that runs restores weights itself: stop it before you restore anything",
            )?),
            false => None,
        };
        let state_dir = match &self.state_dir {
            Some(dir) => dir.clone(),
            None => last_state_dir(&run_dir)?,
        };
        let dir = state_dir.join(WEIGHTS_DIR);
        let recovered = match dir.exists() {
            true => {
                let roots = CgroupRoots::mounted(&self.sys_root)?;
                recover(&roots, &WeightJournal::open(&dir)?)?
            }
            false => Vec::new(),
        };
        let failed = |outcome: &RestoreOutcome| matches!(outcome, RestoreOutcome::Failed(_));
        if self.target.json {
            let rows = recovered.iter();
            let rows = rows.map(|it| {
                json!({
                    "group": it.group,
                    "outcome": it.outcome.to_string(),
                    "is_settled": !failed(&it.outcome),
                })
            });
            output::print_json(&rows.collect::<Vec<Json>>())?;
        } else if recovered.is_empty() {
            output::print(&format!("nothing was left in {}\n", dir.display()))?;
        } else {
            let lines = recovered.iter();
            let lines = lines
                .map(|it| format!("{}: {}\n", plain(&it.group), plain(&it.outcome.to_string())));
            output::print(&lines.collect::<String>())?;
        }
        match recovered.iter().any(|it| failed(&it.outcome)) {
            true => bail!("not everything could be restored: the reasons are above"),
            false => Ok(()),
        }
    }
}

/// The state directory of the agent that was in a run directory last, or the usual one.
fn last_state_dir(run_dir: &RunDir) -> anyhow::Result<PathBuf> {
    let agent: Option<AgentDocument> = document(run_dir, AGENT_DOCUMENT).ok().flatten();
    match agent.and_then(|agent| agent.state) {
        Some(dir) => Ok(dir),
        None => Ok(Config::default().resolve()?.state_dir),
    }
}
