//! Jobs and processes: the machine's values by hand, what comes and goes, other batch systems, and
//! what is refused.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use barograph_model::{NS_PER_S, Sample};
use barograph_source::{JobConfig, Missing, ProcessConfig, Source, SourcesConfig, Squeue};

use crate::support::{Reader, Tree, source};

const SCOPE: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope";
const NOTES: &str = "run/barograph-jobs";

/// The lines of a queue, each field as wide as it is asked for.
fn queue(jobs: &[[&str; 11]]) -> String {
    const WIDTHS: [usize; 11] = [20, 20, 20, 20, 64, 64, 64, 12, 12, 12, 24];
    let line = |fields: &[&str; 11]| {
        let fields = fields.iter().zip(WIDTHS);
        let line: String = fields
            .map(|(field, width)| format!("{field:width$}"))
            .collect();
        line + "\n"
    };
    jobs.iter().map(line).collect()
}

fn with(tree: &Tree, job: JobConfig) -> Reader {
    let mut config = tree.config();
    config.job = job;
    Reader::new(source(&config, "job"))
}

fn text(reader: &Reader, stream: &str) -> Option<String> {
    reader.get(stream).map(|sample| sample.value.to_string())
}

fn missing(source: &dyn Source, part: &str) -> Vec<Missing> {
    let mut missing = source.report().missing;
    missing.retain(|m| m.what.contains(part) || m.why.contains(part));
    missing
}

/// A job with one process, in version 2.
fn start(tree: &Tree, id: &str) {
    let dir = format!("{SCOPE}/job_{id}");
    tree.write(
        &format!("{dir}/io.stat"),
        "8:0 rbytes=1 wbytes=2 rios=1 wios=1\n",
    );
    tree.write(&format!("{dir}/memory.current"), "3\n");
    tree.write(&format!("{dir}/cgroup.procs"), "");
    tree.write(&format!("{dir}/step_batch/user/task_0/cgroup.procs"), "9\n");
}

fn end(tree: &Tree, id: &str) {
    std::fs::remove_dir_all(tree.path().join(format!("{SCOPE}/job_{id}"))).unwrap();
}

#[test]
fn two_jobs_of_a_client() {
    let tree = Tree::of("lustre-client");
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    let check = |reader: &Reader, fact: &str, expect: Option<f64>| {
        assert_eq!(reader.number(fact), expect, "{fact}");
    };
    // By the prolog, and by the queue.
    assert_eq!(
        text(&reader, "job.user.name{job=4711}").as_deref(),
        Some("alice")
    );
    assert_eq!(
        text(&reader, "job.user.name{job=4712}").as_deref(),
        Some("bob")
    );
    assert_eq!(
        text(&reader, "job.array.name{job=4712}").as_deref(),
        Some("4710_2")
    );
    check(
        &reader,
        "job.start.seconds{job=4711}",
        Some(1_763_750_000.0),
    );
    check(
        &reader,
        "job.start.seconds{job=4712}",
        Some(1_763_750_400.0),
    );
    check(&reader, "job.tasks.count{job=4711}", Some(4.0));
    // 2050 (extern), 2060, 2101, 2103, 2102.
    check(&reader, "job.processes.count{job=4711}", Some(5.0));
    check(&reader, "job.local.read.bytes{job=4711}", Some(4_194_304.0));
    check(&reader, "job.cpu.seconds{job=4711}", Some(12.5));
    tree.advance();
    reader.read().unwrap();
    check(&reader, "job.processes.count{job=4711}", Some(6.0));
    check(
        &reader,
        "job.local.read.bytes_per_second{job=4711}",
        Some(1_048_576.0),
    );
    check(
        &reader,
        "job.local.write.bytes_per_second{job=4712}",
        Some(524_288.0),
    );
    check(&reader, "job.all.count", Some(2.0));
}

