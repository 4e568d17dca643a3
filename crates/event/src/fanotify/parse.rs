//! The bytes that a fanotify group gives (`fanotify(7)`), as events.
//!
//! It stands alone because it reads foreign bytes: lengths and names are believed only as far as
//! there are bytes for them.

use thiserror::Error;

use crate::event::ObjectId;

/// Bits of the mask of an event, `FAN_*`.
pub(crate) mod mask {
    pub(crate) const MODIFY: u64 = 0x2;
    pub(crate) const ATTRIB: u64 = 0x4;
    pub(crate) const CLOSE_WRITE: u64 = 0x8;
    pub(crate) const CLOSE_NOWRITE: u64 = 0x10;
    pub(crate) const OPEN: u64 = 0x20;
    pub(crate) const CREATE: u64 = 0x100;
    pub(crate) const DELETE: u64 = 0x200;
    pub(crate) const Q_OVERFLOW: u64 = 0x4000;
    pub(crate) const FS_ERROR: u64 = 0x8000;
    pub(crate) const RENAME: u64 = 0x1000_0000;
    pub(crate) const ONDIR: u64 = 0x4000_0000;
}

/// Version of the structure of events.
const VERSION: u8 = 3;
/// Bytes of `struct fanotify_event_metadata`.
const METADATA_BYTES: usize = 24;
/// Bytes of `struct fanotify_event_info_header`.
const HEADER_BYTES: usize = 4;
/// Most bytes of a file handle, `MAX_HANDLE_SZ`.
pub(crate) const HANDLE_BYTES_MAX: usize = 128;
/// Most bytes of a name, `NAME_MAX`.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Types of the records that follow the metadata of an event, `FAN_EVENT_INFO_TYPE_*`.
mod info {
    pub(super) const FID: u8 = 1;
    pub(super) const DFID_NAME: u8 = 2;
    pub(super) const DFID: u8 = 3;
    pub(super) const ERROR: u8 = 5;
    pub(super) const OLD_DFID_NAME: u8 = 10;
    pub(super) const NEW_DFID_NAME: u8 = 12;
}

/// The reason why bytes are no event.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum RawFault {
    /// The length of the event fits neither its metadata nor the bytes that are left, so that the
    /// next event cannot be found either.
    #[error("an event of the fanotify group has a wrong length")]
    Length,
    /// The structure has another version, so that nothing after it can be read.
    #[error("events of the fanotify group have version {0}, and this program reads version 3")]
    Version(u8),
    /// A record in the event is damaged. The next event can be read.
    #[error("an event of the fanotify group has a damaged record")]
    Record,
}

/// A file handle: what identifies an object in its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHandle<'a> {
    /// Type of the handle, which the file system defines.
    pub(crate) kind: i32,
    /// The bytes, at most [`HANDLE_BYTES_MAX`].
    pub(crate) bytes: &'a [u8],
}

impl FileHandle<'_> {
    /// The identity of the object in the file system `fsid`. Handles of at most 8 bytes are kept
    /// as they are, which is the case on ext4; longer ones are hashed with their type.
    pub(crate) fn id(&self, fsid: u64) -> ObjectId {
        let low = match self.bytes.len() {
            0..=8 => {
                let mut low = [0; 8];
                low[..self.bytes.len()].copy_from_slice(self.bytes);
                u64::from_be_bytes(low)
            }
            _ => hash(self.kind, self.bytes),
        };
        ObjectId::of(fsid, low)
    }
}

