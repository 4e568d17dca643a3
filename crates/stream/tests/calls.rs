//! Tests of calls files: complete calls or none, whatever the writer does and whoever wrote the
//! file.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_stream::calls::{
    Call, CallKind, CallPayload, CallTarget, CallsReader, CallsWriter, NextCall, PAYLOAD_BYTES_MAX,
    SLOTS,
};
use barograph_stream::{Incarnation, StreamError};

use crate::child;
use crate::pattern::{mix, rounds};

const HEADER_BYTES: u64 = 4_096;
const WRITTEN: u64 = 256;

fn call(n: u64) -> Call {
    // Every part depends on `n`, so that a torn call is noticed.
    let length = (mix(n) % PAYLOAD_BYTES_MAX as u64) as usize;
    Call {
        id: n + 1,
        issued_ns: n as i64,
        expires_ns: !n as i64,
        kind: [CallKind::Trigger, CallKind::Knob][(n % 2) as usize],
        name: format!("call.{n}"),
        target: CallTarget {
            incarnation: n
                .is_multiple_of(3)
                .then_some(Incarnation([n as u8 | 1; 16])),
            labels: vec![("n".into(), n.to_string())],
        },
        payload: CallPayload::Bytes(vec![n as u8; length]),
        version: mix(n),
        at_frame: n.is_multiple_of(5).then(|| mix(n)).filter(|_| n % 2 == 1),
    }
}

fn new() -> (tempfile::TempDir, CallsWriter, CallsReader) {
    let dir = tempfile::tempdir().unwrap();
    let writer = CallsWriter::open_or_create(&dir.path().join("calls"), 7).unwrap();
    let reader = writer.reader().unwrap();
    (dir, writer, reader)
}

fn write_word(path: &Path, at: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), at).unwrap();
}

/// The child's part: fires until it is killed.
pub(crate) fn fire_at_full_speed(path: &Path) {
    let mut writer = CallsWriter::open_or_create(path, 1).unwrap();
    println!("ready");
    loop {
        let n = writer.written();
        writer.fire(&call(n)).unwrap();
    }
}

#[test]
fn what_is_fired_is_read_once_and_in_order() {
    let (_dir, mut writer, reader) = new();
    let mut cursor = reader.oldest();
    assert_eq!(reader.next(&mut cursor), NextCall::Nothing);
    for n in 0..SLOTS * 3 {
        assert_eq!(writer.fire(&call(n)).unwrap(), n + 1);
        assert_eq!(reader.next(&mut cursor), NextCall::Call(call(n)));
        assert_eq!(reader.next(&mut cursor), NextCall::Nothing);
        assert_eq!((reader.written(), cursor), (n + 1, n + 1));
    }
    assert_eq!(writer.call(SLOTS * 3), Some(call(SLOTS * 3 - 1)));
    for id in [0, 1, SLOTS * 3 + 1, u64::MAX] {
        assert_eq!(writer.call(id), None, "{id}");
    }
}

#[test]
fn a_lapped_reader_is_told_how_many_it_missed() {
    let (_dir, mut writer, reader) = new();
    for n in 0..SLOTS + 10 {
        writer.fire(&call(n)).unwrap();
    }
    let mut cursor = 0;
    assert_eq!(reader.next(&mut cursor), NextCall::Missed(10));
    assert_eq!(reader.next(&mut cursor), NextCall::Call(call(10)));
    let mut oldest = reader.oldest();
    assert_eq!(reader.next(&mut oldest), NextCall::Call(call(10)));
    // A cursor of another file waits at the end.
    let mut beyond = u64::MAX;
    assert_eq!(reader.next(&mut beyond), NextCall::Nothing);
    writer.fire(&call(SLOTS + 10)).unwrap();
    assert_eq!(reader.next(&mut beyond), NextCall::Call(call(SLOTS + 10)));
}

