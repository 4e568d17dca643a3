//! Reads any bytes as the record of a control event: they are refused, or the event that they are
//! is written as these bytes again, if its properties have different names.

#![no_main]

use std::collections::BTreeSet;

use barograph_stream::{
    CONTROL_EVENT_BYTES_MAX, ControlEventContent, ControlEventRecord, ControlEventSource,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(record) = ControlEventRecord::read(input) else {
        return;
    };
    let properties: Vec<(&str, &str)> = record.properties.iter().collect();
    let content = ControlEventContent {
        kind: record.kind,
        subject: record.subject,
        value: record.value,
        confidence: record.confidence,
        properties: &properties,
    };
    let source = ControlEventSource {
        pid: record.pid,
        thread: record.thread,
        life: record.life,
        sequence: record.sequence,
    };
    let names: BTreeSet<&str> = properties.iter().map(|(name, _)| *name).collect();
    let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
    let written = content.write(source, &mut bytes);
    assert_eq!(written.is_ok(), names.len() == properties.len());
    if let Ok(length) = written {
        assert_eq!(length, input.len());
        let again = ControlEventRecord::read(&bytes[..length]);
        assert_eq!(again, Ok(record));
    }
});
