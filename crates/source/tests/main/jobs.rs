//! Tests of jobs: a machine's values computed by hand, jobs that come and go, other batch systems,
//! and refused files.

use std::collections::BTreeMap;

use barograph_model::{NS_PER_S, Sample};
use barograph_source::{JobConfig, MissingPart, Source, Squeue};

use crate::support::{Reader, Tree, source};

const SCOPE: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope";
/// The directory of notes.
pub(crate) const NOTES: &str = "run/barograph-jobs";

/// The output of squeue, with each field padded to its width.
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

/// A value as text.
pub(crate) fn text(reader: &Reader, stream: &str) -> Option<String> {
    reader.get(stream).map(|sample| sample.value.to_string())
}

/// The missing data in a report that mention `part`.
pub(crate) fn missing(source: &dyn Source, part: &str) -> Vec<MissingPart> {
    let mut missing = source.report().missing;
    missing.retain(|m| m.what.contains(part) || m.why.contains(part));
    missing
}

/// Starts a job with one process, in version 2.
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
    // From the prolog, and from the queue.
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
        "job.start.time.seconds{job=4711}",
        Some(1_763_750_000.0),
    );
    check(
        &reader,
        "job.start.time.seconds{job=4712}",
        Some(1_763_750_400.0),
    );
    check(&reader, "job.tasks.count{job=4711}", Some(4.0));
    // Processes 2050 (extern), 2060, 2101, 2103, 2102.
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
    // The processes end, then the group goes, then the epilog runs.
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
    // The job has ended for good, whether or not an epilog runs.
    for _ in 0..3 {
        assert!(reader.streams("job=4711").is_empty());
        let sees = reader.source.report().sees;
        assert!(sees.contains("4711 ended last; 1 note of ended"), "{sees}");
        assert_eq!(reader.number("job.all.count"), Some(1.0));
        reader.read().unwrap();
    }
    // The job was queued again, so that it is announced anew.
    tree.write(&format!("{NOTES}/4711"), "user=alice\nstart=1763760000\n");
    reader.read().unwrap();
    assert_eq!(
        text(&reader, "job.state.name{job=4711}").as_deref(),
        Some("announced")
    );
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
    // A new job does not end the streams of jobs that are followed.
    start(&tree, "1");
    assert!(reader.read().is_err());
    assert_eq!(
        reader.streams("job.memory.bytes"),
        ["job.memory.bytes{job=4712}"]
    );
}

/// Notes that were not removed take no room from running jobs, however many there are.
#[test]
fn notes_without_groups_take_the_room_that_is_left() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "io memory\n");
    let whole = "user=a\nnodes=1\nntasks=1\n";
    for id in ["1", "2", "3"] {
        tree.write(&format!("{NOTES}/{id}"), whole);
    }
    let config = JobConfig {
        jobs_max: 2,
        ..JobConfig::default()
    };
    let mut reader = with(&tree, config);
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("1 jobs were left out"), "{fault}");
    let states = |reader: &Reader| reader.streams("job.state.name");
    let expect = ["job.state.name{job=1}", "job.state.name{job=2}"];
    assert_eq!(states(&reader), expect);
    start(&tree, "9");
    tree.write(&format!("{NOTES}/9"), whole);
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("2 jobs were left out"), "{fault}");
    let expect = ["job.state.name{job=1}", "job.state.name{job=9}"];
    assert_eq!(states(&reader), expect);
    assert_eq!(reader.number("job.all.count"), Some(4.0));
    // A job that was left out has not ended.
    assert!(!reader.source.report().sees.contains("ended last"));

    // There are more notes than are read, but that of the running job is.
    for id in 100..4300 {
        tree.write(&format!("{NOTES}/{id}"), "user=b\n");
    }
    start(&tree, "7");
    tree.write(&format!("{NOTES}/7"), "user=c\nnodes=1\nntasks=1\n");
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("notes of jobs were left out"), "{fault}");
    for (id, user) in [("7", "c"), ("9", "a")] {
        let stream = format!("job.user.name{{job={id}}}");
        assert_eq!(text(&reader, &stream).as_deref(), Some(user), "{id}");
    }
}

/// Slurm counts as not knowing a job only after an answer.
#[test]
fn a_silent_controller_makes_no_strangers() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "io memory\n");
    tree.write("proc/sys/kernel/hostname", "n1\n");
    start(&tree, "1");
    // A recording that cannot be read stands for a program that fails.
    let silent = tree.path().join("commands/squeue");
    std::fs::create_dir_all(&silent).unwrap();
    let mut reader = Reader::new(tree.source("job"));
    for _ in 0..10 {
        reader.read_after(61 * NS_PER_S).unwrap();
        let users = missing(&*reader.source, "users");
        assert!(users[0].remedy.contains("IPAddressAllow"), "{users:?}");
    }
    std::fs::remove_dir(&silent).unwrap();
    let fields = [
        "1", "1", "N/A", "RUNNING", "a", "b", "c", "1", "2", "3", "N/A",
    ];
    tree.write("commands/squeue", queue(&[fields]));
    // squeue is asked less and less often, but it is asked.
    let patience = (0..9).find(|_| {
        reader.read_after(61 * NS_PER_S).unwrap();
        text(&reader, "job.user.name{job=1}").as_deref() == Some("a")
    });
    assert!(patience.is_some());
}

#[test]
fn the_queue_is_asked_only_for_jobs_that_nobody_described() {
    let tree = Tree::of("empty");
    tree.write("sys/fs/cgroup/cgroup.controllers", "io memory\n");
    tree.write("proc/sys/kernel/hostname", "n1\n");
    tree.write(&format!("{SCOPE}/cgroup.procs"), "");
    // If squeue were asked, this would be a fault.
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
    // squeue is asked again only after the interval, and only a few times.
    let mut asked = 0;
    for _ in 0..600 {
        asked += i32::from(reader.read().is_err());
    }
    assert_eq!(asked, 2);
    // Another job causes a new question, and the answer is used for all jobs.
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
    assert!(reader.streams("job.start.time.seconds").is_empty());
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
        reader.number("job.start.time.seconds{job=7}"),
        Some(1_763_750_000.0)
    );
    tree.write("commands/squeue", "");
    reader.read_after(61 * NS_PER_S).unwrap();
    assert!(reader.streams("job=7").is_empty());
    // The queue's last answer expires after a long silence.
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
    // Slurm: the group and those below it, since these files do not include groups below.
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

/// With two slurmd on one machine, the parts of a job are one job.
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

/// A cut file gives values of the whole file, or a fault, but no other values.
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
                // Facts that a cut note lacks come from the queue.
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
