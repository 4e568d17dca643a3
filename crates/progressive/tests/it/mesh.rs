//! Values on a mesh are packed in its order, and a file gives them back in that of its points.

use barograph_progressive::{
    ArrayListing, ArraySource, ByteSource, COORDINATE_NAMES, ErrorBound, MeshPoints, PackConfig,
    PackedArray, ProgressiveError, Shape, WantedArray, gather, mesh_order, pack,
};

/// Points of a square or a cube, without an order.
fn points(count: usize, dims: usize) -> MeshPoints {
    let mut state = 5_u64;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 12) as f64 / f64::exp2(52.0) - 0.3
    };
    MeshPoints::new((0..count * dims).map(next).collect(), dims).unwrap()
}

/// A smooth function at the points.
fn wave(points: &MeshPoints) -> Vec<f64> {
    let wave = |point: &[f64]| (point[0] * 9.0).sin() + (point[1] * 7.0).cos();
    let points = points.coordinates().chunks(points.dims());
    points.map(wave).collect()
}

fn packed(values: &[f64], order: &[u32], name: &str, step: Option<u64>) -> PackedArray {
    let ordered = gather(values, order);
    let shape = Shape::new(&[ordered.len()]).unwrap();
    let mut packed = pack(&ordered, shape, &PackConfig::default()).unwrap();
    packed.header.on_mesh = true;
    (packed.header.name, packed.header.step) = (name.into(), step);
    packed
}

fn put(bytes: &mut Vec<u8>, array: &PackedArray) {
    bytes.extend(array.header.encode());
    array.buckets.iter().for_each(|bucket| bytes.extend(bucket));
}

/// A file of points and of one variable at two steps.
fn file(points: &MeshPoints) -> Vec<u8> {
    let (mut bytes, order) = (Vec::new(), points.order());
    for axis in 0..points.dims() {
        put(&mut bytes, &points.pack(axis, 1).unwrap());
    }
    let mut values = wave(points);
    for step in 0..2 {
        put(&mut bytes, &packed(&values, &order, "wave", Some(step)));
        values.iter_mut().for_each(|value| *value += 1.0);
    }
    bytes
}

fn open(bytes: &[u8], step: u64) -> Result<ArraySource<&[u8]>, ProgressiveError> {
    let wanted = WantedArray {
        name: None,
        step: Some(step),
    };
    ArraySource::open_one(bytes, &wanted)
}

fn values(array: &ArraySource<impl ByteSource>, buckets: usize) -> Vec<f64> {
    let whole = array.header().shape().whole();
    array.read::<f64>(buckets, whole, 0, 2).unwrap().0.values()
}

#[test]
fn values_come_back_in_the_order_of_the_points() {
    for (count, dims) in [(1, 2), (700, 2), (600, 3), (300_000, 2)] {
        let points = points(count, dims);
        let bytes = file(&points);
        assert_eq!(
            points.order(),
            mesh_order(points.coordinates(), dims).unwrap()
        );
        let array = open(&bytes, 0).unwrap();
        let all = array.header().buckets().len();
        assert_eq!(values(&array, all), wave(&points));
        assert_eq!(array.mesh_points(1).unwrap().unwrap(), points);
        let near = array.header().buckets_for(&ErrorBound::Linf(1e-3)).unwrap();
        let read = values(&array, near);
        let most = read
            .iter()
            .zip(wave(&points))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(most <= 1e-3, "{count} points: {most}");
        let second = values(&open(&bytes, 1).unwrap(), all);
        assert!(second.iter().zip(wave(&points)).all(|(a, b)| *a == b + 1.0));
    }
}

#[test]
fn coordinates_are_exact_and_binary32_where_it_has_them() {
    let halves = [0.5, -0.0, 0.25, 1e-3, 3.0, f64::MAX];
    let points = MeshPoints::new(halves.to_vec(), 2).unwrap();
    let sizes = [0, 1].map(|axis| points.pack(axis, 1).unwrap().header.element().size());
    assert_eq!(sizes, [4, 8]);
    assert!(points.pack(2, 1).is_err());
    let mut bytes = Vec::new();
    for axis in 0..2 {
        put(&mut bytes, &points.pack(axis, 1).unwrap());
    }
    let (read, count) = MeshPoints::read(&&bytes[..], 1).unwrap();
    let bits = |points: &MeshPoints| -> Vec<u64> {
        let coordinates = points.coordinates().iter();
        coordinates.map(|number| number.to_bits()).collect()
    };
    assert_eq!(bits(&read), bits(&points));
    assert_eq!(count, bytes.len() as u64);
}

