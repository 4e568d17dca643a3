//! The state of a server as streams, which it publishes as any program does: `app.stage.*`.

use barograph_client::publish::{
    Publication, PublicationConfig, PublishError, Publisher, ValueHandle,
};
use barograph_model::{Kind, ValueType};
use barograph_staging::{ServerStatus, StoreCounts};

/// The counts that are streams, with their names and helps.
const COUNTS: [CountStream; 6] = [
    ("puts", "blocks that were put", |counts| counts.puts),
    ("gets", "blocks that were read", |counts| {
        counts.gets_memory + counts.gets_file
    }),
    ("refused", "puts for which there was no room", |counts| {
        counts.refused_full + counts.refused_busy
    }),
    (
        "evicted",
        "copies that were dropped to make room",
        |counts| counts.evicted,
    ),
    (
        "flushed",
        "blocks that were copied to a durable tier",
        |counts| counts.flushed,
    ),
    (
        "corrupt",
        "copies that did not have their checksum, and were dropped",
        |counts| counts.corrupt,
    ),
];

/// The name and the help of a count, and where it is.
type CountStream = (&'static str, &'static str, fn(&StoreCounts) -> u64);

/// The streams of a server.
pub(super) struct Published {
    whole: Publication,
    counts: Vec<ValueHandle>,
    dirty: ValueHandle,
    fence: ValueHandle,
    tiers: Vec<PublishedTier>,
    frame: u64,
}

struct PublishedTier {
    publication: Publication,
    used: ValueHandle,
    capacity: ValueHandle,
    blocks: ValueHandle,
}

impl Published {
    /// The streams of a server of this name, with the tiers of its status.
    pub(super) fn new(
        publisher: &Publisher,
        server: &str,
        status: &ServerStatus,
    ) -> Result<Self, PublishError> {
        let whole = publication(publisher, "stage", server, None)?;
        let counts = COUNTS
            .map(|(name, help, _)| whole.value(name, ValueType::Int, "", Kind::Counter, help));
        let gauge = |name, unit, help| whole.value(name, ValueType::Int, unit, Kind::Gauge, help);
        let tiers = status.tiers.iter().map(|tier| {
            let path = tier.path.as_deref().unwrap_or("memory");
            PublishedTier::new(publication(publisher, "stage.tier", server, Some(path))?)
        });
        Ok(Self {
            counts: counts.into_iter().collect::<Result<_, _>>()?,
            dirty: gauge("dirty.bytes", "bytes", "bytes on no durable tier yet")?,
            fence: gauge("fence", "", "the first epoch that is served")?,
            tiers: tiers.collect::<Result<_, _>>()?,
            whole,
            frame: 0,
        })
    }

    /// Publishes a status.
    pub(super) fn put(&mut self, status: &ServerStatus) {
        for (handle, (_, _, count)) in self.counts.iter().zip(COUNTS) {
            handle.put_i64(int(count(&status.store)));
        }
        self.dirty.put_i64(int(status.dirty_bytes));
        self.fence.put_i64(int(status.fence));
        self.whole.frame(self.frame);
        for (streams, tier) in self.tiers.iter().zip(&status.tiers) {
            streams.used.put_i64(int(tier.held.bytes));
            streams.capacity.put_i64(int(tier.held.bytes_max));
            streams.blocks.put_i64(int(tier.held.blocks));
            streams.publication.frame(self.frame);
        }
        self.frame += 1;
    }
}

impl PublishedTier {
    fn new(publication: Publication) -> Result<Self, PublishError> {
        let value =
            |name, unit, help| publication.value(name, ValueType::Int, unit, Kind::Gauge, help);
        Ok(Self {
            used: value("used.bytes", "bytes", "bytes that a tier holds")?,
            capacity: value("capacity.bytes", "bytes", "bytes that a tier may hold")?,
            blocks: value("blocks", "", "blocks that a tier holds")?,
            publication,
        })
    }
}

fn publication(
    publisher: &Publisher,
    name: &str,
    server: &str,
    tier: Option<&str>,
) -> Result<Publication, PublishError> {
    let mut labels = vec![("server".to_owned(), server.to_owned())];
    labels.extend(tier.map(|tier| ("tier".to_owned(), tier.to_owned())));
    let config = PublicationConfig {
        labels,
        ..PublicationConfig::default()
    };
    publisher.publication(name, config)
}

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