#[test]
fn a_new_agent_goes_on_and_gives_no_id_again() {
    let (dir, mut writer, reader) = new();
    let path = dir.path().join("calls");
    writer.fire(&call(0)).unwrap();
    let incarnation = writer.incarnation();
    drop(writer);
    let mut writer = CallsWriter::open_or_create(&path, 8).unwrap();
    assert_eq!((writer.incarnation(), writer.written()), (incarnation, 1));
    assert_eq!(writer.fire(&call(1)).unwrap(), 2);
    let mut cursor = 1;
    assert_eq!(reader.next(&mut cursor), NextCall::Call(call(1)));
    // The file was lost, and its ids are known from elsewhere.
    drop(writer);
    std::fs::remove_file(&path).unwrap();
    assert!(!reader.is_replaced(), "nothing is there to go to");
    let mut writer = CallsWriter::open_or_create(&path, 9).unwrap();
    writer.advance_to(1_000);
    writer.advance_to(3);
    writer.advance_to(u64::MAX);
    assert!(reader.is_replaced() && !reader.is_closed());
    let reader = writer.reader().unwrap();
    assert_ne!(reader.incarnation(), incarnation);
    assert_eq!(writer.fire(&call(1_000)).unwrap(), 1_001);
    for mut cursor in [0, 5, 1_000, reader.oldest()] {
        assert_eq!(reader.next(&mut cursor), NextCall::Call(call(1_000)));
    }
}

#[test]
fn a_file_that_is_not_valid_is_replaced_and_says_so() {
    for (at, value) in [
        (8, 9),
        (16, 0),
        (24, 1),
        (56, 2),
        (64, 3),
        (72, 8),
        (80, 1 << 40),
    ] {
        let (dir, mut writer, reader) = new();
        writer.fire(&call(0)).unwrap();
        let incarnation = writer.incarnation();
        drop(writer);
        let path = dir.path().join("calls");
        write_word(&path, at, value);
        let writer = CallsWriter::open_or_create(&path, 8).unwrap();
        assert_ne!(writer.incarnation(), incarnation, "word at {at}");
        assert_eq!(writer.written(), 0);
        assert!(reader.is_closed() && reader.is_replaced());
        assert!(!writer.reader().unwrap().is_closed());
        let mut names = std::fs::read_dir(dir.path()).unwrap();
        assert!(names.all(|e| e.unwrap().file_name() == "calls"));
    }
}

#[test]
fn what_no_slot_holds_is_refused_and_nothing_is_written() {
    let (_dir, mut writer, reader) = new();
    let mut long = call(0);
    long.payload = CallPayload::Text("x".repeat(PAYLOAD_BYTES_MAX + 1));
    let error = writer.fire(&long).unwrap_err();
    assert!(matches!(error, StreamError::Call { .. }), "{error}");
    assert_eq!((writer.written(), reader.written()), (0, 0));
}

#[test]
fn who_waits_is_woken() {
    let (_dir, mut writer, reader) = new();
    let reader = std::sync::Arc::new(reader);
    for close in [false, true] {
        let sleeper = std::sync::Arc::clone(&reader);
        let seen = reader.word().load(Ordering::Acquire);
        let waiter = std::thread::spawn(move || {
            while sleeper.word().load(Ordering::Acquire) == seen && !sleeper.is_closed() {
                sleeper.wait(seen, Duration::from_secs(120));
            }
        });
        if close {
            writer.close();
            waiter.join().unwrap();
            break;
        }
        writer.fire(&call(0)).unwrap();
        waiter.join().unwrap();
    }
    // This returns at once: the file is closed.
    reader.wait(
        reader.word().load(Ordering::Acquire),
        Duration::from_secs(120),
    );
}