/// The 64 bits of FNV-1a, with the finishing step of MurmurHash3.
fn hash(kind: i32, bytes: &[u8]) -> u64 {
    let start = kind.to_le_bytes();
    let bytes = start.iter().chain(bytes);
    let word = bytes.fold(0xcbf2_9ce4_8422_2325u64, |word, byte| {
        (word ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawPlace<'a> {
    /// The directory.
    pub(crate) directory: ObjectId,
    /// The name; empty or `.` for the directory itself.
    pub(crate) name: &'a [u8],
}

/// An event as the kernel gives it. What it does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawEvent<'a> {
    /// What happened: several bits if the kernel has merged events.
    pub(crate) mask: u64,
    /// Process that caused the event; 0 if it is unknown.
    pub(crate) pid: i32,
    /// Whether the event has an open descriptor, which groups of our kind never give.
    pub(crate) has_descriptor: bool,
    /// The object.
    pub(crate) target: Option<ObjectId>,
    /// The bytes of the handle of the object; empty if there is none.
    pub(crate) handle: &'a [u8],
    /// The place of the object.
    pub(crate) place: Option<RawPlace<'a>>,
    /// The place before a rename.
    pub(crate) old: Option<RawPlace<'a>>,
    /// The place after a rename.
    pub(crate) new: Option<RawPlace<'a>>,
    /// The error of the file system, and how often there was one.
    pub(crate) error: Option<(i32, u32)>,
}

impl RawEvent<'_> {
    /// Whether any of these bits is set.
    pub(crate) fn has(&self, bits: u64) -> bool {
        self.mask & bits != 0
    }
}

/// Takes the first event of `bytes`, which must not be empty. The second value is the number of
/// bytes that it takes, all of them if the next event cannot be found.
pub(crate) fn first(bytes: &[u8]) -> (Result<RawEvent<'_>, RawFault>, usize) {
    let Some(metadata) = bytes.first_chunk::<METADATA_BYTES>() else {
        return (Err(RawFault::Length), bytes.len());
    };
    let [l0, l1, l2, l3, version, _, m0, m1, ..] = *metadata;
    if version != VERSION {
        return (Err(RawFault::Version(version)), bytes.len());
    }
    let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    let start = usize::from(u16::from_ne_bytes([m0, m1]));
    if length < METADATA_BYTES || length > bytes.len() || start < METADATA_BYTES || start > length {
        return (Err(RawFault::Length), bytes.len());
    }
    let mut rest = &metadata[8..];
    let mask = u64::from_ne_bytes(take(&mut rest).unwrap_or_default());
    let descriptor = i32::from_ne_bytes(take(&mut rest).unwrap_or_default());
    let pid = i32::from_ne_bytes(take(&mut rest).unwrap_or_default());
    let mut event = RawEvent {
        mask,
        pid,
        has_descriptor: descriptor >= 0,
        ..RawEvent::default()
    };
    let outcome = records(&bytes[start..length], &mut event);
    (outcome.ok_or(RawFault::Record).map(|()| event), length)
}

/// Reads the records after the metadata.
fn records<'a>(bytes: &'a [u8], event: &mut RawEvent<'a>) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let [kind, _, l0, l1] = *rest.first_chunk::<HEADER_BYTES>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let body = rest.get(HEADER_BYTES..length)?;
        rest = &rest[length..];
        match kind {
            info::FID => {
                let (target, rest) = handle(body)?;
                event.target = Some(target);
                // The handle is what lies between its length and type, and what follows it.
                event.handle = body.get(16..body.len() - rest.len())?;
            }
            info::DFID => {
                let directory = handle(body)?.0;
                event.place = Some(RawPlace {
                    directory,
                    name: b"",
                });
            }
            info::DFID_NAME => event.place = Some(place(body)?),
            info::OLD_DFID_NAME => event.old = Some(place(body)?),
            info::NEW_DFID_NAME => event.new = Some(place(body)?),
            info::ERROR => {
                let mut body = body;
                let error = i32::from_ne_bytes(take(&mut body)?);
                event.error = Some((error, u32::from_ne_bytes(take(&mut body)?)));
            }
            // Among them pidfds, which groups of our kind do not give.
            _ => {}
        }
    }
    Some(())
}

/// Reads the file system and the handle, and returns the identity and what follows it.
fn handle(body: &[u8]) -> Option<(ObjectId, &[u8])> {
    let mut rest = body;
    // As `f_fsid` of statvfs(3) has the two halves.
    let fsid = u64::from(u32::from_ne_bytes(take(&mut rest)?));
    let fsid = fsid | u64::from(u32::from_ne_bytes(take(&mut rest)?)) << 32;
    let length = u32::from_ne_bytes(take(&mut rest)?) as usize;
    let kind = i32::from_ne_bytes(take(&mut rest)?);
    if length > HANDLE_BYTES_MAX {
        return None;
    }
    let (bytes, rest) = rest.split_at_checked(length)?;
    Some((FileHandle { kind, bytes }.id(fsid), rest))
}

fn place(body: &[u8]) -> Option<RawPlace<'_>> {
    let (directory, rest) = handle(body)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let name = &rest[..end];
    let is_name = name.len() <= NAME_BYTES_MAX && !name.contains(&b'/');
    is_name.then_some(RawPlace { directory, name })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
pub(crate) mod encode {
    //! An encoder of events, for tests.

    use super::*;

    /// The bytes of the record of a handle and a name.
    pub(crate) fn record(
        kind: u8,
        fsid: u64,
        handle: FileHandle<'_>,
        name: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut body = (fsid as u32).to_ne_bytes().to_vec();
        body.extend(((fsid >> 32) as u32).to_ne_bytes());
        body.extend((handle.bytes.len() as u32).to_ne_bytes());
        body.extend(handle.kind.to_ne_bytes());
        body.extend(handle.bytes);
        if let Some(name) = name {
            body.extend(name);
            body.push(0);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        headed(kind, &body)
    }

    /// The bytes of a record.
    pub(crate) fn headed(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + body.len()) as u16;
        let [low, high] = length.to_ne_bytes();
        [&[kind, 0, low, high][..], body].concat()
    }