#[test]
fn a_part_or_a_level_of_values_on_a_mesh_is_refused() {
    let bytes = file(&points(500, 2));
    let array = open(&bytes, 0).unwrap();
    let shape = *array.header().shape();
    let part = shape.region(std::slice::from_ref(&(3..9))).unwrap();
    for (region, level) in [(part, 0), (shape.whole(), 1)] {
        let error = array.read::<f64>(1, region, level, 1).err().unwrap();
        assert!(error.to_string().contains("read as a whole"), "{error}");
    }
}

#[test]
fn coordinates_are_meant_by_their_names_alone() {
    let points = points(200, 3);
    let (mut bytes, order) = (Vec::new(), points.order());
    for axis in 0..3 {
        put(&mut bytes, &points.pack(axis, 1).unwrap());
    }
    assert!(ArraySource::open(&bytes[..]).is_err());
    put(&mut bytes, &packed(&wave(&points), &order, "", None));
    let array = ArraySource::open(&bytes[..]).unwrap();
    assert!(array.header().on_mesh && array.header().name.is_empty());
    for name in COORDINATE_NAMES {
        let wanted = WantedArray {
            name: Some(name.into()),
            step: None,
        };
        assert_eq!(
            ArraySource::open_one(&bytes[..], &wanted)
                .unwrap()
                .header()
                .name,
            name
        );
    }
}

#[test]
fn a_file_has_one_mesh() {
    let (mesh, other) = (points(300, 2), points(301, 2));
    let space = points(300, 3);
    let mut bytes = Vec::new();
    put(&mut bytes, &mesh.pack(0, 1).unwrap());
    let left = |points: &MeshPoints, bytes: &[u8]| points.axes_to_write(&bytes, 1);
    // An append that was killed has left one axis out.
    assert_eq!(left(&mesh, &bytes).unwrap(), [1]);
    assert!(left(&other, &bytes).is_err() && left(&space, &bytes).is_err());
    let bytes = file(&mesh);
    assert_eq!(left(&mesh, &bytes).unwrap(), [0_usize; 0]);
    let mut moved = mesh.coordinates().to_vec();
    moved[301] += 1e-15;
    let moved = MeshPoints::new(moved, 2).unwrap();
    // A third axis of values that are there would change their order.
    let flat = mesh.coordinates().chunks(2);
    let lifted = flat.flat_map(|point| [point[0], point[1], 0.0]).collect();
    let lifted = MeshPoints::new(lifted, 3).unwrap();
    for wrong in [moved, lifted, other] {
        let error = left(&wrong, &bytes).unwrap_err().to_string();
        assert!(error.contains("a file has one mesh"), "{error}");
    }
    assert!(left(&mesh, &file(&space)).is_err());
}

#[test]
fn a_mesh_that_is_missing_or_of_another_size_is_refused() {
    let (mesh, other) = (points(300, 2), points(200, 2));
    let array = packed(&wave(&mesh), &mesh.order(), "", None);
    let refused = |bytes: &[u8], expect: &str| {
        let array = ArraySource::open(bytes).unwrap();
        let whole = array.header().shape().whole();
        let error = array.read::<f64>(1, whole, 0, 1).err().unwrap().to_string();
        assert!(error.contains(expect), "{error}");
    };
    let mut bytes = Vec::new();
    put(&mut bytes, &array);
    refused(&bytes, "no points");
    bytes.clear();
    put(&mut bytes, &other.pack(0, 1).unwrap());
    put(&mut bytes, &other.pack(1, 1).unwrap());
    put(&mut bytes, &array);
    refused(&bytes, "200 points for 300 values");
    bytes.clear();
    put(&mut bytes, &other.pack(0, 1).unwrap());
    put(&mut bytes, &mesh.pack(1, 1).unwrap());
    put(&mut bytes, &array);
    refused(&bytes, "different numbers of points");
    // The coordinates are checked: damaged ones would give a wrong order.
    let mut bytes = file(&mesh);
    let header = mesh.pack(0, 1).unwrap().header.encode().len();
    for at in (header..header + 2_000).step_by(97) {
        bytes[at] ^= 1;
        let array = open(&bytes, 0).unwrap();
        assert!(array.mesh_points(1).is_err(), "byte {at}");
        bytes[at] ^= 1;
    }
}

#[test]
fn readers_of_version_1_refuse_values_on_a_mesh_and_later_versions_are_not_written_over() {
    let mut bytes = file(&points(100, 2));
    let listing = ArrayListing::read(&&bytes[..]).unwrap();
    let versions: Vec<u8> = listing.headers().map(|it| it.encode()[8]).collect();
    assert_eq!(versions, [1, 1, 2, 2]);
    let last = listing
        .headers()
        .map(|it| it.array_bytes())
        .take(3)
        .sum::<u64>() as usize;
    bytes[last + 8] = 3;
    let error = ArrayListing::read(&&bytes[..]).unwrap_err().to_string();
    assert!(error.contains("version 3"), "{error}");
}
