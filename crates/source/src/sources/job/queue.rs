//! The queue of Slurm as `squeue` prints it (squeue(1)). It gives the facts that control groups do
//! not have: the owner of a job, its nodes and its tasks.
//!
//! `--Format` with a width for each field cuts and pads every field to that width, in all releases.
//! A line is therefore split by position, and no user's text can pass for another field. A text as
//! wide as its field may have been cut, and counts as unknown. Names and command lines of jobs are
//! not requested.

use crate::util::command::{Commands, Program, Refusal};
use crate::util::faults::BadLines;
use crate::util::parse::{cut, escape, lines, number};
use barograph_model::{DAY_S, days_since_epoch};

const SQUEUE: Program = Program {
    name: "squeue",
    paths: &[
        "/usr/bin/squeue",
        "/usr/local/bin/squeue",
        "/opt/slurm/bin/squeue",
        "/usr/local/slurm/bin/squeue",
        "/cm/shared/apps/slurm/current/bin/squeue",
    ],
};

/// Widths of the fields in bytes; a test below checks that they are the same in the argument.
const WIDTHS: [usize; 11] = [20, 20, 20, 20, 64, 64, 64, 12, 12, 12, 24];
const FORMAT: &str = "--Format=JobID:20,ArrayJobID:20,ArrayTaskID:20,State:20,UserName:64,Account:64,Partition:64,NumNodes:12,NumCPUs:12,NumTasks:12,StartTime:24";
const LINE_BYTES: usize = 332;

/// One job of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queued {
    /// The number of the job; elements of an array and parts of a heterogeneous job have their own.
    pub(super) id: String,
    /// The array and its index there, like `4711_3`.
    pub(super) array: Option<String>,
    /// The state in lower case.
    pub(super) state: String,
    pub(super) user: Option<String>,
    pub(super) account: Option<String>,
    pub(super) partition: Option<String>,
    pub(super) nodes: Option<u64>,
    pub(super) cpus: Option<u64>,
    pub(super) tasks: Option<u64>,
    pub(super) start_s: Option<u64>,
}

/// Asks Slurm for the jobs that run on this node.
pub(super) fn ask(commands: &Commands, node: &str) -> Result<(Vec<Queued>, BadLines), Refusal> {
    let nodes = format!("--nodelist={node}");
    let arguments = [
        "--noheader",
        "--local",
        // Without this option 2048 processors are printed as "2K".
        "--noconvert",
        "--states=RUNNING,SUSPENDED,COMPLETING",
        &nodes,
        FORMAT,
    ];
    let text = commands.run(SQUEUE, &arguments, "squeue")?;
    Ok(parse(&text))
}

/// Parses the lines of `squeue`. Lines that are not as documented are left out and reported.
fn parse(text: &[u8]) -> (Vec<Queued>, BadLines) {
    let mut jobs = Vec::new();
    let mut bad = BadLines::default();
    for line in lines(text).filter(|line| !line.trim_ascii().is_empty()) {
        match job(line) {
            Some(job) => jobs.push(job),
            None => bad.add(line),
        }
    }
    if !cut(text).is_empty() {
        bad.add(cut(text));
    }
    (jobs, bad)
}

fn job(line: &[u8]) -> Option<Queued> {
    if line.len() != LINE_BYTES {
        return None;
    }
    let mut rest = line;
    let mut fields = [&line[..0]; WIDTHS.len()];
    for (field, width) in fields.iter_mut().zip(WIDTHS) {
        (*field, rest) = rest.split_at(width);
    }
    let [
        id,
        array,
        index,
        state,
        user,
        account,
        partition,
        nodes,
        cpus,
        tasks,
        start,
    ] = fields;
    Some(Queued {
        id: count(id)??.to_string(),
        array: match (count(array)?, count(index)?) {
            (Some(array), Some(index)) => Some(format!("{array}_{index}")),
            _ => None,
        },
        state: state_word(state.trim_ascii())?,
        user: text(user),
        account: text(account),
        partition: text(partition),
        nodes: count(nodes)?,
        cpus: count(cpus)?,
        tasks: count(tasks)?,
        start_s: match is_unknown(start.trim_ascii()) {
            true => None,
            false => Some(seconds(start.trim_ascii())?),
        },
    })
}

/// Parses a number; the inner `None` means that Slurm gives none. A number that fills its field is
/// refused, since it may be the beginning of a longer one.
fn count(field: &[u8]) -> Option<Option<u64>> {
    match field.strip_suffix(b" ")?.trim_ascii() {
        word if is_unknown(word) => Some(None),
        word => number(word).map(Some),
    }
}

fn is_unknown(word: &[u8]) -> bool {
    matches!(word, b"" | b"N/A" | b"Unknown" | b"(null)")
}

/// Parses a text; one that fills its field counts as unknown.
fn text(field: &[u8]) -> Option<String> {
    let whole = field.last() == Some(&b' ');
    let text = field.trim_ascii();
    (whole && !is_unknown(text)).then(|| escape(text))
}

