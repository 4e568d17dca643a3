//! Events of records: kinds, flags, users, and details as text.

use std::fmt::Write;

use super::fid::Fid;
use super::record::ChangelogRecord;
use super::record_type::RecordType;
use super::resolver::RecordPaths;
use super::window::LAST_LINK;
use crate::event::{EventFlags, EventKind, FileEvent, NativeRecord};

/// Bit of a mode of opening: to write.
const OPEN_WRITE: u32 = 0x2;
/// Bits of `markerflags`, which a record of type `MARK` has in place of its target's sequence.
const MARK_START: u64 = 0x1_0000;
const MARK_END: u64 = 0x2_0000;
const MARK_PURGE: u64 = 0x4_0000;

/// What a record of type `MARK` marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Recording began: the server was started, or its first user was registered.
    Start,
    /// Recording ended: the last user was removed.
    End,
    /// The log was cleared.
    Purge,
    Other,
}

impl Mark {
    pub(crate) fn of(record: &ChangelogRecord<'_>) -> Option<Self> {
        let flags = record.target.sequence;
        let has = |bit: u64| flags & bit != 0;
        (record.record_type() == Some(RecordType::Mark)).then(|| match () {
            () if has(MARK_START) => Self::Start,
            () if has(MARK_END) => Self::End,
            () if has(MARK_PURGE) => Self::Purge,
            () => Self::Other,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Purge => "purge",
            Self::Other => "other",
        }
    }
}

/// The event of a record whose type is known.
pub(crate) fn event_of(
    record: &ChangelogRecord<'_>,
    of: RecordType,
    paths: RecordPaths,
) -> FileEvent {
    let mut event = FileEvent::new(kind_of(record, of), record.index, record.time_ns());
    let is_rename = matches!(of, RecordType::Rename | RecordType::RenameTo);
    let is_last = record.flags & LAST_LINK != 0;
    let replaced = record.target;
    if of != RecordType::Mark {
        let source = record
            .source
            .map(|(source, _)| source)
            .filter(|_| is_rename);
        let target = source.unwrap_or(record.target);
        (event.target, event.parent) = (target.id(), paths.parent.id());
    }
    event.flags = EventFlags::PATH_INCOMPLETE
        .when(!paths.is_whole)
        .with(EventFlags::OLD_PATH_INCOMPLETE.when(!paths.is_old_whole))
        .with(EventFlags::DIRECTORY.when(paths.is_directory))
        .with(EventFlags::LAST_LINK.when(of == RecordType::Rmdir))
        .with(EventFlags::LAST_LINK.when(of == RecordType::Unlink && is_last))
        .with(EventFlags::REPLACED.when(is_rename && !replaced.is_none()));
    (event.path, event.old_path) = (paths.path, paths.old_path);
    if let Some((user, group)) = record.user {
        event.uid = user.try_into().ok();
        event.gid = group.try_into().ok();
    }
    event.job = String::from_utf8_lossy(record.job).into();
    event.native = Some(NativeRecord {
        kind: of as u8,
        flags: record.flags,
    });
    event.detail = detail_of(record, of).into();
    event
}

/// An event for records that are missing.
pub(crate) fn gap_of(first: u64, last: u64, ts: i64) -> FileEvent {
    let mut event = FileEvent::new(EventKind::Gap, last, ts);
    event.detail = format!("first={first} last={last}").into();
    event
}

fn kind_of(record: &ChangelogRecord<'_>, of: RecordType) -> EventKind {
    match of {
        RecordType::Close if u32::from(record.flags) & OPEN_WRITE != 0 => EventKind::CloseWrite,
        _ => of.kind(),
    }
}

fn detail_of(record: &ChangelogRecord<'_>, of: RecordType) -> String {
    let mut detail = String::new();
    if let Some(nid) = record.nid {
        put(&mut detail, "nid", nid.to_string().as_bytes());
    }
    if let Some(open) = record.open {
        let letter = |bit: u32, letter: u8| if open & bit != 0 { letter } else { b'-' };
        let mode = [letter(1, b'r'), letter(2, b'w'), letter(4, b'x')];
        put(&mut detail, "mode", &mode);
    }
    if !record.xattr.is_empty() {
        put(&mut detail, "xattr", record.xattr);
    }
    match of {
        RecordType::Mark => {
            let mark = Mark::of(record).unwrap_or(Mark::Other);
            put(&mut detail, "mark", mark.as_str().as_bytes());
            put(&mut detail, "device", record.name);
        }
        RecordType::Hsm => put_hsm(&mut detail, record.flags),
        RecordType::Rename if record.source.is_some() && !record.target.is_none() => {
            put_fid(&mut detail, "replaced", record.target);
        }
        RecordType::Migrate => {
            if let Some((old, _)) = record.source {
                put_fid(&mut detail, "old", old);
            }
        }
        RecordType::Truncate
        | RecordType::SetAttribute
        | RecordType::ModificationTime
        | RecordType::ChangeTime
        | RecordType::AccessTime => put(&mut detail, "changed", changed(record.flags).as_bytes()),
        _ => {}
    }
    detail
}

/// What a hierarchical storage manager did: bits 7 to 9 of the flags are the action, bits 0 to 6
/// an error, and bit 10 tells that the file was changed since it was archived.
fn put_hsm(detail: &mut String, flags: u16) {
    let actions = ["archive", "restore", "cancel", "release", "remove", "state"];
    let action = actions
        .get(usize::from(flags >> 7 & 0x7))
        .unwrap_or(&"unknown");
    put(detail, "hsm", action.as_bytes());
    if flags & 0x7f != 0 {
        put(detail, "error", (flags & 0x7f).to_string().as_bytes());
    }
    if flags & 0x400 != 0 {
        put(detail, "dirty", b"1");
    }
}

/// The attributes that a record's flags name (`LA_*`).
fn changed(flags: u16) -> String {
    let attributes = ["atime", "mtime", "ctime", "size", "mode", "uid", "gid"];
    let named = (0..)
        .zip(attributes)
        .filter(|(bit, _)| flags >> bit & 1 != 0);
    let named: Vec<&str> = named.map(|(_, name)| name).collect();
    named.join(",")
}

fn put_fid(detail: &mut String, key: &str, fid: Fid) {
    put(detail, key, fid.to_string().as_bytes());
}

/// Appends a field. Blanks and what is not printable are written as `%` and two digits.
fn put(detail: &mut String, key: &str, value: &[u8]) {
    if value.is_empty() {
        return;
    }
    if !detail.is_empty() {
        detail.push(' ');
    }
    detail.push_str(key);
    detail.push('=');
    for byte in value {
        match byte {
            b'!'..=b'~' if *byte != b'%' => detail.push(char::from(*byte)),
            _ => {
                // Writing to a text does not fail.
                let _ = write!(detail, "%{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::nid::Nid;

    fn event(type_number: u32, record: ChangelogRecord<'_>) -> FileEvent {
        let of = RecordType::from_number(type_number).unwrap();
        let paths = RecordPaths {
            is_whole: true,
            is_old_whole: true,
            ..RecordPaths::default()
        };
        let record = ChangelogRecord {
            type_number,
            index: 1,
            ..record
        };
        event_of(&record, of, paths)
    }

    #[test]
    fn kinds_and_details_of_records() {
        let check = |type_number, flags, kind, detail: &str| {
            let record = ChangelogRecord {
                flags,
                ..ChangelogRecord::default()
            };
            let event = event(type_number, record);
            assert_eq!((event.kind, &*event.detail), (kind, detail));
            let native = NativeRecord {
                kind: type_number as u8,
                flags,
            };
            assert_eq!(event.native, Some(native));
        };
        check(1, 0, EventKind::Create, "");
        check(11, 0x242, EventKind::CloseWrite, "");
        check(11, 0x241, EventKind::Close, "");
        check(13, 0xe, EventKind::Truncate, "changed=mtime,ctime,size");
        check(14, 0x44, EventKind::Attrib, "changed=ctime,gid");
        check(17, 0x7, EventKind::Attrib, "changed=atime,mtime,ctime");
        check(16, 0x401, EventKind::Hsm, "hsm=archive error=1 dirty=1");
        check(16, 3 << 7, EventKind::Hsm, "hsm=release");
        check(16, 7 << 7, EventKind::Hsm, "hsm=unknown");
        check(21, 0, EventKind::Resync, "");
        check(24, 0x2, EventKind::OpenDenied, "");
    }

    #[test]
    fn fields_of_a_record() {
        let record = ChangelogRecord {
            target: Fid::new(1, 2, 3),
            source: Some((Fid::new(4, 5, 6), Fid::ROOT)),
            job: b"mv.\xff",
            user: Some((500, u64::MAX)),
            nid: Nid::parse("10.0.0.1@tcp"),
            open: Some(5),
            xattr: b"user.a b%",
            flags: 1,
            ..ChangelogRecord::default()
        };
        let read = event(8, record);
        assert_eq!(read.target, Fid::new(4, 5, 6).id());
        assert_eq!(read.flags, EventFlags::REPLACED);
        assert_eq!(
            (read.uid, read.gid, &*read.job),
            (Some(500), None, "mv.\u{fffd}")
        );
        let detail = "nid=10.0.0.1@tcp mode=r-x xattr=user.a%20b%25 replaced=[0x1:0x2:0x3]";
        assert_eq!(&*read.detail, detail);
        let read = event(20, record);
        assert_eq!(read.target, Fid::new(1, 2, 3).id());
        assert!(read.detail.ends_with(" old=[0x4:0x5:0x6]"));
    }

    #[test]
    fn marks() {
        for (flags, mark) in [(0x1_0001, "start"), (0x2_0001, "end"), (0x4_0000, "purge")] {
            let record = ChangelogRecord {
                target: Fid::new(flags, 0, 0),
                parent: Fid::new(0, 0x50, 0xb),
                name: b"mdd_obd-lustre-MDT0000-0",
                ..ChangelogRecord::default()
            };
            let read = event(0, record);
            let detail = format!("mark={mark} device=mdd_obd-lustre-MDT0000-0");
            assert_eq!((read.kind, &*read.detail), (EventKind::Mark, &*detail));
            assert!(read.target.is_none() && read.parent.is_none());
        }
    }
}
