//! Views over memory: the reference that those over files are compared with.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use barograph_archive::{Archive, Layout, View};
use barograph_model::{NS_PER_S, Span};

use crate::seal::append;
use crate::support::{SOON, config, parquet_files, segments, start};

#[test]
fn an_empty_view_has_nothing() {
    let view = View::in_memory(Vec::new(), Vec::new());
    assert!(view.series().is_empty() && view.stretches(Span::ALL).is_empty());
    let cancel = AtomicBool::new(false);
    assert_eq!(view.scan(&[], Span::ALL, &cancel).count(), 0);
}

#[test]
fn nobody_waits_for_a_pipe_in_place_of_a_file() {
    let (told, done) = sync_channel(1);
    std::thread::spawn(move || {
        in_place_of_each();
        told.send(()).unwrap();
    });
    assert_eq!(done.recv_timeout(SOON), Ok(()));
}

fn in_place_of_each() {
    for (which, corrupt_files) in [("log", 0), ("manifest", 1), ("raw", 1)] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let keeper = start(config(root)).unwrap();
        for life in 1..=2 {
            append(&keeper, life, 1..=10, NS_PER_S);
            keeper.seal().unwrap();
        }
        append(&keeper, 3, 1..=10, NS_PER_S);
        drop(keeper);
        let raw = |path: &Path| path.starts_with(root.join("raw"));
        let path = match which {
            "log" => segments(root).pop().unwrap(),
            "manifest" => Layout::new(root, "n1").manifest(),
            _ => parquet_files(root).into_iter().find(|p| raw(p)).unwrap(),
        };
        std::fs::remove_file(&path).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        let fault = match Archive::open(root).view() {
            Err(error) => Some(error),
            Ok(view) => {
                let all: Vec<usize> = (0..view.series().len()).collect();
                let cancel = AtomicBool::new(false);
                view.scan(&all, Span::ALL, &cancel).find_map(Result::err)
            }
        };
        let told = fault.is_some_and(|error| error.to_string().contains("no regular file"));
        // A log without a header may be just being made.
        assert_eq!(told, which != "log", "{which}");
        barograph_archive::verify(root, &mut |_, _| {}).unwrap();
        let keeper = start(config(root)).unwrap();
        keeper.compact().unwrap();
        let status = keeper.status();
        assert_eq!(
            (status.losses.corrupt_files, &*status.trouble),
            (corrupt_files, "")
        );
    }
}