#[test]
fn a_job_ends_and_another_begins() {
    let tree = Tree::of("lustre-client");
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    // The processes end, then the group, then the epilog runs.
    for path in [
        "step_extern/user/task_special",
        "step_0/slurm",
        "step_0/user/task_0",
        "step_0/user/task_1",
    ] {
        tree.write(&format!("{SCOPE}/job_4711/{path}/cgroup.procs"), "");
    }
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.state.name{job=4711}").as_deref(),
        Some("ending")
    );
    end(&tree, "4711");
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.state.name{job=4711}").as_deref(),
        Some("announced")
    );
    assert!(reader.streams("job.local.read.bytes{job=4711").is_empty());
    assert_eq!(missing(&*reader.source, "epilog").len(), 0);
    assert_eq!(missing(&*reader.source, "no control group").len(), 1);
    std::fs::remove_file(tree.path().join(NOTES).join("4711")).unwrap();
    start(&tree, "4713");
    reader.read().unwrap();
    assert!(reader.streams("job=4711").is_empty());
    assert!(!reader.streams("job=4713").is_empty());
    assert!(reader.source.report().sees.contains("4711 ended last"));
    end(&tree, "4712");
    end(&tree, "4713");
    reader.read().unwrap();
    assert_eq!(reader.streams("").len(), 1, "{:?}", reader.streams(""));
    assert_eq!(reader.number("job.all.count"), Some(0.0));
}

#[test]
fn too_many_jobs_are_left_out_and_said() {
    let tree = Tree::of("lustre-client");
    let mut reader = with(
        &tree,
        JobConfig {
            jobs_max: 1,
            ..JobConfig::default()
        },
    );
    let fault = reader.read().unwrap_err().to_string();
    assert!(
        fault.contains("1 jobs were left out: the limit is 1"),
        "{fault}"
    );
    assert_eq!(reader.streams("job.memory.bytes").len(), 1);
    assert_eq!(reader.number("job.all.count"), Some(2.0));
    end(&tree, "4711");
    std::fs::remove_file(tree.path().join(NOTES).join("4711")).unwrap();
    reader.read().unwrap();
    assert_eq!(
        reader.streams("job.memory.bytes"),
        ["job.memory.bytes{job=4712}"]
    );
    // A new one does not end the streams of those that are followed.
    start(&tree, "1");
    assert!(reader.read().is_err());
    assert_eq!(
        reader.streams("job.memory.bytes"),
        ["job.memory.bytes{job=4712}"]
    );
}

#[test]
fn the_queue_is_asked_only_for_jobs_that_nobody_described() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "io memory\n");
    tree.write("proc/sys/kernel/hostname", "n1\n");
    tree.write(&format!("{SCOPE}/cgroup.procs"), "");
    // Were it asked, this would be a fault.
    tree.write("commands/squeue", "what\n");
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert_eq!(reader.number("job.all.count"), Some(0.0));
    start(&tree, "1");
    tree.write(&format!("{NOTES}/1"), "user=a\nnodes=1\nntasks=1\n");
    reader.read().unwrap();
    assert!(missing(&*reader.source, "users").is_empty());
    start(&tree, "2");
    let fault = reader.read().unwrap_err().to_string();
    assert!(
        fault.contains("squeue: lines that cannot be understood"),
        "{fault}"
    );
    assert_eq!(
        missing(&*reader.source, "users, nodes and tasks of 1 job").len(),
        1
    );
    // Asked again only after the interval, and a few times at most.
    let mut asked = 0;
    for _ in 0..600 {
        asked += i32::from(reader.read().is_err());
    }
    assert_eq!(asked, 2);
    // Another job is asked for anew, and the answer serves all.
    start(&tree, "3");
    let job = |id| {
        [
            id,
            id,
            "N/A",
            "RUNNING",
            "o'b r|ien",
            "N/A",
            "p",
            "1",
            "2",
            "3",
            "N/A",
        ]
    };
    tree.write("commands/squeue", queue(&[job("2"), job("3")]));
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.user.name{job=2}").as_deref(),
        Some("o'b r|ien")
    );
    assert_eq!(reader.number("job.tasks.count{job=3}"), Some(3.0));
    assert_eq!(
        text(&reader, "job.state.name{job=3}").as_deref(),
        Some("running")
    );
    assert!(reader.streams("job.start.seconds").is_empty());
}

