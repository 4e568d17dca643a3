//! Arrays of numpy as files
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>), as far as they have
//! floating-point numbers in C order: read and written box by box, since they may be larger than
//! memory.
//!
//! Files are read and not mapped: of a mapped file that somebody else cuts, the next access would
//! end the program.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_client::ReplacementFile;
use barograph_progressive::{AXES_MAX, Element, ElementType, Region, ValueSource};

use super::super::Usage;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read, in bytes; numpy's own limit is 10,000.
const HEADER_BYTES_MAX: usize = 1 << 16;
/// Most bytes that are read at once, unless values side by side are more.
const READ_BYTES_MAX: usize = 1 << 20;
/// Most bytes between two runs of values that are read along with them: less than a call costs.
const GAP_BYTES_MAX: usize = 4 << 10;
/// Most values that are written at once.
const WRITE_VALUES_MAX: usize = 1 << 17;

/// A file with an array of floating-point numbers.
pub(super) struct NpyFile {
    path: PathBuf,
    bytes: NpyBytes,
    header: NpyHeader,
}

enum NpyBytes {
    File {
        file: File,
        /// What the file was like when it was opened.
        seen: Metadata,
    },
    /// What has come through a pipe.
    Memory(Vec<u8>),
}

struct NpyHeader {
    /// Lengths of the axes.
    dims: Vec<usize>,
    element: ElementType,
    is_big_endian: bool,
    /// Where the values begin.
    start: usize,
}

impl NpyFile {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let opened = NpyBytes::open(path);
        let (bytes, first) = opened.with_context(|| format!("cannot read {}", path.display()))?;
        let header = match &bytes {
            NpyBytes::File { seen, .. } => NpyHeader::parse(&first, seen.len()),
            NpyBytes::Memory(all) => NpyHeader::parse(all, all.len() as u64),
        };
        let header = header.map_err(|reason| Usage(format!("{}: {reason}", path.display())))?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            header,
        })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lengths of the axes.
    pub(super) fn dims(&self) -> &[usize] {
        &self.header.dims
    }

    /// The type of the values.
    pub(super) fn element(&self) -> ElementType {
        self.header.element
    }

    /// Refuses a file that somebody has written to since it was opened: its values may be some of
    /// before and some of after.
    pub(super) fn check_unchanged(&self) -> anyhow::Result<()> {
        let NpyBytes::File { file, seen } = &self.bytes else {
            return Ok(());
        };
        let stamp = |seen: &Metadata| (seen.len(), seen.mtime(), seen.mtime_nsec());
        match file.metadata() {
            Ok(now) if stamp(&now) == stamp(seen) => Ok(()),
            _ => anyhow::bail!("{} was changed while it was read", self.path.display()),
        }
    }
}

impl NpyBytes {
    /// Opens a file, and returns it with its first bytes. What comes through a pipe is all read.
    fn open(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let mut file = File::open(path)?;
        let seen = file.metadata()?;
        let mut bytes = Vec::new();
        if !seen.is_file() {
            file.read_to_end(&mut bytes)?;
            return Ok((Self::Memory(bytes), Vec::new()));
        }
        let most = MAGIC.len() + 6 + HEADER_BYTES_MAX;
        (&file).take(most as u64).read_to_end(&mut bytes)?;
        Ok((Self::File { file, seen }, bytes))
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        let cut = || io::Error::other("the file was cut short while it was read");
        match self {
            Self::File { file, .. } => {
                let read = file.read_exact_at(bytes, at as u64);
                read.map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => cut(),
                    _ => error,
                })
            }
            Self::Memory(all) => {
                let part = all.get(at..at + bytes.len());
                bytes.copy_from_slice(part.ok_or_else(cut)?);
                Ok(())
            }
        }
    }
}

impl<T: Element> ValueSource<T> for NpyFile {
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()> {
        let (size, run) = (T::TYPE.size(), region.size[AXES_MAX - 1]);
        let mut runs = region.runs(padded(&self.header.dims)).peekable();
        let mut values = values.chunks_exact_mut(run);
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        while let Some(first) = runs.next() {
            places.clear();
            places.push(first);
            let mut end = first + run;
            while let Some(next) = runs.next_if(|next| {
                (next - end) * size <= GAP_BYTES_MAX
                    && (next + run - first) * size <= READ_BYTES_MAX
            }) {
                places.push(next);
                end = next + run;
            }
            bytes.resize((end - first) * size, 0);
            let at = self.header.start + first * size;
            self.bytes.read_at(&mut bytes, at)?;
            for (place, values) in places.iter().zip(&mut values) {
                let bytes = &bytes[(place - first) * size..][..run * size];
                decode(bytes, self.header.is_big_endian, values);
            }
        }
        Ok(())
    }
}

