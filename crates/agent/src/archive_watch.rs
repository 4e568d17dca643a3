//! Streams about the archive itself: its size, the age of its oldest sample, the waiting work and
//! the losses.

use barograph_archive::ArchiveStatus;
use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Sample, Sink, StreamKey, Unit, Value, ValueType,
};

/// Reasons for which samples are lost, in the order of their streams.
const REASONS: [(&str, &str); 3] = [
    (
        "overflow",
        "Samples lost since the archive began, because too many samples waited for the disk",
    ),
    (
        "failed",
        "Samples lost since the archive began, because they could not be written",
    ),
    (
        "shed",
        "Samples deleted before their age, because the disk was full or the archive had reached its greatest size",
    ),
];

/// A stream, and the function that takes its number from the status.
type Counted = (Option<StreamKey>, fn(&ArchiveStatus) -> u64);

/// The archive's streams. An agent without an archive has none.
pub(crate) struct ArchiveWatch {
    numbers: Vec<Counted>,
    oldest: Option<StreamKey>,
    trouble: Option<StreamKey>,
}

impl ArchiveWatch {
    /// Declares the streams. All are looked at every `interval_ns`.
    pub(crate) fn new(sink: &mut dyn Sink, interval_ns: i64) -> Self {
        use Kind::{Counter, Gauge, State};
        let mut declare = |name: &str, labels: Labels, value_type, unit: &str, kind, help: &str| {
            let descriptor = Descriptor {
                name: Name::new(name).expect("a literal"),
                labels,
                value_type,
                unit: Unit::new(unit).expect("a literal"),
                kind,
                help: help.into(),
            };
            let key = sink.declare(&descriptor, None)?;
            sink.expect_interval(key, interval_ns);
            Some(key)
        };
        let mut numbers: Vec<Counted> = Vec::new();
        for (name, unit, kind, help, number) in NUMBERS {
            let key = declare(name, Labels::none(), ValueType::Int, unit, *kind, help);
            numbers.push((key, *number));
        }
        let lost: [fn(&ArchiveStatus) -> u64; 3] = [
            |s| s.losses.overflow_samples,
            |s| s.losses.failed_samples,
            |s| s.losses.shed_samples,
        ];
        for ((reason, help), number) in REASONS.into_iter().zip(lost) {
            let labels = Labels::new([("reason", reason)]).expect("a literal");
            let name = "archive.lost.samples.count";
            numbers.push((
                declare(name, labels, ValueType::Int, "count", Counter, help),
                number,
            ));
        }
        Self {
            numbers,
            oldest: declare(
                "archive.oldest.time.seconds",
                Labels::none(),
                ValueType::Float,
                "seconds",
                Gauge,
                "Time of the oldest sample in the archive, in seconds since 1970",
            ),
            trouble: declare(
                "archive.trouble.text",
                Labels::none(),
                ValueType::Text,
                "",
                State,
                "Present problem of the archive and its reason: history is not written, not sealed into Parquet, or not copied; empty if there is none",
            ),
        }
    }

    /// Appends the values of a status to all streams.
    pub(crate) fn look(&self, now_ns: i64, status: &ArchiveStatus, sink: &mut dyn Sink) {
        let mut put = |key: Option<StreamKey>, value: Value| {
            if let Some(key) = key {
                sink.put(key, &Sample::measured(now_ns, value));
            }
        };
        for (key, number) in &self.numbers {
            let number = i64::try_from(number(status)).unwrap_or(i64::MAX);
            put(*key, Value::Int(number));
        }
        if status.oldest_ts != 0 {
            let seconds = status.oldest_ts as f64 / NS_PER_S as f64;
            put(self.oldest, Value::Float(seconds));
        }
        put(self.trouble, Value::text(&status.troubles()));
    }
}

/// One stream without labels: name, unit, kind, help, and the function that takes its number from
/// the status.
type Number = (
    &'static str,
    &'static str,
    Kind,
    &'static str,
    fn(&ArchiveStatus) -> u64,
);

