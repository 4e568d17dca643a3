//! Tests of jobs on Lustre: values computed by hand, and a simulated server whose jobs come, go and
//! begin anew while all sums must still be right.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use barograph_model::NS_PER_S;
use barograph_source::LustreJobsConfig;

use crate::support::{Reader, Tree, source};

const STEP_NS: i64 = 10 * NS_PER_S;

fn job(fact: &str, job: &str) -> String {
    format!("lustre.job.{fact}{{job={job}}}")
}

#[test]
fn jobs_of_a_server() {
    let tree = Tree::of("lustre-server");
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    let check = |reader: &Reader, stream: &str, expect: f64| {
        assert_eq!(reader.number(stream), Some(expect), "{stream}");
    };
    // Two object targets: 8e9 each.
    check(&reader, &job("read.bytes", "4711"), 16e9);
    check(&reader, &job("read.ops", "4711"), 4000.0);
    // Includes those of the metadata target.
    check(&reader, &job("read.bytes", "4712"), 40_200_000.0);
    // open 1000, close 990, getattr 3000, unlink 10
    check(&reader, &job("metadata.ops", "4711"), 5000.0);
    // open 500, close 500, mknod 20, rename 30 (not samedir_rename), setattr 100
    check(&reader, &job("metadata.ops", "4712"), 1150.0);
    assert_eq!(reader.get(&job("read.bytes_per_second", "4711")), None);
    tree.advance();
    reader.read().unwrap();
    check(&reader, &job("read.bytes", "4711"), 16_640_000_000.0);
    check(&reader, &job("read.bytes_per_second", "4711"), 6.4e8);
    check(&reader, &job("write.bytes_per_second", "4712"), 4e8);
    check(&reader, &job("read.bytes_per_second", "4712"), 20_000.0);
    check(&reader, &job("metadata.ops_per_second", "4711"), 100.0);
    check(&reader, &job("metadata.ops_per_second", "4712"), 25.0);
    check(&reader, &job("read.bytes_per_second", "cp.0"), 0.0);
    check(
        &reader,
        &job("read.bytes_per_second", "node17:my solver:1000"),
        1.6e7,
    );
    check(&reader, &job("write.bytes_per_second", "dd.1001"), 1e6);
    check(&reader, "lustre.jobs.read.bytes_per_second", 656_020_000.0);
    check(&reader, "lustre.jobs.write.bytes_per_second", 401_000_000.0);
    check(&reader, "lustre.jobs.count", 5.0);
    // No job is without streams.
    assert_eq!(reader.get(&job("read.bytes", "other")), None);
    let report = reader.source.report();
    assert!(
        report.sees.starts_with("5 jobs on 3 targets, 5 of them"),
        "{}",
        report.sees
    );
    assert_eq!(report.missing, []);
}

#[test]
fn a_client_says_where_jobs_are_counted() {
    let tree = Tree::of("lustre-client");
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    assert!(reader.names.is_empty());
    let missing = reader.source.report().missing;
    let why = &missing[0].why;
    assert!(why.contains("jobid_var=SLURM_JOB_ID"), "{missing:?}");
    assert!(missing[0].remedy.contains("servers"), "{missing:?}");
}

#[test]
fn a_server_without_jobs_says_what_would_help() {
    let tree = Tree::of("lustre-server");
    for target in [
        "obdfilter/scratch-OST0000",
        "obdfilter/scratch-OST0001",
        "mdt/scratch-MDT0000",
    ] {
        tree.write(
            &format!("proc/fs/lustre/{target}/job_stats"),
            "job_stats:\n",
        );
    }
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    let missing = reader.source.report().missing;
    assert!(missing[0].remedy.contains("jobid_var"), "{missing:?}");
    assert_eq!(reader.number("lustre.jobs.count"), Some(0.0));
}

/// One entry of an object target.
fn entry(text: &mut String, name: &str, start: u64, age: u64, counts: [u64; 4]) {
    let [read_bytes, write_bytes, read_ops, write_ops] = counts;
    writeln!(text, "- job_id:          {name}").unwrap();
    writeln!(text, "  snapshot_time:   {}.5 secs.nsecs", start + age).unwrap();
    writeln!(text, "  start_time:      {start}.5 secs.nsecs").unwrap();
    writeln!(text, "  elapsed_time:    {age}.0 secs.nsecs").unwrap();
    for (key, ops, bytes) in [
        ("read_bytes", read_ops, read_bytes),
        ("write_bytes", write_ops, write_bytes),
    ] {
        writeln!(
            text,
            "  {key}: {{ samples: {ops}, unit: bytes, min: 0, max: 0, sum: {bytes}, sumsq: 0 }}"
        )
        .unwrap();
    }
    writeln!(
        text,
        "  punch: {{ samples: 1, unit: usecs, min: 0, max: 0, sum: 0, sumsq: 0 }}"
    )
    .unwrap();
}

