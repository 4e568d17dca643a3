//! Everything that an ingest file can be asked, asked of any file. Also the body of the fuzz target.

use std::path::Path;

use barograph_stream::ingest::{IngestFile, Payload, RING_RECORDS_MAX};

/// Records of one drain, and how many drains end a test that should have ended by itself.
const RECORDS: u64 = 10_000;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Declarations.
    pub declarations: u64,
    /// Values and frames.
    pub records: u64,
    /// Places that were written over.
    pub missed: u64,
    /// Records that make no sense.
    pub damaged: u64,
}

/// Opens the file and reads all there is to read. Must not panic, hang or fault, whatever it holds.
/// Returns what it found, or `None` when the file is refused.
pub fn read_everything(path: &Path) -> Option<Found> {
    let mut file = IngestFile::open(path).ok()?;
    let _ = (file.path(), file.incarnation(), file.owner(), file.pid());
    let _ = (file.created_ns(), file.time_source());
    let mut found = Found::default();
    // Twice: what was damaged before may be well now, and nothing may come twice.
    for round in 0..2 {
        if file.look().is_err() {
            return Some(found);
        }
        let before = found.declarations;
        let _ = file.some_declarations(3, &mut |_| found.declarations += 1);
        assert!(found.declarations <= before + 3);
        let _ = file.declarations(&mut |_| found.declarations += 1);
        assert!(!matches!(file.some_declarations(1, &mut |_| ()), Ok(true)));
        if round == 1 {
            file.skip_to(0, u64::MAX);
            file.skip_to(9, 1);
        }
        // Bounded by what rings can hold, not by what they say.
        let rings = file.positions().len() as u64;
        let drains_max = 2 + 2 * rings * (1 + (64 << 10) / RECORDS);
        let mut drains = 0;
        loop {
            let mut passed = 0;
            let drained = file.drain(RECORDS, &mut |record| {
                assert!(u64::from(record.ring) < rings);
                passed += match record.payload {
                    Payload::Text(b)
                    | Payload::Bytes(b)
                    | Payload::Json(b)
                    | Payload::Floats(b) => 1 + b.len().div_ceil(16) as u64,
                    _ => 1,
                };
            });
            let Ok(drained) = drained else {
                return Some(found);
            };
            assert!(passed <= RECORDS + 4_097 && passed <= rings * RING_RECORDS_MAX);
            assert!(passed <= drained.passed && drained.passed <= RECORDS + 8_192);
            found.records += drained.records;
            found.missed = found.missed.saturating_add(drained.missed);
            found.damaged += drained.damaged;
            drains += 1;
            if !drained.has_more {
                assert!(file.is_drained());
                break;
            }
            // A ring of the largest size takes long; those of the tests are small.
            if drains > drains_max {
                assert!(round == 0 || !is_small(path), "it goes on and on");
                return Some(found);
            }
        }
    }
    let _ = (file.positions().len(), file.dropped(), file.is_closed());
    let _ = (file.is_orphan(), file.has_news());
    let mut cells = Vec::new();
    let _ = (
        file.has_cells(),
        file.cells_interval_ns(),
        file.cells_told(),
    );
    if file.read_cells(&mut cells).is_ok() {
        for cell in 0..cells.len() {
            let _ = file.clear_cell(cell);
        }
    }
    let tails: Vec<u64> = file.positions().collect();
    for (ring, tail) in (0..).zip(tails) {
        let _ = file.set_tail(ring, tail);
    }
    let _ = (file.set_tail(u32::MAX, 1), file.set_asleep(true));
    Some(found)
}

/// Whether the rings are as small as a file of this length can have them.
fn is_small(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.len() < 4 << 20)
}
