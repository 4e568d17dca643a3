//! One job that is followed: its description, its resource usage and its streams.

use crate::SourceBatch;
use crate::fact::FactSet;
use crate::sources::cgroup::by_device::{ByDevice, DeviceRoom};
use crate::sources::cgroup::devices::BlockDevices;
use crate::sources::cgroup::io::{IoTable, IoTraffic};
use crate::util::rate::Meter;

use super::note::Note;
use super::queue::Queued;
use super::usage::Usage;
use super::{DeviceFact, Fact, ON_DEVICE};

/// Most questions about one job; after them Slurm is taken not to know it.
const ASKS_MAX: u32 = 3;

/// The values that the streams of all jobs need in one poll.
pub(super) struct Putting<'a> {
    pub(super) now_ns: i64,
    /// The interval between polls.
    pub(super) every_ns: i64,
    /// Whether `squeue` is always asked and has answered recently.
    pub(super) by_queue: bool,
    pub(super) devices: &'a BlockDevices,
    pub(super) room: &'a mut DeviceRoom,
}

/// A job and its known data.
pub(super) struct FollowedJob {
    id: String,
    pub(super) scheduler: Option<&'static str>,
    facts: FactSet<Fact>,
    by_device: ByDevice<DeviceFact>,
    pub(super) usage: Option<Usage>,
    pub(super) note: Option<Note>,
    pub(super) queued: Option<Queued>,
    pub(super) asked: u32,
    pub(super) read: Meter,
    pub(super) write: Meter,
}

impl FollowedJob {
    pub(super) fn new(id: &str) -> Option<Self> {
        // A job's number is short enough for a label: see `find::is_id`.
        let facts = FactSet::labelled([("job", id.to_owned())]).ok()?;
        Some(Self {
            id: id.to_owned(),
            scheduler: None,
            facts,
            by_device: ByDevice::default(),
            usage: None,
            note: None,
            queued: None,
            asked: 0,
            read: Meter::default(),
            write: Meter::default(),
        })
    }

    /// Whether the job's owner is unknown.
    pub(super) fn is_stranger(&self) -> bool {
        self.queued.is_none() && self.note.as_ref().is_none_or(|note| note.user.is_none())
    }

    /// Whether `squeue` may know more about the job: it is a job of Slurm, is not yet fully
    /// described, and was not asked about too often.
    pub(super) fn is_unknown(&self) -> bool {
        let lacks =
            |note: &Note| note.user.is_none() || note.nodes.is_none() || note.tasks.is_none();
        let slurm = self.scheduler.is_none_or(|s| s == "slurm");
        let told = self.queued.is_some() || self.note.as_ref().is_some_and(|note| !lacks(note));
        slurm && !told && self.asked < ASKS_MAX
    }

