//! `baro data`: arrays as files that are read as precisely as is needed.

mod file;
mod listing;
mod mesh;
mod npy;
mod pack;
mod place;
mod unpack;

use std::path::{Path, PathBuf};

use barograph_client::{FilePart, TieredBytes};
use barograph_progressive::{ArrayHeader, Basis, ElementType};
use clap::{Args, Subcommand};
use serde::Serialize;

use self::file::{ArrayFile, ArrayName};
use self::pack::Pack;
use self::place::{Join, Place};
use self::unpack::Unpack;
use super::output;

/// Columns of the bar that shows a bucket's error.
const BAR_WIDTH: f64 = 40.0;

/// Arguments of `baro data`.
#[derive(Args)]
pub(super) struct Data {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Pack an array of numpy: baro data pack field.npy -o field.baro
    Pack(Pack),
    /// Read a packed array as precisely as is needed: baro data unpack field.baro --error
    /// nrmse=1e-4 -o out.npy
    Unpack(Unpack),
    /// Show the buckets of a packed array: their bytes and the error of a reading that ends with
    /// each
    Inspect(Inspect),
    /// Divide a packed file among tiers of storage, coarse buckets on the fast ones, or move it:
    /// baro data place field.baro --tier /nvme/data=20GB --tier /lustre/data
    Place(Place),
    /// Put the parts of a packed file together: baro data join field.baro
    Join(Join),
}

/// What both directions have.
#[derive(Args)]
struct Work {
    /// Number of threads; by default as many as there are processors
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `baro data inspect`.
#[derive(Args)]
struct Inspect {
    /// The packed file
    file: PathBuf,
    #[command(flatten)]
    array_name: ArrayName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Data {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Pack(pack) => pack.run(),
            Verb::Unpack(unpack) => unpack.run(),
            Verb::Inspect(inspect) => inspect.run(),
            Verb::Place(place) => place.run(),
            Verb::Join(join) => join.run(),
        }
    }
}

impl Work {
    fn threads(&self) -> usize {
        let all = std::thread::available_parallelism();
        self.threads.unwrap_or_else(|| all.map_or(1, usize::from))
    }
}

/// The error of a reading of the whole array.
#[derive(Serialize)]
struct ErrorReport {
    rmse: f64,
    linf: f64,
    nrmse: Option<f64>,
    psnr: Option<f64>,
    psnr_max: Option<f64>,
}

impl ErrorReport {
    fn of(header: &ArrayHeader, bucket: usize) -> Self {
        let (error, range) = (header.buckets()[bucket].error, header.range());
        // JSON has no infinity: an exact reading has no ratio.
        let finite = |value: f64| value.is_finite().then_some(value);
        Self {
            rmse: error.rmse,
            linf: error.linf,
            nrmse: finite(error.nrmse(range)),
            psnr: finite(error.psnr(range)),
            psnr_max: finite(error.psnr_max(range)),
        }
    }
}

/// What is in a packed file.
#[derive(Serialize)]
struct Inspected {
    name: String,
    step: Option<u64>,
    dims: Vec<usize>,
    /// Whether the values are at the points of a mesh, whose coordinates are in the file.
    on_mesh: bool,
    element: &'static str,
    basis: &'static str,
    min: f64,
    max: f64,
    missing: u64,
    is_exact: bool,
    bytes: u64,
    /// The parts of the file over tiers; none of a file in one piece.
    parts: Vec<InspectedPart>,
    buckets: Vec<InspectedBucket>,
}

#[derive(Serialize)]
struct InspectedPart {
    file: PathBuf,
    bytes: u64,
}

#[derive(Serialize)]
struct InspectedBucket {
    bytes: u64,
    /// Bytes of the header and of all buckets up to this one.
    bytes_so_far: u64,
    /// Number of the part with the end of the bucket.
    part: Option<usize>,
    error: ErrorReport,
}

impl Inspect {
    fn run(self) -> anyhow::Result<()> {
        let listing = file::list(&self.file)?;
        let is_one = self.array_name.name.is_some() || self.array_name.step.is_some();
        if listing.headers().len() > 1 && !is_one {
            return listing::list(&self.file, &listing, self.json);
        }
        let file = file::open(&self.file, &self.array_name)?;
        let seen = inspected(&file);
        match self.json {
            true => output::print_json(&seen),
            false => output::print(&shown(&self.file, &seen)),
        }
    }
}

