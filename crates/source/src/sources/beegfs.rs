//! `beegfs-ctl --serverstats`: the work of the servers of a BeeGFS, and the requests that wait at
//! each.
//!
//! Format: the table that beegfs-ctl of BeeGFS 7 prints with `--perserver --details --names` (its
//! help text and column titles): a row for each server, with values of one second, two seconds ago.
//! BeeGFS 8 has another program, whose output is not read here.
//!
//! The source is off by default: each node that runs it asks every server, so only one node of a
//! cluster should. For a server without values of the second in question the program prints zeros.

use std::path::Path;
use std::time::Duration;

use barograph_model::NS_PER_S;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::command::{Commands, Program, Refusal};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::SysRoot;
use crate::util::parse::{cut, escape, lines, number, words};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

/// Most servers that are followed.
const SERVERS_MAX: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Two tables are requested, and each may take until its timeout.
const STALL_NS: i64 = 30 * NS_PER_S;
const BYTES_PER_KIB: u64 = 1024;
const CTL: Program = Program {
    name: "beegfs-ctl",
    paths: &["/usr/bin/beegfs-ctl", "/opt/beegfs/sbin/beegfs-ctl"],
};
/// The kinds of servers, as named by the program and by our label.
const ROLES: [&str; 2] = ["storage", "meta"];

facts! {
    /// Facts of one server.
    pub(crate) enum Fact in "beegfs" {
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second from the targets of the server.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second to the targets of the server.";
        ReceiveRate: Gauge Float "receive.bytes_per_second" "bytes/s" "Bytes per second that the server receives from other nodes.";
        SendRate: Gauge Float "send.bytes_per_second" "bytes/s" "Bytes per second that the server sends to other nodes.";
        Requests: Gauge Float "requests.ops_per_second" "ops/s" "Requests per second that the server completes.";
        Queued: Gauge Int "queued.requests" "requests" "Requests that wait for a worker thread of the server.";
        Busy: Gauge Int "busy.count" "count" "Worker threads of the server that are handling a request.";
    }
}

/// Titles of the columns, with their facts and the factors of their numbers.
const COLUMNS: [(&[u8], Fact, u64); 7] = [
    (b"write_KiB", Fact::WriteRate, BYTES_PER_KIB),
    (b"read_KiB", Fact::ReadRate, BYTES_PER_KIB),
    (b"recv_KiB", Fact::ReceiveRate, BYTES_PER_KIB),
    (b"send_KiB", Fact::SendRate, BYTES_PER_KIB),
    (b"reqs", Fact::Requests, 1),
    (b"qlen", Fact::Queued, 1),
    (b"bsy", Fact::Busy, 1),
];

/// The source `beegfs`.
pub struct Beegfs {
    commands: Commands,
    servers: Roster<Server>,
    refusal: Option<Refusal>,
}

enum Server {
    Followed(Box<FactSet<Fact>>),
    /// A server whose name cannot be a label.
    Unnameable(String),
}