    /// Ends all streams of the job.
    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        self.by_device.retire(batch);
    }

    pub(super) fn put(&mut self, batch: &mut SourceBatch, with: &mut Putting<'_>) {
        let (now_ns, every_ns) = (with.now_ns, with.every_ns);
        self.put_description(now_ns, batch, every_ns);
        let state = match (&self.queued, &self.usage) {
            (Some(queued), _) if with.by_queue => Some(queued.state.as_str()),
            (_, None) if self.note.is_some() => Some("announced"),
            (_, Some(usage)) => usage.processes.map(|count| match count {
                0 => "ending",
                _ => "running",
            }),
            (_, None) => None,
        };
        match state {
            Some(state) => {
                let facts = &mut self.facts;
                facts.text_attribute(batch, now_ns, Fact::State, state, every_ns);
            }
            None => self.facts.retire_one(batch, Fact::State),
        }
        // Taken out and given back: the report needs it later.
        match self.usage.take() {
            Some(usage) => {
                self.put_usage(batch, &usage, with);
                self.usage = Some(usage);
            }
            None => self.retire_usage(batch),
        }
    }

    fn put_description(&mut self, now_ns: i64, batch: &mut SourceBatch, every_ns: i64) {
        let nothing = (Note::default(), Queued::default());
        let note = self.note.as_ref().unwrap_or(&nothing.0);
        let queued = self.queued.as_ref().unwrap_or(&nothing.1);
        let texts = [
            (Fact::Scheduler, self.scheduler),
            (Fact::User, note.user.as_deref().or(queued.user.as_deref())),
            (
                Fact::Account,
                note.account.as_deref().or(queued.account.as_deref()),
            ),
            (
                Fact::Partition,
                note.partition.as_deref().or(queued.partition.as_deref()),
            ),
            (Fact::Array, queued.array.as_deref()),
        ];
        for (fact, text) in texts {
            if let Some(text) = text {
                self.facts
                    .text_attribute(batch, now_ns, fact, text, every_ns);
            }
        }
        let counts = [
            (Fact::Nodes, note.nodes.or(queued.nodes)),
            (Fact::Tasks, note.tasks.or(queued.tasks)),
            (Fact::Cpus, note.cpus.or(queued.cpus)),
        ];
        for (fact, count) in counts {
            if let Some(count) = count {
                self.facts.count(batch, now_ns, fact, count);
            }
        }
        if let Some(start_s) = note.start_s.or(queued.start_s) {
            self.facts
                .measured(batch, now_ns, Fact::Start, start_s as f64);
        }
    }

    fn put_usage(&mut self, batch: &mut SourceBatch, usage: &Usage, with: &mut Putting<'_>) {
        let now_ns = with.now_ns;
        let counts = [
            (Fact::Processes, usage.processes),
            (Fact::Threads, usage.threads),
            (Fact::Memory, usage.memory_bytes),
        ];
        for (fact, count) in counts {
            if let Some(count) = count {
                self.facts.count(batch, now_ns, fact, count);
            }
        }
        if let Some(seconds) = usage.cpu_seconds {
            self.facts.measured(batch, now_ns, Fact::Cpu, seconds);
        }
        if let Some(table) = &usage.traffic {
            if let Some(traffic) = table.sum(&with.devices.stacked) {
                self.put_traffic(now_ns, batch, &traffic);
            }
            self.put_devices(batch, table, with);
        }
    }

    fn put_devices(&mut self, batch: &mut SourceBatch, table: &IoTable, with: &mut Putting<'_>) {
        let of = ("job", &*self.id);
        let beside = (with.devices, &mut *with.room);
        self.by_device
            .put(with.now_ns, batch, table, of, &ON_DEVICE, beside);
    }

    fn put_traffic(&mut self, now_ns: i64, batch: &mut SourceBatch, traffic: &IoTraffic) {
        let facts = &mut self.facts;
        facts.count(batch, now_ns, Fact::ReadBytes, traffic.read_bytes);
        facts.count(batch, now_ns, Fact::WriteBytes, traffic.write_bytes);
        facts.count(batch, now_ns, Fact::ReadOps, traffic.read_ops);
        facts.count(batch, now_ns, Fact::WriteOps, traffic.write_ops);
        let at_ns = batch.monotonic_ns();
        if let Some(rate) = self.read.rate(at_ns, traffic.read_bytes) {
            facts.derived(batch, now_ns, Fact::ReadRate, rate);
        }
        if let Some(rate) = self.write.rate(at_ns, traffic.write_bytes) {
            facts.derived(batch, now_ns, Fact::WriteRate, rate);
        }
    }

    /// Ends the streams of a job whose groups are gone and of which only the note is left.
    fn retire_usage(&mut self, batch: &mut SourceBatch) {
        const OF_GROUPS: [Fact; 10] = [
            Fact::Processes,
            Fact::Threads,
            Fact::Memory,
            Fact::Cpu,
            Fact::ReadBytes,
            Fact::WriteBytes,
            Fact::ReadOps,
            Fact::WriteOps,
            Fact::ReadRate,
            Fact::WriteRate,
        ];
        for fact in OF_GROUPS {
            self.facts.retire_one(batch, fact);
        }
        self.by_device.retire(batch);
        (self.read, self.write) = (Meter::default(), Meter::default());
    }
}
