//! The header of an array: its shape and type, how it is coded, and for every bucket its size, its
//! checksum and the error of a reading that ends with it.
//!
//! All numbers are little endian. `docs/reference/progressive-format.md` has the layout.

use crate::basis::Basis;
use crate::block::{Coding, GRID_MAX, GROUPS};
use crate::element::ElementType;
use crate::error::{ErrorCode, MeasuredError, ValueRange};
use crate::pieces::{Input, put_number};
use crate::planes::{CodingStep, PASSES};
use crate::shape::{AXES_MAX, Shape};
use crate::{ErrorBound, ProgressiveError};

/// The first bytes of every header.
pub const MAGIC: [u8; 8] = *b"BAROPROG";
/// The newest version of the format that is read. Arrays are written as version 1, unless they are
/// on a mesh.
pub const VERSION: u16 = 2;
/// The version of arrays on a mesh: readers of version 1 would give values in a wrong order.
const MESH_VERSION: u16 = 2;
/// Most buckets of an array.
pub const BUCKETS_MAX: usize = 256;
/// Most planes of an array: a coefficient is a word with some bits to spare.
pub(crate) const PLANES_MAX: usize = 60;
/// Bounds of exponents, such that neither they nor what is computed with them leaves the normal
/// numbers.
const EXPONENT_MAX: i32 = 1_000;
const PLANE_MAX: i32 = 100;
/// Bytes of the length of a bucket's index; each piece has a byte in the index at least.
const INDEX_LENGTH_BYTES: u64 = 4;
/// Most bytes of a header. One with all buckets, a long name and large numbers has fewer.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Names of the arrays that have the coordinates of their file's mesh. They are of no time step.
pub const COORDINATE_NAMES: [&str; 3] = ["mesh/x", "mesh/y", "mesh/z"];
/// Most bytes of the name of an array.
pub const NAME_BYTES_MAX: usize = 255;

/// What is in a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketEntry {
    /// Number of the bucket's steps of coding; 0 for the last bucket of an exact array, which has
    /// differences.
    pub(crate) steps: u16,
    /// Bytes of the bucket.
    pub bytes: u64,
    /// CRC-32 of the bucket's bytes.
    pub checksum: u32,
    /// The error of a reading of this bucket and all before it.
    pub error: MeasuredError,
}

/// What is known of an array before its values are read.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayHeader {
    /// Name of the array among those of its file, of at most [`NAME_BYTES_MAX`] bytes; may be
    /// empty.
    pub name: String,
    /// Number of the time step that the array is of, if it is of one.
    pub step: Option<u64>,
    /// Whether the values are on the mesh of their file, and in its order ([`crate::MeshPoints`]).
    pub on_mesh: bool,
    pub(crate) shape: Shape,
    pub(crate) element: ElementType,
    pub(crate) coding: Coding,
    pub(crate) range: ValueRange,
    /// Exponent of the highest plane.
    pub(crate) highest: i32,
    /// Whether the last bucket makes a reading exact.
    pub(crate) is_exact: bool,
    pub(crate) buckets: Vec<BucketEntry>,
}

impl ArrayHeader {
    /// The shape of the array.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of its values.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// How neighbours are predicted from each other.
    pub fn basis(&self) -> Basis {
        self.coding.basis
    }

    /// The range of the values that are there.
    pub fn range(&self) -> &ValueRange {
        &self.range
    }

    /// Whether all buckets together give back every bit.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Whether the array has coordinates of its file's mesh, by its name.
    pub(crate) fn is_coordinate(&self) -> bool {
        self.step.is_none() && COORDINATE_NAMES.contains(&&*self.name)
    }

    /// The buckets in the order in which they are read.
    pub fn buckets(&self) -> &[BucketEntry] {
        &self.buckets
    }

    /// Number of buckets that have to be read for a bound, from the first one on.
    ///
    /// # Errors
    ///
    /// No reading is within the bound.
    pub fn buckets_for(&self, bound: &ErrorBound) -> Result<usize, ProgressiveError> {
        bound.check()?;
        let holds = |entry: &BucketEntry| bound.holds(&entry.error, &self.range);
        let first = self.buckets.iter().position(holds);
        first.map(|at| at + 1).ok_or_else(|| {
            let measured = self
                .buckets
                .iter()
                .map(|it| bound.measure(&it.error, &self.range));
            ProgressiveError::OutOfReach {
                bound: *bound,
                best: match bound {
                    ErrorBound::Nrmse(_) | ErrorBound::Linf(_) => {
                        measured.fold(f64::INFINITY, f64::min)
                    }
                    ErrorBound::Psnr(_) | ErrorBound::PsnrMax(_) => {
                        measured.fold(f64::NEG_INFINITY, f64::max)
                    }
                },
            }
        })
    }

