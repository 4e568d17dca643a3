//! The probe: which back end has an effect for one group and one device on this machine, and for
//! each that has none the reason and the remedy.
//!
//! A file that is there is not enough. Weights of bfq count on devices whose scheduler is bfq, and
//! those of `io.weight` on devices for which the cost model is enabled; elsewhere they are kept and
//! ignored.

use rustix::process::geteuid;

use crate::ControlError;
use crate::cgroup::backend::{WeightBackend, line_of};
use crate::cgroup::device::BlockDevice;
use crate::cgroup::membership::Hierarchy;
use crate::cgroup::membership::ProcessGroups;
use crate::cgroup::place::{CgroupRoot, CgroupRoots, Group};

const BFQ: &str = "bfq";
/// The file at the root that says for which devices the cost model is enabled.
const COST_FILE: &str = "io.cost.qos";
/// The file that has weights of version 1 for single devices.
const V1_DEVICE_FILE: &str = "blkio.bfq.weight_device";

/// A back end that has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRefusal {
    /// The name of its file.
    pub file: &'static str,
    /// The cause.
    pub reason: String,
    /// The change that helps.
    pub remedy: String,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightProbe {
    /// The back end to be used; `None`: shares cannot be set here.
    pub backend: Option<WeightBackend>,
    /// The back ends that would have been preferred, with the reasons against them.
    pub refused: Vec<BackendRefusal>,
}

/// Finds the back end for a group and a device. Weights come before limits, since a limit also
/// holds while nobody else uses the device; nothing is written.
pub fn probe(roots: &CgroupRoots, group: &str, device: &BlockDevice) -> WeightProbe {
    probe_groups(roots, &ProcessGroups::both(group), device)
}

/// Like [`probe`], for the groups of a process, which may have another name in each hierarchy.
pub fn probe_groups(
    roots: &CgroupRoots,
    groups: &ProcessGroups,
    device: &BlockDevice,
) -> WeightProbe {
    let number = device.number;
    let backends = [
        WeightBackend::V1Bfq,
        WeightBackend::V2Bfq,
        WeightBackend::V2Cost,
        WeightBackend::V2Max { device: number },
    ];
    let mut refused = Vec::new();
    for backend in backends {
        match check(roots, groups, device, backend) {
            Ok(()) => {
                return WeightProbe {
                    backend: Some(backend),
                    refused,
                };
            }
            Err((reason, remedy)) => refused.push(BackendRefusal {
                file: backend.file(),
                reason,
                remedy,
            }),
        }
    }
    WeightProbe {
        backend: None,
        refused,
    }
}

/// A reason and a remedy.
type Refusal = (String, String);

fn check(
    roots: &CgroupRoots,
    groups: &ProcessGroups,
    device: &BlockDevice,
    backend: WeightBackend,
) -> Result<(), Refusal> {
    let root = roots.hierarchy(backend.hierarchy()).ok_or_else(|| {
        let (version, remedy) = match backend.hierarchy() {
            Hierarchy::V1 => ("version 1", "mount the controller blkio of version 1"),
            Hierarchy::V2 => ("version 2", "mount cgroup2 with its controller io"),
        };
        let reason = format!("{version} of control groups is not mounted");
        (reason, remedy.to_owned())
    })?;
    let group = root
        .group(named(groups, backend.hierarchy())?)
        .map_err(|error| match error {
            ControlError::Vanished { path } => (
                format!("there is no group {}", path.display()),
                "make the group, or name one that is there".to_owned(),
            ),
            error => (error.to_string(), "name another group".to_owned()),
        })?;
    check_file(&group, backend)?;
    check_writable(&group, backend)?;
    match backend {
        WeightBackend::V1Bfq => {
            check_scheduler(device)?;
            check_device_line(&group, V1_DEVICE_FILE, device)
        }
        WeightBackend::V2Bfq => {
            check_scheduler(device)?;
            check_device_line(&group, backend.file(), device)
        }
        WeightBackend::V2Cost => {
            check_cost(root, device)?;
            check_device_line(&group, backend.file(), device)
        }
        WeightBackend::V2Max { .. } => Ok(()),
    }
}

