//! `baro data unpack`: a packed array becomes a file of numpy, as precisely as is asked for. Large
//! arrays are read and written box by box.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Context as _;
use barograph_progressive::{
    AXES_MAX, ArrayHeader, Element, ElementType, ErrorBound, ProgressiveError, Region, Shape,
};
use clap::Args;
use serde::Serialize;

use super::super::Usage;
use super::super::progress::Progress;
use super::file::{self, ArrayFile, ArrayName, refuse_existing};
use super::npy::NpyOutput;
use super::{ErrorReport, Work, output};

/// Most bytes of values that are read at once, which takes about four times as much memory. A
/// larger array is read box by box, and its buckets are read twice.
const READ_AT_ONCE_BYTES_MAX: u64 = 64 << 20;
/// Values of a box for each thread: those of a block.
const VALUES_PER_THREAD: usize = 1 << 18;

/// Arguments of `baro data unpack`.
#[derive(Args)]
pub(super) struct Unpack {
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

impl Unpack {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let file = file::open(&self.file, &self.array_name)?;
        match file.header().element() {
            ElementType::F32 => self.read::<f32>(&file),
            ElementType::F64 => self.read::<f64>(&file),
        }
    }

    fn read<T: Element>(&self, file: &ArrayFile) -> anyhow::Result<()> {
        let header = file.header().clone();
        if header.on_mesh && (self.region.is_some() || self.level > 0) {
            let text = "values on a mesh are read as a whole: leave out --region and --level";
            return Err(Usage(text.into()).into());
        }
        let buckets = match &self.error {
            Some(bound) => header.buckets_for(bound)?,
            None => header.buckets().len(),
        };
        let region = self.region(&header)?;
        refuse_existing(&self.output, self.work.force)?;
        let bytes = region.count() as u64 * T::TYPE.size() as u64;
        // Values on a mesh are sorted in memory.
        let is_large = self.level == 0 && !header.on_mesh && bytes > READ_AT_ONCE_BYTES_MAX;
        let dims = match is_large {
            true => self.read_boxes::<T>(file, buckets, region)?,
            false => self.read_at_once::<T>(file, buckets, region)?,
        };
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

    /// Reads all values and writes them, and returns the lengths of the axes.
    fn read_at_once<T: Element>(
        &self,
        file: &ArrayFile,
        buckets: usize,
        region: Region,
    ) -> anyhow::Result<Vec<usize>> {
        let (reader, _) = file
            .read::<T>(buckets, region, self.level, self.work.threads())
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let dims = reader.dims();
        let mut values: Vec<T> = Vec::new();
        let count = dims.iter().product();
        values.try_reserve_exact(count).with_context(|| {
            format!("no memory for the {count} values of {dims:?}: read a --region or a --level")
        })?;
        values.resize(count, T::default());
        reader.put_values(&mut values);
        let out = NpyOutput::create(&self.output, &dims, T::TYPE)?;
        out.put(&Shape::new(&dims)?.whole(), &values)?;
        out.finish()?;
        Ok(dims)
    }

    /// Reads and writes one box of values after the other, and returns the lengths of the axes.
    fn read_boxes<T: Element>(
        &self,
        file: &ArrayFile,
        buckets: usize,
        region: Region,
    ) -> anyhow::Result<Vec<usize>> {
        let axes = file.header().shape().dims().len();
        let dims = region.size[AXES_MAX - axes..].to_vec();
        let out = NpyOutput::create(&self.output, &dims, T::TYPE)?;
        let progress = Progress::new();
        let (mut done, all) = (0, region.count());
        let threads = self.work.threads();
        let values_max = threads.clamp(2, 256) * VALUES_PER_THREAD;
        let read = file.read_boxes(
            buckets,
            region,
            values_max,
            threads,
            |part, values: &[T]| {
                out.put(&part.within(&region), values)?;
                done += values.len();
                progress.tell(|| format!("unpacking: {:3} %", 100 * done / all));
                anyhow::Ok(())
            },
        );
        read.map_err(|error| match error.is::<ProgressiveError>() {
            true => error.context(format!("cannot read {}", self.file.display())),
            false => error,
        })?;
        drop(progress);
        out.finish()?;
        Ok(dims)
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
