//! Tests of binary records: what is written is read again, and nothing foreign does harm.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fid::Fid;
use super::nid::Nid;
use super::record::*;
use super::record_type::RecordType;

/// The parts of a record with texts of their own.
#[derive(Clone, Debug)]
struct Parts {
    numbers: (u32, u16, u64, u64, u64),
    target: Fid,
    parent: Fid,
    source: Option<(Fid, Fid)>,
    user: Option<(u64, u64)>,
    nid: Option<Nid>,
    open: Option<u32>,
    texts: [Vec<u8>; 4],
}

impl Parts {
    fn record(&self) -> ChangelogRecord<'_> {
        let (type_number, flags, index, previous, time) = self.numbers;
        let mut record = ChangelogRecord {
            type_number,
            flags,
            index,
            previous,
            time,
            target: self.target,
            parent: self.parent,
            source: self.source,
            user: self.user,
            nid: self.nid,
            open: self.open,
            job: &self.texts[0],
            xattr: &self.texts[1],
            name: &self.texts[2],
            old_name: &[],
        };
        let of = record.record_type();
        if self.source.is_some() || matches!(of, Some(RecordType::Rename | RecordType::Migrate)) {
            record.old_name = &self.texts[3];
        }
        record
    }
}

fn any_fid() -> impl Strategy<Value = Fid> {
    any::<(u64, u32, u32)>().prop_map(|(s, o, v)| Fid::new(s.max(1), o, v))
}

fn any_nid() -> impl Strategy<Value = Nid> {
    prop_oneof![
        any::<u64>().prop_map(Nid::Small),
        any::<[u8; 20]>().prop_map(Nid::Large),
    ]
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let numbers = (0u32..30, 0u16..0x1000, 1u64.., any::<u64>(), any::<u64>());
    let fids = (any_fid(), any_fid(), any::<bool>(), any_fid(), any_fid());
    let extras = (
        any::<Option<(u64, u64)>>(),
        proptest::option::of(any_nid()),
        any::<Option<u32>>(),
    );
    let texts = (
        vec(1u8.., 0..=JOB_BYTES_MAX),
        vec(1u8.., 0..=XATTR_BYTES_MAX),
        vec(1u8.., 0..300),
        vec(1u8.., 0..300),
    );
    (numbers, fids, extras, texts).prop_map(|(numbers, fids, extras, texts)| Parts {
        numbers,
        target: fids.0,
        parent: fids.1,
        source: fids.2.then_some((fids.3, fids.4)),
        user: extras.0,
        nid: extras.1,
        open: extras.2,
        texts: [texts.0, texts.1, texts.2, texts.3],
    })
}

fn bytes_of(record: &ChangelogRecord<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn every_record_returns(parts in any_parts(), more in vec(any::<u8>(), 0..80)) {
        let record = parts.record();
        let mut bytes = bytes_of(&record);
        let length = bytes.len();
        prop_assert!(length <= RECORD_BYTES_MAX);
        bytes.extend(more);
        prop_assert_eq!(ChangelogRecord::parse(&bytes), Ok((record, length)));
        let source = record.source.map_or(Fid::NONE, |(source, _)| source);
        prop_assert_eq!(fids_of(&bytes), Some((record.target, source)));
    }

    #[test]
    fn a_truncated_record_is_short(parts in any_parts(), cut in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&parts.record());
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(ChangelogRecord::parse(part), Err(ChangelogFault::Short));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..700)) {
        if let Ok((record, length)) = ChangelogRecord::parse(&bytes) {
            prop_assert!(length >= HEADER_BYTES && length <= bytes.len());
            prop_assert!(record.time_ns() >= 0);
        }
    }
}

/// The bytes of a record as a server of this host's byte order writes them.
#[test]
fn a_record_has_its_fields_where_servers_write_them() {
    let mut bytes = Vec::new();
    bytes.extend(7u16.to_ne_bytes());
    bytes.extend((0x2000u16 | 0x4000 | 0x8000 | 0x1).to_ne_bytes());
    bytes.extend(8u32.to_ne_bytes());
    for word in [42u64, 0, 1_700_000_000 << 30 | 123_456_789] {
        bytes.extend(word.to_ne_bytes());
    }
    for (sequence, object) in [(0x11u64, 1u32), (0x12, 2), (0x13, 3), (0x14, 4)] {
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(object.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
    }
    bytes.extend(b"mv.0");
    bytes.extend([0; 28]);
    bytes.extend(0x7u64.to_ne_bytes());
    bytes.extend(500u64.to_ne_bytes());
    bytes.extend(100u64.to_ne_bytes());
    bytes.extend((2u64 << 48 | 0x0a80_0b9f).to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(2u32.to_ne_bytes());
    bytes.extend(b"new\0old");
    let (record, length) = ChangelogRecord::parse(&bytes).unwrap();
    assert_eq!(length, bytes.len());
    assert_eq!(record.record_type(), Some(RecordType::Rename));
    assert_eq!((record.index, record.flags), (42, 1));
    assert_eq!(record.time_ns(), 1_700_000_000_123_456_789);
    assert_eq!(record_time(record.time_ns()), record.time);
    assert_eq!(record.target, Fid::new(0x11, 1, 0));
    assert_eq!(record.parent, Fid::new(0x12, 2, 0));
    let source = (Fid::new(0x13, 3, 0), Fid::new(0x14, 4, 0));
    assert_eq!(record.source, Some(source));
    assert_eq!((record.job, record.user), (&b"mv.0"[..], Some((500, 100))));
    assert_eq!(record.nid.unwrap().to_string(), "10.128.11.159@tcp");
    assert_eq!(record.open, Some(2));
    assert_eq!((record.name, record.old_name), (&b"new"[..], &b"old"[..]));
    assert_eq!(bytes_of(&record), bytes);
}

#[test]
fn what_is_unknown_is_kept_or_refused_with_its_number() {
    let record = ChangelogRecord {
        type_number: 77,
        index: 5,
        user: Some((1, 2)),
        name: b"x",
        ..ChangelogRecord::default()
    };
    let mut bytes = bytes_of(&record);
    let (read, _) = ChangelogRecord::parse(&bytes).unwrap();
    assert_eq!((read.record_type(), read.name), (None, &b"x"[..]));
    bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&0x21u64.to_ne_bytes());
    let fault = ChangelogFault::Extensions {
        index: 5,
        extra: 0x21,
    };
    assert_eq!(ChangelogRecord::parse(&bytes), Err(fault));
    for index in [0, u64::MAX] {
        bytes[8..16].copy_from_slice(&index.to_ne_bytes());
        assert_eq!(ChangelogRecord::parse(&bytes), Err(ChangelogFault::Index));
    }
    assert_eq!(ChangelogRecord::parse(&[]), Err(ChangelogFault::Short));
}

#[test]
fn room_for_a_rename_in_a_record_that_is_none() {
    let record = ChangelogRecord {
        type_number: RecordType::Create as u32,
        index: 5,
        source: Some((Fid::NONE, Fid::NONE)),
        name: b"f",
        ..ChangelogRecord::default()
    };
    let bytes = bytes_of(&record);
    assert_eq!(bytes.len(), HEADER_BYTES + 32 + 1);
    let (read, length) = ChangelogRecord::parse(&bytes).unwrap();
    assert_eq!(
        (read.source, read.name, length),
        (None, &b"f"[..], bytes.len())
    );
}
