//! `baro data pack`: a file of numpy becomes a packed array. It may be larger than memory: values
//! are read as they are needed, and packed pieces go to a file of their own until all are there.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use barograph_client::{AppendError, AppendedArray, ReplacementFile, SpoolFile};
use barograph_progressive::{
    Basis, Element, ElementType, NAME_BYTES_MAX, PackConfig, ProgressiveError, Region, Shape,
    SpooledArray, ValueSource, pack_from,
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::super::Usage;
use super::super::progress::Progress;
use super::file::{self, ArrayName, refuse_existing};
use super::mesh::{Mesh, check_name};
use super::npy::NpyFile;
use super::{Work, output};

/// Arguments of `baro data pack`.
#[derive(Args)]
pub(super) struct Pack {
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
    /// The points of an unstructured mesh that the values are at: a file of numpy with a row of 2
    /// or 3 coordinates for each value. They are kept in the file, once for all values on them
    #[arg(long, value_name = "FILE")]
    points: Option<PathBuf>,
    /// Write the array after those that the file has, as another name or time step
    #[arg(long, conflicts_with = "force")]
    append: bool,
    #[command(flatten)]
    array_name: ArrayName,
    #[command(flatten)]
    work: Work,
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
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let name = self.array_name.name.clone().unwrap_or_default();
        if name.len() > NAME_BYTES_MAX {
            let most = format!("--name has more than {NAME_BYTES_MAX} bytes");
            return Err(Usage(most).into());
        }
        // What can be known before the work is said before it.
        if self.points.is_some() {
            check_name(&name)?;
        }
        match self.append {
            true => {
                let there = file::list(&self.output);
                if there.is_ok_and(|there| there.has(&name, self.array_name.step)) {
                    return Err(self.same_name());
                }
            }
            false => refuse_existing(&self.output, self.work.force)?,
        }
        let array = NpyFile::open(&self.array)?;
        let shape = Shape::new(array.dims()).map_err(|error| Usage(error.to_string()))?;
        let threads = self.work.threads();
        let mesh = self.points.as_ref();
        let mesh = mesh
            .map(|points| Mesh::read(points, &array, threads))
            .transpose()?;
        let mut spool = SpoolFile::new(&self.output);
        let packed = match array.element() {
            ElementType::F32 => self.pack::<f32>(&array, mesh.as_ref(), shape, &mut spool),
            ElementType::F64 => self.pack::<f64>(&array, mesh.as_ref(), shape, &mut spool),
        };
        let mut packed = packed?;
        array.check_unchanged()?;
        packed.header.on_mesh = mesh.is_some();
        (packed.header.name, packed.header.step) = (name, self.array_name.step);
        let appended = self.append.then_some(&*self.output);
        let points = match mesh {
            Some(mesh) => mesh.put(appended)?,
            None => Vec::new(),
        };
        let bytes = self.write(&points, &packed, spool)?;
        self.report(bytes, &packed)
    }

    /// Says what was packed.
    fn report(self, bytes: u64, packed: &SpooledArray) -> anyhow::Result<()> {
        let count = packed.header.shape().count() as u64;
        let report = Packed {
            file: self.output,
            bytes,
            array_bytes: count * packed.header.element().size() as u64,
            bits: bytes as f64 * 8.0 / count as f64,
            buckets: packed.starts.len(),
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

    fn pack<T: Element>(
        &self,
        array: &NpyFile,
        mesh: Option<&Mesh>,
        shape: Shape,
        spool: &mut SpoolFile,
    ) -> anyhow::Result<SpooledArray> {
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
        let packed = match mesh {
            Some(mesh) => {
                let source = ShownValues::of(mesh.ordered::<T>(array)?, shape);
                pack_from::<T>(&source, shape, &config, spool)
            }
            None => pack_from::<T>(&ShownValues::of(array, shape), shape, &config, spool),
        };
        packed.map_err(|error| match error {
            ProgressiveError::Fetch { .. } | ProgressiveError::Spool { .. } => {
                let what = format!("cannot pack {}", self.array.display());
                anyhow::Error::from(error).context(what)
            }
            error => Usage(error.to_string()).into(),
        })
    }

    /// Writes the packed file, with the points of a mesh before the array, and returns the bytes of
    /// the array and the points.
    fn write(&self, points: &[u8], packed: &SpooledArray, spool: SpoolFile) -> anyhow::Result<u64> {
        let place = self.output.display();
        if self.append {
            let appended = AppendedArray::begin(&self.output, &packed.header);
            let appended = appended.and_then(|new| {
                spool.write_buckets(packed, &mut new.file())?;
                Ok(new.finish()?)
            });
            return match appended {
                Err(AppendError::Same) => Err(self.same_name()),
                appended => appended.with_context(|| format!("cannot append to {place}")),
            };
        }
        refuse_existing(&self.output, self.work.force)?;
        let write = || {
            let new = ReplacementFile::create(&self.output)?;
            io::Write::write_all(&mut new.file(), points)?;
            io::Write::write_all(&mut new.file(), &packed.header.encode())?;
            spool.write_buckets(packed, &mut new.file())?;
            new.finish()
        };
        write().with_context(|| format!("cannot write {place}"))
    }

    fn same_name(&self) -> anyhow::Error {
        let (place, same) = (self.output.display(), AppendError::Same);
        Usage(format!("{place}: {same}: say --name or --step")).into()
    }
}

/// The values of a file, with the progress of packing them: each value is asked for in three
/// rounds, the last of which takes nearly all of the time.
struct ShownValues<S> {
    source: S,
    progress: Progress,
    /// Values that were given, in all rounds.
    given: AtomicU64,
    /// Values of the array.
    count: u64,
}

impl<S> ShownValues<S> {
    fn of(source: S, shape: Shape) -> Self {
        Self {
            source,
            progress: Progress::new(),
            given: AtomicU64::new(0),
            count: shape.count() as u64,
        }
    }
}

impl<T: Element, S: ValueSource<T>> ValueSource<T> for ShownValues<S> {
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()> {
        let given = self.given.fetch_add(values.len() as u64, Ordering::Relaxed);
        self.progress.tell(|| {
            let percent = 100 * (given % self.count) / self.count;
            match given / self.count {
                0 => format!("range of the values: {percent:3} %"),
                1 => format!("size of the details: {percent:3} %"),
                _ => format!("packing:             {percent:3} %"),
            }
        });
        self.source.put_values(region, values)
    }
}