#[test]
fn foreign_bytes_are_refused_or_missed_but_never_believed() {
    let (dir, mut writer, _) = new();
    let path = dir.path().join("calls");
    for n in 0..SLOTS + 5 {
        writer.fire(&call(n)).unwrap();
    }
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    let damaged = dir.path().join("damaged");
    for length in [
        0,
        1,
        8,
        4_095,
        4_096,
        8_192,
        whole.len() - 8,
        whole.len() - 1,
    ] {
        std::fs::write(&damaged, &whole[..length]).unwrap();
        assert!(CallsReader::open(&damaged).is_err(), "{length} bytes");
    }
    assert!(CallsReader::open(dir.path()).is_err());
    let missing = CallsReader::open(&dir.path().join("none")).unwrap_err();
    assert!(matches!(missing, StreamError::NoAgent { .. }), "{missing}");
    for seed in 0..rounds(100, 20_000) {
        std::fs::write(&damaged, &whole).unwrap();
        for step in 0..1 + seed % 5 {
            let random = mix(seed * 64 + step);
            let at = match random % 4 {
                0 => (random >> 8) % 96,
                1 => WRITTEN,
                _ => HEADER_BYTES + (random >> 8) % (SLOTS * 4_096),
            };
            write_word(&damaged, at / 8 * 8, mix(random) >> (random >> 58));
        }
        let Ok(reader) = CallsReader::open(&damaged) else {
            continue;
        };
        let _ = (
            reader.is_closed(),
            reader.is_replaced(),
            reader.incarnation(),
        );
        for mut cursor in [0, reader.oldest(), u64::MAX] {
            // No more calls than there are slots; missed ones may be counted together or one by
            // one.
            let mut seen = 0;
            while reader.next(&mut cursor) != NextCall::Nothing {
                seen += 1;
                assert!(seen <= 2 * SLOTS, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_slot_that_was_never_written_is_passed_over() {
    let (dir, mut writer, reader) = new();
    writer.fire(&call(0)).unwrap();
    write_word(&dir.path().join("calls"), WRITTEN, 3);
    let mut cursor = 0;
    assert_eq!(reader.next(&mut cursor), NextCall::Call(call(0)));
    assert_eq!(reader.next(&mut cursor), NextCall::Missed(1));
    assert_eq!(reader.next(&mut cursor), NextCall::Missed(1));
    assert_eq!(reader.next(&mut cursor), NextCall::Nothing);
}

#[test]
fn a_writer_at_full_speed_that_is_killed_tears_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls");
    let mut last = 0;
    for _ in 0..rounds(3, 30) {
        let mut child = child::start("caller", &path);
        let reader = CallsReader::open(&path).unwrap();
        let mut cursor = reader.oldest();
        let mut seen = 0;
        while seen < 2_000 {
            match reader.next(&mut cursor) {
                NextCall::Call(found) => {
                    assert_eq!(found, call(cursor - 1));
                    seen += 1;
                }
                NextCall::Missed(n) => assert!(n > 0),
                NextCall::Nothing => std::thread::yield_now(),
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The next writer continues where this one was stopped, whatever it was writing.
        assert!(reader.written() > last);
        last = reader.written();
        let writer = CallsWriter::open_or_create(&path, 2).unwrap();
        assert_eq!(writer.written(), last);
        assert_eq!(writer.call(last), Some(call(last - 1)));
    }
}

/// The two words that announce calls: programs read them inline, so their places are fixed.
#[test]
fn no_word_has_two_widths() {
    const VERSION: u64 = 8;
    const MOVED: u64 = 264;
    let (dir, mut writer, reader) = new();
    writer.fire(&call(0)).unwrap();
    let path = dir.path().join("calls");
    let half = |at: u64| {
        let mut bytes = [0; 4];
        let file = std::fs::File::open(&path).unwrap();
        file.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    };
    assert_eq!((half(WRITTEN), half(MOVED)), (1, 1));
    let distance = reader.word().as_ptr().addr() & 0xfff;
    assert_eq!(distance as u64, MOVED);
    // A file of an agent of version 1.0 has no futex word of its own: it is the lower half of the
    // other.
    write_word(&path, VERSION, 1);
    write_word(&path, MOVED, 0);
    let older = CallsReader::open(&path).unwrap();
    assert_eq!(older.word().as_ptr().addr() as u64 & 0xfff, WRITTEN);
    assert_eq!(older.word().load(Ordering::Acquire), 1);
    // The next agent continues the file, and wakes programs that have mapped it by either word.
    let mut writer = CallsWriter::open_or_create(&path, 9).unwrap();
    assert_eq!((writer.written(), half(MOVED)), (1, 1));
    writer.fire(&call(1)).unwrap();
    assert_eq!((half(WRITTEN), half(MOVED)), (2, 2));
    assert_eq!(older.word().as_ptr().addr() as u64 & 0xfff, MOVED);
}

#[test]
fn a_file_that_others_could_have_put_there_is_not_mapped() {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    let (dir, _writer, _) = new();
    let path = dir.path().join("calls");
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(CallsReader::open(&link).is_err(), "it is a link");
    let set_mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        CallsReader::open(&path).is_ok()
    };
    let found = [0o664, 0o646, 0o644].map(set_mode);
    assert_eq!(found, [false, false, true], "others may shorten it");
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: another user's file, for this is not root");
        return;
    }
    chown(&path, Some(12_345), None).unwrap();
    assert!(CallsReader::open(&path).is_err(), "a stranger's");
    // In a directory of the same user, the file belongs to the agent of that user.
    chown(dir.path(), Some(12_345), None).unwrap();
    assert!(CallsReader::open(&path).is_ok());
}
