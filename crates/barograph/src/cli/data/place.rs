//! `baro data place` and `baro data join`: packed files over several tiers of storage.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_client::{
    ArrayBytes, FilePart, Observer, PlaceError, TierDir, join_file, place_file, plan_tiers,
};
use barograph_model::Selector;
use barograph_progressive::{ArrayListing, PlacedExtent};
use clap::Args;
use serde::Serialize;

use super::super::progress::Progress;
use super::super::{Target, Usage, format, output, room};

/// The stream with the bandwidth that a reader gets from a device, by the label `device`.
const BANDWIDTH: &str = "disk.bandwidth.available";

/// Arguments of `baro data place`.
#[derive(Args)]
pub(super) struct Place {
    /// The packed file
    file: PathBuf,
    /// A directory on each tier, the fastest one first, with the most that is placed there: a size
    /// (/nvme/data=20GB) or a share of what is available (/nvme/data=10%) [default: all but 5 % of
    /// the file system]
    #[arg(long, value_name = "DIR[=ROOM]", required = true)]
    tier: Vec<String>,
    /// Order the tiers by the bandwidth that the agent forecasts for their devices
    #[arg(long)]
    by_speed: bool,
    /// Show what would lie where, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// Arguments of `baro data join`.
#[derive(Args)]
pub(super) struct Join {
    /// The packed file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A tier, and what of the file lies there.
#[derive(Serialize)]
struct Tier {
    dir: PathBuf,
    /// Name of the disk; none of a file system without one.
    device: Option<String>,
    /// Bytes a second that the agent forecasts.
    bandwidth: Option<f64>,
    /// Most bytes that are placed here.
    room: u64,
    /// Bytes that are placed here.
    bytes: u64,
    /// NRMSE of a reading that needs no slower tier, of the worst array.
    nrmse: Option<f64>,
    /// The file that has the bytes.
    part: Option<PathBuf>,
}

/// What was placed.
#[derive(Serialize)]
struct Placed {
    file: PathBuf,
    bytes: u64,
    dry_run: bool,
    tiers: Vec<Tier>,
}

impl Place {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let source = open(&self.file)?;
        let own = source.tiers().map(|it| it.parts()).unwrap_or_default();
        let listing = ArrayListing::read(&source)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let tiers = self.tier.iter().map(|text| tier(text, &own));
        let mut tiers: Vec<Tier> = tiers.collect::<anyhow::Result<_>>()?;
        self.find_speeds(&mut tiers)?;
        let dirs: Vec<TierDir> = tiers
            .iter()
            .map(|tier| TierDir {
                dir: tier.dir.clone(),
                bytes_max: tier.room,
            })
            .collect();
        let extents = plan_tiers(&self.file, &dirs).map_err(|error| self.refused(error))?;
        fill(&mut tiers, &extents, &listing);
        if !self.dry_run {
            let parts =
                place_file(&self.file, &dirs, told()).map_err(|error| self.refused(error))?;
            for part in parts {
                let dir = part.path.parent().map(Path::to_owned);
                let is_it = |tier: &&mut Tier| tier.dir.canonicalize().ok() == dir;
                if let Some(tier) = tiers.iter_mut().find(is_it) {
                    tier.part = Some(part.path);
                }
            }
        }
        let placed = Placed {
            bytes: extents.iter().map(|it| it.bytes).sum(),
            file: self.file,
            dry_run: self.dry_run,
            tiers,
        };
        match self.target.json {
            true => output::print_json(&placed),
            false => output::print(&shown(&placed)),
        }
    }

    /// Asks the agent for the bandwidth of each tier. Only who orders by it needs an agent.
    fn find_speeds(&self, tiers: &mut [Tier]) -> anyhow::Result<()> {
        let observer = match self.target.observer() {
            Ok(observer) => observer,
            Err(error) if self.by_speed => return Err(error),
            Err(_) => return Ok(()),
        };
        for tier in &mut *tiers {
            let device = tier.device.as_deref();
            tier.bandwidth = device.and_then(|device| bandwidth(&observer, device));
        }
        if !self.by_speed {
            return Ok(());
        }
        if let Some(tier) = tiers.iter().find(|tier| tier.bandwidth.is_none()) {
            let device = tier
                .device
                .as_deref()
                .unwrap_or("a file system without a disk");
            return Err(Usage(format!(
                "the agent forecasts no bandwidth of {} ({device}): leave --by-speed out, and give the fastest tier first",
                tier.dir.display()
            ))
            .into());
        }
        tiers.sort_by(|a, b| {
            b.bandwidth
                .unwrap_or(0.0)
                .total_cmp(&a.bandwidth.unwrap_or(0.0))
        });
        Ok(())
    }