#[test]
fn the_queue_may_be_asked_always_or_never() {
    let tree = Tree::of("empty");
    tree.write("proc/sys/kernel/hostname", "n1\n");
    let job = |state| {
        [
            "7",
            "7",
            "N/A",
            state,
            "a",
            "b",
            "c",
            "1",
            "2",
            "3",
            "2025-11-21T18:33:20",
        ]
    };
    tree.write("commands/squeue", queue(&[job("SUSPENDED")]));
    let config = |squeue| JobConfig {
        squeue,
        ..JobConfig::default()
    };
    let mut reader = with(&tree, config(Squeue::Fixed(true)));
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.state.name{job=7}").as_deref(),
        Some("suspended")
    );
    assert_eq!(
        reader.number("job.start.seconds{job=7}"),
        Some(1_763_750_000.0)
    );
    tree.write("commands/squeue", "");
    reader.read_after(61 * NS_PER_S).unwrap();
    assert!(reader.streams("job=7").is_empty());
    // A queue that is silent for long is no longer believed.
    tree.write("commands/squeue", queue(&[job("RUNNING")]));
    reader.read_after(61 * NS_PER_S).unwrap();
    assert!(!reader.streams("job=7").is_empty());
    std::fs::remove_file(tree.path().join("commands/squeue")).unwrap();
    for _ in 0..4 {
        reader.read_after(61 * NS_PER_S).unwrap();
    }
    assert!(reader.streams("job=7").is_empty());

    let tree = Tree::of("lustre-client");
    let mut reader = with(&tree, config(Squeue::Fixed(false)));
    reader.read().unwrap();
    assert!(reader.streams("job.user.name{job=4712}").is_empty());
    assert_eq!(missing(&*reader.source, "squeue is not asked").len(), 1);
    std::fs::remove_file(tree.path().join("commands/squeue")).unwrap();
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert_eq!(missing(&*reader.source, "squeue is not installed").len(), 1);
}

#[test]
fn jobs_of_version_1_and_of_other_batch_systems() {
    // Slurm: the group and those below it, since these files do not count downwards.
    let tree = Tree::of("hdd-v1");
    let job = "slurm/uid_1000/job_7";
    tree.write(
        &format!("sys/fs/cgroup/blkio/{job}/step_0/blkio.throttle.io_service_bytes"),
        "8:16 Read 1000\n8:16 Write 2000\nTotal 3000\n",
    );
    tree.write(
        &format!("sys/fs/cgroup/blkio/{job}/step_0/blkio.throttle.io_serviced"),
        "8:16 Read 1\n8:16 Write 2\nTotal 3\n",
    );
    tree.write(
        &format!("sys/fs/cgroup/cpuacct/{job}/cpuacct.usage"),
        "2500000000\n",
    );
    tree.write(&format!("sys/fs/cgroup/memory/{job}/cgroup.procs"), "11\n");
    tree.write(
        &format!("sys/fs/cgroup/memory/{job}/step_0/cgroup.procs"),
        "12\n0\n",
    );
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    let get = |fact: &str| reader.number(&format!("job.{fact}{{job=7}}"));
    assert_eq!(get("local.read.bytes"), Some(5096.0));
    assert_eq!(get("local.write.ops"), Some(2.0));
    assert_eq!(get("memory.bytes"), Some(3000.0));
    assert_eq!(get("cpu.seconds"), Some(2.5));
    assert_eq!(get("processes.count"), Some(3.0));

    let tree = Tree::of("empty");
    for (dir, id, scheduler) in [
        ("memory/slurm_n2/uid_0/job_1", "1", "slurm"),
        ("memory/pbs_jobs.service/jobid/2.server", "2.server", "pbs"),
        ("memory/pbspro/3[4].server", "3[4].server", "pbs"),
        ("memory/torque/5.server", "5.server", "torque"),
        ("memory/lsf/cluster/job.6.20814.1763750000", "6", "lsf"),
        (
            "unified/system.slice/n1_slurmstepd.scope/job_8",
            "8",
            "slurm",
        ),
        (
            "unified/a.slice/a-b.slice/slurmstepd.scope/job_9",
            "9",
            "slurm",
        ),
        (
            "unified/pbs_jobs.service/jobs/10.server",
            "10.server",
            "pbs",
        ),
    ] {
        tree.write("sys/fs/cgroup/unified/cgroup.controllers", "");
        let file = if dir.starts_with("memory") {
            "memory.usage_in_bytes"
        } else {
            "memory.current"
        };
        tree.write(&format!("sys/fs/cgroup/{dir}/{file}"), "4096\n");
        let mut reader = Reader::new(tree.source("job"));
        reader.read().unwrap();
        let stream = format!("job.memory.bytes{{job={id}}}");
        assert_eq!(reader.number(&stream), Some(4096.0), "{dir}");
        let stream = format!("job.scheduler.name{{job={id}}}");
        assert_eq!(text(&reader, &stream).as_deref(), Some(scheduler), "{dir}");
    }
}