const NUMBERS: &[Number] = &[
    (
        "archive.total.bytes",
        "bytes",
        Kind::Gauge,
        "Bytes of all files of this node's history",
        |s| s.bytes,
    ),
    (
        "archive.log.bytes",
        "bytes",
        Kind::Gauge,
        "Bytes of history in log segments, which are not Parquet yet",
        |s| s.log_bytes,
    ),
    (
        "archive.files.count",
        "count",
        Kind::Gauge,
        "Parquet files of this node's history",
        |s| s.files,
    ),
    (
        "archive.samples.count",
        "count",
        Kind::Counter,
        "Samples written to the log since the start",
        |s| s.samples,
    ),
    (
        "archive.waiting.bytes",
        "bytes",
        Kind::Gauge,
        "Bytes that wait for the writer",
        |s| s.waiting_bytes,
    ),
    (
        "archive.copies.waiting.count",
        "count",
        Kind::Gauge,
        "Files that wait to be copied to archive.target",
        |s| s.waiting_copies,
    ),
    (
        "archive.copies.stale.count",
        "count",
        Kind::Gauge,
        "Copies of merged files that are still to be removed from archive.target",
        |s| s.stale_copies,
    ),
    (
        "archive.torn.bytes",
        "bytes",
        Kind::Counter,
        "Bytes cut from incomplete ends of the log after crashes, since the archive began",
        |s| s.losses.torn_bytes,
    ),
    (
        "archive.corrupt.files.count",
        "count",
        Kind::Counter,
        "Files set aside since the archive began, because their checksums do not match",
        |s| s.losses.corrupt_files,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept {
        declared: Vec<String>,
        put: Vec<(String, String)>,
    }

    impl Sink for Kept {
        fn declare(&mut self, descriptor: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
            self.declared.push(descriptor.to_string());
            Some(StreamKey(self.declared.len() as u32 - 1))
        }
        fn retire(&mut self, _: StreamKey) {}
        fn put(&mut self, key: StreamKey, sample: &Sample) {
            let name = self.declared[key.0 as usize].clone();
            self.put.push((name, sample.value.to_string()));
        }
        fn expect_interval(&mut self, _: StreamKey, _: i64) {}
    }

    #[test]
    fn each_number_has_its_stream() {
        let mut kept = Kept::default();
        let watch = ArchiveWatch::new(&mut kept, NS_PER_S);
        let mut status = ArchiveStatus {
            samples: 1,
            bytes: 2,
            log_bytes: 3,
            files: 4,
            waiting_bytes: 5,
            ..ArchiveStatus::default()
        };
        status.waiting_copies = 11;
        status.stale_copies = 12;
        status.losses.overflow_samples = 6;
        status.losses.failed_samples = 7;
        status.losses.shed_samples = 8;
        status.losses.torn_bytes = 9;
        status.losses.corrupt_files = 10;
        status.trouble = "no space".into();
        status.copy_trouble = "nobody there".into();
        watch.look(1, &status, &mut kept);
        let of = |name: &str| {
            let found = kept.put.iter().find(|(n, _)| n == name);
            found.map(|(_, value)| value.as_str())
        };
        for (name, expect) in [
            ("archive.samples.count", "1"),
            ("archive.total.bytes", "2"),
            ("archive.log.bytes", "3"),
            ("archive.files.count", "4"),
            ("archive.waiting.bytes", "5"),
            ("archive.lost.samples.count{reason=overflow}", "6"),
            ("archive.lost.samples.count{reason=failed}", "7"),
            ("archive.lost.samples.count{reason=shed}", "8"),
            ("archive.torn.bytes", "9"),
            ("archive.corrupt.files.count", "10"),
            ("archive.copies.waiting.count", "11"),
            ("archive.copies.stale.count", "12"),
            (
                "archive.trouble.text",
                "history is not written: no space; history is written, but not copied to its target: nobody there",
            ),
        ] {
            assert_eq!(of(name), Some(expect), "{name}");
        }
        assert_eq!(
            of("archive.oldest.time.seconds"),
            None,
            "there is no oldest sample yet"
        );
        status.oldest_ts = 1_500_000_000;
        watch.look(2, &status, &mut kept);
        assert_eq!(kept.put.iter().filter(|(_, v)| v == "1.5").count(), 1);
    }
}
