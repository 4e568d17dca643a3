//! The points of a mesh in a file of packed arrays, to which values on it are appended.

use std::path::Path;

use barograph_progressive::{ByteSource as _, MeshPoints, ProgressiveError};

use crate::file_bytes::FileBytes;
use crate::packed::{AppendError, append_array};

/// Appends the points of a mesh to a file, or begins the file with them. A file that has these
/// points stays as it is: they are written once for all values on them.
///
/// # Errors
///
/// The file has other points, or [`append_array`] fails. What was written before stays, and the
/// next call goes on there.
pub fn append_points(path: &Path, points: &MeshPoints, threads: usize) -> Result<(), AppendError> {
    let left = match FileBytes::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (0..points.dims()).collect(),
        Err(error) => return Err(error.into()),
        Ok(there) if there.byte_count() == 0 => (0..points.dims()).collect(),
        Ok(there) => points.axes_to_write(&there, threads)?,
    };
    for axis in left {
        let packed = points.pack(axis, threads)?;
        append_array(path, &packed.header, &packed.buckets).map_err(|error| match error {
            // Whoever has written it since then may have other points.
            AppendError::Same => AppendError::Busy,
            error => error,
        })?;
    }
    Ok(())
}

/// The points of a mesh as bytes of a file that begins with them.
///
/// # Errors
///
/// They cannot be packed.
pub fn points_bytes(points: &MeshPoints, threads: usize) -> Result<Vec<u8>, ProgressiveError> {
    let mut bytes = Vec::new();
    for axis in 0..points.dims() {
        let packed = points.pack(axis, threads)?;
        bytes.extend(packed.header.encode());
        packed
            .buckets
            .iter()
            .for_each(|bucket| bytes.extend(bucket));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use barograph_progressive::{PackConfig, Shape, gather, pack};

    use super::*;

    #[test]
    fn points_are_written_once_and_other_points_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mesh.baro");
        let numbers = |seed: u32| -> Vec<f64> {
            let number = |at: u32| f64::from((at * seed).wrapping_mul(2_654_435_761) >> 8);
            (1..601).map(number).collect()
        };
        let points = MeshPoints::new(numbers(1), 2).unwrap();
        append_points(&path, &points, 1).unwrap();
        let first = std::fs::read(&path).unwrap();
        assert_eq!(first, points_bytes(&points, 1).unwrap());
        let ordered = gather(&numbers(7)[..300], &points.order());
        let config = PackConfig::default();
        let mut packed = pack(&ordered, Shape::new(&[300]).unwrap(), &config).unwrap();
        packed.header.on_mesh = true;
        append_array(&path, &packed.header, &packed.buckets).unwrap();
        let second = std::fs::read(&path).unwrap();
        append_points(&path, &points, 1).unwrap();
        for other in [
            MeshPoints::new(numbers(3), 2).unwrap(),
            MeshPoints::new(numbers(1), 3).unwrap(),
        ] {
            let error = append_points(&path, &other, 1).unwrap_err().to_string();
            assert!(error.contains("a file has one mesh"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), second);
        // An append of the points that was killed after the first axis, and in its middle.
        let axis = points.pack(0, 1).unwrap().header.array_bytes() as usize;
        for end in [axis, axis / 2] {
            std::fs::write(&path, &first[..end]).unwrap();
            append_points(&path, &points, 1).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), first);
        }
        std::fs::write(&path, "no array").unwrap();
        assert!(append_points(&path, &points, 1).is_err());
    }
}
