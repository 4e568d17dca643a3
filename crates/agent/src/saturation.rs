//! The stream `node.saturated.seconds`: the time for which each disk has been saturated, by the
//! outlook's rule.

use std::collections::BTreeMap;

use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Sample, Sink, StreamKey, Unit, ValueType,
};

/// The streams, one for each disk that the outlook follows.
#[derive(Debug)]
pub(crate) struct DiskSaturation {
    interval_ns: i64,
    streams: BTreeMap<String, Followed>,
    /// Number of the newest look; a disk with an older number is gone.
    look: u64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    /// `None` if there is no room for the stream, or if the device is no valid label.
    key: Option<StreamKey>,
    seen_at_look: u64,
}

impl DiskSaturation {
    /// Returns a set without disks. All streams are looked at every `interval_ns`.
    pub(crate) fn new(interval_ns: i64) -> Self {
        Self {
            interval_ns,
            streams: BTreeMap::new(),
            look: 0,
        }
    }

    /// Takes the outlook's disks, with the ns for which each has been saturated, and appends them.
    pub(crate) fn look<'a>(
        &mut self,
        now_ns: i64,
        disks: impl Iterator<Item = (&'a str, i64)>,
        sink: &mut dyn Sink,
    ) {
        self.look += 1;
        for (device, saturated_ns) in disks {
            let key = match self.streams.get_mut(device) {
                Some(known) => {
                    known.seen_at_look = self.look;
                    known.key
                }
                None => self.declare(device, sink),
            };
            if let Some(key) = key {
                let seconds = saturated_ns as f64 / NS_PER_S as f64;
                sink.put(key, &Sample::derived(now_ns, seconds));
            }
        }
        let look = self.look;
        self.streams.retain(|_, followed| {
            let stays = followed.seen_at_look == look;
            if let (false, Some(key)) = (stays, followed.key) {
                sink.retire(key);
            }
            stays
        });
    }

    fn declare(&mut self, device: &str, sink: &mut dyn Sink) -> Option<StreamKey> {
        let labels = Labels::new([("device", device)]).ok();
        let key = labels.and_then(|labels| sink.declare(&descriptor(labels), None));
        if let Some(key) = key {
            sink.expect_interval(key, self.interval_ns);
        }
        let seen_at_look = self.look;
        self.streams
            .insert(device.to_owned(), Followed { key, seen_at_look });
        key
    }
}

fn descriptor(labels: Labels) -> Descriptor {
    Descriptor {
        name: Name::new("node.saturated.seconds").expect("a literal"),
        labels,
        value_type: ValueType::Float,
        unit: Unit::new("seconds").expect("a literal"),
        kind: Kind::Gauge,
        help: "Time for which the disk has been saturated (almost never idle); 0 if it is not"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept {
        declared: Vec<String>,
        retired: Vec<u32>,
        put: Vec<(u32, f64)>,
    }

    impl Sink for Kept {
        fn declare(&mut self, descriptor: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
            self.declared.push(descriptor.to_string());
            Some(StreamKey(self.declared.len() as u32))
        }
        fn retire(&mut self, key: StreamKey) {
            self.retired.push(key.0);
        }
        fn put(&mut self, key: StreamKey, sample: &Sample) {
            self.put.push((key.0, sample.value.as_f64().unwrap()));
        }
        fn expect_interval(&mut self, _: StreamKey, _: i64) {}
    }

    #[test]
    fn disks_come_and_go() {
        let mut kept = Kept::default();
        let mut saturation = DiskSaturation::new(NS_PER_S);
        let both = [("vda", 0), ("vdb", 7 * NS_PER_S)];
        saturation.look(1, both.into_iter(), &mut kept);
        saturation.look(2, [("vda", 0)].into_iter(), &mut kept);
        saturation.look(3, both.into_iter(), &mut kept);
        assert_eq!(
            kept.declared,
            ["vda", "vdb", "vdb"].map(|d| format!("node.saturated.seconds{{device={d}}}"))
        );
        assert_eq!(kept.retired, [2]);
        assert_eq!(kept.put, [(1, 0.0), (2, 7.0), (1, 0.0), (1, 0.0), (3, 7.0)]);
        let (before, many) = (kept.declared.len() as u32, ["k", "c", "i", "a", "g", "e"]);
        saturation.look(4, many.map(|d| (d, 0)).into_iter(), &mut kept);
        kept.retired.clear();
        saturation.look(5, [].into_iter(), &mut kept);
        let by_name = [4, 2, 6, 5, 3, 1].map(|nth| before + nth);
        assert_eq!(kept.retired, by_name, "in the order of their names");
    }
}
