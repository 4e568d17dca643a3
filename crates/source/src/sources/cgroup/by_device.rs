//! The traffic of a group or a job on each device: its streams, and the limit of their number.

use barograph_model::Labels;

use crate::SourceBatch;
use crate::fact::{FactSet, FactTable};
use crate::util::rate::Meter;

use super::devices::BlockDevices;
use super::io::{DeviceNumbers, IoRow, IoTable};

/// Most devices on which one group or job has streams.
pub(in crate::sources) const DEVICES_EACH_MAX: usize = 8;

/// The facts of a table that are given by device.
pub(in crate::sources) struct DeviceFacts<T> {
    pub(in crate::sources) read_bytes: T,
    pub(in crate::sources) write_bytes: T,
    pub(in crate::sources) read_rate: T,
    pub(in crate::sources) write_rate: T,
}

/// The number of devices that may still get streams in this round, over all groups or jobs.
#[derive(Debug, Default)]
pub(in crate::sources) struct DeviceRoom {
    left: usize,
    /// Number of devices of groups or jobs for which no room was left.
    pub(in crate::sources) refused: usize,
}

impl DeviceRoom {
    pub(in crate::sources) fn begin(&mut self, max: usize) {
        *self = Self {
            left: max,
            refused: 0,
        };
    }
}

/// The devices of one group or job.
#[derive(Debug)]
pub(in crate::sources) struct ByDevice<T> {
    known: Vec<OnDevice<T>>,
}

#[derive(Debug)]
struct OnDevice<T> {
    device: DeviceNumbers,
    facts: FactSet<T>,
    read: Meter,
    write: Meter,
}

impl<T> Default for ByDevice<T> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<T: FactTable> ByDevice<T> {
    /// Puts the traffic on each device that had any. Stacked devices are included: each has a
    /// stream of its own, and if nothing else is counted, the traffic of a loop device is the only
    /// one known.
    pub(in crate::sources) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        table: &IoTable,
        of: (&'static str, &str),
        facts: &DeviceFacts<T>,
        (devices, room): (&BlockDevices, &mut DeviceRoom),
    ) {
        self.known.retain_mut(|known| {
            let stays = table.rows.iter().any(|row| row.device == known.device);
            if !stays {
                known.facts.retire(batch);
            }
            stays
        });
        let most = DEVICES_EACH_MAX.min(room.left);
        while self.known.len() > most {
            self.known
                .pop()
                .into_iter()
                .for_each(|mut known| known.facts.retire(batch));
        }
        let told = |row: &&IoRow| row.has_bytes && !row.traffic.is_none();
        for row in table.rows.iter().filter(told) {
            let at = self
                .known
                .iter()
                .position(|known| known.device == row.device);
            let Some(at) = at.or_else(|| self.add(row, of, devices, most)) else {
                room.refused += 1;
                continue;
            };
            self.known[at].put(now_ns, batch, row, facts);
        }
        room.left -= self.known.len();
    }

    /// Adds a device and returns its index; `None` if there is no room, or if its name cannot be a
    /// label.
    fn add(
        &mut self,
        row: &IoRow,
        of: (&str, &str),
        devices: &BlockDevices,
        most: usize,
    ) -> Option<usize> {
        if self.known.len() >= most {
            return None;
        }
        let name = devices.name(row.device);
        let labels = Labels::new([(of.0, of.1), ("device", &name)]).ok()?;
        self.known.push(OnDevice {
            device: row.device,
            facts: FactSet::new(labels),
            read: Meter::default(),
            write: Meter::default(),
        });
        Some(self.known.len() - 1)
    }

    /// Ends all streams.
    pub(in crate::sources) fn retire(&mut self, batch: &mut SourceBatch) {
        self.known
            .drain(..)
            .for_each(|mut known| known.facts.retire(batch));
    }
}

impl<T: FactTable> OnDevice<T> {
    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, row: &IoRow, facts: &DeviceFacts<T>) {
        let at_ns = batch.monotonic_ns();
        let sides = [
            (
                row.traffic.read_bytes,
                facts.read_bytes,
                facts.read_rate,
                &mut self.read,
            ),
            (
                row.traffic.write_bytes,
                facts.write_bytes,
                facts.write_rate,
                &mut self.write,
            ),
        ];
        for (bytes, count, gauge, meter) in sides {
            self.facts.count(batch, now_ns, count, bytes);
            if let Some(rate) = meter.rate(at_ns, bytes) {
                self.facts.derived(batch, now_ns, gauge, rate);
            }
        }
    }
}
