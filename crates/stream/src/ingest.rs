//! Ingest files: the way by which an application's values reach the agent
//! (docs/design/0004-applications.md).
//!
//! An application owns one file, with declarations and one ring of records per thread. The
//! application's side ([`Producer`], [`ThreadRing`]) maps it; the agent's side ([`IngestFile`])
//! reads it with `pread` and checks everything in it. `docs/reference/ingest-format.md` defines the
//! byte layout.

mod cursor;
mod cursors;
mod declaration;
mod fault;
mod file;
mod grant;
mod layout;
mod make;
mod maps;
mod mark;
mod memory;
mod producer;
mod ring;
mod ticks;

pub use cursor::{CallsSeen, RingCursor};
pub use declaration::{
    CellUse, DECLARATION_BYTES_MAX, IngestDeclaration, OverflowPolicy, PublicationReaders,
};
pub use file::{CellsTold, DrainResult, IngestFile, IngestRecord, RecordPayload};
pub use grant::{
    GrantState, PHASE_DECLARED, PHASE_DONE, PHASE_LEASE, PHASE_PRIORITY, PHASE_PUBLICATION,
    PHASE_STAGE, PHASE_VOLUME, PhaseAnswer, PhaseStage,
};
pub use layout::{
    APPLICATIONS_PREFIX, BLOB_BYTES_MAX, CELLS_AT, CELLS_MAX, FRAME_VALUE, GRANTS_MAX,
    INGEST_VERSION_MAJOR, INGEST_VERSION_MINOR, LOSS_STREAM, LOST_STREAM, MAPS_MAX,
    RING_RECORDS_DEFAULT, RING_RECORDS_MAX, RING_RECORDS_MIN, RINGS_DEFAULT_MIN, RINGS_MAX,
    SERVER_NUMBERS, kind,
};
pub use make::ProducerConfig;
pub use maps::{
    CountedRequest, MAP_LABEL, MAP_PUBLICATION, MapState, MapTold, MapUse, MapWords, SERVER_LABEL,
    SERVER_LOAD, SERVER_PUBLICATION, SERVER_REQUESTS, SERVER_SERVICE, ServerSet,
};
pub use mark::ForkMark;
pub use producer::Producer;
pub use ring::ThreadRing;
pub use ticks::{TickPair, TimeSource, now as ticks_now};
