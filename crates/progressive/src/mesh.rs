//! The order of the points of an unstructured mesh, in which neighbours in space are mostly
//! neighbours in the order: values in this order are packed as an array of one axis.
//!
//! It is the order along a Hilbert curve, which needs the coordinates alone: no edges and no
//! triangles (J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707, 2004).
//! It is a function of the coordinates, so it is not stored. It needs four operations of IEEE 754
//! and whole numbers, so it is the same on any machine.

use crate::ProgressiveError;

/// Most points of a mesh.
pub const POINTS_MAX: usize = u32::MAX as usize;
/// Bits of a coordinate on the curve, by the number of axes: a place on it is one word.
const BITS_2D: u32 = 31;
const BITS_3D: u32 = 21;

/// The order of points along a Hilbert curve: the point at place `i` of the order is `order[i]`.
/// `points` has the `dims` (2 or 3) coordinates of each point, one point after the other.
///
/// # Errors
///
/// There are no points or too many, coordinates are missing, or one of them is no finite number.
pub fn mesh_order(points: &[f64], dims: usize) -> Result<Vec<u32>, ProgressiveError> {
    check(points, dims)?;
    Ok(order_of(points, dims))
}

/// The values in the order: `values[order[i]]` for each `i`.
///
/// # Panics
///
/// The order has a place beyond the values.
pub fn gather<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&at| values[at as usize]).collect()
}

/// The inverse of [`gather`]: puts the value at place `i` of the order to `order[i]` of `values`.
///
/// # Panics
///
/// The order has a place beyond the values.
pub fn scatter<T: Copy>(ordered: &[T], order: &[u32], values: &mut [T]) {
    for (&value, &at) in ordered.iter().zip(order) {
        values[at as usize] = value;
    }
}

/// Refuses coordinates that no mesh has.
pub(crate) fn check(points: &[f64], dims: usize) -> Result<(), ProgressiveError> {
    let refused = |reason: String| Err(ProgressiveError::Mesh { reason });
    if dims != 2 && dims != 3 {
        return refused(format!("points of {dims} coordinates: they have 2 or 3"));
    }
    if points.is_empty() || !points.len().is_multiple_of(dims) {
        let count = points.len();
        return refused(format!("{count} numbers for points of {dims} coordinates"));
    }
    if points.len() / dims > POINTS_MAX {
        return refused(format!("more than {POINTS_MAX} points"));
    }
    match points.iter().position(|number| !number.is_finite()) {
        Some(at) => refused(format!("point {} is not finite", at / dims)),
        None => Ok(()),
    }
}

/// The order of points that were checked.
pub(crate) fn order_of(points: &[f64], dims: usize) -> Vec<u32> {
    match dims {
        2 => order_along_curve::<2>(points, BITS_2D),
        _ => order_along_curve::<3>(points, BITS_3D),
    }
}

fn order_along_curve<const D: usize>(points: &[f64], bits: u32) -> Vec<u32> {
    let (points, _) = points.as_chunks::<D>();
    let frame = Frame::of(points, bits);
    let key = |point: &[f64; D]| place_on_curve(frame.cell(point), bits);
    let keys = points.iter().map(key).zip(0..);
    let mut keys: Vec<(u64, u32)> = keys.collect();
    // Points of the same place are in the order of their numbers, so no order is left to chance.
    keys.sort_unstable();
    keys.into_iter().map(|(_, at)| at).collect()
}

/// The box of the points, with the same scale along all axes: the curve must not be stretched,
/// since neighbours along a long axis would then be far from each other.
struct Frame<const D: usize> {
    /// Halves of the smallest coordinates: differences of halves are finite.
    low: [f64; D],
    /// Half of the longest side.
    width: f64,
    cells: f64,
}

impl<const D: usize> Frame<D> {
    fn of(points: &[[f64; D]], bits: u32) -> Self {
        let mut low = [f64::MAX; D];
        let mut high = [f64::MIN; D];
        for point in points {
            for axis in 0..D {
                low[axis] = low[axis].min(point[axis]);
                high[axis] = high[axis].max(point[axis]);
            }
        }
        let low = low.map(|it| it / 2.0);
        let sides = (0..D).map(|axis| high[axis] / 2.0 - low[axis]);
        Self {
            low,
            width: sides.fold(0.0, f64::max),
            cells: f64::from((1_u32 << bits) - 1),
        }
    }

    /// The cell of a point. All points are in one cell if they are at the same place.
    fn cell(&self, point: &[f64; D]) -> [u32; D] {
        let cell = |axis: usize| match self.width > 0.0 {
            true => ((point[axis] / 2.0 - self.low[axis]) / self.width * self.cells) as u32,
            false => 0,
        };
        std::array::from_fn(cell)
    }
}

