//! The opening of a scope, as a job beside the intake.
//!
//! It is apart from the scope because it waits for a disk: for directories, for the start of an
//! archive and for its past. Meanwhile the intake thread goes on with other users.

use std::path::Path;
use std::sync::Arc;

use barograph_archive::RingMark;
use barograph_model::Clock;
use barograph_recorder::{History, Job, publish};
use barograph_stream::{
    AGENT_DOCUMENT, AgentLock, RunDir, SCOPES_DIR, ScopeReader, Segment, make_public_dir,
    make_scope_dir,
};
use serde_json::json;

use super::past::ScopePast;
use super::{ScopeSettings, open_history, tell_closed};
use crate::IntakeError;
use crate::door::knock;

/// The parts of a scope that the job makes.
pub(super) struct OpenedScope {
    pub name: String,
    pub run_dir: RunDir,
    pub lock: AgentLock,
    pub history: Arc<History>,
    pub marks: Vec<RingMark>,
    pub segment: Segment,
    pub opened_ns: i64,
    /// The archive's record of earlier lives, if it can be read already.
    pub past: Option<ScopePast>,
}

/// A scope that is being opened.
pub(super) type ScopeOpening = Job<Result<OpenedScope, IntakeError>>;

/// Starts the job that opens a scope. It knocks when it ends, so that the intake thread takes the
/// result.
pub(super) fn begin(
    settings: &ScopeSettings,
    reader: ScopeReader,
    clock: &Arc<dyn Clock>,
) -> Result<ScopeOpening, IntakeError> {
    let work = settings.shared.world.work.clone();
    let (settings, clock) = (settings.clone(), Arc::clone(clock));
    let open = move || {
        let opened = open(&settings, reader, &clock);
        knock(&settings.run_dir.ingest_socket());
        opened
    };
    let job = work.start(&format!("scope-{}", reader.scope()), open);
    job.map_err(IntakeError::Thread)
}

fn open(
    settings: &ScopeSettings,
    reader: ScopeReader,
    clock: &Arc<dyn Clock>,
) -> Result<OpenedScope, IntakeError> {
    let name = reader.scope();
    let above = settings.run_dir.path().join(SCOPES_DIR);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| IntakeError::Directory { path, source }
    };
    make_public_dir(&above).map_err(io(&above))?;
    let run_dir = settings.run_dir.scope(&name);
    if !make_scope_dir(run_dir.path(), reader).map_err(io(run_dir.path()))? {
        tell_closed(&name);
    }
    let lock = run_dir.occupy()?;
    let history = Arc::new(open_history(settings, reader));
    let opened_ns = clock.now_ns();
    let config = settings.segment_config(&run_dir)?;
    let segment = Segment::create(&run_dir.segment(), config, opened_ns)?;
    let archive = history.readable_dir();
    publish(
        &run_dir,
        AGENT_DOCUMENT,
        &json!({
            "node": settings.node,
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "scope": name,
            "started_ts": opened_ns,
            "http": null,
            "archive": archive,
        }),
    );
    let past = archive.map(|_| ScopePast::read(&run_dir, &settings.node, clock, opened_ns));
    Ok(OpenedScope {
        marks: history.marks(),
        name,
        run_dir,
        lock,
        history,
        segment,
        opened_ns,
        past,
    })
}
