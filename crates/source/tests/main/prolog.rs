//! Tests of Slurm's prolog and epilog, run by the shell as Slurm runs them, and read by the source.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::jobs::{NOTES, text};
use crate::support::{Reader, Tree};

/// Runs a script of `etc/slurm` as Slurm does: with only the given environment.
fn script(name: &str, directory: &Path, environment: &[(&str, &str)]) -> Output {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/slurm");
    let mut command = Command::new("/bin/sh");
    command
        .arg(scripts.join(name))
        .arg(directory)
        .env_clear()
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{name} {environment:?}: {output:?}"
    );
    output
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| PathBuf::from(entry.unwrap().file_name()))
        .collect();
    names.sort();
    names
}

const PROLOG: [(&str, &str); 9] = [
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_JOB_USER", "alice"),
    ("SLURM_JOB_UID", "1001"),
    ("SLURM_JOB_ACCOUNT", "physics"),
    ("SLURM_JOB_PARTITION", "batch"),
    ("SLURM_JOB_NUM_NODES", "3"),
    ("SLURM_JOB_NTASKS", "40"),
    ("SLURM_JOB_CPUS_PER_NODE", "16(x2),8"),
    ("SLURM_JOB_START_TIME", "1763750000"),
];

#[test]
fn the_prolog_writes_what_the_source_reads_and_the_epilog_removes_it() {
    let tree = Tree::of("empty");
    std::fs::create_dir(tree.path().join("run")).unwrap();
    let notes = tree.path().join(NOTES);
    script("prolog.sh", &notes, &PROLOG);
    assert_eq!(names(&notes), [Path::new("4711")]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&notes), mode(&notes.join("4711"))), (0o755, 0o644));
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.user.name{job=4711}").as_deref(),
        Some("alice")
    );
    assert_eq!(
        text(&reader, "job.account.name{job=4711}").as_deref(),
        Some("physics")
    );
    assert_eq!(
        text(&reader, "job.partition.name{job=4711}").as_deref(),
        Some("batch")
    );
    for (fact, expect) in [
        ("nodes.count", 3.0),
        ("tasks.count", 40.0),
        ("cpus.count", 40.0),
        ("start.time.seconds", 1_763_750_000.0),
    ] {
        assert_eq!(
            reader.number(&format!("job.{fact}{{job=4711}}")),
            Some(expect),
            "{fact}"
        );
    }
    script("prolog.sh", &notes, &[("SLURM_JOB_ID", "4712")]);
    std::fs::write(notes.join(".4711.99"), "left by a prolog that was killed").unwrap();
    script("epilog.sh", &notes, &PROLOG[..1]);
    assert_eq!(names(&notes), [Path::new("4712")]);
    reader.read().unwrap();
    assert!(reader.streams("job=4711").is_empty());
    // An old Slurm gives little: there is a time, and nothing else is invented.
    let known = reader.streams("job=4712");
    assert_eq!(
        known,
        [
            "job.start.time.seconds{job=4712}",
            "job.state.name{job=4712}"
        ]
    );
}

/// Values that any variable may have.
const ODD: &[&str] = &[
    "",
    " ",
    "-n",
    "-e",
    "--",
    "%s%n",
    "\\n",
    "$(touch x)",
    "`id`",
    "a\nuid=0\ncpus=9",
    "\r",
    "*",
    "?",
    "[",
    "'",
    "\"",
    "(x",
    "1(x2",
    "1(x)",
    "x(x2)",
    "1(x2),",
    ",",
    ",,,",
    "08",
    "09(x2)",
    "99999999(x99999999)",
    "99999999999999999999",
    "-1",
    "1.5",
    "0x10",
    "16(x2),8,",
    "1,(x2)",
];

#[test]
fn no_value_breaks_the_prolog_or_reaches_beyond_its_line() {
    let tree = Tree::of("empty");
    std::fs::create_dir(tree.path().join("run")).unwrap();
    let notes = tree.path().join(NOTES);
    let long = "u".repeat(100_000);
    for odd in ODD.iter().copied().chain([long.as_str()]) {
        let environment: Vec<_> = PROLOG
            .into_iter()
            .map(|(key, value)| (key, if key == "SLURM_JOB_ID" { value } else { odd }))
            .collect();
        script("prolog.sh", &notes, &environment);
        let note = std::fs::read_to_string(notes.join("4711")).unwrap();
        let keys: Vec<_> = note
            .lines()
            .map(|line| line.split('=').next().unwrap())
            .collect();
        let expect = [
            "user",
            "uid",
            "account",
            "partition",
            "nodes",
            "ntasks",
            "cpus",
            "start",
            "node",
        ];
        assert_eq!(keys, expect, "{odd:?}: {note}");
        assert!(note.len() < 2000);
        let mut reader = Reader::new(tree.source("job"));
        reader.read().unwrap();
        script("epilog.sh", &notes, &environment);
        assert!(names(&notes).is_empty(), "{odd:?}");
    }
    for id in ODD {
        if id.parse::<u64>().is_ok() {
            continue;
        }
        for name in ["prolog.sh", "epilog.sh"] {
            script(name, &notes, &[("SLURM_JOB_ID", id)]);
            assert!(names(&notes).is_empty(), "{id:?}: {:?}", names(&notes));
        }
    }
    script("prolog.sh", &notes, &[]);
    script("epilog.sh", &notes, &[]);
    assert!(names(&notes).is_empty());
}

#[test]
fn the_prolog_writes_only_where_nobody_else_may() {
    let dir = tempfile::tempdir().unwrap();
    let (other, link, open) = (
        dir.path().join("other"),
        dir.path().join("link"),
        dir.path().join("open"),
    );
    std::fs::create_dir(&other).unwrap();
    symlink(&other, &link).unwrap();
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for to in [
        &link,
        &open,
        &dir.path().join("file"),
        &dir.path().join("no/such/place"),
    ] {
        script("prolog.sh", to, &PROLOG);
        script("epilog.sh", to, &PROLOG);
    }
    assert!(names(&other).is_empty() && names(&open).is_empty());
    std::fs::write(open.join("4711"), "not ours").unwrap();
    script("epilog.sh", &open, &PROLOG);
    assert!(open.join("4711").exists());
    // A directory of another user is in the way, and stays.
    std::fs::create_dir(other.join("4711")).unwrap();
    std::fs::write(other.join("4711/kept"), "").unwrap();
    script("epilog.sh", &other, &PROLOG);
    assert!(other.join("4711/kept").exists());
}