/// The place of a cell on a Hilbert curve through all cells, of which each side has 2 to the power
/// of `bits`.
fn place_on_curve<const D: usize>(mut cell: [u32; D], bits: u32) -> u64 {
    // From the coarsest cells on, each cell is turned as its part of the curve is.
    for bit in (1..bits).rev() {
        let below = (1 << bit) - 1;
        for axis in 0..D {
            if cell[axis] >> bit & 1 == 1 {
                cell[0] ^= below;
            } else {
                let other = (cell[0] ^ cell[axis]) & below;
                cell[0] ^= other;
                cell[axis] ^= other;
            }
        }
    }
    // Neighbours on the curve differ in one bit of a Gray code.
    for axis in 1..D {
        cell[axis] ^= cell[axis - 1];
    }
    let turned = (1..bits).rev().filter(|&bit| cell[D - 1] >> bit & 1 == 1);
    let turned = turned.fold(0, |all, bit| all ^ ((1 << bit) - 1));
    let cell = cell.map(|number| number ^ turned);
    let mut place = 0;
    for bit in (0..bits).rev() {
        for number in cell {
            place = place << 1 | u64::from(number >> bit & 1);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every cell is at a place of its own, and neighbours on the curve share a side.
    fn check_curve<const D: usize>(bits: u32) {
        let side = 1_u32 << bits;
        let count = side.pow(D as u32) as usize;
        let mut curve = vec![None; count];
        for number in 0..count as u32 {
            let cell: [u32; D] = std::array::from_fn(|axis| number / side.pow(axis as u32) % side);
            let place = place_on_curve(cell, bits) as usize;
            assert_eq!(curve[place], None, "{cell:?}");
            curve[place] = Some(cell);
        }
        let curve: Vec<[u32; D]> = curve.into_iter().flatten().collect();
        for pair in curve.windows(2) {
            let steps = (0..D).map(|axis| pair[0][axis].abs_diff(pair[1][axis]));
            assert_eq!(steps.sum::<u32>(), 1, "{pair:?}");
        }
    }

    #[test]
    fn a_curve_goes_from_cell_to_neighbour_through_all_cells() {
        for bits in 1..=6 {
            check_curve::<2>(bits);
        }
        for bits in 1..=4 {
            check_curve::<3>(bits);
        }
    }

    #[test]
    fn the_order_is_that_of_the_format() {
        let square = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        assert_eq!(mesh_order(&square, 2).unwrap(), [0, 2, 3, 1]);
        let cube: Vec<f64> = (0..24)
            .map(|at| f64::from((at / 3) >> (at % 3) & 1))
            .collect();
        assert_eq!(mesh_order(&cube, 3).unwrap(), [0, 4, 6, 2, 3, 7, 5, 1]);
        // A pseudo-random mesh, whose order other programs can be compared with.
        let points: Vec<f64> = (0..24_u32)
            .map(|at| f64::from(at.wrapping_mul(2_654_435_761) >> 20) / 4_096.0)
            .collect();
        assert_eq!(
            mesh_order(&points, 2).unwrap(),
            PSEUDO_RANDOM_2D,
            "the order in a plane"
        );
        assert_eq!(
            mesh_order(&points, 3).unwrap(),
            PSEUDO_RANDOM_3D,
            "the order in space"
        );
    }

    const PSEUDO_RANDOM_2D: [u32; 12] = [6, 2, 0, 9, 1, 5, 10, 4, 8, 3, 7, 11];
    const PSEUDO_RANDOM_3D: [u32; 8] = [4, 6, 5, 0, 7, 2, 3, 1];

    #[test]
    fn points_that_are_refused() {
        let check = |points: &[f64], dims: usize, expect: &str| {
            let error = mesh_order(points, dims).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&[], 2, "0 numbers");
        check(&[1.0, 2.0, 3.0], 2, "3 numbers");
        check(&[1.0; 6], 1, "2 or 3");
        check(&[1.0; 8], 4, "2 or 3");
        check(&[1.0; 8], 0, "2 or 3");
        check(&[0.0, 1.0, f64::NAN, 1.0], 2, "point 1 is not finite");
        check(&[0.0, f64::NEG_INFINITY, 1.0], 3, "point 0 is not finite");
    }

    #[test]
    fn coordinates_at_the_ends_of_the_numbers() {
        let in_order = |points: &[f64], dims: usize, expect: &[u32]| {
            assert_eq!(mesh_order(points, dims).unwrap(), expect, "{points:?}");
        };
        in_order(&[7.0; 9], 3, &[0, 1, 2]);
        in_order(&[-0.0, 0.0, 0.0, -0.0], 2, &[0, 1]);
        let (most, least) = (f64::MAX, 5e-324);
        in_order(&[most, most, -most, -most, most, -most], 2, &[1, 0, 2]);
        in_order(&[-most, -most, -most, most, -most, most], 3, &[0, 1]);
        in_order(&[least, 0.0, 0.0, 0.0], 2, &[0, 1]);
        in_order(&[8.0 * least, 0.0, 0.0, 0.0], 2, &[1, 0]);
        // A line of points along an axis is in the order of the axis.
        let line: Vec<f64> = (0..100).flat_map(|at| [f64::from(99 - at), 3.0]).collect();
        in_order(&line, 2, &(0..100).rev().collect::<Vec<u32>>());
    }

    proptest! {
        #[test]
        fn an_order_has_each_point_once_and_is_undone(
            points in prop::collection::vec(prop_oneof![
                -1.0..1.0_f64,
                Just(0.0),
                proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL,
            ], 6..600),
            dims in 2..4_usize,
        ) {
            let points = &points[..points.len() / dims * dims];
            let order = mesh_order(points, dims).unwrap();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.iter().copied().eq(0..(points.len() / dims) as u32));
            let values: Vec<u64> = (0..order.len() as u64).map(|at| at * 7 + 3).collect();
            let mut back = vec![0; values.len()];
            scatter(&gather(&values, &order), &order, &mut back);
            prop_assert_eq!(back, values);
        }

        #[test]
        fn a_mesh_that_is_moved_and_scaled_by_powers_of_two_has_the_same_order(
            points in prop::collection::vec(0..1_000_000_u32, 4..200),
            exponent in -300..300_i32,
        ) {
            let points = &points[..points.len() / 2 * 2];
            let even: Vec<f64> = points.iter().map(|&it| it.into()).collect();
            let scale = crate::element::exp2(exponent);
            let other: Vec<f64> = even.iter().map(|it| (it - 4_096.0) * scale).collect();
            prop_assert_eq!(mesh_order(&even, 2).unwrap(), mesh_order(&other, 2).unwrap());
        }
    }
}
