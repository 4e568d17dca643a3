//! All verbs that can be requested. Adding a verb is a security decision, and is made only here.

use std::time::Duration;

use crate::fanotify;

/// One kind of request.
#[derive(Clone, Copy, Debug)]
pub struct HelperVerb {
    /// The first word of the request.
    pub name: &'static str,
    /// Whether the second word is the name of a whole disk; otherwise there is none.
    pub takes_device: bool,
    /// The program that is run.
    pub program: HelperProgram,
    /// Time for which an answer is kept: within it, the same request gets the answer, and no
    /// program runs. This is much shorter than the time between two requests of the agent.
    pub fresh: Duration,
    /// A description in a few words, for `--verbs`.
    pub help: &'static str,
}

/// A program with its arguments and input.
#[derive(Clone, Copy, Debug)]
pub struct HelperProgram {
    /// The program's name in messages.
    pub name: &'static str,
    /// Possible paths: the first that exists is taken.
    pub paths: &'static [&'static str],
    /// The arguments; the path of the disk follows if the verb takes one.
    pub arguments: &'static [&'static str],
    /// The bytes on standard input.
    pub input: &'static [u8],
    /// The exit statuses that count as success.
    pub exit: SuccessStatus,
}

/// The exit statuses that count as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessStatus {
    /// Status 0.
    Zero,
    /// Any status, if something was printed: the status is a finding and not a failure.
    Any,
}

/// The verbs of the real helper.
pub const VERBS: &[HelperVerb] = &[
    HelperVerb {
        name: "smart",
        takes_device: true,
        // smartctl(8): `--nocheck=standby` never wakes a disk. The exit status is a mask of
        // findings, and the JSON also lists commands that failed. `devstat` has the counters whose
        // units the ATA standard fixes; the vendors' attributes of `--all` differ from model to
        // model.
        program: HelperProgram {
            name: "smartctl",
            paths: &[
                "/usr/sbin/smartctl",
                "/usr/local/sbin/smartctl",
                "/sbin/smartctl",
            ],
            arguments: &["--json=c", "--all", "--log=devstat", "--nocheck=standby"],
            input: b"",
            exit: SuccessStatus::Any,
        },
        fresh: Duration::from_secs(10),
        help: "health of a disk, as JSON; a sleeping disk is not woken",
    },
    HelperVerb {
        name: "bmc-power",
        takes_device: false,
        program: HelperProgram {
            name: "ipmitool",
            paths: &[
                "/usr/bin/ipmitool",
                "/usr/sbin/ipmitool",
                "/usr/local/bin/ipmitool",
            ],
            arguments: &["dcmi", "power", "reading"],
            input: b"",
            exit: SuccessStatus::Zero,
        },
        fresh: Duration::from_millis(500),
        help: "what the node draws, as its management controller says",
    },
    HelperVerb {
        name: "gpfs",
        takes_device: false,
        // mmpmon reads requests from standard input; this request changes nothing.
        program: HelperProgram {
            name: "mmpmon",
            paths: &["/usr/lpp/mmfs/bin/mmpmon"],
            arguments: &["-p"],
            input: b"fs_io_s\n",
            exit: SuccessStatus::Zero,
        },
        fresh: Duration::from_millis(500),
        help: "counters of mounted GPFS file systems",
    },
];

/// The output of `--verbs`: each verb and its program, and what needs none.
pub fn table(verbs: &[HelperVerb]) -> String {
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
    text.push_str(fanotify::HELP);
    text
}
