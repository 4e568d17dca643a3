//! Transfers on this machine: what appears, what is left alone, and what is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use barograph_action::{
    ActionFields, FileTransfer, PlaceTemplate, StoreConfig, TransferTask, TransferVerb,
};
use barograph_model::NS_PER_S;
use barograph_transfer::{TransferFault, TransferReport, transfer};

fn run(
    verb: TransferVerb,
    from: &str,
    to: Option<&str>,
    stores: &[(&str, &str)],
) -> Result<TransferReport, TransferFault> {
    attempt(verb, (from, to), stores, None)
}

fn attempt(
    verb: TransferVerb,
    (from, to): (&str, Option<&str>),
    stores: &[(&str, &str)],
    tried_since_ns: Option<i64>,
) -> Result<TransferReport, TransferFault> {
    let place = |text: &str| {
        let place = PlaceTemplate::parse(text).unwrap();
        place.fill(&ActionFields::default())
    };
    let stores: BTreeMap<String, StoreConfig> = stores
        .iter()
        .map(|(name, url)| {
            let store = StoreConfig {
                url: (*url).to_owned(),
                ..StoreConfig::default()
            };
            ((*name).to_owned(), store)
        })
        .collect();
    transfer(&TransferTask {
        transfer: FileTransfer {
            verb,
            from: place(from),
            to: to.map(place),
        },
        key: "r.1.s.2".into(),
        stores,
        tried_since_ns,
    })
}

/// Names of all that is below a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        all.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        if path.is_dir() && !path.is_symlink() {
            all.extend(names(&path));
        }
    }
    all.sort();
    all
}

#[test]
fn a_copy_appears_whole_and_resembles_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let (from, to) = (format!("{root}/a"), format!("{root}/x/y/b"));
    fs::write(&from, vec![7; 3_000_000]).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o4751)).unwrap();
    // What a killed attempt has left.
    fs::create_dir_all(format!("{root}/x/y")).unwrap();
    run(TransferVerb::Copy, &from, Some(&to), &[]).unwrap();
    let part = names(Path::new(root))
        .into_iter()
        .find(|name| name.contains("part"));
    assert_eq!(part, None);
    let meta = fs::metadata(&to).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o751);
    assert_eq!(
        meta.modified().unwrap(),
        fs::metadata(&from).unwrap().modified().unwrap()
    );
    // It replaces what is there, and a repetition changes nothing.
    fs::write(&from, "short").unwrap();
    for _ in 0..2 {
        let report = run(TransferVerb::Copy, &from, Some(&to), &[]).unwrap();
        assert_eq!(report.bytes, 5);
    }
    assert_eq!(fs::read(&to).unwrap(), b"short");
}

#[test]
fn a_move_that_comes_again_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let (from, to) = (format!("{root}/a"), "shelf:deep/b");
    let store = format!("file://{root}/shelf");
    let stores = [("shelf", &*store)];
    fs::write(&from, "x").unwrap();
    let report = run(TransferVerb::Move, &from, Some(to), &stores).unwrap();
    assert!(report.text.ends_with("is moved to shelf:deep/b (1 bytes)"));
    let again = |since| attempt(TransferVerb::Move, (&from, Some(to)), &stores, since);
    let moved_ns = fs::metadata(format!("{root}/shelf/deep/b"))
        .unwrap()
        .ctime()
        * NS_PER_S;
    let report = again(Some(moved_ns)).unwrap();
    assert!(report.text.contains("already"));
    // Nobody has tried before, or the file at the target is older than all attempts.
    for (since_ns, expect) in [
        (None, "no such file"),
        (Some(moved_ns + 3_600 * NS_PER_S), "is an older one"),
    ] {
        let fault = again(since_ns).unwrap_err();
        assert!(fault.to_string().contains(expect), "{fault}");
    }
    assert_eq!(names(Path::new(root)), ["b", "deep", "shelf"]);
    let absent = run(TransferVerb::Move, &from, Some("shelf:c"), &stores);
    assert!(matches!(absent, Err(TransferFault::Lasting(_))));
    assert!(
        run(TransferVerb::Delete, to, None, &stores)
            .unwrap()
            .text
            .contains("is deleted")
    );
    assert!(
        run(TransferVerb::Delete, to, None, &stores)
            .unwrap()
            .text
            .contains("gone already")
    );
}

#[test]
fn what_is_no_plain_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    fs::write(format!("{root}/a"), "x").unwrap();
    symlink("a", format!("{root}/link")).unwrap();
    symlink("loop", format!("{root}/loop")).unwrap();
    fs::create_dir(format!("{root}/dir")).unwrap();
    let check = |from: &str, to: &str, expect: &str| {
        let to = format!("{root}/{to}");
        let fault = run(
            TransferVerb::Copy,
            &format!("{root}/{from}"),
            Some(&to),
            &[],
        );
        match fault {
            Err(TransferFault::Lasting(reason)) => assert!(reason.contains(expect), "{reason}"),
            other => panic!("{from}: {other:?}"),
        }
    };
    check("link", "b", "it is a symbolic link");
    check("dir", "b", "not a regular file");
    check("absent", "b", "no such file");
    check("a/x", "b", "Not a directory");
    check("loop/a", "b", "symbolic link");
    check("../x", "b", "..");
    check("a", "dir", "directory");
    check("a", "x/../b", "..");
    assert_eq!(names(Path::new(root)), ["a", "dir", "link", "loop"]);
    // A link of one's own on the way is followed.
    symlink("dir", format!("{root}/way")).unwrap();
    let to = format!("{root}/way/b");
    run(TransferVerb::Copy, &format!("{root}/a"), Some(&to), &[]).unwrap();
    assert_eq!(fs::read(format!("{root}/dir/b")).unwrap(), b"x");
}

#[test]
fn attempts_beside_each_other_harm_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let (from, to) = (format!("{root}/a"), format!("{root}/b"));
    let contents = vec![7; 2_000_000];
    fs::write(&from, &contents).unwrap();
    let attempts: Vec<_> = std::thread::scope(|scope| {
        let attempt = || scope.spawn(|| run(TransferVerb::Copy, &from, Some(&to), &[]));
        let running: Vec<_> = (0..8).map(|_| attempt()).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for attempt in &attempts {
        match attempt {
            Ok(_) => assert_eq!(fs::read(&to).unwrap(), contents),
            Err(fault) => assert!(matches!(fault, TransferFault::Passing(_)), "{fault}"),
        }
    }
    run(TransferVerb::Copy, &from, Some(&to), &[]).unwrap();
    assert_eq!(fs::read(&to).unwrap(), contents);
    assert_eq!(names(Path::new(root)), ["a", "b"]);
}
