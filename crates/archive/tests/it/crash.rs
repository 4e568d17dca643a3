//! Writers that are killed at any moment: what was acknowledged is in the archive once, whoever
//! writes next.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use barograph_model::{Value, ValueType};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::support::{
    SOON, assert_once, config, declare, dir_in_memory, everything, sample, start,
};

/// Environment variable with the archive to write, for this binary started again.
const ROOT: &str = "BAROGRAPH_TEST_ARCHIVE";
/// Environment variable with the life to write.
const LIFE: &str = "BAROGRAPH_TEST_LIFE";
/// Environment variable with the number of rounds, for the nightly run.
const ROUNDS: &str = "BARO_CRASH_ROUNDS";
const STREAMS: u32 = 3;

/// The entry point of child processes. Without an archive in the environment there is nothing to
/// write, which is all that a plain run checks.
#[test]
fn writes_until_it_is_killed() {
    let Some(root) = std::env::var_os(ROOT) else {
        assert!(std::env::var_os(LIFE).is_none());
        return;
    };
    // The child must not outlive a parent that was killed.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let life = std::env::var(LIFE).unwrap().parse().unwrap();
    append_for_ever(&PathBuf::from(root), life);
}

fn append_for_ever(root: &Path, life: i64) {
    let mut config = config(root);
    // Segments are closed often, so that many writers are killed at that moment.
    config.segment_bytes_max = 20_000;
    let keeper = start(config).unwrap();
    let journal = keeper.journal();
    let mut out = std::io::stdout();
    let mut entries: Vec<_> = (0..STREAMS)
        .map(|key| declare(key, &format!("durable.s{key}"), type_of(key), life))
        .collect();
    for number in 1.. {
        for key in 0..STREAMS {
            entries.push(sample(key, number, number as i64, value(key, number)));
        }
        let position = journal.submit(&mut entries);
        if number % 7 == 0 && journal.wait_durable(position, SOON) {
            // A single write: a line is there or it is not.
            let mut line = String::new();
            writeln!(line, "durable {number}").unwrap();
            out.write_all(line.as_bytes()).unwrap();
            out.flush().unwrap();
        }
    }
}

fn type_of(key: u32) -> ValueType {
    [ValueType::Int, ValueType::Float, ValueType::Text][key as usize]
}

fn value(key: u32, number: u64) -> Value {
    match type_of(key) {
        ValueType::Int => Value::Int(number as i64),
        ValueType::Float => Value::Float(number as f64),
        _ => Value::text(&"x".repeat(number as usize % 50)),
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_what_it_acknowledged_once() {
    let rounds = std::env::var(ROUNDS).map_or(30, |rounds| rounds.parse().unwrap());
    let dir = dir_in_memory();
    let mut acknowledged = Vec::new();
    for life in 1..=rounds {
        acknowledged.push((life, round(dir.path(), life)));
        let found = everything(dir.path());
        assert_once(&found);
        for (life, acknowledged) in &acknowledged {
            for key in 0..STREAMS {
                let Some(samples) = found.get(&(format!("durable.s{key}"), *life)) else {
                    assert_eq!(*acknowledged, 0, "life {life}");
                    continue;
                };
                // Nothing overflowed, so there are no holes either, acknowledged or not.
                let numbers = samples.iter().map(|(number, _)| *number);
                assert!(numbers.eq(1..=samples.len() as u64), "life {life}");
                assert!(samples.len() as u64 >= *acknowledged, "life {life}");
            }
        }
    }
    let most = acknowledged.iter().map(|(_, n)| *n).max();
    assert!(most > Some(0), "no round came to an acknowledgement");
}

/// Runs a life until it is killed; returns the last number that it reported as durable.
fn round(root: &Path, life: i64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(ROOT, root)
        .env(LIFE, life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    // Some are killed while they start, most a little after their first acknowledgement. The sleep
    // waits for nothing; it only makes each moment different.
    let mut said = 0;
    if life % 5 != 0 {
        said = lines.find_map(|line| durable(&line)).unwrap();
    }
    std::thread::sleep(Duration::from_micros(mix(life as u64) % 30_000));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.filter_map(|line| durable(&line)).fold(said, u64::max)
}

fn durable(line: &str) -> Option<u64> {
    line.strip_prefix("durable ")?.parse().ok()
}

/// Returns a well-mixed function of a number: every moment is derived from its round.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