impl Beegfs {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        Self {
            commands: Commands::new(&SysRoot::new(sys_root), TIMEOUT),
            servers: Roster::new(SERVERS_MAX),
            refusal: None,
        }
    }

    fn ask(&self, role: &str) -> Result<Vec<u8>, Refusal> {
        let nodetype = format!("--nodetype={role}");
        let arguments = [
            "--serverstats",
            nodetype.as_str(),
            "--perserver",
            "--details",
            "--names",
        ];
        self.commands
            .run(CTL, &arguments, &format!("beegfs-ctl-serverstats-{role}"))
    }

    fn read_table(
        &mut self,
        role: &str,
        output: &[u8],
        now_ns: i64,
        batch: &mut SourceBatch,
    ) -> BadLines {
        let mut bad = BadLines::default();
        let mut titles: Option<Vec<&[u8]>> = None;
        for line in lines(output) {
            let trimmed = line.trim_ascii();
            if trimmed.is_empty() || trimmed.starts_with(b"=") {
                continue;
            }
            let columns: Vec<&[u8]> = words(line).collect();
            let Some(titles) = &titles else {
                match columns.first() == Some(&&b"nodeID"[..]) {
                    true => titles = Some(columns),
                    false => bad.add(line),
                }
                continue;
            };
            match Row::parse(titles, &columns) {
                Some(row) => self.put(role, &row, now_ns, batch),
                None => bad.add(line),
            }
        }
        if titles.is_none() || !cut(output).is_empty() {
            bad.add(cut(output));
        }
        bad
    }

    fn put(&mut self, role: &str, row: &Row<'_>, now_ns: i64, batch: &mut SourceBatch) {
        let mut key = role.as_bytes().to_vec();
        key.push(b' ');
        key.extend_from_slice(row.name);
        let make = || {
            let labels = [("server", escape(row.name)), ("role", role.to_owned())];
            Some(match FactSet::labelled(labels) {
                Ok(facts) => Server::Followed(Box::new(facts)),
                Err(fault) => Server::Unnameable(fault.to_string()),
            })
        };
        let Some(Server::Followed(facts)) = self.servers.visit(&key, make) else {
            return;
        };
        for ((_, fact, scale), value) in COLUMNS.iter().zip(row.values) {
            let Some(value) = value else { continue };
            match fact {
                Fact::Queued | Fact::Busy => facts.count(batch, now_ns, *fact, value),
                _ => {
                    let value = value.saturating_mul(*scale) as f64;
                    facts.measured(batch, now_ns, *fact, value);
                }
            }
        }
    }

    fn sweep(&mut self, batch: &mut SourceBatch) {
        self.servers.sweep(|server| {
            if let Server::Followed(facts) = server {
                facts.retire(batch);
            }
        });
    }
}

impl Source for Beegfs {
    fn name(&self) -> &'static str {
        "beegfs"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let mut whole = true;
        self.refusal = None;
        self.servers.begin();
        for role in ROLES {
            match self.ask(role) {
                Ok(output) => {
                    let bad = self.read_table(role, &output, now_ns, batch);
                    whole &= !bad.any();
                    bad.report(std::path::Path::new(CTL.name), &mut faults);
                }
                // The program failed this time: the servers may still exist.
                Err(Refusal::Failed(why)) => {
                    whole = false;
                    faults.add(Refusal::Failed(why.clone()).into_fault(CTL.name));
                    self.refusal = Some(Refusal::Failed(why));
                }
                Err(refusal) => self.refusal = Some(refusal),
            }
        }
        // A server that is missing from an incomplete table may still exist.
        if whole {
            self.sweep(batch);
        }
        self.servers.report_refused("BeeGFS servers", &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing = Vec::new();
        let mut followed = Vec::new();
        for (key, server) in self.servers.iter() {
            match server {
                Server::Followed(_) => followed.push(escape(key)),
                Server::Unnameable(why) => missing.push(MissingPart::new(
                    format!("BeeGFS server {}", escape(key)),
                    why.as_str(),
                    "nothing: its name is too long for a label",
                )),
            }
        }
        if let Some(refusal) = &self.refusal {
            missing.push(MissingPart::new(
                "BeeGFS servers",
                format!("{} {refusal}", CTL.name),
                "on a client of BeeGFS 7 install beegfs-utils; elsewhere leave sources.poll.beegfs off",
            ));
        } else if followed.is_empty() && missing.is_empty() {
            missing.push(MissingPart::new(
                "BeeGFS servers",
                "beegfs-ctl names none",
                "check /etc/beegfs/beegfs-client.conf on this node",
            ));
        }
        let sees = match followed.is_empty() {
            true => "no BeeGFS servers".to_owned(),
            false => format!(
                "{}: {}",
                counted(followed.len(), "BeeGFS server"),
                followed.join(", ")
            ),
        };
        SourceCoverage { sees, missing }
    }
}

/// The numbers of one server, in the order of [`COLUMNS`]; a metadata server lacks some.
struct Row<'a> {
    name: &'a [u8],
    values: [Option<u64>; COLUMNS.len()],
}

impl<'a> Row<'a> {
    fn parse(titles: &[&[u8]], columns: &[&'a [u8]]) -> Option<Self> {
        let mut name = None;
        let mut values = [None; COLUMNS.len()];
        if titles.len() != columns.len() {
            return None;
        }
        for (title, column) in titles.iter().zip(columns) {
            if *title == b"name" {
                name = Some(*column);
            } else if let Some(at) = COLUMNS.iter().position(|(known, ..)| known == title) {
                values[at] = Some(number(column)?);
            }
        }
        Some(Self {
            name: name?,
            values,
        })
    }
}