    /// The bytes of an event with these records.
    pub(crate) fn event(mask: u64, pid: i32, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let length = (METADATA_BYTES + records.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([VERSION, 0]);
        bytes.extend((METADATA_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend((-1i32).to_ne_bytes());
        bytes.extend(pid.to_ne_bytes());
        bytes.extend(records);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Result<RawEvent<'_>, RawFault>> {
        let (mut rest, mut found) = (bytes, Vec::new());
        while !rest.is_empty() {
            let (event, length) = first(rest);
            assert!(length > 0 && length <= rest.len());
            found.push(event);
            rest = &rest[length..];
        }
        found
    }

    fn of(bytes: &[u8]) -> FileHandle<'_> {
        FileHandle { kind: 1, bytes }
    }

    #[test]
    fn the_records_of_a_rename_an_error_and_a_merged_creation() {
        let rename = encode::event(
            mask::RENAME,
            7,
            &[
                encode::record(10, 5, of(&[1; 8]), Some(b"old")),
                encode::record(12, 5, of(&[2; 12]), Some(b"new\n\xff")),
                encode::record(1, 5, of(&[3; 8]), None),
                encode::headed(4, &9i32.to_ne_bytes()),
            ],
        );
        let error = encode::event(
            mask::FS_ERROR,
            0,
            &[
                encode::headed(5, &[117i32.to_ne_bytes(), 3i32.to_ne_bytes()].concat()),
                encode::record(1, 5, of(&[]), None),
            ],
        );
        let overflow = encode::event(mask::Q_OVERFLOW, 0, &[]);
        let bytes = [rename, error, overflow].concat();
        let events: Vec<_> = all(&bytes).into_iter().map(Result::unwrap).collect();
        let low = u64::from_be_bytes([1; 8]);
        let old = events[0].old.unwrap();
        assert_eq!(
            (old.directory, old.name),
            (ObjectId::of(5, low), &b"old"[..])
        );
        let new = events[0].new.unwrap();
        assert_eq!(
            (new.directory, new.name),
            (of(&[2; 12]).id(5), &b"new\n\xff"[..])
        );
        assert_eq!(events[0].target, Some(of(&[3; 8]).id(5)));
        assert_eq!((events[0].pid, events[0].place), (7, None));
        assert_eq!(events[0].handle, [3; 8]);
        assert_eq!(events[1].error, Some((117, 3)));
        assert!(events[2].has(mask::Q_OVERFLOW) && !events[2].has_descriptor);
    }

    #[test]
    fn damaged_events_are_told_apart() {
        let good = encode::event(
            mask::CREATE,
            1,
            &[encode::record(2, 5, of(&[1; 8]), Some(b"f"))],
        );
        let changed = |at: usize, to: u8| {
            let mut bytes = [&good[..], &good].concat();
            bytes[at] = to;
            let found = all(&bytes);
            (found.len(), found[0].is_ok(), found[0].err())
        };
        for (at, to, expected) in [
            (0, 23, (1, false, Some(RawFault::Length))),
            (1, 1, (1, false, Some(RawFault::Length))),
            (4, 9, (1, false, Some(RawFault::Version(9)))),
            (6, 23, (1, false, Some(RawFault::Length))),
            // The length of the record, that of its handle, and a slash in its name.
            (26, 3, (2, false, Some(RawFault::Record))),
            (26, 255, (2, false, Some(RawFault::Record))),
            (36, 255, (2, false, Some(RawFault::Record))),
            (52, b'/', (2, false, Some(RawFault::Record))),
            (53, 1, (2, true, None)),
        ] {
            assert_eq!(changed(at, to), expected, "{at} {to}");
        }
        assert_eq!(all(&good[..20]), [Err(RawFault::Length)]);
    }

    #[test]
    fn identities_of_handles() {
        assert_eq!(of(&[1, 2]).id(3), ObjectId::of(3, 0x0102 << 48));
        assert_ne!(of(&[0; 9]).id(3), of(&[0; 10]).id(3));
        let other = FileHandle {
            kind: 2,
            bytes: &[0; 9],
        };
        assert_ne!(of(&[0; 9]).id(3), other.id(3));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            all(&bytes);
        }

        #[test]
        fn changed_bytes_are_read_or_refused(
            name in proptest::collection::vec(1u8..=255, 0..300),
            handle in proptest::collection::vec(any::<u8>(), 0..140),
            changes in proptest::collection::vec((0usize..600, any::<u8>()), 0..4),
        ) {
            let records = [2, 10, 12, 1, 3].map(|kind| {
                encode::record(kind, 1, of(&handle), (kind != 1 && kind != 3).then_some(&name[..]))
            });
            let mut bytes = encode::event(mask::CREATE, 1, &records);
            let is_good = name.len() <= NAME_BYTES_MAX
                && !name.contains(&b'/')
                && handle.len() <= HANDLE_BYTES_MAX;
            prop_assert_eq!(first(&bytes).0.is_ok(), is_good);
            if is_good {
                prop_assert_eq!(first(&bytes).0.unwrap().old.unwrap().name, &name[..]);
            }
            for (at, to) in changes {
                let at = at % bytes.len();
                bytes[at] = to;
            }
            all(&bytes);
        }
    }
}
