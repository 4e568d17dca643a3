//! Values that are put are read back: in order, in frames, with their declarations.

use std::collections::BTreeSet;

use barograph_stream::ingest::IngestDeclaration;

use super::reader::{self, Content, floats, frames};
use super::roles::{command, finish, run};

#[test]
fn values_and_frames_come_in_order() {
    let dir = tempfile::tempdir().unwrap();
    run("plain", dir.path());
    let mut file = reader::only(dir.path());
    let puts = file.read();
    let expect: Vec<f64> = (0..=1_000).map(f64::from).collect();
    assert_eq!(floats(&puts, "plain.x"), expect);
    assert_eq!(frames(&puts, "plain"), (0..100).collect::<Vec<u64>>());
    assert!(puts.is_sorted_by_key(|put| put.time));
    assert_eq!(puts[10].value, Content::Frame(0));
    assert!(file.file.is_closed() && file.file.is_drained());
    assert_eq!((file.missed, file.damaged, file.file.dropped()), (0, 0, 0));
}

#[test]
fn every_kind_comes_as_it_was_put() {
    let dir = tempfile::tempdir().unwrap();
    run("kinds", dir.path());
    let mut file = reader::only(dir.path());
    let puts: Vec<Content> = file.read().into_iter().map(|put| put.value).collect();
    let Content::Float(nan) = puts[1] else {
        panic!("{puts:?}");
    };
    assert!(nan.is_nan());
    let rest: Vec<&Content> = puts
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != 1)
        .map(|(_, p)| p)
        .collect();
    let expect = [
        Content::Int(i64::MIN),
        Content::Float(1e-30),
        Content::Float(1e300),
        Content::Float(-0.0),
        Content::Bool(true),
        Content::Text("é".into()),
        Content::Text(String::new()),
        Content::Bytes(vec![0, 255, 0]),
        Content::Json("{\"a\": 1}".into()),
        Content::Floats(vec![1.5, f64::INFINITY, -2.5]),
        Content::Frame(u64::MAX),
    ];
    assert_eq!(rest, expect.iter().collect::<Vec<_>>());
    assert_eq!((file.damaged, file.file.dropped()), (0, 4));
}

#[test]
fn what_a_launcher_says_becomes_labels() {
    let dir = tempfile::tempdir().unwrap();
    let launched = &mut command("plain", dir.path());
    finish(launched.env("PMIX_RANK", "12").env("SLURM_JOB_ID", "345"));
    let mut file = reader::only(dir.path());
    file.read();
    let (application, labels) = file.process();
    assert_eq!(application, "tested");
    let labels: Vec<_> = labels
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(labels, [("job", "345"), ("rank", "12")]);
}

#[test]
fn a_hundred_threads_put_at_once() {
    let dir = tempfile::tempdir().unwrap();
    run("threads", dir.path());
    let mut file = reader::only(dir.path());
    let puts = file.read();
    let rings: BTreeSet<u32> = puts.iter().map(|put| put.ring).collect();
    assert_eq!(rings.len(), 100);
    for ring in rings {
        let of_ring: Vec<_> = puts.iter().filter(|p| p.ring == ring).cloned().collect();
        let values = floats(&of_ring, "threads.x");
        let expect: Vec<f64> = (0..1_000).map(|n| values[0] + f64::from(n)).collect();
        assert_eq!(values, expect);
        assert_eq!(frames(&of_ring, "threads").len(), 10);
    }
}

#[test]
fn threads_without_a_ring_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    run("crowd", dir.path());
    let mut file = reader::only(dir.path());
    assert_eq!(file.read().len(), 8 * 1_010);
    assert_eq!(file.file.dropped(), 12 * 1_010);
}

#[test]
fn rings_of_ended_threads_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    run("generations", dir.path());
    let mut file = reader::only(dir.path());
    let mut values = floats(&file.read(), "threads.x");
    values.sort_by(f64::total_cmp);
    assert_eq!(values, (0..100).map(f64::from).collect::<Vec<_>>());
    assert_eq!(file.file.positions().len(), 4);
}

#[test]
fn two_parts_of_a_program_share_its_file() {
    let dir = tempfile::tempdir().unwrap();
    run("shares", dir.path());
    let mut file = reader::only(dir.path());
    let puts = file.read();
    assert_eq!(floats(&puts, "one.x"), [1.0]);
    assert_eq!(floats(&puts, "two.y"), [2.0]);
    assert_eq!(file.process().0, "tested");
    let labels_of_two = file.declared.iter().find_map(|d| match d {
        IngestDeclaration::Publication { name, labels, .. } if name == "two" => {
            Some(labels.clone())
        }
        _ => None,
    });
    let expect = [("application", "library"), ("phase", "solve")];
    let expect = expect.map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(labels_of_two.unwrap(), expect);
}
