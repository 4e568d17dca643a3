//! `lustre.jobs`: the jobs of a busy Lustre server, read and parsed, beside only reading the same
//! bytes. Exporters that parse this text as YAML or by regular expressions take seconds for it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;

use barograph_model::NS_PER_S;
use barograph_source::{SourceBatch, SourcesConfig, all_sources};

use super::Scratch;
use crate::measure::{cpu_ns, keep};
use crate::report::{Fault, Report};

const JOBS: usize = 5_000;
const TARGETS: usize = 8;
const ROUNDS: usize = 5;
/// Counters of an object target that count no data, as in Lustre 2.15.
const OTHERS: [&str; 13] = [
    "read", "write", "getattr", "setattr", "punch", "sync", "destroy", "create", "statfs",
    "get_info", "set_info", "quotactl", "prealloc",
];

/// Measures a server with several targets, each of which lists all jobs.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("lustre")?;
    let mut config = SourcesConfig::default();
    config.sys_root.clone_from(&scratch.0);
    let mut paths = Vec::new();
    for target in 0..TARGETS {
        let dir = format!("proc/fs/lustre/obdfilter/scratch-OST{target:04x}");
        let dir = scratch.0.join(dir);
        std::fs::create_dir_all(&dir)?;
        let path = dir.join("job_stats");
        std::fs::write(&path, job_stats(target))?;
        paths.push(path);
    }
    let mut sources = all_sources(&config);
    let source = sources.iter_mut().find(|s| s.name() == "lustre_jobs");
    let source = source.ok_or("there is no source lustre_jobs")?;
    let mut batch = SourceBatch::new();
    let mut at_ns = 0;
    let mut read = || {
        at_ns += 10 * NS_PER_S;
        batch.begin(at_ns);
        keep(source.read(at_ns, &mut batch).is_ok());
    };
    read();
    let ours = cpu_ns(ROUNDS, read);
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    let floor = cpu_ns(ROUNDS, || {
        bytes = 0;
        for path in &paths {
            let Ok(mut file) = File::open(path) else {
                continue;
            };
            while let Ok(read @ 1..) = file.read(&mut buffer) {
                bytes += read;
            }
        }
    });
    report.row(
        "lustre.jobs",
        &format!("{JOBS} jobs on {TARGETS} targets, {} MB", bytes / 1_000_000),
        ours / 1e6,
        "ms",
        &[("reading the bytes alone", floor / 1e6)],
    );
    Ok(())
}

fn job_stats(target: usize) -> String {
    let mut text = String::from("job_stats:\n");
    let put = "a String takes what it is given";
    for job in 0..JOBS {
        let ops = (job * 7 + target) % 9000;
        write!(
            text,
            "- job_id:          {}\n  snapshot_time:   1700000000.123456789 secs.nsecs\n  \
             start_time:      1699999000.000000001 secs.nsecs\n  \
             elapsed_time:    1000.123456788 secs.nsecs\n",
            1_000_000 + job
        )
        .expect(put);
        for key in ["read_bytes", "write_bytes"] {
            counter(&mut text, key, ops, "bytes", 1 << 20);
        }
        for key in OTHERS {
            counter(&mut text, key, ops, "usecs", 250);
        }
    }
    text
}

fn counter(text: &mut String, key: &str, ops: usize, unit: &str, each: usize) {
    let (key, sum) = (format!("{key}:"), ops * each);
    let squares = sum * each;
    writeln!(
        text,
        "  {key:<16} {{ samples: {ops:>11}, unit: {unit:>5}, min: {each:>8}, max: {each:>8}, \
         sum: {sum:>16}, sumsq: {squares:>18} }}"
    )
    .expect("a String takes what it is given");
}
