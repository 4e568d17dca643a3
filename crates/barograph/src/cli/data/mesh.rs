//! `baro data pack --points`: values at the points of an unstructured mesh.

use std::io;
use std::path::Path;

use anyhow::Context as _;
use barograph_client::{AppendError, append_points, points_bytes};
use barograph_progressive::{
    AXES_MAX, COORDINATE_NAMES, Element, ElementType, MeshPoints, ProgressiveError, Region, Shape,
    ValueSource, gather,
};

use super::super::Usage;
use super::npy::NpyFile;

/// The mesh of the values that are packed.
pub(super) struct Mesh {
    points: MeshPoints,
    order: Vec<u32>,
    threads: usize,
}

/// Refuses a name that the coordinates of a mesh have.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    match COORDINATE_NAMES.contains(&name) {
        true => {
            let text = format!("--name {name} is that of coordinates of the mesh");
            Err(Usage(text).into())
        }
        false => Ok(()),
    }
}

/// Values in the order of a mesh, all of which are in memory.
pub(super) struct MeshValues<T>(Vec<T>);

impl Mesh {
    /// Reads the points of the values of `array`: a file of numpy with a row for each value.
    pub(super) fn read(path: &Path, array: &NpyFile, threads: usize) -> anyhow::Result<Self> {
        let refused = |reason: String| Usage(format!("--points {}: {reason}", path.display()));
        let file = NpyFile::open(path)?;
        let (&[count], &[points, axes]) = (array.dims(), file.dims()) else {
            let text = "there is one axis of values, and points with a row of coordinates for each";
            return Err(refused(text.into()).into());
        };
        if count != points {
            return Err(refused(format!("{points} points for {count} values")).into());
        }
        let values = match file.element() {
            ElementType::F32 => all::<f32>(&file)?.into_iter().map(f64::from).collect(),
            ElementType::F64 => all::<f64>(&file)?,
        };
        let points = MeshPoints::new(values, axes).map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            order: points.order(),
            points,
            threads,
        })
    }

    /// The values of a file in the order of the mesh.
    pub(super) fn ordered<T: Element>(&self, file: &NpyFile) -> anyhow::Result<MeshValues<T>> {
        Ok(MeshValues(gather(&all(file)?, &self.order)))
    }

    /// Appends the points to a file of packed arrays, unless it has them; or returns them as bytes,
    /// if the file is a new one.
    pub(super) fn put(&self, appended: Option<&Path>) -> anyhow::Result<Vec<u8>> {
        let Some(file) = appended else {
            return Ok(points_bytes(&self.points, self.threads)?);
        };
        append_points(file, &self.points, self.threads).map_err(|error| match error {
            AppendError::NoArrays(error @ ProgressiveError::Mesh { .. }) => {
                Usage(format!("{}: {error}", file.display())).into()
            }
            error => anyhow::Error::from(error)
                .context(format!("cannot append the points to {}", file.display())),
        })?;
        Ok(Vec::new())
    }
}

impl<T: Element> ValueSource<T> for MeshValues<T> {
    fn put_values(&self, region: &Region, values: &mut [T]) -> io::Result<()> {
        let start = region.start[AXES_MAX - 1];
        values.copy_from_slice(&self.0[start..start + values.len()]);
        Ok(())
    }
}

/// All values of a file.
fn all<T: Element>(file: &NpyFile) -> anyhow::Result<Vec<T>> {
    let shape = Shape::new(file.dims()).map_err(|error| Usage(error.to_string()))?;
    let mut values: Vec<T> = Vec::new();
    let count = shape.count();
    let room = values.try_reserve_exact(count);
    room.with_context(|| {
        format!("no memory for {count} values: those on a mesh are sorted there")
    })?;
    values.resize(count, T::default());
    let read = file.put_values(&shape.whole(), &mut values);
    read.with_context(|| format!("cannot read {}", file.path().display()))?;
    file.check_unchanged()?;
    Ok(values)
}
