//! Packed arrays as a C program reads them.

use std::path::Path;

use barograph_progressive::{Element, PackConfig, Shape, pack};

use crate::build::{self, Language, command, must, program, workshop};

/// Packs the sine of the index over 100, with a name and a step.
fn named<T: Element>(name: &str, step: Option<u64>) -> Vec<u8> {
    let values: Vec<T> = (0..3_000)
        .map(|at| T::from_f64((f64::from(at) / 100.0).sin()))
        .collect();
    let shape = Shape::new(&[60, 50]).unwrap();
    let mut packed = pack(&values, shape, &PackConfig::default()).unwrap();
    (packed.header.name, packed.header.step) = (name.into(), step);
    let mut bytes = packed.header.encode();
    packed
        .buckets
        .iter()
        .for_each(|bucket| bytes.extend(bucket));
    bytes
}

fn packed<T: Element>() -> Vec<u8> {
    named::<T>("", None)
}

#[test]
fn a_program_reads_packed_arrays() {
    let workshop = workshop();
    let source = build::here().join("tests/programs/array.c");
    let built = program(workshop.path(), Language::C, &[source], &["-lbaro", "-lm"]);
    let Some(program) = built else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).unwrap();
    let doubles = packed::<f64>();
    write(&path("doubles.baro"), &doubles);
    write(&path("floats.baro"), &packed::<f32>());
    let mut damaged = doubles;
    let near_the_end = damaged.len() - 9;
    damaged[near_the_end] ^= 1;
    write(&path("damaged.baro"), &damaged);
    let two = [named::<f64>("a", Some(1)), named::<f64>("b", Some(2))];
    write(&path("several.baro"), &two.concat());
    let mut command = command(&program, dir.path());
    let names = [
        "doubles.baro",
        "floats.baro",
        "damaged.baro",
        "several.baro",
    ];
    command.args(names.map(path));
    must(&command.output().unwrap());
}