/// Two slurmd on one machine: the parts of one job are one job.
#[test]
fn parts_of_a_job_are_summed_and_never_in_part() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "io memory\n");
    for node in ["n1", "n2"] {
        let dir = format!("sys/fs/cgroup/system.slice/{node}_slurmstepd.scope/job_5");
        tree.write(&format!("{dir}/memory.current"), "10\n");
        tree.write(
            &format!("{dir}/io.stat"),
            "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
        );
    }
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert_eq!(reader.number("job.memory.bytes{job=5}"), Some(20.0));
    assert_eq!(reader.number("job.local.write.ops{job=5}"), Some(8.0));
    tree.write(
        "sys/fs/cgroup/system.slice/n2_slurmstepd.scope/job_5/io.stat",
        "8:0 rbytes=x\n",
    );
    assert!(reader.read().is_err());
    assert_eq!(reader.number("job.local.write.ops{job=5}"), None);
}

#[test]
fn what_control_groups_do_not_tell_is_explained() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "memory\n");
    tree.write(&format!("{SCOPE}/job_1/cgroup.procs"), "1\n");
    let mut reader = Reader::new(tree.source("job"));
    reader.read().unwrap();
    assert!(reader.streams("local").is_empty() && reader.streams("memory").is_empty());
    assert_eq!(
        missing(&*reader.source, "local bytes of 1 job")[0].remedy,
        "set EnableExtraControllers=io in cgroup.conf (Slurm 24.05, version 2 of control groups)"
    );
    assert_eq!(missing(&*reader.source, "memory of 1 job").len(), 1);
}

fn values(reader: &Reader) -> BTreeMap<String, Sample> {
    let samples = reader.batch.samples().iter();
    samples
        .filter_map(|(id, sample)| Some((reader.names.get(id)?.to_string(), sample.clone())))
        .collect()
}

/// A file that is cut gives part of what the whole one gives, or a fault, but no other value.
#[test]
fn a_note_and_a_queue_cut_anywhere() {
    for path in [format!("{NOTES}/4711"), "commands/squeue".to_owned()] {
        let tree = Tree::of("lustre-client");
        let whole = tree.read(&path);
        let mut reader = Reader::new(tree.source("job"));
        reader.read().unwrap();
        let expect = values(&reader);
        for end in 0..whole.len() {
            tree.write(&path, &whole[..end]);
            let mut reader = Reader::new(tree.source("job"));
            let result = reader.read();
            for (stream, sample) in values(&reader) {
                // What a cut note no longer says, the queue does.
                assert_eq!(
                    expect.get(&stream),
                    Some(&sample),
                    "{path} cut at {end}: {stream}"
                );
            }
            let inside = end > 0 && whole[end - 1] != b'\n';
            assert_eq!(result.is_err(), inside, "{path} cut at {end}");
        }
    }
}

