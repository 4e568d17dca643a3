//! Calls every function of an ingest file's reader, on any file. It is also the body of the fuzz
//! target.

use std::path::Path;

use barograph_stream::ingest::{IngestFile, RING_RECORDS_MAX, RecordPayload};

/// Records of one drain; a bound on drains ends a test that should have ended by itself.
const RECORDS: u64 = 10_000;

/// The result of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Number of declarations.
    pub declarations: u64,
    /// Number of values and frames.
    pub records: u64,
    /// Number of overwritten records.
    pub missed: u64,
    /// Number of invalid records.
    pub damaged: u64,
}

/// Opens the file and reads everything in it. It must not panic, hang or fault, whatever the file
/// holds. Returns what it found, or `None` if the file is refused.
pub(crate) fn read_everything(path: &Path) -> Option<Found> {
    let mut file = IngestFile::open(path).ok()?;
    let _ = (file.path(), file.incarnation(), file.owner(), file.pid());
    let _ = (file.created_ns(), file.time_source());
    let mut found = Found::default();
    // Twice: damage may be gone the second time, and nothing may be read twice.
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
        // The bound follows from the size of the rings, not from their contents.
        let rings = file.positions().len() as u64;
        let drains_max = 2 + 2 * rings * (1 + (64 << 10) / RECORDS);
        let mut drains = 0;
        loop {
            let mut passed = 0;
            let drained = file.drain(RECORDS, &mut |record| {
                assert!(u64::from(record.ring) < rings);
                passed += match record.payload {
                    RecordPayload::Text(b)
                    | RecordPayload::Bytes(b)
                    | RecordPayload::Json(b)
                    | RecordPayload::Floats(b) => 1 + b.len().div_ceil(16) as u64,
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
            // A ring of the largest size takes long; the rings of these tests are small.
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
