//! Tests of segments as their users see them: one process writes, others read.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod basics;
mod calls;
mod child;
mod corrupt;
mod crash;
mod exercise;
mod follow;
mod full;
mod hammer;
mod ingest;
mod ingest_cells;
mod ingest_exercise;
mod ingest_foreign;
mod ingest_hammer;
mod ingest_life;
mod ingest_maps;
mod ingest_positions;
mod ingest_reference;
mod ingest_specimen;
mod pattern;
mod reference;
mod reuse;
mod run_dir;
mod specimen;
mod trust;
mod waiting;
