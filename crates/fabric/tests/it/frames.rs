//! Frames: what is written is read back, and foreign bytes are refused without a panic.

use std::sync::Arc;

use crate::exercise::{sealed, take_in};
use barograph_fabric::frame::{
    Announcement, Batch, FrameFault, FrameHeader, FrameKind, FrameReader, FrameWriter, Section,
    VERSION,
};
use barograph_model::{Descriptor, Kind, Labels, Name, Quality, Sample, Unit, Value, ValueType};
use barograph_stream::{Incarnation, SCOPES_MAX};
use proptest::collection::vec;
use proptest::prelude::*;

const BASE_NS: i64 = 1_700_000_000_000_000_000;

fn header() -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Samples,
        incarnation: Incarnation([7; 16]),
        feed: 3,
        number: 9,
        sent_ns: BASE_NS + 5,
    }
}

fn announcement(reference: u32, value_type: ValueType) -> Announcement {
    Announcement {
        reference,
        descriptor: Descriptor {
            name: Name::new("disk.read.bytes").unwrap(),
            labels: Labels::new([("device", "vda"), ("path", "/é")]).unwrap(),
            value_type,
            unit: Unit::new("bytes").unwrap(),
            kind: Kind::Counter,
            help: "Bytes read.".into(),
        },
        life_ns: BASE_NS - 1,
        depth: 1_024,
        value_bytes_max: 126,
        interval_ns: 1_000_000_000,
    }
}

/// All pieces of a frame, with the samples of its batches.
fn read(frame: &[u8]) -> Result<(Vec<Section>, Vec<Batch>), FrameFault> {
    let mut reader = FrameReader::open(frame)?;
    assert_eq!(reader.header().kind, FrameKind::Samples);
    let (mut sections, mut batches) = (Vec::new(), Vec::new());
    let mut batch = Batch::empty();
    while let Some(section) = reader.next(&mut batch)? {
        if section == Section::Batch {
            batches.push(batch.clone());
        }
        sections.push(section);
    }
    Ok((sections, batches))
}

/// Makes a frame with these samples as one batch.
fn frame_of(value_type: ValueType, samples: &[Sample]) -> Vec<u8> {
    let mut writer = FrameWriter::begin(Vec::new(), BASE_NS);
    writer.announce(&announcement(1, value_type));
    writer.batch((1, value_type), (42, BASE_NS + 7), samples);
    writer.finish(&header())
}

fn value(value_type: ValueType) -> BoxedStrategy<Value> {
    match value_type {
        ValueType::Int => any::<i64>().prop_map(Value::Int).boxed(),
        ValueType::Float => prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            (-1000i32..1000).prop_map(f64::from),
        ]
        .prop_map(Value::Float)
        .boxed(),
        ValueType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ValueType::Text => ".{0,40}".prop_map(|t| Value::Text(t.into())).boxed(),
        ValueType::Json => ".{0,40}".prop_map(|t| Value::Json(t.into())).boxed(),
        ValueType::Bytes => vec(any::<u8>(), 0..40)
            .prop_map(|b| Value::Bytes(b.into()))
            .boxed(),
        ValueType::Floats => vec(any::<f64>(), 0..9)
            .prop_map(|f| Value::Floats(f.into()))
            .boxed(),
    }
}

fn samples() -> impl Strategy<Value = (ValueType, Vec<Sample>)> {
    let types = [1u8, 2, 3, 4, 6, 7, 8].map(|code| ValueType::from_u8(code).unwrap());
    prop::sample::select(types.to_vec()).prop_flat_map(|value_type| {
        let error = prop_oneof![Just(0.0f32), any::<f32>()];
        let sample = (any::<i64>(), value(value_type), 0u8..5, error);
        let sample = sample.prop_map(|(ts, value, quality, error)| Sample {
            ts,
            value,
            quality: Quality::from_u8(quality).unwrap(),
            error,
        });
        (Just(value_type), vec(sample, 0..50))
    })
}