#[test]
fn notes_with_odd_values() {
    let tree = Tree::of("empty");
    let long = "u".repeat(70_000);
    for (name, note) in [
        ("1", format!("user={long}\nnodes=99999999999999999999\n")),
        ("2", "user=\nnodes=\n=\n".to_owned()),
        (
            "3",
            "user=a=b\nuser=c\nunheard=1\nntasks=-1\ncpus=1,5\n".to_owned(),
        ),
        ("..", String::new()),
        ("x y", "user=d\n".to_owned()),
        (&"9".repeat(200), "user=d\n".to_owned()),
    ] {
        if name != ".." {
            tree.write(&format!("{NOTES}/{name}"), note);
        }
    }
    std::fs::create_dir(tree.path().join(NOTES).join("4")).unwrap();
    let mut reader = Reader::new(tree.source("job"));
    assert!(reader.read().is_err());
    assert_eq!(
        reader.streams("job.state.name"),
        [
            "job.state.name{job=1}",
            "job.state.name{job=2}",
            "job.state.name{job=3}"
        ]
    );
    assert_eq!(
        text(&reader, "job.user.name{job=3}").as_deref(),
        Some("a=b")
    );
    assert!(
        reader.streams("count{job").is_empty(),
        "{:?}",
        reader.streams("count")
    );
}

/// A process that has moved so much, and began so many ticks after the start of the machine.
fn process(tree: &Tree, pid: u32, command: &str, start: u64, read: u64, write: u64) {
    let stat = format!("{pid} ({command}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 9 9\n");
    let io = format!("read_bytes: {read}\nwrite_bytes: {write}\ncancelled_write_bytes: 0\n");
    tree.write(&format!("proc/{pid}/stat"), stat);
    tree.write(&format!("proc/{pid}/io"), io);
}

fn processes(tree: &Tree, process: ProcessConfig) -> Reader {
    let mut config = tree.config();
    config.process = process;
    Reader::new(source(&config, "process"))
}

const READ_RATE: &str = "process.read.bytes_per_second";

#[test]
fn the_greatest_have_streams_and_keep_them_for_a_while() {
    let tree = Tree::of("empty");
    for pid in 1..=8 {
        process(&tree, pid, "p", 1, 0, 0);
    }
    let mut reader = processes(
        &tree,
        ProcessConfig {
            top: 2,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    assert!(reader.streams("pid").is_empty());
    for pid in 1..=8 {
        process(&tree, pid, "p", 1, u64::from(pid) * 100, 0);
    }
    reader.read().unwrap();
    let chosen = |reader: &Reader| reader.streams(READ_RATE);
    assert_eq!(
        chosen(&reader),
        [7, 8].map(|p| format!("{READ_RATE}{{command=p,pid={p}}}"))
    );
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=p,pid=8}"),
        Some(800.0)
    );
    // Outdone by two others: now four have streams, and the idle two for some scans more.
    process(&tree, 1, "p", 1, 1_000_000, 0);
    process(&tree, 2, "p", 1, 200, 5);
    for scan in 0..=16 {
        reader.read().unwrap();
        let expect = if scan < 15 { 4 } else { 0 };
        if scan != 15 {
            assert_eq!(chosen(&reader).len(), expect, "{scan}");
        }
        if scan == 1 {
            assert_eq!(
                reader.number("process.read.bytes_per_second{command=p,pid=1}"),
                Some(0.0)
            );
        }
    }
    // However many take turns, no more than four times `top` have streams.
    for turn in 0..6 {
        for pid in 1..=8 {
            let read = 2_000_000 + turn * 10 * u64::from(pid == turn as u32 + 1);
            process(&tree, pid, "p", 1, read, 0);
        }
        reader.read().unwrap();
        assert!(chosen(&reader).len() <= 8);
    }
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let tree = Tree::of("empty");
    process(&tree, 1, "init", 1, 0, 0);
    process(&tree, 7, "a", 100, 1000, 0);
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    process(&tree, 7, "a", 100, 2000, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=a,pid=7}"),
        Some(1000.0)
    );
    // Its counters are above those of the one before, and still its own.
    process(&tree, 7, "a", 900, 2500, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=a,pid=7}"),
        Some(2500.0)
    );
    // The same one became another program.
    process(&tree, 7, "b", 900, 2600, 0);
    reader.read().unwrap();
    assert!(reader.streams("command=a").is_empty());
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=b,pid=7}"),
        Some(100.0)
    );
    std::fs::remove_dir_all(tree.path().join("proc/7")).unwrap();
    // A process that began since counts from its beginning.
    process(&tree, 8, "c", 950, 300, 0);
    reader.read().unwrap();
    assert!(reader.streams("pid=7").is_empty());
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=c,pid=8}"),
        Some(300.0)
    );
    // Counters that went back give no rate.
    process(&tree, 8, "c", 950, 200, 0);
    reader.read().unwrap();
    assert_eq!(
        reader.number("process.read.bytes{command=c,pid=8}"),
        Some(200.0)
    );
    assert_eq!(
        reader.number("process.read.bytes_per_second{command=c,pid=8}"),
        None
    );
}

