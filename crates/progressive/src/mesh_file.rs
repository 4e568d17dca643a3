//! The mesh of a file of packed arrays: its coordinates are arrays of the same file, exact and in
//! the order of the points, so whoever reads values on the mesh has the order of the values too.
//!
//! A file has at most one mesh. Its coordinates are written once, before all values on it.

use crate::ProgressiveError;
use crate::bytes::{ByteSource, fetched};
use crate::element::{Element, ElementType};
use crate::header::{ArrayHeader, COORDINATE_NAMES};
use crate::listing::ArrayListing;
use crate::mesh::{POINTS_MAX, check, order_of};
use crate::pack::{PackConfig, PackedArray, pack};
use crate::read::ArrayReader;
use crate::shape::Shape;

/// The points of an unstructured mesh in a plane or in space.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshPoints {
    /// The coordinates of one point after the other.
    points: Vec<f64>,
    dims: usize,
}

impl MeshPoints {
    /// Points of 2 or 3 coordinates, which are given one point after the other.
    ///
    /// # Errors
    ///
    /// There are no points or too many, or a coordinate is no finite number.
    pub fn new(points: Vec<f64>, dims: usize) -> Result<Self, ProgressiveError> {
        check(&points, dims)?;
        Ok(Self { points, dims })
    }

    /// The coordinates of one point after the other.
    pub fn coordinates(&self) -> &[f64] {
        &self.points
    }

    /// Number of coordinates of a point.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Number of points.
    pub fn count(&self) -> usize {
        self.points.len() / self.dims
    }

    /// The order in which values on this mesh are packed, as [`crate::mesh_order`].
    pub fn order(&self) -> Vec<u32> {
        order_of(&self.points, self.dims)
    }

    /// Packs the coordinates along an axis, with the name of the array that they are in a file:
    /// as binary32 if that has each of them.
    ///
    /// # Errors
    ///
    /// There is no such axis.
    pub fn pack(&self, axis: usize, threads: usize) -> Result<PackedArray, ProgressiveError> {
        let axes = 0..self.dims;
        if !axes.contains(&axis) {
            return Err(ProgressiveError::Mesh {
                reason: format!("there is no axis {axis}"),
            });
        }
        let shape = Shape::new(&[self.count()])?;
        let config = PackConfig {
            threads,
            ..PackConfig::default()
        };
        let values: Vec<f64> = self.along(axis).collect();
        let is_single = |value: &f64| f64::from(*value as f32).to_bits() == value.to_bits();
        let mut packed = match values.iter().all(is_single) {
            true => {
                let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
                pack(&values, shape, &config)?
            }
            false => pack(&values, shape, &config)?,
        };
        packed.header.name = COORDINATE_NAMES[axis].to_owned();
        Ok(packed)
    }

    /// Reads the points of a file's mesh, and returns them with the number of bytes that were read.
    ///
    /// # Errors
    ///
    /// The file has no mesh, or its coordinates cannot be read or are damaged.
    pub fn read(source: &impl ByteSource, threads: usize) -> Result<(Self, u64), ProgressiveError> {
        let listing = ArrayListing::read(source)?;
        let axes = COORDINATE_NAMES.map(|name| of_axis(&listing, name));
        let present = axes.iter().take_while(|it| it.is_some()).count();
        let mut coordinates = Vec::new();
        let mut bytes = 0;
        for array in axes.into_iter().flatten().take(present) {
            let (values, read) = read_axis(source, array, threads)?;
            bytes += read;
            coordinates.push(values);
        }
        let [first, rest @ ..] = &coordinates[..] else {
            return Err(damaged("the file has values on a mesh and no points"));
        };
        if rest.iter().any(|other| other.len() != first.len()) {
            return Err(damaged("its axes have different numbers of points"));
        }
        let point = |at: usize| coordinates.iter().map(move |values| values[at]);
        let points = (0..first.len()).flat_map(point).collect();
        let dims = coordinates.len();
        Ok((Self::new(points, dims)?, bytes))
    }

    /// The axes whose coordinates a file does not have yet: all of them, none, or those that an
    /// append that was killed has left out.
    ///
    /// # Errors
    ///
    /// The file has other points, or cannot be read.
    pub fn axes_to_write(
        &self,
        source: &impl ByteSource,
        threads: usize,
    ) -> Result<Vec<usize>, ProgressiveError> {
        let other = |reason: &str| {
            Err(ProgressiveError::Mesh {
                reason: format!("{reason}: a file has one mesh, so write another file"),
            })
        };
        let listing = ArrayListing::read(source)?;
        let mut left = Vec::new();
        for (axis, name) in COORDINATE_NAMES.into_iter().enumerate() {
            let found = of_axis(&listing, name);
            match found {
                Some(_) if axis >= self.dims => return other("the points of the file have 3 axes"),
                Some((_, header)) if header.shape().count() != self.count() => {
                    let count = header.shape().count();
                    return other(&format!("the file has {count} points"));
                }
                Some(array) => {
                    let (values, _) = read_axis(source, array, threads)?;
                    if !values.into_iter().eq(self.along(axis)) {
                        return other("the file has other points");
                    }
                }
                None if axis < self.dims => left.push(axis),
                None => {}
            }
        }
        match left.is_empty() || !listing.headers().any(|header| header.on_mesh) {
            true => Ok(left),
            false => other("the points of the file have other axes"),
        }
    }

    fn along(&self, axis: usize) -> impl Iterator<Item = f64> {
        self.points.iter().skip(axis).step_by(self.dims).copied()
    }
}

/// The whole array that has the coordinates of an axis.
fn of_axis<'a>(listing: &'a ArrayListing, name: &str) -> Option<&'a (u64, ArrayHeader)> {
    let mut whole = listing.arrays.iter().filter(|it| it.0 < listing.end());
    whole.find(|(_, header)| header.is_coordinate() && header.name == name)
}

/// Reads the coordinates of an axis, and returns them with the number of bytes that were read.
fn read_axis(
    source: &impl ByteSource,
    (start, header): &(u64, ArrayHeader),
    threads: usize,
) -> Result<(Vec<f64>, u64), ProgressiveError> {
    if header.shape().dims().len() != 1 || !header.is_exact() || header.on_mesh {
        return Err(damaged("its coordinates are no exact arrays of one axis"));
    }
    if header.shape().count() > POINTS_MAX {
        return Err(damaged("it has too many points"));
    }
    match header.element() {
        ElementType::F32 => read_all::<f32>(source, *start, header, threads),
        ElementType::F64 => read_all::<f64>(source, *start, header, threads),
    }
}

fn read_all<T: Element>(
    source: &impl ByteSource,
    start: u64,
    header: &ArrayHeader,
    threads: usize,
) -> Result<(Vec<f64>, u64), ProgressiveError> {
    let whole = header.shape().whole();
    let mut reader = ArrayReader::<T>::new(header.clone(), whole, threads)?;
    let mut at = start + header.encode().len() as u64;
    for entry in header.buckets() {
        let end = at.saturating_add(entry.bytes);
        reader.read_whole(&fetched(source, at..end)?)?;
        at = end;
    }
    let mut values = Vec::new();
    let reserved = values.try_reserve_exact(whole.count());
    reserved.map_err(|_| damaged("there is no memory for its points"))?;
    values.resize(whole.count(), T::default());
    reader.put_values(&mut values);
    Ok((values.into_iter().map(T::to_f64).collect(), at - start))
}

fn damaged(reason: &str) -> ProgressiveError {
    ProgressiveError::Damaged {
        part: "the mesh of the file".into(),
        reason: reason.into(),
    }
}