    fn refused(&self, error: PlaceError) -> anyhow::Error {
        let text = format!("{}: {error}", self.file.display());
        match error {
            PlaceError::NoRoom { .. } => Usage(format!(
                "{text}: give one more tier, or more room (--tier DIR=ROOM)"
            ))
            .into(),
            PlaceError::Tiers => Usage(text).into(),
            _ => anyhow::anyhow!("cannot place {text}"),
        }
    }
}

impl Join {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let joined = join_file(&self.file, told());
        let bytes = joined.map_err(|error| match error {
            PlaceError::One => Usage(format!("{}: {error}", self.file.display())).into(),
            _ => anyhow::anyhow!("cannot join {}: {error}", self.file.display()),
        })?;
        if self.json {
            return output::print_json(&serde_json::json!({ "file": self.file, "bytes": bytes }));
        }
        output::print(&format!(
            "{}: {bytes} bytes in one file\n",
            self.file.display()
        ))
    }
}

fn open(path: &Path) -> anyhow::Result<ArrayBytes> {
    ArrayBytes::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Tells how much is copied, as it grows.
fn told() -> impl FnMut(u64, u64) {
    let progress = Progress::new();
    move |done, all| progress.tell(|| format!("copying: {:3} %", done * 100 / all.max(1)))
}

/// Reads `DIR` or `DIR=ROOM`. `own` are parts that the file has already: their room is its own.
fn tier(text: &str, own: &[FilePart]) -> anyhow::Result<Tier> {
    let (dir, room) = room::split(text);
    let path = Path::new(dir);
    let wrong = |why: &dyn std::fmt::Display| Usage(format!("--tier {text}: {why}"));
    let real = path.canonicalize().map_err(|error| wrong(&error))?;
    let parts = own.iter().filter(|part| part.path.parent() == Some(&real));
    let taken: u64 = parts.map(|part| part.bytes).sum();
    let room = room::bytes(&real, room, taken).map_err(|why| wrong(&why))?;
    Ok(Tier {
        dir: path.to_owned(),
        device: disk_of(&real),
        bandwidth: None,
        room,
        bytes: 0,
        nrmse: None,
        part: None,
    })
}

/// The disk that a directory lies on, as the kernel names it.
fn disk_of(dir: &Path) -> Option<String> {
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition lies below its disk, which is below `block`.
    let names: Vec<_> = link.iter().map(|part| part.to_string_lossy()).collect();
    let at = names.iter().rposition(|name| *name == "block")?;
    names.get(at + 1).map(ToString::to_string)
}

fn bandwidth(observer: &Observer, device: &str) -> Option<f64> {
    let selector = Selector::parse(BANDWIDTH)
        .ok()?
        .with_label("device", device);
    let newest = observer
        .latest(&selector)
        .into_iter()
        .find(|it| !it.stale)?;
    newest.sample?.value.as_f64()
}

/// Says what lies on each tier, and how precise a reading without the slower ones is.
fn fill(tiers: &mut [Tier], extents: &[PlacedExtent], listing: &ArrayListing) {
    let mut end = 0;
    let ends: Vec<(u64, usize)> = extents
        .iter()
        .map(|extent| {
            tiers[extent.tier].bytes += extent.bytes;
            end += extent.bytes;
            (end, extent.tier)
        })
        .collect();
    let tier_at = |place: u64| ends.get(ends.partition_point(|(end, _)| *end <= place));
    let mut place = 0;
    for header in listing.whole() {
        place += header.encode().len() as u64;
        // The error of a reading that ends with the last bucket on each tier.
        let mut reached = vec![None; tiers.len()];
        for bucket in header.buckets() {
            let nrmse = bucket.error.nrmse(header.range());
            if let Some((_, tier)) = tier_at(place) {
                reached[*tier..].fill(Some(nrmse));
            }
            place += bucket.bytes;
        }
        for (tier, nrmse) in tiers.iter_mut().zip(reached) {
            let nrmse = nrmse.unwrap_or(f64::INFINITY);
            tier.nrmse = Some(tier.nrmse.map_or(nrmse, |worst: f64| worst.max(nrmse)));
        }
    }
    for tier in tiers {
        tier.nrmse = tier.nrmse.filter(|nrmse| nrmse.is_finite());
    }
}

fn shown(placed: &Placed) -> String {
    let number = |bytes: u64| format::number(bytes as f64, "bytes");
    let rows = placed.tiers.iter().map(|tier| {
        let speed = |bandwidth| format::number(bandwidth, "bytes/s");
        vec![
            tier.dir.display().to_string(),
            tier.device.clone().unwrap_or_else(|| "-".into()),
            tier.bandwidth.map_or("-".into(), speed),
            number(tier.room),
            number(tier.bytes),
            tier.nrmse
                .map_or("-".into(), |nrmse| format!("{nrmse:.2e}")),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let headings = [
        "TIER",
        "DISK",
        "BANDWIDTH",
        "ROOM",
        "PLACED",
        "NRMSE SO FAR",
    ];
    let verb = if placed.dry_run { "would be" } else { "are" };
    format!(
        "{}: {} bytes {verb} placed\n\n{}",
        placed.file.display(),
        placed.bytes,
        output::table(&headings, &[2, 3, 4, 5], &rows)
    )
}
