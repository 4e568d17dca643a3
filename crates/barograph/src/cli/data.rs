//! `baro data`: arrays as files that are read as precisely as is needed.

mod file;
mod listing;
mod npy;
mod place;

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_client::{AppendError, FilePart, TieredBytes, append_array};
use barograph_progressive::{
    ArrayHeader, Basis, Element, ElementType, ErrorBound, NAME_BYTES_MAX, PackConfig, Region,
    Shape, pack,
};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use self::file::{ArrayFile, ArrayName};
use self::npy::{NpyArray, NpyValues};
use self::place::{Join, Place};
use super::{Usage, output};

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

/// Arguments of `baro data pack`.
#[derive(Args)]
struct Pack {
    /// The array: a file of numpy (.npy) with 1 to 4 axes of float32 or float64
    array: PathBuf,
    /// The packed file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How neighbours are predicted from each other
    #[arg(long, value_enum, default_value_t = BasisName::Wavelet)]
    basis: BasisName,
    /// The error at which the approximations end, as a share of the range (NRMSE)
    #[arg(long, value_name = "NRMSE", default_value_t = 1e-8)]
    finest: f64,
    /// Leave out the last bucket, which gives back every bit
    #[arg(long)]
    lossy: bool,
    /// A value that stands for a missing one; those that are no numbers always do
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    fill: Option<f64>,
    /// Write the array after those that the file has, as another name or time step
    #[arg(long, conflicts_with = "force")]
    append: bool,
    #[command(flatten)]
    array_name: ArrayName,
    #[command(flatten)]
    work: Work,
}

/// Arguments of `baro data unpack`.
#[derive(Args)]
struct Unpack {
    /// The packed file
    file: PathBuf,
    /// The array as a file of numpy
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Largest error of the whole array: nrmse=1e-4, psnr=80, psnr_max=80 or linf=0.01. By default
    /// all of the file is read
    #[arg(long, value_name = "BOUND", value_parser = ErrorBound::parse)]
    error: Option<ErrorBound>,
    /// Only a part: a range for each axis, such as 0:100,20:40
    #[arg(long, value_name = "RANGES")]
    region: Option<String>,
    /// A coarser resolution: each level has half as many values along an axis
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "region")]
    level: usize,
    #[command(flatten)]
    array_name: ArrayName,
    #[command(flatten)]
    work: Work,
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

#[derive(Clone, Copy, ValueEnum)]
enum BasisName {
    /// From two neighbours
    Linear,
    /// From four neighbours
    Cubic,
    /// The 9/7 wavelet, which needs the fewest bytes for most data
    Wavelet,
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

/// What was packed.
#[derive(Serialize)]
struct Packed {
    file: PathBuf,
    bytes: u64,
    /// Bytes of the array in memory.
    array_bytes: u64,
    /// Bits of a value.
    bits: f64,
    buckets: usize,
}

impl Pack {
    fn run(self) -> anyhow::Result<()> {
        let array = NpyArray::read(&self.array)?;
        let shape = Shape::new(&array.dims).map_err(|error| Usage(error.to_string()))?;
        let config = PackConfig {
            basis: match self.basis {
                BasisName::Linear => Basis::Linear,
                BasisName::Cubic => Basis::Cubic,
                BasisName::Wavelet => Basis::Wavelet,
            },
            finest: self.finest,
            is_exact: !self.lossy,
            fill: self.fill,
            threads: self.work.threads(),
        };
        let packed = match &array.values {
            NpyValues::F32(values) => pack(values, shape, &config),
            NpyValues::F64(values) => pack(values, shape, &config),
        };
        let mut packed = packed.map_err(|error| Usage(error.to_string()))?;
        packed.header.name = self.array_name.name.unwrap_or_default();
        packed.header.step = self.array_name.step;
        if packed.header.name.len() > NAME_BYTES_MAX {
            let most = format!("--name has more than {NAME_BYTES_MAX} bytes");
            return Err(Usage(most).into());
        }
        let bytes = match self.append {
            true => {
                let place = self.output.display();
                match append_array(&self.output, &packed.header, &packed.buckets) {
                    Err(error @ AppendError::Same) => {
                        return Err(Usage(format!("{place}: {error}: say --name or --step")).into());
                    }
                    appended => appended.with_context(|| format!("cannot append to {place}"))?,
                }
            }
            false => file::write(&self.output, self.work.force, |out| {
                out.extend(packed.header.encode());
                packed.buckets.iter().for_each(|bucket| out.extend(bucket));
            })?,
        };
        let count = shape.count() as u64;
        let report = Packed {
            file: self.output,
            bytes,
            array_bytes: count * packed.header.element().size() as u64,
            bits: bytes as f64 * 8.0 / count as f64,
            buckets: packed.buckets.len(),
        };
        if self.work.json {
            return output::print_json(&report);
        }
        output::print(&format!(
            "{}: {} bytes in {} buckets, {:.2} bits a value, {:.1} % of the array\n",
            report.file.display(),
            report.bytes,
            report.buckets,
            report.bits,
            100.0 * report.bytes as f64 / report.array_bytes as f64,
        ))
    }
}

/// What was read.
#[derive(Serialize)]
struct Unpacked {
    file: PathBuf,
    dims: Vec<usize>,
    buckets: usize,
    /// Bytes of the packed file that were read.
    bytes: u64,
    /// Bytes of the packed file.
    file_bytes: u64,
    error: ErrorReport,
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

impl Unpack {
    fn run(self) -> anyhow::Result<()> {
        let file = file::open(&self.file, &self.array_name)?;
        match file.header().element() {
            ElementType::F32 => self.read::<f32>(&file),
            ElementType::F64 => self.read::<f64>(&file),
        }
    }

