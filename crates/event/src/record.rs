//! The bytes of an event as a sample of its stream has them (`docs/reference/event-format.md`).
//!
//! The time of the event is that of the sample. Records come from other nodes and from files, so
//! [`decode`] believes nothing.

use thiserror::Error;

use crate::event::{EventFlags, EventKind, FileEvent, NativeRecord, ObjectId, PATH_BYTES_MAX};

/// Version of the format.
const VERSION: u8 = 1;
/// Bytes before the optional fields: version, kind, flags, index, target, parent, what is present.
const HEAD: usize = 1 + 1 + 2 + 8 + 16 + 16 + 1;
/// Bits of the optional fields that are present.
const SIZE: u8 = 1;
const UID: u8 = 1 << 1;
const GID: u8 = 1 << 2;
const NATIVE: u8 = 1 << 3;
const KNOWN: u8 = SIZE | UID | GID | NATIVE;
const JOB_BYTES_MAX: usize = 255;
const DETAIL_BYTES_MAX: usize = 1_024;
/// Most bytes of a record.
pub const RECORD_BYTES_MAX: usize =
    HEAD + 8 + 4 + 4 + 3 + 2 * (2 + PATH_BYTES_MAX) + 1 + JOB_BYTES_MAX + 2 + DETAIL_BYTES_MAX;

/// The reason why bytes are no record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordFault {
    /// The record ends early.
    #[error("the record ends early")]
    Short,
    /// The record goes on after its end.
    #[error("the record goes on after its end")]
    Long,
    /// The record has another version.
    #[error("the record has version {0}, and this program reads version 1")]
    Version(u8),
    /// The kind is unknown.
    #[error("the record has the unknown kind {0}")]
    Kind(u8),
    /// Optional fields of which nothing is known.
    #[error("the record has unknown fields")]
    Fields,
    /// A field is longer than allowed, or a text is not UTF-8.
    #[error("a field of the record is too long, or is not UTF-8")]
    Text,
}

/// Appends the bytes of an event to `to`. Paths that are too long lose their beginning and are
/// marked as incomplete; other texts lose their end.
pub fn encode(event: &FileEvent, to: &mut Vec<u8>) {
    let (path, is_path_cut) = end_of(&event.path);
    let (old_path, is_old_cut) = end_of(&event.old_path);
    let flags = event
        .flags
        .with(EventFlags::PATH_INCOMPLETE.when(is_path_cut))
        .with(EventFlags::OLD_PATH_INCOMPLETE.when(is_old_cut));
    to.extend([VERSION, event.kind as u8]);
    to.extend(flags.0.to_le_bytes());
    to.extend(event.index.to_le_bytes());
    to.extend(event.target.0);
    to.extend(event.parent.0);
    let bit = |is_present: bool, bit: u8| if is_present { bit } else { 0 };
    to.push(
        bit(event.size.is_some(), SIZE)
            | bit(event.uid.is_some(), UID)
            | bit(event.gid.is_some(), GID)
            | bit(event.native.is_some(), NATIVE),
    );
    to.extend(event.size.iter().flat_map(|size| size.to_le_bytes()));
    to.extend(event.uid.iter().flat_map(|uid| uid.to_le_bytes()));
    to.extend(event.gid.iter().flat_map(|gid| gid.to_le_bytes()));
    if let Some(native) = event.native {
        to.push(native.kind);
        to.extend(native.flags.to_le_bytes());
    }
    put(to, path);
    put(to, old_path);
    let job = start_of(&event.job, JOB_BYTES_MAX);
    to.push(job.len() as u8);
    to.extend(job.as_bytes());
    put(to, start_of(&event.detail, DETAIL_BYTES_MAX).as_bytes());
}

/// An event as its record has it, without copies. Its time is that of its sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Kind of the event.
    pub kind: EventKind,
    /// What else is known of the event.
    pub flags: EventFlags,
    /// Number of the event in its source.
    pub index: u64,
    /// The file or directory.
    pub target: ObjectId,
    /// The directory in which it is.
    pub parent: ObjectId,
    /// Path at the time of the event.
    pub path: &'a [u8],
    /// Path before a rename or migration.
    pub old_path: &'a [u8],
    /// Size of the file after the event, in bytes.
    pub size: Option<u64>,
    /// User that caused the event.
    pub uid: Option<u32>,
    /// Group of that user.
    pub gid: Option<u32>,
    /// Job that caused the event.
    pub job: &'a str,
    /// The record of the source.
    pub native: Option<NativeRecord>,
    /// Further fields of the source.
    pub detail: &'a str,
}

impl<'a> EventRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The bytes are no record of this version.
    pub fn read(bytes: &'a [u8]) -> Result<Self, RecordFault> {
        let mut rest = Rest(bytes);
        let [version, kind] = rest.array()?;
        if version != VERSION {
            return Err(RecordFault::Version(version));
        }
        let flags = EventFlags(u16::from_le_bytes(rest.array()?));
        let index = u64::from_le_bytes(rest.array()?);
        let (target, parent) = (ObjectId(rest.array()?), ObjectId(rest.array()?));
        let [present] = rest.array()?;
        if present & !KNOWN != 0 {
            return Err(RecordFault::Fields);
        }
        let has = |bit: u8| present & bit != 0;
        let size = has(SIZE).then(|| rest.array()).transpose()?;
        let uid = has(UID).then(|| rest.array()).transpose()?;
        let gid = has(GID).then(|| rest.array()).transpose()?;
        let native = has(NATIVE).then(|| rest.array()).transpose()?;
        let path = rest.counted(PATH_BYTES_MAX)?;
        let old_path = rest.counted(PATH_BYTES_MAX)?;
        let [job_bytes] = rest.array()?;
        let job = text(rest.take(job_bytes.into())?)?;
        let detail = text(rest.counted(DETAIL_BYTES_MAX)?)?;
        if !rest.0.is_empty() {
            return Err(RecordFault::Long);
        }
        Ok(Self {
            kind: EventKind::from_u8(kind).ok_or(RecordFault::Kind(kind))?,
            flags,
            index,
            target,
            parent,
            path,
            old_path,
            size: size.map(u64::from_le_bytes),
            uid: uid.map(u32::from_le_bytes),
            gid: gid.map(u32::from_le_bytes),
            job,
            native: native.map(|[kind, low, high]| NativeRecord {
                kind,
                flags: u16::from_le_bytes([low, high]),
            }),
            detail,
        })
    }
}