/// A sample as text that tells NaNs and zeros apart by their bits.
fn exact(sample: &Sample) -> String {
    let value = match &sample.value {
        Value::Float(v) => format!("{:x}", v.to_bits()),
        Value::Floats(v) => format!("{:x?}", v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    };
    let error = sample.error.to_bits();
    format!("{} {value} {:?} {error:x}", sample.ts, sample.quality)
}

proptest! {
    #[test]
    fn samples_return_bit_for_bit((value_type, samples) in samples()) {
        let (sections, batches) = read(&frame_of(value_type, &samples)).unwrap();
        prop_assert_eq!(&sections[0], &Section::Announced(announcement(1, value_type)));
        prop_assert_eq!(batches.len(), 1);
        let batch = &batches[0];
        prop_assert_eq!((batch.reference, batch.value_type), (1, value_type));
        prop_assert_eq!((batch.first, batch.looked_ns), (42, BASE_NS + 7));
        let read: Vec<String> = batch.samples.iter().map(exact).collect();
        let written: Vec<String> = samples.iter().map(exact).collect();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn damage_is_noticed((value_type, samples) in samples(), at in any::<u16>(), bit in 0u8..8) {
        let mut frame = frame_of(value_type, &samples);
        let at = usize::from(at) % frame.len();
        frame[at] ^= 1 << bit;
        // The bytes 6 and 7 are reserved.
        prop_assert!((6..8).contains(&at) || read(&frame).is_err());
    }

    #[test]
    fn any_body_is_read_or_refused(body in vec(any::<u8>(), 0..400)) {
        take_in(&body);
    }

    #[test]
    fn any_section_is_read_or_refused(kind in 1u8..5, payload in vec(any::<u8>(), 0..400)) {
        let mut body = BASE_NS.to_le_bytes().to_vec();
        body.push(kind);
        body.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        body.extend_from_slice(&payload);
        take_in(&body);
    }

    #[test]
    fn edits_of_a_frame_are_read_or_refused(
        (value_type, samples) in samples(),
        edits in vec((any::<u16>(), any::<u8>()), 1..6),
    ) {
        let frame = frame_of(value_type, &samples);
        let mut body = frame[barograph_fabric::frame::HEADER_BYTES..].to_vec();
        for (at, byte) in edits {
            let at = usize::from(at) % body.len();
            body[at] = byte;
        }
        take_in(&body);
    }
}

#[test]
fn pieces_keep_their_order() {
    let samples = [
        Sample::measured(BASE_NS, 5i64),
        Sample::measured(BASE_NS + 9, 6i64),
    ];
    let mut writer = FrameWriter::begin(vec![1, 2, 3], BASE_NS);
    assert!(writer.is_empty());
    writer.retire(4);
    writer.announce(&announcement(1, ValueType::Int));
    writer.announce(&announcement(2, ValueType::Int));
    writer.interval(2, -5);
    writer.scopes(&[]);
    writer.batch((1, ValueType::Int), (1, BASE_NS), &samples);
    writer.scopes(&["all".into(), "u7".into()]);
    writer.batch((2, ValueType::Int), (8, BASE_NS + 3), &[]);
    assert!(!writer.is_empty());
    let (sections, batches) = read(&writer.finish(&header())).unwrap();
    let expect = [
        Section::Retired(4),
        Section::Announced(announcement(1, ValueType::Int)),
        Section::Announced(announcement(2, ValueType::Int)),
        Section::Interval(2, -5),
        Section::Scopes(Vec::new()),
        Section::Batch,
        Section::Scopes(vec!["all".into(), "u7".into()]),
        Section::Batch,
    ];
    assert_eq!(sections, expect);
    assert_eq!(batches[0].samples, samples);
    let look = &batches[1];
    assert_eq!((look.reference, look.first), (2, 8));
    assert_eq!((look.looked_ns, look.samples.len()), (BASE_NS + 3, 0));
}

#[test]
fn what_cannot_be_a_scope_is_refused() {
    let scopes = |names: &[&str]| {
        let names: Vec<Arc<str>> = names.iter().map(|name| (*name).into()).collect();
        let mut writer = FrameWriter::begin(Vec::new(), BASE_NS);
        writer.scopes(&names);
        read(&writer.finish(&header()))
    };
    assert!(scopes(&["all"; SCOPES_MAX]).is_ok());
    for names in [&["all"; SCOPES_MAX + 1][..], &["../u0"], &["u01"], &[""]] {
        let malformed = FrameFault::Malformed { part: "scopes" };
        assert_eq!(scopes(names).unwrap_err(), malformed, "{names:?}");
    }
}

#[test]
fn unknown_sections_are_skipped() {
    let mut body = BASE_NS.to_le_bytes().to_vec();
    body.extend_from_slice(&[200, 3, 0, 0, 0, 1, 2, 3]);
    body.extend_from_slice(&[2, 1, 0, 0, 0, 9]);
    assert_eq!(
        read(&sealed(FrameKind::Samples, &body)).unwrap().0,
        [Section::Retired(9)]
    );
}

#[test]
fn refusals_say_why() {
    let good = frame_of(ValueType::Int, &[]);
    let edited = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let long = [
        &good[..],
        &vec![0; barograph_fabric::frame::FRAME_BYTES_MAX],
    ]
    .concat();
    for (frame, expect) in [
        (vec![], FrameFault::Foreign),
        (b"GET / HTTP/1.1".to_vec(), FrameFault::Foreign),
        (good[..20].to_vec(), FrameFault::Damaged),
        (good[..good.len() - 1].to_vec(), FrameFault::Damaged),
        (
            edited(4, VERSION + 1),
            FrameFault::Newer {
                version: VERSION + 1,
            },
        ),
        (edited(4, 0), FrameFault::Damaged),
        (edited(5, 99), FrameFault::Kind { kind: 99 }),
        (edited(60, 1), FrameFault::Damaged),
        (long.clone(), FrameFault::Large { bytes: long.len() }),
    ] {
        assert_eq!(read(&frame).unwrap_err(), expect);
    }
}

#[test]
fn a_count_is_believed_only_with_bytes_behind_it() {
    let mut body = BASE_NS.to_le_bytes().to_vec();
    // A batch of 2^35 samples in eleven bytes.
    let batch = [1, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 1, 3];
    body.extend_from_slice(&[3, batch.len() as u8, 0, 0, 0]);
    body.extend_from_slice(&batch);
    let part = "batches";
    assert_eq!(
        read(&sealed(FrameKind::Samples, &body)).unwrap_err(),
        FrameFault::Malformed { part }
    );
}

#[test]
fn even_polls_of_a_counter_take_few_bytes() {
    let second = 1_000_000_000;
    let sample = |n: i64| Sample::measured(BASE_NS + n * second, Value::Int(4_096 * n));
    let samples: Vec<Sample> = (0..1_000).map(sample).collect();
    let bytes = frame_of(ValueType::Int, &samples).len() - frame_of(ValueType::Int, &[]).len();
    assert!(bytes < 3_100, "{bytes} bytes for 1,000 samples");
}