    fn read<T: Element>(&self, file: &ArrayFile) -> anyhow::Result<()>
    where
        NpyValues: From<Vec<T>>,
    {
        let header = file.header().clone();
        let buckets = match &self.error {
            Some(bound) => header.buckets_for(bound)?,
            None => header.buckets().len(),
        };
        let (region, threads) = (self.region(&header)?, self.work.threads());
        let (reader, _) = file
            .read::<T>(buckets, region, self.level, threads)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let dims = reader.dims();
        let mut values: Vec<T> = Vec::new();
        let count = dims.iter().product();
        values.try_reserve_exact(count).with_context(|| {
            format!("no memory for the {count} values of {dims:?}: read a --region or a --level")
        })?;
        values.resize(count, T::default());
        reader.put_values(&mut values);
        let array = NpyArray {
            dims: dims.clone(),
            values: values.into(),
        };
        file::write(&self.output, self.work.force, |out| array.put(out))?;
        let report = Unpacked {
            file: self.output.clone(),
            dims,
            buckets,
            bytes: file.bytes_read(),
            file_bytes: file.bytes(),
            error: ErrorReport::of(&header, buckets - 1),
        };
        if self.work.json {
            return output::print_json(&report);
        }
        output::print(&format!(
            "{}: {} buckets, {} of {} bytes read, NRMSE {:e}, largest error {:e}\n",
            report.file.display(),
            report.buckets,
            report.bytes,
            report.file_bytes,
            header.buckets()[buckets - 1].error.nrmse(header.range()),
            report.error.linf,
        ))
    }

    fn region(&self, header: &ArrayHeader) -> anyhow::Result<Region> {
        let Some(text) = &self.region else {
            return Ok(header.shape().whole());
        };
        let wrong = || {
            Usage(format!(
                "--region {text:?}: write a range for each axis, such as 0:100,20:40"
            ))
        };
        let range = |part: &str| {
            let (start, end) = part.split_once(':')?;
            Some(Range {
                start: start.trim().parse().ok()?,
                end: end.trim().parse().ok()?,
            })
        };
        let ranges: Option<Vec<Range<usize>>> = text.split(',').map(range).collect();
        let region = header.shape().region(&ranges.ok_or_else(wrong)?);
        Ok(region.map_err(|error| Usage(error.to_string()))?)
    }
}

/// What is in a packed file.
#[derive(Serialize)]
struct Inspected {
    name: String,
    step: Option<u64>,
    dims: Vec<usize>,
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
        "{}: {:?} {}, {} basis, {:e} to {:e}, {} missing, {} bytes ({:.2} bits a value){}\n\n",
        path.display(),
        seen.dims,
        seen.element,
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
        (headings.remove(7), right.pop());
        rows.iter_mut().for_each(|row| drop(row.remove(7)));
    }
    let parts = seen.parts.iter().enumerate().map(|(number, part)| {
        let (file, bytes) = (part.file.display(), part.bytes);
        format!("part {number}: {bytes} bytes in {file}\n")
    });
    let table = output::table(&headings, &right, &rows);
    head + &parts.collect::<String>() + &table
}
