//! Files cut at every byte, or with a bit flipped in every byte: an error, and never other samples.

use std::path::Path;

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use proptest::prelude::*;

use super::*;

fn specimen() -> Vec<Part> {
    let ints = (1..20).map(|n| (n * n, n as i64 * 1_000, Value::Int(i64::MAX - n as i64)));
    let floats = (1..20).map(|n| (n, n as i64 * 1_000 + 7, Value::Float(1.0 / n as f64)));
    let texts = (1..9).map(|n| (n, n as i64, Value::text(["up", "down"][n as usize % 2])));
    let bytes = (1..9).map(|n| (n, n as i64, Value::Bytes(vec![n as u8; 9].into())));
    let arrays = (1..9).map(|n| (n, n as i64, Value::Floats([n as f64; 3].into())));
    let part = |name: &str, value_type, columns| Part {
        descriptor: descriptor(name, "d", value_type),
        life: 9,
        columns,
    };
    vec![
        part("a", ValueType::Int, columns(ValueType::Int, ints)),
        part("b", ValueType::Float, columns(ValueType::Float, floats)),
        part("c", ValueType::Text, columns(ValueType::Text, texts)),
        part("d", ValueType::Bytes, columns(ValueType::Bytes, bytes)),
        part("e", ValueType::Floats, columns(ValueType::Floats, arrays)),
    ]
}

#[test]
fn cut_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    write(&path, &specimen());
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path, Span::ALL).unwrap_err();
        assert!(matches!(error, ArchiveError::Corrupt { .. }), "{length}");
    }
}

#[test]
fn a_file_of_a_later_version_is_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    write(&path, &specimen());
    let mut bytes = std::fs::read(&path).unwrap();
    // The tail of the index lies before Parquet's footer, whose length is at the end.
    let end = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap());
    let tail = end - footer as usize - 28;
    let version = u32::from_le_bytes(bytes[tail + 12..tail + 16].try_into().unwrap());
    // The newest version is that of files with columns of events.
    assert_eq!(version, 3);
    bytes[tail + 12..tail + 16].copy_from_slice(&(version + 2).to_le_bytes());
    let crc = crc32fast::hash(&bytes[tail..tail + 16]);
    bytes[tail + 16..tail + 20].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = read(&path, Span::ALL).unwrap_err();
    assert!(matches!(error, ArchiveError::Newer { .. }), "{error}");
    let told = error.to_string();
    assert!(
        told.contains("newer barograph") && told.contains("update this one"),
        "{told}"
    );
    assert!(
        !told.contains("damaged") && !told.contains("verify"),
        "{told}"
    );
}

/// Reads a file as another reader does, by Parquet's footer alone: every row, and the statistics by
/// which it skips row groups; `None` if it refuses the file.
fn foreign(path: &Path) -> Option<(Vec<String>, Vec<String>)> {
    let file = std::fs::File::open(path).unwrap();
    let read = || -> Result<_, ::parquet::errors::ParquetError> {
        let reader = SerializedFileReader::new(file)?;
        let groups = reader.metadata().row_groups().iter();
        let columns = groups.flat_map(|group| group.columns().iter());
        let bounds = columns.filter_map(|column| {
            let of = column.statistics()?;
            Some(format!("{:?} {:?}", of.min_bytes_opt(), of.max_bytes_opt()))
        });
        let bounds = bounds.collect();
        let rows = reader.get_row_iter(None)?.map(|row| Ok(row?.to_string()));
        Ok((
            rows.collect::<Result<_, ::parquet::errors::ParquetError>>()?,
            bounds,
        ))
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .ok()?
        .ok()
}

/// Whether a file with these bytes is accepted.
fn is_whole(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    ParquetPart::open(path)
        .and_then(|part| part.check())
        .is_ok()
}

#[test]
fn flipped_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    write(&path, &specimen());
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(is_whole(&path, &bytes));
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        assert!(!is_whole(&path, &bytes), "{at} of {}", bytes.len());
        bytes[at] ^= 1 << (at % 8);
    }
}