    /// The steps of coding of each bucket.
    pub(crate) fn steps(&self) -> Vec<Vec<CodingStep>> {
        let mut next = 0;
        let steps = |count: u16| {
            let steps = (next..next + usize::from(count)).map(|at| CodingStep {
                plane: self.highest - (at / PASSES) as i32,
                pass: at % PASSES,
            });
            next += usize::from(count);
            steps.collect()
        };
        self.buckets
            .iter()
            .map(|entry| entry.steps)
            .map(steps)
            .collect()
    }

    /// Number of pieces of a bucket: of every group of every block, with the blocks' heads before
    /// them in the first bucket, and of every block alone in the last one of an exact array.
    pub(crate) fn pieces(&self, bucket: usize) -> usize {
        let blocks = self.shape.block_count() as usize;
        match bucket {
            _ if self.is_exact && bucket + 1 == self.buckets.len() => blocks,
            0 => blocks * (GROUPS + 1),
            _ => blocks * GROUPS,
        }
    }

    /// Number of bytes that [`Self::encoded_len`] needs.
    pub const PREFIX_BYTES: usize = 16;

    /// Number of bytes that [`Self::decode`] needs, from the first bytes of the header.
    ///
    /// # Errors
    ///
    /// They are none, or of a later version.
    pub fn encoded_len(bytes: &[u8]) -> Result<usize, ProgressiveError> {
        let mut input = Input::new("the header", bytes);
        if input.array()? != MAGIC {
            return Err(input.fault("it does not begin with BAROPROG"));
        }
        let version = u16::from_le_bytes(input.array()?);
        if version > VERSION {
            return Err(ProgressiveError::Future {
                version,
                known: VERSION,
            });
        }
        let buckets = usize::from(u16::from_le_bytes(input.array()?));
        let length = u32::from_le_bytes(input.array()?) as usize;
        let is_known = version > 0 && (1..=BUCKETS_MAX).contains(&buckets);
        match is_known && (Self::PREFIX_BYTES..=HEADER_BYTES_MAX).contains(&length) {
            true => Ok(length),
            false => Err(input.fault(format!(
                "version {version} with {buckets} buckets and {length} bytes"
            ))),
        }
    }

    /// Bytes of the header and all buckets.
    pub fn array_bytes(&self) -> u64 {
        let buckets = self.buckets.iter().map(|entry| entry.bytes);
        buckets.fold(self.encode().len() as u64, u64::saturating_add)
    }