fn decode<T: Element>(bytes: &[u8], is_big_endian: bool, values: &mut [T]) {
    let size = T::TYPE.size();
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size)) {
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(bytes);
        if is_big_endian {
            bits[..size].reverse();
        }
        *value = T::from_bits(u64::from_le_bytes(bits));
    }
}

/// Lengths of four axes, of which those before the first one have 1.
fn padded(dims: &[usize]) -> [usize; AXES_MAX] {
    let mut all = [1; AXES_MAX];
    all[AXES_MAX - dims.len()..].copy_from_slice(dims);
    all
}

impl NpyHeader {
    /// Reads the header of a file of this length from its first bytes.
    fn parse(bytes: &[u8], length: u64) -> Result<Self, String> {
        let cut = || "it is cut short".to_owned();
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or("it is no file of numpy (.npy)")?;
        let (&[major, _], rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let (header_length, rest) = match major {
            1 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (usize::from(u16::from_le_bytes(*length)), rest)
            }
            2 | 3 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
            _ => return Err(format!("version {major} of the format is not known")),
        };
        if header_length > HEADER_BYTES_MAX {
            return Err(format!("a header of {header_length} bytes"));
        }
        let (header, data) = rest.split_at_checked(header_length).ok_or_else(cut)?;
        let start = bytes.len() - data.len();
        let header = std::str::from_utf8(header).map_err(|error| error.to_string())?;
        let dims = shape(header)?;
        let count = dims
            .iter()
            .try_fold(1_usize, |count, &n| count.checked_mul(n));
        let count = count.ok_or("its shape is too large")?;
        if field(header, "fortran_order")?.starts_with("True") {
            return Err("it is in Fortran order: save numpy.ascontiguousarray(array)".into());
        }
        let descr = field(header, "descr")?;
        let (element, is_big_endian) = match descr.get(..5).unwrap_or(descr) {
            "'<f4'" => (ElementType::F32, false),
            "'>f4'" => (ElementType::F32, true),
            "'<f8'" => (ElementType::F64, false),
            "'>f8'" => (ElementType::F64, true),
            other => {
                return Err(format!(
                    "its values are {other} and neither float32 nor float64: save array.astype('f8')"
                ));
            }
        };
        let data = length.saturating_sub(start as u64);
        match count.checked_mul(element.size()) {
            Some(bytes) if bytes as u64 == data => Ok(Self {
                dims,
                element,
                is_big_endian,
                start,
            }),
            _ => Err(format!("it has {data} bytes in place of {count} values")),
        }
    }
}

/// A file of numpy that is being written, in version 1.0 of the format. It appears when it is
/// finished.
pub(super) struct NpyOutput {
    file: ReplacementFile,
    path: PathBuf,
    dims: [usize; AXES_MAX],
    /// Where the values begin.
    start: u64,
}

impl NpyOutput {
    /// Begins to write an array of these lengths.
    pub(super) fn create(
        path: &Path,
        dims: &[usize],
        element: ElementType,
    ) -> anyhow::Result<Self> {
        let header = header(dims, element);
        let file = ReplacementFile::create(path);
        let file = file.and_then(|new| new.file().write_all_at(&header, 0).map(|()| new));
        Ok(Self {
            file: file.with_context(|| format!("cannot write {}", path.display()))?,
            path: path.to_owned(),
            dims: padded(dims),
            start: header.len() as u64,
        })
    }

    /// Writes the values of a box.
    pub(super) fn put<T: Element>(&self, region: &Region, values: &[T]) -> anyhow::Result<()> {
        let run = region.size[AXES_MAX - 1];
        let mut runs = region.runs(self.dims).peekable();
        let mut values = values;
        while let Some(first) = runs.next() {
            let mut end = first + run;
            while runs.next_if_eq(&end).is_some() {
                end += run;
            }
            let (here, rest) = values.split_at(end - first);
            values = rest;
            self.put_run(first, here)
                .with_context(|| format!("cannot write {}", self.path.display()))?;
        }
        Ok(())
    }

