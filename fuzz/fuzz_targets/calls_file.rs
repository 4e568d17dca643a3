//! Opens any bytes as a calls file, as a program does, and reads all calls from several positions.
//!
//! Most random files end at the header's checks. So the first byte of the input decides: if it is
//! even, the rest is the whole file; if it is odd, the rest is written over a file with calls of
//! all kinds, in pieces of a position (three bytes), a length (one byte) and that many bytes.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use barograph_stream::calls::{Call, CallKind, CallPayload, CallsReader, CallsWriter, NextCall, SLOTS, CallTarget};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let (path, whole) = place();
    let file = match choice % 2 {
        0 => rest.to_vec(),
        _ => overlay(whole.clone(), rest),
    };
    fs::write(path, file).expect("the temporary directory takes files");
    let Ok(reader) = CallsReader::open(path) else {
        return;
    };
    let _ = (reader.is_closed(), reader.is_replaced(), reader.incarnation());
    for mut cursor in [0, reader.oldest(), u64::MAX] {
        let mut seen = 0;
        while reader.next(&mut cursor) != NextCall::Nothing {
            seen += 1;
            assert!(seen <= 8_192, "more calls than a file has slots, twice");
        }
    }
});

/// The path of the file, and its undamaged contents; one per process.
fn place() -> (&'static Path, &'static Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    let (_, path, whole) = PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let path = dir.path().join("calls");
        let mut writer = CallsWriter::open_or_create(&path, 1).expect("it is made");
        for n in 0..SLOTS + 9 {
            writer.fire(&call(n)).expect("it fits");
        }
        let whole = fs::read(&path).expect("it was written just now");
        let path = dir.path().join("fuzzed");
        (dir, path, whole)
    });
    (path, whole)
}

fn call(n: u64) -> Call {
    let payloads = [
        CallPayload::None,
        CallPayload::Float(0.5),
        CallPayload::Text("text".into()),
        CallPayload::Floats(vec![1.0; 9]),
    ];
    Call {
        id: 0,
        issued_ns: n as i64,
        expires_ns: i64::MAX,
        kind: [CallKind::Trigger, CallKind::Knob][(n % 2) as usize],
        name: format!("call.{n}"),
        target: CallTarget {
            incarnation: None,
            labels: vec![("rank".into(), n.to_string())],
        },
        payload: payloads[(n % 4) as usize].clone(),
        version: n,
        at_frame: (n % 4 == 1).then_some(n),
    }
}

fn overlay(mut file: Vec<u8>, mut edits: &[u8]) -> Vec<u8> {
    while let [a, b, c, length, rest @ ..] = edits {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    file
}
