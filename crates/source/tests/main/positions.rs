//! Tests of samples of open files: positions that move, names of the files, and broken files.

use std::path::Path;

use barograph_source::SourcesConfig;

use crate::support::{Reader, Tree, source};

/// Adds an open file of a process and its position to a tree.
fn open_file(tree: &Tree, pid: u32, fd: u32, target: &Path, position: u64) {
    let fds = tree.path().join(format!("proc/{pid}/fd"));
    std::fs::create_dir_all(&fds).unwrap();
    let link = fds.join(fd.to_string());
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(target, link).unwrap();
    let text = format!("pos:\t{position}\nflags:\t0100000\nmnt_id:\t29\nino:\t7\n");
    tree.write(&format!("proc/{pid}/fdinfo/{fd}"), text);
}

#[test]
fn positions_that_move_make_extents_hot() {
    const MIB: u64 = 1 << 20;
    let tree = Tree::of("empty");
    tree.write("data/a", "a");
    tree.write("data/b", "b");
    let (a, b) = (tree.path().join("data/a"), tree.path().join("data/b"));
    let mut reader = Reader::new(tree.source("file_trace"));
    let mut at = |first: u64, second: u64| {
        open_file(&tree, 10, 3, &a, first);
        open_file(&tree, 11, 5, &b, second);
        open_file(&tree, 11, 0, Path::new("/dev/null"), first);
        reader.read_after(0).unwrap();
    };
    at(0, 0);
    // From one extent to the next; the other file stays in its first extent.
    at(MIB + 1, 4096);
    at(2 * MIB, 8192);
    at(2 * MIB, 12_288);
    // A move back to the beginning is no access.
    at(0, 0);
    let hot = |rank: u32| {
        let number = |fact: &str| reader.number(&format!("file_trace.hot.{fact}{{rank={rank}}}"));
        Some((number("ops")?, number("offset.bytes")?))
    };
    assert_eq!(hot(1), Some((3.0, 0.0)));
    assert_eq!(hot(2), Some((2.0, MIB as f64)));
    assert_eq!(hot(3), Some((1.0, 0.0)));
    assert_eq!(hot(4), None);
    assert_eq!(reader.number("file_trace.samples.count"), Some(10.0));
    assert_eq!(reader.number("file_trace.moves.count"), Some(7.0));
    let name = reader
        .get("file_trace.hot.file.name{rank=1}")
        .unwrap()
        .value
        .to_string();
    use std::os::unix::fs::MetadataExt;
    assert!(
        name.ends_with(&format!(":{}", b.metadata().unwrap().ino())) && !name.contains('/'),
        "{name}"
    );
}

#[test]
fn names_of_files_are_told_only_if_asked_for() {
    let tree = Tree::of("empty");
    tree.write("data/secret", "a");
    let secret = tree.path().join("data/secret");
    for names in [false, true] {
        let mut config = tree.config();
        config.file_trace.names = names;
        let mut reader = Reader::new(source(&config, "file_trace"));
        for position in [0, 4096] {
            open_file(&tree, 10, 3, &secret, position);
            reader.read().unwrap();
        }
        let name = reader
            .get("file_trace.hot.file.name{rank=1}")
            .unwrap()
            .value
            .to_string();
        assert_eq!(name.contains("secret"), names, "{name}");
        assert!(names || !reader.render(Ok(()), tree.path()).contains("secret"));
    }
}

#[test]
fn reads_of_few_files_each_come_round_to_all() {
    let tree = Tree::of("empty");
    tree.write("data/a", "a");
    let a = tree.path().join("data/a");
    let mut config = tree.config();
    config.file_trace.processes_max = 3;
    config.file_trace.files_max = 4;
    let mut reader = Reader::new(source(&config, "file_trace"));
    let mut samples = Vec::new();
    for round in 0..8 {
        for pid in 1..=5 {
            open_file(&tree, pid, 3, &a, round * 4096);
            open_file(&tree, pid, 4, &a, 0);
        }
        reader.read_after(0).unwrap();
        samples.push(reader.number("file_trace.samples.count").unwrap());
    }
    assert_eq!(samples, [4.0, 8.0, 10.0, 14.0, 18.0, 20.0, 24.0, 28.0]);
    // Each file was seen at least twice and had moved.
    assert!(reader.number("file_trace.moves.count").unwrap() >= 5.0);

    // One process with more files than one poll looks at.
    for fd in 3..13 {
        open_file(&tree, 3, fd, &a, 0);
    }
    for _ in 0..4 {
        reader.read_after(0).unwrap();
    }
    let missing = reader.source.report().missing;
    assert!(
        missing.iter().any(|m| m.what == "6 open files"),
        "{missing:?}"
    );
}

#[test]
fn broken_fdinfo_is_no_position() {
    let tree = Tree::of("empty");
    tree.write("data/a", "a");
    let a = tree.path().join("data/a");
    let mut reader = Reader::new(tree.source("file_trace"));
    let broken: [&[u8]; 7] = [
        b"",
        b"pos:",
        b"pos:\t",
        b"pos:\t-1\n",
        b"pos:\t5",
        b"flags:\t0\n",
        b"\xff\n\0pos:\t5\n",
    ];
    for text in broken {
        open_file(&tree, 10, 3, &a, 0);
        tree.write("proc/10/fdinfo/3", text);
        reader.read().unwrap();
        assert_eq!(reader.number("file_trace.samples.count"), Some(0.0));
    }
    for position in [0, i64::MAX as u64, 0, 1 << 40] {
        open_file(&tree, 10, 3, &a, position);
        reader.read().unwrap();
    }
    assert!(reader.streams("hot.ops").len() <= 16);
    std::fs::remove_file(&a).unwrap();
    reader.read().unwrap();
    std::fs::remove_dir_all(tree.path().join("proc/10")).unwrap();
    reader.read().unwrap();
}

/// This process is excluded, so another one reads a file.
#[test]
fn a_process_of_this_machine() {
    let mut config = SourcesConfig::default();
    let on = barograph_source::SourceConfig {
        enabled: Some(true),
        ..Default::default()
    };
    config.poll.insert("file_trace".to_owned(), on);
    // A machine may run many processes, and one poll must reach this one.
    config.file_trace.processes_max = usize::MAX;
    config.file_trace.files_max = usize::MAX;
    config.file_trace.ranks = 128;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("positions");
    std::fs::write(&file, "line\n".repeat(1000)).unwrap();
    let mut reader = Reader::new(source(&config, "file_trace"));
    let input = std::fs::File::open(&file).unwrap();
    let mut other = std::process::Command::new("sleep")
        .arg("60")
        .stdin(input.try_clone().unwrap())
        .spawn()
        .unwrap();
    reader.read_after(0).unwrap();
    // The position belongs to the open file, which both processes share.
    std::io::Seek::seek(&mut &input, std::io::SeekFrom::Start(4096)).unwrap();
    reader.read_after(0).unwrap();
    let _ = other.kill();
    let _ = other.wait();
    use std::os::unix::fs::MetadataExt;
    let inode = file.metadata().unwrap().ino().to_string();
    let names = reader.streams("hot.file.name");
    let found = names.iter().any(|n| {
        reader
            .get(n)
            .unwrap()
            .value
            .to_string()
            .ends_with(&format!(":{inode}"))
    });
    std::fs::remove_file(&file).unwrap();
    println!("{}", reader.source.report().sees);
    assert!(found, "{names:?}");
}