fn state_word(word: &[u8]) -> Option<String> {
    let known = !word.is_empty() && word.iter().all(|b| b.is_ascii_uppercase() || *b == b'_');
    known.then(|| String::from_utf8_lossy(word).to_lowercase())
}

/// Parses `2026-11-21T18:00:00`, which is in UTC as requested, to seconds since 1970.
fn seconds(text: &[u8]) -> Option<u64> {
    let shape = b"0000-00-00T00:00:00";
    let fits = |(a, b): (&u8, &u8)| match b {
        b'0' => a.is_ascii_digit(),
        mark => a == mark,
    };
    if text.len() != shape.len() || !text.iter().zip(shape).all(fits) {
        return None;
    }
    let at = |from: usize, to: usize| number(&text[from..to]);
    let (year, month, day) = (at(0, 4)?, at(5, 7)?, at(8, 10)?);
    let (hour, minute, second) = (at(11, 13)?, at(14, 16)?, at(17, 19)?);
    let calendar = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !calendar || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_epoch(year as i64, month as i64, day as i64).unsigned_abs();
    Some(days * DAY_S.unsigned_abs() + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: [&str; 11]) -> String {
        let mut line = String::new();
        for (field, width) in fields.into_iter().zip(WIDTHS) {
            let cut = &field[..field.len().min(width)];
            line += &format!("{cut:width$}");
        }
        line + "\n"
    }

    const USUAL: [&str; 11] = [
        "4711",
        "4711",
        "N/A",
        "RUNNING",
        "alice",
        "physics",
        "batch",
        "2",
        "16",
        "8",
        "2026-11-21T18:00:00",
    ];

    fn with(at: usize, text: &str) -> (Vec<Queued>, BadLines) {
        let mut fields = USUAL;
        fields[at] = text;
        parse(line(fields).as_bytes())
    }

    #[test]
    fn widths_are_those_asked_for() {
        assert_eq!(WIDTHS.iter().sum::<usize>(), LINE_BYTES);
        let asked = FORMAT.split([':', ',']).filter_map(|w| w.parse().ok());
        assert_eq!(asked.collect::<Vec<usize>>(), WIDTHS);
    }

    #[test]
    fn jobs_of_the_queue() {
        let (jobs, bad) = parse(line(USUAL).as_bytes());
        assert!(!bad.any());
        let expect = Queued {
            id: "4711".to_owned(),
            array: None,
            state: "running".to_owned(),
            user: Some("alice".to_owned()),
            account: Some("physics".to_owned()),
            partition: Some("batch".to_owned()),
            nodes: Some(2),
            cpus: Some(16),
            tasks: Some(8),
            start_s: Some(1_795_284_000),
        };
        assert_eq!(jobs, [expect]);
        assert_eq!(with(2, "3").0[0].array.as_deref(), Some("4711_3"));
        let odd = "o'brien|x y=1";
        assert_eq!(with(4, odd).0[0].user.as_deref(), Some(odd));
        assert_eq!(with(4, "a\u{7f}b").0[0].user.as_deref(), Some("a\\x7fb"));
        // A text as wide as its field may have been cut.
        assert_eq!(with(4, &"u".repeat(64)).0[0].user, None);
        assert_eq!(with(5, "(null)").0[0].account, None);
        assert_eq!(with(10, "N/A").0[0].start_s, None);
    }

    #[test]
    fn what_is_not_as_documented_is_refused() {
        for (at, text) in [
            (0, ""),
            (0, "4711_3"),
            (0, "4711+0"),
            (2, "[1-5]"),
            (3, "läuft"),
            (3, "Running"),
            (7, "2,0"),
            (8, "2K"),
            (9, "-1"),
            (9, "999999999999"),
            (10, "21.11.2026 18:00"),
            (10, "1 hour ago"),
            (10, "2026-13-21T18:00:00"),
        ] {
            let (jobs, bad) = with(at, text);
            assert!(jobs.is_empty() && bad.any(), "{text}");
        }
        let (jobs, bad) = parse(b"slurm_load_jobs error: Unable to contact slurm controller\n");
        assert!(jobs.is_empty() && bad.any());
        let whole = line(USUAL);
        for end in 1..whole.len() {
            let (jobs, bad) = parse(&whole.as_bytes()[..end]);
            assert!(jobs.is_empty() && bad.any(), "{end}");
        }
        let (jobs, bad) = parse(b"");
        assert!(jobs.is_empty() && !bad.any());
    }

    #[test]
    fn times() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(seconds(text.as_bytes()), expect, "{text}");
        };
        check("1970-01-01T00:00:00", Some(0));
        check("2000-02-29T12:00:00", Some(951_825_600));
        check("2000-03-01T00:00:00", Some(951_868_800));
        check("2026-11-21T18:00:00", Some(1_795_284_000));
        check("1969-12-31T23:59:59", None);
        check("2026-11-21 18:00:00", None);
        check("2026-11-21T24:00:00", None);
    }
}
