//! Arrays of numpy as files
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>), as far as they have
//! floating-point numbers in C order.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;

use super::super::Usage;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header that is read, in bytes; numpy's own limit is 10,000.
const HEADER_BYTES_MAX: usize = 1 << 16;

/// An array of numpy with floating-point numbers.
pub(super) struct NpyArray {
    /// Lengths of the axes.
    pub(super) dims: Vec<usize>,
    /// The values in C order.
    pub(super) values: NpyValues,
}

/// Values of a type.
pub(super) enum NpyValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl From<Vec<f32>> for NpyValues {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<f64>> for NpyValues {
    fn from(values: Vec<f64>) -> Self {
        Self::F64(values)
    }
}

impl NpyArray {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = Self::parse(&bytes);
        parsed.map_err(|reason| Usage(format!("{}: {reason}", path.display())).into())
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "it is cut short".to_owned();
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or("it is no file of numpy (.npy)")?;
        let (&[major, _], rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let (length, rest) = match major {
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
        if length > HEADER_BYTES_MAX {
            return Err(format!("a header of {length} bytes"));
        }
        let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
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
        let values = match descr.get(..5).unwrap_or(descr) {
            "'<f4'" => NpyValues::F32(numbers(data, count, f32::from_le_bytes)?),
            "'>f4'" => NpyValues::F32(numbers(data, count, f32::from_be_bytes)?),
            "'<f8'" => NpyValues::F64(numbers(data, count, f64::from_le_bytes)?),
            "'>f8'" => NpyValues::F64(numbers(data, count, f64::from_be_bytes)?),
            other => {
                return Err(format!(
                    "its values are {other} and neither float32 nor float64: save array.astype('f8')"
                ));
            }
        };
        Ok(Self { dims, values })
    }

    /// Appends the array as a file of version 1.0.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let descr = match self.values {
            NpyValues::F32(_) => "<f4",
            NpyValues::F64(_) => "<f8",
        };
        let dims: String = self.dims.iter().map(|n| format!("{n}, ")).collect();
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
        // The data begins at a multiple of 64 bytes.
        let used = MAGIC.len() + 4;
        let length = (used + header.len() + 1).next_multiple_of(64) - used;
        out.extend(MAGIC);
        out.extend([1, 0]);
        out.extend((length as u16).to_le_bytes());
        out.extend(format!("{header:<width$}\n", width = length - 1).bytes());
        match &self.values {
            NpyValues::F32(values) => values.iter().for_each(|it| out.extend(it.to_le_bytes())),
            NpyValues::F64(values) => values.iter().for_each(|it| out.extend(it.to_le_bytes())),
        }
    }
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

fn numbers<const N: usize, T>(
    data: &[u8],
    count: usize,
    number: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, String> {
    let (chunks, rest) = data.as_chunks::<N>();
    match chunks.len() == count && rest.is_empty() {
        true => Ok(chunks.iter().map(|chunk| number(*chunk)).collect()),
        false => Err(format!(
            "it has {} bytes in place of {count} values",
            data.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for dims in [vec![3], vec![1, 3], vec![3, 1, 1, 1]] {
            let mut bytes = Vec::new();
            let values = NpyValues::F32(vec![1.0, -2.0, f32::NAN]);
            NpyArray {
                dims: dims.clone(),
                values,
            }
            .put(&mut bytes);
            assert_eq!((bytes.len() - 12) % 64, 0);
            let read = NpyArray::parse(&bytes).unwrap();
            assert_eq!(read.dims, dims);
            assert!(matches!(&read.values, NpyValues::F32(v) if v[1] == -2.0 && v[2].is_nan()));
        }
    }

    #[test]
    fn other_files() {
        let check = |bytes: &[u8], expect: &str| {
            let reason = NpyArray::parse(bytes).err().unwrap_or_default();
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
        let read = NpyArray::parse(&big).unwrap();
        assert!(matches!(read.values, NpyValues::F32(v) if v == [1.5]) && read.dims.is_empty());
    }
}