#[test]
fn what_is_not_seen_of_processes_is_said() {
    let tree = Tree::of("empty");
    for pid in 10..20 {
        process(&tree, pid, "p", 1, 0, 0);
    }
    let mut reader = processes(
        &tree,
        ProcessConfig {
            processes_max: 4,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    assert_eq!(reader.number("process.all.count"), Some(10.0));
    assert_eq!(missing(&*reader.source, "only 4 are read").len(), 1);
    assert_eq!(missing(&*reader.source, "hidepid").len(), 1);

    let tree = Tree::of("empty");
    tree.write("proc/1/stat", "1 (init) S\n");
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    assert_eq!(
        missing(&*reader.source, "no process has a file io").len(),
        1
    );
    assert_eq!(reader.number("process.all.count"), Some(1.0));
}

#[test]
fn files_of_a_process_cut_anywhere() {
    let tree = Tree::of("lustre-client");
    for path in [
        "proc/2101/io",
        "proc/2190/stat",
        "proc/2190/io",
        "proc/sys/fs/file-nr",
    ] {
        let whole = tree.read(path);
        for end in 0..whole.len() {
            tree.write(path, &whole[..end]);
            let mut reader = Reader::new(tree.source("process"));
            assert!(reader.read().is_err(), "{path} cut at {end}");
            assert!(reader.streams("pid").is_empty());
        }
        tree.write(path, &whole);
    }
}

#[test]
fn bytes_of_a_job_cut_anywhere() {
    let tree = Tree::of("lustre-client");
    let path = format!("{SCOPE}/job_4711/io.stat");
    let whole = tree.read(&path);
    for end in 1..whole.len() {
        tree.write(&path, &whole[..end]);
        let mut reader = Reader::new(tree.source("job"));
        assert!(reader.read().is_err(), "cut at {end}");
        assert_eq!(reader.number("job.local.read.bytes{job=4711}"), None);
    }
}

#[test]
fn rings_are_counted_when_asked_for() {
    let tree = Tree::of("empty");
    process(&tree, 1, "init", 1, 0, 0);
    let fd = tree.path().join("proc/1/fd");
    std::fs::create_dir(&fd).unwrap();
    symlink("anon_inode:[io_uring]", fd.join("5")).unwrap();
    symlink("anon_inode:[io_uring]", fd.join("6")).unwrap();
    symlink("/dev/null", fd.join("7")).unwrap();
    tree.write(
        "proc/1/fdinfo/5",
        "pos:\t0\nSqMask:\t0x7\nSqHead:\t4\nSqTail:\t6\nCqMask:\t0xf\nCqHead:\t1\nCqTail:\t4\n",
    );
    // The kernel leaves the marks out while the ring is locked.
    tree.write("proc/1/fdinfo/6", "pos:\t0\n");
    let mut reader = processes(
        &tree,
        ProcessConfig {
            io_uring: true,
            ..ProcessConfig::default()
        },
    );
    reader.read().unwrap();
    reader.read().unwrap();
    assert_eq!(reader.number("process.io_uring.rings.count"), Some(2.0));
    assert_eq!(reader.number("process.io_uring.queued.requests"), Some(2.0));
    assert_eq!(
        reader.number("process.io_uring.completed.requests"),
        Some(3.0)
    );
    let mut reader = processes(&tree, ProcessConfig::default());
    reader.read().unwrap();
    reader.read().unwrap();
    assert!(reader.streams("io_uring").is_empty());
}

/// Runs a script of `etc/slurm` as Slurm does: with nothing in its environment but what is given.
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
        ("start.seconds", 1_763_750_000.0),
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
    // All that an old Slurm tells: there is a time, and nothing is made up.
    let known = reader.streams("job=4712");
    assert_eq!(
        known,
        ["job.start.seconds{job=4712}", "job.state.name{job=4712}"]
    );
}

#[test]
fn no_value_breaks_the_prolog_or_reaches_beyond_its_line() {
    let tree = Tree::of("empty");
    std::fs::create_dir(tree.path().join("run")).unwrap();
    let notes = tree.path().join(NOTES);
    let odd = [
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
    let long = "u".repeat(100_000);
    for odd in odd.into_iter().chain([long.as_str()]) {
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
    for id in odd {
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
    // What stands in the way is another's, and stays.
    std::fs::create_dir(other.join("4711")).unwrap();
    std::fs::write(other.join("4711/kept"), "").unwrap();
    script("epilog.sh", &other, &PROLOG);
    assert!(other.join("4711/kept").exists());
}

/// A child writes a known number of bytes to a real file; `procfs` reads its counters before and
/// after us.
#[test]
fn a_writer_on_this_machine() {
    const BYTES: usize = 4 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!("of={}", dir.path().join("f").display());
    // It waits for the rest of its input, and lives until we close it.
    let mut child = Command::new("dd")
        .args([
            &file,
            "bs=65536",
            "count=1000",
            "iflag=fullblock",
            "oflag=dsync",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut config = SourcesConfig::default();
    config.process.top = 100;
    let mut reader = Reader::new(source(&config, "process"));
    reader.read().unwrap();
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(&vec![1; BYTES])
        .unwrap();
    let process = procfs::process::Process::new(pid as i32).unwrap();
    let mut written = 0;
    for _ in 0..600 {
        written = process.io().unwrap().write_bytes;
        if written >= BYTES as u64 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = process.io().unwrap();
    reader.read().unwrap();
    let after = process.io().unwrap();
    let get = |fact: &str| reader.number(&format!("process.{fact}{{command=dd,pid={pid}}}"));
    // In memory file systems nothing is written to storage.
    if written > 0 {
        let (ours, low, high) = (
            get("write.bytes").unwrap(),
            before.write_bytes,
            after.write_bytes,
        );
        assert!(
            low as f64 <= ours && ours <= high as f64,
            "{low} {ours} {high}"
        );
        assert!(
            (BYTES as f64..1.25 * BYTES as f64).contains(&ours),
            "{ours}"
        );
        assert_eq!(get("write.bytes_per_second"), Some(ours));
        assert_eq!(get("cancelled.bytes"), Some(0.0));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    reader.read().unwrap();
    assert!(reader.streams(&format!("pid={pid}")).is_empty());
}

#[test]
fn all_processes_of_this_machine() {
    let count = || procfs::process::all_processes().unwrap().count() as f64;
    let mut reader = Reader::new(source(&SourcesConfig::default(), "process"));
    let before = count();
    reader.read().unwrap();
    let after = count();
    let ours = reader.number("process.all.count").unwrap();
    // Others come and go meanwhile.
    let slack = 50.0;
    assert!(before.min(after) - slack <= ours && ours <= before.max(after) + slack);
    let unreadable = reader.number("process.unreadable.count").unwrap();
    let said = missing(&*reader.source, "may trace").len();
    assert_eq!(said, usize::from(unreadable > 0.0));
    if rustix::process::geteuid().is_root() {
        return;
    }
    assert!(unreadable > 0.0, "processes of root are there");
}
