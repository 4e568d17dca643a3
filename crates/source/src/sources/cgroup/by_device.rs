//! What a group or a job moves on each device: the streams, and how many of them there may be.

use barograph_model::Labels;

use crate::Batch;
use crate::fact::{FactSet, FactTable};
use crate::util::rate::Meter;

use super::devices::Devices;
use super::io::{Device, Row, Table};

/// Most devices of which one group or job has streams.
pub(in crate::sources) const DEVICES_EACH_MAX: usize = 8;

/// The facts of a table that has them by device.
pub(in crate::sources) struct DeviceFacts<T> {
    pub(in crate::sources) read_bytes: T,
    pub(in crate::sources) write_bytes: T,
    pub(in crate::sources) read_rate: T,
    pub(in crate::sources) write_rate: T,
}

/// How many more devices may have streams in this round, over all groups or jobs.
#[derive(Debug, Default)]
pub(in crate::sources) struct Room {
    left: usize,
    /// Devices of groups or jobs that found none.
    pub(in crate::sources) refused: usize,
}

impl Room {
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
    device: Device,
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
    /// Puts what was moved on each device that something was moved on, stacked ones too: each is a
    /// stream of its own, and where nothing else is counted, a loop device is what is known.
    pub(in crate::sources) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut Batch,
        table: &Table,
        of: (&'static str, &str),
        facts: &DeviceFacts<T>,
        (devices, room): (&Devices, &mut Room),
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
        let told = |row: &&Row| row.has_bytes && !row.traffic.is_none();
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

    /// Where a new device stands; nothing if there is no room, or if it cannot be named.
    fn add(
        &mut self,
        row: &Row,
        of: (&str, &str),
        devices: &Devices,
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
    pub(in crate::sources) fn retire(&mut self, batch: &mut Batch) {
        self.known
            .drain(..)
            .for_each(|mut known| known.facts.retire(batch));
    }
}

impl<T: FactTable> OnDevice<T> {
    fn put(&mut self, now_ns: i64, batch: &mut Batch, row: &Row, facts: &DeviceFacts<T>) {
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
