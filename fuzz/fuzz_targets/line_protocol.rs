//! Parses any text as line protocol: its lines are read or refused, within their bounds.
#![no_main]

use barograph_bridge::{
    POINTS_MAX, TimePrecision, REFUSALS_MAX, label_name, read_line_protocol, stream_words,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parsed = read_line_protocol(text, TimePrecision::Ms);
    assert!(parsed.points.len() <= POINTS_MAX && parsed.refusals.len() <= REFUSALS_MAX);
    for point in &parsed.points {
        let _ = stream_words(&point.origin.name);
        for (label, _) in point.origin.labels.iter() {
            let _ = label_name(label);
        }
    }
});