/// The entry of a job on a target of the simulated server.
#[derive(Clone, Default)]
struct Known {
    start: u64,
    counts: [u64; 4],
    idle: u64,
}

/// A server with targets on which jobs come, pause for longer than their entries are kept, and come
/// again.
struct Server {
    tree: Tree,
    targets: Vec<BTreeMap<usize, Known>>,
    /// Everything that was ever read and written, by job.
    truth: BTreeMap<usize, [u64; 4]>,
    random: u64,
    now: u64,
}

impl Server {
    fn new(targets: usize) -> Self {
        let tree = Tree::of("empty");
        Self {
            tree,
            targets: vec![BTreeMap::new(); targets],
            truth: BTreeMap::new(),
            random: 7,
            now: 1_700_000_000,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % limit
    }

    /// Ten seconds of work by some of these jobs; after that every target writes its list.
    fn work(&mut self, jobs: std::ops::Range<usize>, forget_after: u64) {
        self.now += 10;
        for target in 0..self.targets.len() {
            for job in jobs.clone() {
                if self.below(3) == 0 {
                    continue;
                }
                let ops = [self.below(10) + 1, self.below(10)];
                let growth = [ops[0] * self.below(5000), ops[1] * 4096, ops[0], ops[1]];
                let start = self.now - 3;
                let known = self.targets[target].entry(job).or_insert_with(|| Known {
                    start,
                    ..Known::default()
                });
                known.idle = 0;
                let truth = self.truth.entry(job).or_default();
                for at in 0..4 {
                    known.counts[at] += growth[at];
                    truth[at] += growth[at];
                }
            }
            let known = &mut self.targets[target];
            known.values_mut().for_each(|k| k.idle += 1);
            known.retain(|_, k| k.idle <= forget_after);
            self.write(target);
        }
    }

    fn write(&self, target: usize) {
        let mut text = String::from("job_stats:\n");
        for (job, known) in &self.targets[target] {
            let age = self.now - known.start;
            entry(
                &mut text,
                &format!("job.{job}"),
                known.start,
                age,
                known.counts,
            );
        }
        let path = format!("proc/fs/lustre/obdfilter/sim-OST{target:04x}/job_stats");
        self.tree.write(&path, text);
    }

    fn reader(&self, jobs: LustreJobsConfig) -> Reader {
        let mut config = self.tree.config();
        config.lustre_jobs = jobs;
        Reader::new(source(&config, "lustre_jobs"))
    }
}

/// The sum over all jobs, including the one called other.
fn sum(reader: &Reader, fact: &str) -> f64 {
    let streams = reader.streams(&format!("lustre.job.{fact}{{"));
    streams.iter().filter_map(|s| reader.number(s)).sum()
}

#[test]
fn everything_adds_up_while_jobs_come_and_go() {
    let mut server = Server::new(3);
    let config = LustreJobsConfig {
        jobs_max: 5,
        keep_ms: 30_000,
    };
    let mut reader = server.reader(config);
    let mut before = [0; 4];
    for round in 0..60usize {
        // A window of jobs that moves on and returns.
        let first = (round / 3) % 12;
        server.work(first..first + 8, 4);
        reader.read_after(STEP_NS).unwrap();
        let mut truth = [0; 4];
        for counts in server.truth.values() {
            (0..4).for_each(|at| truth[at] += counts[at]);
        }
        let facts = ["read.bytes", "write.bytes", "read.ops", "write.ops"];
        for (fact, expect) in facts.iter().zip(truth) {
            let total = reader.number(&format!("lustre.jobs.{fact}"));
            assert_eq!(total, Some(expect as f64), "{fact} in round {round}");
        }
        if round == 0 {
            assert_eq!(sum(&reader, "read.bytes"), truth[0] as f64);
        } else {
            for (fact, at) in [("read.bytes_per_second", 0), ("write.bytes_per_second", 1)] {
                let grown = (truth[at] - before[at]) as f64 / 10.0;
                let (all, total) = (
                    sum(&reader, fact),
                    reader.number(&format!("lustre.jobs.{fact}")),
                );
                assert!(
                    (all - grown).abs() < 1e-3,
                    "{fact} {all} {grown} in round {round}"
                );
                assert!(
                    (total.unwrap() - grown).abs() < 1e-3,
                    "{fact} in round {round}"
                );
            }
        }
        before = truth;
        // The job called other, and no more than five by name.
        let alone = reader.streams("lustre.job.read.bytes{");
        assert!(alone.len() <= 6, "{alone:?}");
        // The streams of a job that has had them from the beginning are complete.
        if round == 0 {
            for stream in alone.iter().filter(|s| !s.contains("other")) {
                let name = stream.split("job.").last().unwrap().trim_end_matches('}');
                let expect = server.truth[&name.parse::<usize>().unwrap()][0];
                assert_eq!(reader.number(stream), Some(expect as f64), "{stream}");
            }
        }
    }
}

/// A job that is overtaken keeps its streams for a while; then the other job gets them.
#[test]
fn streams_do_not_flicker() {
    let server = Server::new(1);
    let mut reader = server.reader(LustreJobsConfig {
        jobs_max: 1,
        keep_ms: 30_000,
    });
    let mut counts = [[1_000_000, 0, 10, 0], [500_000, 0, 10, 0]];
    let mut seen = Vec::new();
    for round in 0..8 {
        let mut text = String::from("job_stats:\n");
        for (name, counts) in ["a", "b"].iter().zip(counts) {
            entry(&mut text, name, 1000, 10 * round, counts);
        }
        server
            .tree
            .write("proc/fs/lustre/obdfilter/x-OST0000/job_stats", text);
        reader.read_after(STEP_NS).unwrap();
        let named = |name: &str| reader.number(&job("read.bytes", name)).is_some();
        seen.push((named("a"), named("b")));
        assert!(named("other"));
        let fast = usize::from(round >= 1);
        counts[fast][0] += 100_000;
        counts[1 - fast][0] += 1;
    }
    // a is ahead in the poll of 10 s and behind from that of 20 s; it keeps its streams until 40 s.
    let (a, b) = ((true, false), (false, true));
    assert_eq!(seen, [a, a, a, a, b, b, b, b]);
}

#[test]
fn names_that_need_care() {
    let tree = Tree::of("empty");
    let mut text = String::from("job_stats:\n");
    let long = "x".repeat(250);
    let names = [
        "other",
        "\"other\"",
        "\"a\\x20b\"",
        "a\\x20b",
        "%h.%e.%u",
        "\"\\xFF\\x0a\"",
        ":1000:n1",
        &long,
    ];
    for name in names {
        entry(&mut text, name, 1, 1, [10, 0, 1, 0]);
    }
    tree.write("proc/fs/lustre/obdfilter/x-OST0000/job_stats", text);
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    let jobs = reader.streams("lustre.job.read.bytes{");
    for name in ["a b", "%h.%e.%u", "\\xff\\x0a", ":1000:n1", "other", &long] {
        assert!(jobs.contains(&job("read.bytes", name)), "{name}: {jobs:?}");
    }
    assert_eq!(jobs.len(), 6, "{jobs:?}");
    // The same name twice in one list counts once, with quotes or without.
    assert_eq!(reader.number("lustre.jobs.read.bytes"), Some(60.0));
    assert_eq!(sum(&reader, "read.bytes"), 60.0);
    let missing = reader.source.report().missing;
    assert!(
        missing.iter().any(|m| m.what.contains("by name")),
        "{missing:?}"
    );
}

/// There is no rate for an entry that is new to us but began long ago, nor for one that went back.
#[test]
fn no_rate_is_made_up() {
    let tree = Tree::of("empty");
    let path = "proc/fs/lustre/obdfilter/x-OST0000/job_stats";
    let write = |entries: &[(&str, u64, u64, u64)]| {
        let mut text = String::from("job_stats:\n");
        for (name, start, age, bytes) in entries {
            entry(&mut text, name, *start, *age, [*bytes, 0, 1, 0]);
        }
        tree.write(path, text);
    };
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    write(&[("a", 100, 10, 5000)]);
    reader.read_after(STEP_NS).unwrap();
    // b began long before the last poll, which did not list it; c began after it.
    write(&[
        ("a", 100, 20, 6000),
        ("b", 50, 70, 1 << 40),
        ("c", 113, 5, 2000),
    ]);
    reader.read_after(STEP_NS).unwrap();
    let rate = |reader: &Reader, name: &str| reader.number(&job("read.bytes_per_second", name));
    assert_eq!(rate(&reader, "a"), Some(100.0));
    assert_eq!(rate(&reader, "b"), Some(0.0));
    assert_eq!(rate(&reader, "c"), Some(200.0));
    assert_eq!(
        reader.number(&job("read.bytes", "b")),
        Some((1u64 << 40) as f64)
    );
    // a went back although it did not begin anew; c began anew.
    write(&[
        ("a", 100, 30, 1000),
        ("b", 50, 80, 1 << 40),
        ("c", 125, 2, 500),
    ]);
    reader.read_after(STEP_NS).unwrap();
    assert_eq!(rate(&reader, "a"), Some(0.0));
    assert_eq!(rate(&reader, "c"), Some(50.0));
    assert_eq!(reader.number(&job("read.bytes", "a")), Some(6000.0));
    assert_eq!(reader.number(&job("read.bytes", "c")), Some(2500.0));
    assert_eq!(
        reader.number("lustre.jobs.read.bytes_per_second"),
        Some(50.0)
    );
}

/// The file is larger than any that is read as a whole.
#[test]
fn thousands_of_jobs_in_bounded_memory() {
    let tree = Tree::of("empty");
    let mut text = String::from("job_stats:\n");
    let padding = format!(
        "  spare: {{ samples: 0, unit: usecs, note: {} }}\n",
        "x".repeat(1700)
    );
    for n in 0..5000u64 {
        entry(&mut text, &format!("{n}"), 1, 1, [n, 0, 1, 0]);
        text += &padding;
    }
    assert!(text.len() > 9 << 20);
    tree.write("proc/fs/lustre/obdfilter/x-OST0000/job_stats", &text);
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    assert_eq!(reader.number("lustre.jobs.count"), Some(5000.0));
    assert_eq!(reader.number("lustre.jobs.read.bytes"), Some(12_497_500.0));
    let named = reader.streams("lustre.job.read.bytes{");
    assert_eq!(named.len(), 501);
    // The jobs with the most traffic have streams.
    assert!(reader.get(&job("read.bytes", "4500")).is_some());
    assert!(reader.get(&job("read.bytes", "4499")).is_none());
    let other: f64 = (0..4500).sum::<u64>() as f64;
    assert_eq!(reader.number(&job("read.bytes", "other")), Some(other));
    let missing = reader.source.report().missing;
    assert!(
        missing.iter().any(|m| m.remedy.contains("jobs_max")),
        "{missing:?}"
    );
}

#[test]
fn garbage() {
    let tree = Tree::of("lustre-server");
    let path = "proc/fs/lustre/obdfilter/scratch-OST0000/job_stats";
    let whole = tree.read(path);
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    let total = reader.number("lustre.jobs.read.bytes").unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let huge = text.replace("sum:       8000000000", "sum: 18446744073709551615");
    let most = text.replace("sum:       8000000000", "sum: 9223372036854775807");
    let comma = text.replace("sum:       8000000000", "sum: 8000000000,5");
    let bad: [&[u8]; 9] = [
        b"\0\0\0\n",
        b"\xff\xfe\xfd\n\xff",
        b"- - -\n- job_id\n- job_id:\n: : :\n",
        b"- job_id: x\n  read_bytes: { samples: 1 }\n",
        b"- job_id: x\n  read_bytes: 1\n",
        b"Aufgaben:\n- Kennung: 7\n",
        huge.as_bytes(),
        most.as_bytes(),
        comma.as_bytes(),
    ];
    for bad in bad {
        tree.write(path, bad);
        let _ = reader.read();
        let _ = reader.source.report();
        let numbers = reader.batch.samples().iter();
        for value in numbers.filter_map(|(_, s)| s.value.as_f64()) {
            assert!(value.is_finite() && value >= 0.0);
        }
    }
    tree.write(path, &whole);
    reader.read().unwrap();
    assert!(reader.number("lustre.jobs.read.bytes").unwrap() >= total);
}

#[test]
fn targets_that_go_take_their_streams_along() {
    let tree = Tree::of("lustre-server");
    let mut reader = Reader::new(tree.source("lustre_jobs"));
    reader.read().unwrap();
    std::fs::remove_dir_all(tree.path().join("proc/fs/lustre")).unwrap();
    reader.read().unwrap();
    assert_eq!(reader.streams(""), Vec::<String>::new());
}
