//! All that can be asked. To add a verb is a decision about security: it is made here, in one place.

use std::time::Duration;

/// One thing that can be asked.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The first word of the request.
    pub name: &'static str,
    /// Whether the second word is the name of a whole disk; else there is none.
    pub takes_device: bool,
    /// The program that is run.
    pub program: Program,
    /// How long an answer stays: who asks the same again before gets it, and nothing is run. Much less than
    /// the agent leaves between two requests.
    pub fresh: Duration,
    /// In a few words, for `--verbs`.
    pub help: &'static str,
}

/// A program and all that it is told.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name in messages.
    pub name: &'static str,
    /// Where it may be: the first that is there is taken.
    pub paths: &'static [&'static str],
    /// Its arguments; the path of the disk follows where the verb takes one.
    pub arguments: &'static [&'static str],
    /// What it reads on standard input.
    pub input: &'static [u8],
    /// Which ends are good ones.
    pub exit: Exit,
}

/// Which ends of a program are good ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Status 0.
    Zero,
    /// Any status, if something was printed: the status is a finding, not a failure.
    Any,
}

/// The verbs of the real helper.
pub const VERBS: &[Verb] = &[
    Verb {
        name: "smart",
        takes_device: true,
        // smartctl(8): `--nocheck=standby` never wakes a disk; the exit status is a mask of findings,
        // and what it cannot do stands in the JSON too. `devstat` has the counters whose units the
        // ATA standard fixes, where the vendors' attributes of `--all` differ from model to model.
        program: Program {
            name: "smartctl",
            paths: &[
                "/usr/sbin/smartctl",
                "/usr/local/sbin/smartctl",
                "/sbin/smartctl",
            ],
            arguments: &["--json=c", "--all", "--log=devstat", "--nocheck=standby"],
            input: b"",
            exit: Exit::Any,
        },
        fresh: Duration::from_secs(10),
        help: "health of a disk, as JSON; a sleeping disk is not woken",
    },
    Verb {
        name: "bmc-power",
        takes_device: false,
        program: Program {
            name: "ipmitool",
            paths: &[
                "/usr/bin/ipmitool",
                "/usr/sbin/ipmitool",
                "/usr/local/bin/ipmitool",
            ],
            arguments: &["dcmi", "power", "reading"],
            input: b"",
            exit: Exit::Zero,
        },
        fresh: Duration::from_millis(500),
        help: "what the node draws, as its management controller says",
    },
    Verb {
        name: "gpfs",
        takes_device: false,
        // mmpmon reads requests from standard input; this one changes nothing.
        program: Program {
            name: "mmpmon",
            paths: &["/usr/lpp/mmfs/bin/mmpmon"],
            arguments: &["-p"],
            input: b"fs_io_s\n",
            exit: Exit::Zero,
        },
        fresh: Duration::from_millis(500),
        help: "counters of mounted GPFS file systems",
    },
];

/// What `--verbs` prints: each verb and what is done for it.
pub fn table(verbs: &[Verb]) -> String {
    let mut text = String::new();
    for verb in verbs {
        let argument = if verb.takes_device { " DEVICE" } else { "" };
        let mut words = vec![verb.program.paths[0]];
        words.extend(verb.program.arguments);
        words.extend(verb.takes_device.then_some("/dev/DEVICE"));
        let done = words.join(" ");
        text.push_str(&format!(
            "{}{argument}: {}\n    {done}\n",
            verb.name, verb.help
        ));
    }
    text
}