    /// Writes values that lie side by side.
    fn put_run<T: Element>(&self, first: usize, values: &[T]) -> io::Result<()> {
        let size = T::TYPE.size();
        let mut at = self.start + (first * size) as u64;
        let mut bytes = Vec::new();
        for values in values.chunks(WRITE_VALUES_MAX) {
            bytes.clear();
            for value in values {
                bytes.extend(&value.to_bits().to_le_bytes()[..size]);
            }
            self.file.file().write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    /// Lets the file appear.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let finished = self.file.finish().map(drop);
        finished.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn header(dims: &[usize], element: ElementType) -> Vec<u8> {
    let descr = match element {
        ElementType::F32 => "<f4",
        ElementType::F64 => "<f8",
    };
    let dims: String = dims.iter().map(|n| format!("{n}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The data begins at a multiple of 64 bytes.
    let used = MAGIC.len() + 4;
    let length = (used + header.len() + 1).next_multiple_of(64) - used;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((length as u16).to_le_bytes());
    out.extend(format!("{header:<width$}\n", width = length - 1).bytes());
    out
}

/// What follows the name of a field in the header, which is a dictionary of Python.
fn field<'a>(header: &'a str, name: &str) -> Result<&'a str, String> {
    let after = |quote: char| {
        header
            .split_once(&format!("{quote}{name}{quote}:"))
            .map(|it| it.1)
    };
    let value = after('\'').or_else(|| after('"'));
    value
        .map(str::trim_start)
        .ok_or_else(|| format!("its header has no {name}"))
}

fn shape(header: &str) -> Result<Vec<usize>, String> {
    let value = field(header, "shape")?;
    let inner = value
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'));
    let (inner, _) = inner.ok_or("its shape cannot be read")?;
    let parts = inner
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let dims: Result<Vec<usize>, _> = parts.map(str::parse).collect();
    dims.map_err(|error| format!("its shape ({inner}) cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use barograph_progressive::Shape;

    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn boxes_are_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let all: Vec<f32> = (0..5 * 400 * 7).map(|at| at as f32).collect();
        for dims in [&[14_000][..], &[2_000, 7], &[5, 400, 7], &[5, 2, 200, 7]] {
            let shape = Shape::new(dims).unwrap();
            let out = NpyOutput::create(&path, dims, ElementType::F32).unwrap();
            let first = dims[0] / 2;
            let mut ranges: Vec<_> = dims.iter().map(|&n| 0..n).collect();
            ranges[0] = first..dims[0];
            let upper = shape.region(&ranges).unwrap();
            ranges[0] = 0..first;
            let lower = shape.region(&ranges).unwrap();
            out.put(&upper, &all[lower.count()..]).unwrap();
            out.put(&lower, &all[..lower.count()]).unwrap();
            out.finish().unwrap();
            let read = NpyFile::open(&path).unwrap();
            assert_eq!((read.dims(), read.element()), (dims, ElementType::F32));
            assert_eq!(read.header.start % 64, 0);
            let ranges: Vec<_> = dims.iter().map(|&n| n / 3..n / 2 + 1).collect();
            for region in [shape.whole(), shape.region(&ranges).unwrap()] {
                let mut values = vec![0_f32; region.count()];
                read.put_values(&region, &mut values).unwrap();
                let run = region.size[3];
                for (values, at) in values.chunks(run).zip(region.runs(shape.whole().size)) {
                    assert_eq!(values, &all[at..at + run]);
                }
            }
            read.check_unchanged().unwrap();
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(9_000)
                .unwrap();
            let mut values = vec![0_f32; shape.count()];
            let error = read.put_values(&shape.whole(), &mut values).unwrap_err();
            assert!(error.to_string().contains("was cut short"), "{error}");
            assert!(read.check_unchanged().is_err());
        }
        drop(NpyOutput::create(&path, &[3], ElementType::F64).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_files() {
        let check = |bytes: &[u8], expect: &str| {
            let reason = NpyHeader::parse(bytes, bytes.len() as u64)
                .err()
                .unwrap_or_default();
            assert!(reason.contains(expect), "{reason}");
        };
        let head = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}")
        };
        check(b"PNG", "no file of numpy");
        check(b"\x93NUMPY", "cut short");
        check(
            &file(&head("<f8", "False", "(2,)"), &[0; 8]),
            "8 bytes in place of 2",
        );
        check(
            &file(&head("<f8", "True", "(1, 1)"), &[0; 8]),
            "Fortran order",
        );
        check(
            &file(&head("<i4", "False", "(1,)"), &[0; 4]),
            "neither float32",
        );
        check(&file(&head("<f8", "False", "(x,)"), &[]), "cannot be read");
        check(
            &file(&head("<f8", "False", "(99999999999, 99999999999)"), &[]),
            "too large",
        );
        check(&file("{}", &[]), "no shape");
        let big = file(&head(">f4", "False", "()"), &1.5_f32.to_be_bytes());
        let read = NpyHeader::parse(&big, big.len() as u64).unwrap();
        assert!(read.is_big_endian && read.dims.is_empty());
        let mut values = [0_f32];
        decode(&big[read.start..], true, &mut values);
        assert_eq!(values, [1.5]);
    }
}