fn inspected(file: &ArrayFile) -> Inspected {
    let (header, tiers) = (file.header(), file.source().tiers());
    let parts = tiers.map(TieredBytes::parts).unwrap_or_default();
    let mut so_far = header.encode().len() as u64;
    let bucket = |(at, entry): (usize, &barograph_progressive::BucketEntry)| {
        so_far += entry.bytes;
        InspectedBucket {
            bytes: entry.bytes,
            bytes_so_far: so_far,
            part: tiers.and_then(|it| it.part_of(file.place(at).ok()?.end.saturating_sub(1))),
            error: ErrorReport::of(header, at),
        }
    };
    let buckets = header.buckets().iter().enumerate().map(bucket).collect();
    Inspected {
        name: header.name.clone(),
        step: header.step,
        dims: header.shape().dims().to_vec(),
        on_mesh: header.on_mesh,
        element: match header.element() {
            ElementType::F32 => "float32",
            ElementType::F64 => "float64",
        },
        basis: match header.basis() {
            Basis::Linear => "linear",
            Basis::Cubic => "cubic",
            Basis::Wavelet => "wavelet",
        },
        min: header.range().min,
        max: header.range().max,
        missing: header.shape().count() as u64 - header.range().count,
        is_exact: header.is_exact(),
        bytes: file.bytes(),
        parts: parts.into_iter().map(part).collect(),
        buckets,
    }
}

fn part(FilePart { path: file, bytes }: FilePart) -> InspectedPart {
    InspectedPart { file, bytes }
}

/// The buckets as a table, with a bar for the error of each: one column is a tenth of a decade.
fn shown(path: &Path, seen: &Inspected) -> String {
    let count: usize = seen.dims.iter().product();
    let head = format!(
        "{}: {:?} {}{}, {} basis, {:e} to {:e}, {} missing, {} bytes ({:.2} bits a value){}\n\n",
        path.display(),
        seen.dims,
        seen.element,
        if seen.on_mesh { " on a mesh" } else { "" },
        seen.basis,
        seen.min,
        seen.max,
        seen.missing,
        seen.bytes,
        seen.bytes as f64 * 8.0 / count as f64,
        if seen.is_exact {
            ", exact at the end"
        } else {
            ""
        },
    );
    let rows = seen.buckets.iter().enumerate().map(|(at, bucket)| {
        let nrmse = bucket.error.nrmse.unwrap_or(f64::INFINITY);
        let columns = (BAR_WIDTH / 8.0 * (8.0 + nrmse.max(1e-8).log10())).clamp(0.0, BAR_WIDTH);
        vec![
            at.to_string(),
            bucket.bytes.to_string(),
            bucket.bytes_so_far.to_string(),
            format!("{:.3}", bucket.bytes_so_far as f64 * 8.0 / count as f64),
            format!("{nrmse:.2e}"),
            bucket
                .error
                .psnr
                .map_or("-".into(), |psnr| format!("{psnr:.1}")),
            format!("{:.2e}", bucket.error.linf),
            bucket.part.map_or("-".into(), |part| part.to_string()),
            "#".repeat(columns as usize),
        ]
    });
    let headings = [
        "bucket",
        "bytes",
        "so far",
        "bits",
        "NRMSE",
        "PSNR dB",
        "largest",
        "part",
        "NRMSE from 1e-8 to 1",
    ];
    let mut rows: Vec<Vec<String>> = rows.collect();
    let (mut headings, mut right) = (headings.to_vec(), vec![0, 1, 2, 3, 4, 5, 6, 7]);
    if seen.parts.is_empty() {
        headings.remove(7);
        right.pop();
        rows.iter_mut().for_each(|row| drop(row.remove(7)));
    }
    let parts = seen.parts.iter().enumerate().map(|(number, part)| {
        let (file, bytes) = (part.file.display(), part.bytes);
        format!("part {number}: {bytes} bytes in {file}\n")
    });
    let table = output::table(&headings, &right, &rows);
    head + &parts.collect::<String>() + &table
}