/// Reads the event whose sample has the time `ts`, in ns since the epoch.
///
/// # Errors
///
/// The bytes are no record of this version.
pub fn decode(bytes: &[u8], ts: i64) -> Result<FileEvent, RecordFault> {
    let record = EventRecord::read(bytes)?;
    Ok(FileEvent {
        kind: record.kind,
        flags: record.flags,
        index: record.index,
        ts,
        target: record.target,
        parent: record.parent,
        path: record.path.into(),
        old_path: record.old_path.into(),
        size: record.size,
        uid: record.uid,
        gid: record.gid,
        job: record.job.into(),
        native: record.native,
        detail: record.detail.into(),
    })
}

/// The end of a path that is too long, and whether it is too long.
fn end_of(path: &[u8]) -> (&[u8], bool) {
    let cut = path.len().saturating_sub(PATH_BYTES_MAX);
    (&path[cut..], cut > 0)
}

fn start_of(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    // All of them are shorter than 64 KiB.
    to.extend((bytes.len() as u16).to_le_bytes());
    to.extend(bytes);
}

fn text(bytes: &[u8]) -> Result<&str, RecordFault> {
    std::str::from_utf8(bytes).map_err(|_| RecordFault::Text)
}

/// What is left of a record.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], RecordFault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(RecordFault::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordFault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RecordFault::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn counted(&mut self, bytes_max: usize) -> Result<&'a [u8], RecordFault> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        if count > bytes_max {
            return Err(RecordFault::Text);
        }
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_event() -> impl Strategy<Value = FileEvent> {
        let ids = (any::<[u8; 16]>(), any::<[u8; 16]>());
        let paths = (
            proptest::collection::vec(any::<u8>(), 0..300),
            proptest::collection::vec(any::<u8>(), 0..300),
        );
        let texts = ("[ -~é]{0,60}", "[ -~é]{0,300}");
        let numbers = (
            any::<Option<u64>>(),
            any::<Option<u32>>(),
            any::<Option<u32>>(),
            any::<Option<(u8, u16)>>(),
        );
        (
            1u8..=24,
            any::<u16>(),
            any::<(u64, i64)>(),
            ids,
            paths,
            numbers,
            texts,
        )
            .prop_map(
                |(kind, flags, (index, ts), ids, paths, numbers, texts)| FileEvent {
                    kind: EventKind::from_u8(kind).unwrap(),
                    flags: EventFlags(flags),
                    index,
                    ts,
                    target: ObjectId(ids.0),
                    parent: ObjectId(ids.1),
                    path: paths.0,
                    old_path: paths.1,
                    size: numbers.0,
                    uid: numbers.1,
                    gid: numbers.2,
                    native: numbers.3.map(|(kind, flags)| NativeRecord { kind, flags }),
                    job: texts.0.into(),
                    detail: texts.1.into(),
                },
            )
    }

    fn bytes_of(event: &FileEvent) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(event, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn every_event_returns(event in any_event()) {
            let bytes = bytes_of(&event);
            prop_assert!(bytes.len() <= RECORD_BYTES_MAX);
            prop_assert_eq!(decode(&bytes, event.ts), Ok(event));
        }

        #[test]
        fn a_record_has_one_length(event in any_event(), cut in 0usize..40) {
            let mut bytes = bytes_of(&event);
            bytes.push(0);
            prop_assert_eq!(decode(&bytes, 0), Err(RecordFault::Long));
            bytes.truncate((bytes.len() - 2).saturating_sub(cut));
            prop_assert!(decode(&bytes, 0).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(event) = decode(&[&[VERSION, 1][..], &bytes].concat(), 5) {
                prop_assert_eq!(event.ts, 5);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_a_cut_path_says_so() {
        let mut event = FileEvent::new(EventKind::Rename, 1, 2);
        event.path = [&[b'a'; 10][..], &[b'b'; PATH_BYTES_MAX]].concat();
        event.old_path = vec![b'c'; PATH_BYTES_MAX];
        event.job = "é".repeat(200).into();
        event.detail = "x".repeat(5_000).into();
        let read = decode(&bytes_of(&event), 2).unwrap();
        assert_eq!(read.path, [b'b'; PATH_BYTES_MAX]);
        assert_eq!(read.old_path, event.old_path);
        assert_eq!(read.flags, EventFlags::PATH_INCOMPLETE);
        assert_eq!((read.job.len(), read.detail.len()), (254, 1_024));
    }

    #[test]
    fn another_version_or_kind_is_refused() {
        let bytes = bytes_of(&FileEvent::new(EventKind::Create, 1, 2));
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = to;
            decode(&bytes, 2)
        };
        assert_eq!(changed(0, 2), Err(RecordFault::Version(2)));
        assert_eq!(changed(1, 0), Err(RecordFault::Kind(0)));
        assert_eq!(changed(1, 99), Err(RecordFault::Kind(99)));
        assert_eq!(changed(HEAD - 1, 0x10), Err(RecordFault::Fields));
    }
}