/// A footer whose checksum holds, or that has none, is either correct in what other readers rely
/// on, or is refused.
#[test]
fn flipped_in_a_footer_whose_checksum_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let parts = specimen();
    write(&path, &parts);
    let mut whole = std::fs::read(&path).unwrap();
    let seen = foreign(&path).unwrap();
    let rows = parts.iter().map(|part| part.columns.len());
    assert_eq!(seen.0.len(), rows.sum::<usize>());
    let footer = forge::footer_at(&whole)..whole.len() - 8;
    forge::reseal(&mut whole[footer.clone()]);
    assert!(is_whole(&path, &whole));
    let mut refused = 0;
    for at in footer.clone() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        forge::reseal(&mut bytes[footer.clone()]);
        if is_whole(&path, &bytes) {
            assert_eq!(foreign(&path).as_ref(), Some(&seen), "{at}");
        } else {
            refused += 1;
        }
    }
    assert!(refused > footer.len() / 2, "{refused} of {}", footer.len());
}

#[test]
fn other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = ParquetPart::open(&path).unwrap_err().to_string();
        error.replace(path.to_str().unwrap(), "FILE")
    };
    let mut foreign = b"PAR1".to_vec();
    foreign.resize(100, 0);
    foreign.extend(b"\x08\0\0\0PAR1");
    insta::assert_snapshot!(said(b""), @"FILE: it is too short for a Parquet file (at byte 0); baro archive verify tells what is affected");
    insta::assert_snapshot!(said(b"PAR1PAR1 and then something else"), @"FILE: it does not end as Parquet does: it is cut short or something else (at byte 24); baro archive verify tells what is affected");
    insta::assert_snapshot!(said(&foreign), @"FILE: it has no index of barograph: another program wrote it, or it is cut short (at byte 64); baro archive verify tells what is affected");
}

#[test]
fn files_of_the_version_before_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    let known = &specimen()[..3];
    write(&path, known);
    let older = forge::older(&std::fs::read(&path).unwrap());
    std::fs::write(&path, &older).unwrap();
    assert_eq!(read(&path, Span::ALL).unwrap(), known);
    // They have no columns of later versions, whatever their index contains.
    let path = dir.path().join("later.parquet");
    write(&path, &specimen());
    let older = forge::older(&std::fs::read(&path).unwrap());
    std::fs::write(&path, &older).unwrap();
    let error = read(&path, Span::ALL).unwrap_err().to_string();
    assert!(error.contains("no column of this type"), "{error}");
    exercise::read_everything(&path);
}

#[test]
fn the_wrong_tier_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = place(&dir);
    write(&path, &specimen());
    let part = ParquetPart::open(&path).unwrap();
    let go_on = AtomicBool::new(false);
    let result = part.read_buckets(&|_| true, Span::ALL, &go_on, &mut |_, _| Ok(()));
    assert!(matches!(result, Err(ArchiveError::Corrupt { .. })));
    let cancelled = AtomicBool::new(true);
    let result = part.read(&|_| true, Span::ALL, &cancelled, &mut |_, _, _| Ok(()));
    assert!(matches!(result, Err(ArchiveError::Cancelled)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Files with wrong content under checksums that hold.
    #[test]
    fn forged(
        index in prop::collection::vec((any::<u16>(), any::<u8>()), 0..3),
        pages in prop::collection::vec((any::<u16>(), any::<u8>()), 0..3),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = place(&dir);
        write(&path, &specimen());
        let whole = std::fs::read(&path).unwrap();
        let forged = forge::forge(&whole, &index, &pages);
        if index.is_empty() && pages.is_empty() {
            assert_eq!(forged, whole);
        }
        std::fs::write(&path, forged).unwrap();
        exercise::read_everything(&path);
    }
}
