//! Sources and the poller: how the facts about one node are measured.
//!
//! A [`Source`] reads one kernel interface and fills a [`SourceBatch`] with facts; the [`Poller`]
//! decides when to read it and passes the samples on to a `barograph_model::Sink`. This is a crate
//! of its own because it is the only one that knows what `/proc` and `/sys` look like; it owns no
//! clock and no stream.
//!
//! # Reading
//!
//! A live source is read on the poller's own thread: with held file descriptors, parsers over
//! bytes, and no allocation once every device is known. A slow source ([`Source::is_slow`]) is read
//! by a pool of threads (`worker.rs`) and hands over its newest batch, so that a hung read never
//! stalls the others. A failing source is data: the facts that could be read are put, and the fault
//! is returned beside them.
//!
//! Every path is taken below [`SourcesConfig::sys_root`]. `statvfs` of a mount is called on
//! `<sys_root>/<mount>`: with a root other than `/` its result is that of the directory of that
//! name in the tree, not of the file system that was once mounted there.
//!
//! # Adding a source
//!
//! 1. Write `src/sources/NAME.rs`: the facts it gives (the `facts!` table) and a type that
//!    implements [`Source`]; take every path from the root it is given.
//! 2. Add one line to `TABLE` in `src/sources.rs`: name, usual interval, facts, constructor.
//! 3. Add the files it reads to `tests/fixtures/<machine>/first` (and `later`, read one second
//!    after), and accept the golden output.
//!
//! Configuration (`[sources.poll.NAME]`), self-observation, the report and the tests over all
//! sources (truncation, garbage, allocation) follow from the table.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests wait for real threads, programs and disks"
    )
)]

mod batch;
mod books;
mod budget;
mod catalogue;
mod config;
mod error;
mod fact;
mod feed;
mod pace;
mod policy_spec;
mod poller;
mod report;
mod source;
mod tier;
mod util;
mod worker;

pub mod policy;
pub mod probe;
pub mod sources;

pub use batch::{FACTS_MAX, FactId, SourceBatch};
pub use budget::BudgetConfig;
pub use catalogue::{SourceSpec, catalogue, cost_of, source_of, with_those_that_are_off};
pub use config::{IntervalCaps, PolicyKind, SourceConfig};
pub use error::SourceError;
pub use fact::FactSpec;
pub use policy_spec::{
    POLICY_STREAMS_MAX, POLICY_TEXT_BYTES_MAX, PolicyFault, PolicySpec, PolicySpecKind, PressureOf,
    PressureTrigger,
};
pub use poller::{Poller, STOP_WAIT, SelfFact, all_facts};
pub use report::{MissingPart, PaceReport, SourceCoverage, SourceReport, SourceState};
pub use source::{ABSENT_NS, STALL_NS, Source};
pub use sources::block_trace::{BlockTraceConfig, BlockTraceMode};
pub use sources::cgroup::CgroupConfig;
pub use sources::disk::DiskConfig;
pub use sources::file_trace::FileTraceConfig;
pub use sources::filesystem::FilesystemConfig;
pub use sources::health::HealthConfig;
pub use sources::job::{JobConfig, Need, Squeue};
pub use sources::lustre::LustreConfig;
pub use sources::lustre_jobs::LustreJobsConfig;
pub use sources::network::NetworkConfig;
pub use sources::peer::{Peer, PeerConfig, PeerMethod};
pub use sources::process::ProcessConfig;
pub use sources::{SourcesConfig, all_sources, source_names};
pub use tier::{TierConfig, TierRule, tier_place};
pub use util::handed_over::HelperGroup;
pub use util::helper::HelperConfig;