    /// The bytes of the header. Of a name that is too long, only the beginning is kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let version = if self.on_mesh { MESH_VERSION } else { 1 };
        bytes.extend(version.to_le_bytes());
        bytes.extend((self.buckets.len() as u16).to_le_bytes());
        // The length of the header comes here, once it is known.
        bytes.extend([0; 4]);
        bytes.push(self.element.size() as u8);
        bytes.push(match self.coding.basis {
            Basis::Linear => 0,
            Basis::Cubic => 1,
            Basis::Wavelet => 2,
        });
        bytes.push(self.shape.dims().len() as u8);
        let flags = [
            self.is_exact,
            self.coding.fill.is_some(),
            self.coding.grid.is_some(),
            self.step.is_some(),
            self.on_mesh,
        ];
        let flags = flags
            .iter()
            .rev()
            .fold(0, |bits, &flag| bits << 1 | u8::from(flag));
        bytes.push(flags);
        bytes.extend((self.coding.exponent as i16).to_le_bytes());
        bytes.extend((self.highest as i16).to_le_bytes());
        bytes.extend(self.range.min.to_le_bytes());
        bytes.extend(self.range.max.to_le_bytes());
        let dims = self.shape.dims().iter();
        dims.for_each(|&length| put_number(&mut bytes, length as u64));
        let missing = self.shape.count() as u64 - self.range.count;
        put_number(&mut bytes, missing);
        if let Some(grid) = self.coding.grid {
            bytes.extend((grid as i16).to_le_bytes());
        }
        if let Some(fill) = self.coding.fill {
            bytes.extend(fill.to_le_bytes());
        }
        if let Some(step) = self.step {
            put_number(&mut bytes, step);
        }
        let name = self.name.floor_char_boundary(NAME_BYTES_MAX);
        bytes.push(name as u8);
        bytes.extend(&self.name.as_bytes()[..name]);
        for entry in &self.buckets {
            put_number(&mut bytes, entry.bytes);
            put_number(&mut bytes, entry.steps.into());
            bytes.extend(entry.checksum.to_le_bytes());
            for error in [entry.error.rmse, entry.error.linf] {
                let code = ErrorCode::of(error, self.coding.exponent);
                bytes.extend(code.0.to_le_bytes());
            }
        }
        let length = bytes.len() as u32 + 4;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Reads a header, which may be followed by other bytes.
    ///
    /// # Errors
    ///
    /// It is damaged, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProgressiveError> {
        let length = Self::encoded_len(bytes)?;
        let mut input = Input::new("the header", bytes);
        let checked = input.take(length - 4)?;
        let checksum = u32::from_le_bytes(input.array()?);
        if crc32fast::hash(checked) != checksum {
            return Err(input.fault("its checksum does not match"));
        }
        let mut input = Input::new("the header", checked);
        input.take(MAGIC.len())?;
        let version = u16::from_le_bytes(input.array()?);
        let count = usize::from(u16::from_le_bytes(input.array()?));
        input.take(4)?;
        let [size, basis, axes, flags] = input.array()?;
        let exponent = i32::from(i16::from_le_bytes(input.array()?));
        let highest = i32::from(i16::from_le_bytes(input.array()?));
        let min = f64::from_le_bytes(input.array()?);
        let max = f64::from_le_bytes(input.array()?);
        let shape = shape(&mut input, axes.into())?;
        let missing = input.number()?;
        let present = (shape.count() as u64).checked_sub(missing);
        let has = |flag: u8| flags & flag != 0;
        let grid = has(4).then(|| input.array().map(i16::from_le_bytes));
        let grid = grid.transpose()?.map(i32::from);
        let fill = has(2).then(|| input.array().map(u64::from_le_bytes));
        let fill = fill.transpose()?;
        let step = has(8).then(|| input.number()).transpose()?;
        let [name] = input.array()?;
        let name = str::from_utf8(input.take(name.into())?);
        let name = name.map_err(|_| input.fault("its name is no UTF-8"))?;
        let buckets = (0..count)
            .map(|_| entry(&mut input, exponent))
            .collect::<Result<Vec<_>, _>>()?;
        let header = Self {
            name: name.to_owned(),
            step,
            on_mesh: has(16) && version >= MESH_VERSION,
            element: element(size).ok_or_else(|| input.fault(format!("values of {size} bytes")))?,
            coding: Coding {
                basis: basis_of(basis).ok_or_else(|| input.fault(format!("basis {basis}")))?,
                exponent,
                long: shape.long(),
                fill,
                min,
                max,
                grid,
            },
            is_exact: has(1),
            range: ValueRange {
                count: present.ok_or_else(|| input.fault(format!("{missing} missing values")))?,
                min,
                max,
            },
            shape,
            highest,
            buckets,
        };
        header.check().map_err(|reason| input.fault(reason))?;
        match input.is_empty() {
            true => Ok(header),
            false => Err(input.fault("it has bytes after its buckets")),
        }
    }

    fn check(&self) -> Result<(), String> {
        let steps: usize = self
            .buckets
            .iter()
            .map(|entry| usize::from(entry.steps))
            .sum();
        let range = &self.range;
        if self.on_mesh && (self.shape.dims().len() != 1 || self.is_coordinate()) {
            return Err("values on a mesh have one axis, and no name of coordinates".into());
        }
        let grid = self.coding.grid.unwrap_or(0).abs();
        let exponent = self.coding.exponent.abs();
        if exponent > EXPONENT_MAX || self.highest.abs() > PLANE_MAX || grid > GRID_MAX {
            return Err("an exponent is out of range".into());
        }
        if steps > PLANES_MAX * PASSES {
            return Err(format!("{steps} steps of coding"));
        }
        if !(range.min <= range.max && range.half_width().is_finite()) {
            return Err(format!("values from {} to {}", range.min, range.max));
        }
        // A reader has memory for every block, so a header must not tell of blocks for nothing.
        for (bucket, entry) in self.buckets.iter().enumerate() {
            let least = INDEX_LENGTH_BYTES + self.pieces(bucket) as u64;
            if entry.bytes < least {
                return Err(format!(
                    "bucket {bucket} has {} of at least {least} bytes",
                    entry.bytes
                ));
            }
        }
        Ok(())
    }
}

fn element(size: u8) -> Option<ElementType> {
    match size {
        4 => Some(ElementType::F32),
        8 => Some(ElementType::F64),
        _ => None,
    }
}

fn basis_of(number: u8) -> Option<Basis> {
    match number {
        0 => Some(Basis::Linear),
        1 => Some(Basis::Cubic),
        2 => Some(Basis::Wavelet),
        _ => None,
    }
}

fn shape(input: &mut Input<'_>, axes: usize) -> Result<Shape, ProgressiveError> {
    let mut dims = [0; AXES_MAX];
    let dims = dims
        .get_mut(..axes)
        .ok_or_else(|| input.fault("too many axes"))?;
    for length in &mut *dims {
        *length = usize::try_from(input.number()?).unwrap_or(usize::MAX);
    }
    Shape::new(dims)
}

fn entry(input: &mut Input<'_>, exponent: i32) -> Result<BucketEntry, ProgressiveError> {
    let bytes = input.number()?;
    let steps = u16::try_from(input.number()?).unwrap_or(u16::MAX);
    let checksum = u32::from_le_bytes(input.array()?);
    let mut error = || {
        let code = ErrorCode(u16::from_le_bytes(input.array()?));
        Ok(code.error(exponent))
    };
    Ok(BucketEntry {
        steps,
        bytes,
        checksum,
        error: MeasuredError {
            rmse: error()?,
            linf: error()?,
        },
    })
}