/// The name of the group in a hierarchy, which is not its root.
fn named(groups: &ProcessGroups, hierarchy: Hierarchy) -> Result<&str, Refusal> {
    let version = match hierarchy {
        Hierarchy::V1 => "version 1",
        Hierarchy::V2 => "version 2",
    };
    let remedy = "start the program in a group of its own, for example by systemd-run --scope";
    match groups.of(hierarchy) {
        Some("") => Err((
            format!("the group is the root of all groups of {version}, which has no share"),
            remedy.to_owned(),
        )),
        Some(name) => Ok(name),
        None => Err((
            format!("the process is in no group of {version}"),
            remedy.to_owned(),
        )),
    }
}

fn check_file(group: &Group, backend: WeightBackend) -> Result<(), Refusal> {
    let remedy = match backend {
        WeightBackend::V1Bfq => "load bfq: modprobe bfq",
        WeightBackend::V2Bfq => {
            "load bfq (modprobe bfq) and enable io: +io in cgroup.subtree_control of the group above"
        }
        WeightBackend::V2Cost => {
            "enable io (+io in cgroup.subtree_control of the group above), in a kernel with CONFIG_BLK_CGROUP_IOCOST"
        }
        WeightBackend::V2Max { .. } => {
            "enable io (+io in cgroup.subtree_control of the group above), in a kernel with CONFIG_BLK_DEV_THROTTLING"
        }
    };
    match backend.read(group) {
        Ok(_) => Ok(()),
        Err(ControlError::Vanished { path }) => {
            Err((format!("there is no {}", path.display()), remedy.to_owned()))
        }
        Err(error) => Err((error.to_string(), "use another group".to_owned())),
    }
}

fn check_writable(group: &Group, backend: WeightBackend) -> Result<(), Refusal> {
    group.try_writing(backend.file()).map_err(|error| {
        let path = group.path_of(backend.file());
        let user = geteuid().as_raw();
        let remedy = format!(
            "let root give the file to this user: baro weights setup {} --user {user} (chown {user} {})",
            group.name(),
            path.display()
        );
        (error.to_string(), remedy)
    })
}

fn check_scheduler(device: &BlockDevice) -> Result<(), Refusal> {
    let name = &device.name;
    let reason = match device.scheduler.as_deref() {
        Some(BFQ) => return Ok(()),
        Some(other) => format!("the scheduler of {name} is {other}, which has no weights"),
        None => format!("{name} has no scheduler"),
    };
    let remedy = format!("echo bfq > /sys/block/{name}/queue/scheduler");
    Err((reason, remedy))
}

/// A line such as `8:16 enable=1 ctrl=auto …`.
fn check_cost(root: &CgroupRoot, device: &BlockDevice) -> Result<(), Refusal> {
    let (name, number) = (&device.name, device.number);
    let path = root.path().join(COST_FILE);
    let remedy = format!("echo '{number} enable=1' > {}", path.display());
    let reason = match root.read(COST_FILE) {
        Ok(Some(text)) => {
            let line = line_of(&text, number).unwrap_or_default();
            if line.split_whitespace().any(|word| word == "enable=1") {
                return Ok(());
            }
            format!(
                "the cost model is not enabled for {name}, so that io.weight has no effect there"
            )
        }
        Ok(None) => format!(
            "there is no {}: the cost model is not in the kernel, or this is not the root of all groups",
            path.display()
        ),
        Err(error) => error.to_string(),
    };
    Err((reason, remedy))
}

/// A weight for this device alone, which the group's weight would not change.
fn check_device_line(group: &Group, file: &str, device: &BlockDevice) -> Result<(), Refusal> {
    let (name, number) = (&device.name, device.number);
    let text = group.read(file).unwrap_or_default();
    match line_of(&text, number) {
        None => Ok(()),
        Some(weight) => Err((
            format!(
                "the group has a weight of {weight} for {name} alone, which counts before that for all devices"
            ),
            format!(
                "echo '{number} default' > {}",
                group.path_of(file).display()
            ),
        )),
    }
}
