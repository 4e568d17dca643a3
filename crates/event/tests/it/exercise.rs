//! Foreign bytes read as records, lines, buffers of the kernel and snapshots: each is refused, or
//! read and consistent. The tests and the fuzz targets share this file.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;

use barograph_event::changelog::standin::StandInPaths;
use barograph_event::changelog::{
    ChangelogCollector, ChangelogDevice, ChangelogLines, ChangelogMerge, ChangelogOptions,
    ChangelogRecord, ChangelogUser, Fid, FidLink, LineFault, MergeOptions, Nid, RecordType,
    ResolverOptions, begins_record, parse_line, record_time,
};
use barograph_event::{
    Collector, EventFlags, EventKind, FileEvent, NativeRecord, ObjectId, RECORD_BYTES_MAX,
    count_fanotify_events, decode, encode, snapshot_door,
};

/// Entries of the snapshot that is damaged: several blocks.
pub(crate) const SNAPSHOT_ENTRIES: u64 = 600;
/// Most bytes of a job's id and of an attribute's name in a binary record.
const JOB_BYTES_MAX: usize = 32;
const XATTR_BYTES_MAX: usize = 256;
/// Most calls for one log, each of which takes what was read.
const CALLS_MAX: usize = 1_000;

/// Changes bytes of a whole file; an edit is a position (two bytes) and a length (one byte) and
/// that many bytes. With `moves`, an edit may also cut and add.
pub(crate) fn overlay(good: &[u8], mut edits: &[u8], moves: bool) -> Vec<u8> {
    let mut file = good.to_vec();
    while let [low, high, length, rest @ ..] = edits
        && !file.is_empty()
    {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        let (new, others) = rest.split_at(usize::from(length & 0x3f).min(rest.len()));
        // The upper bits of the length say how much is replaced.
        let replaced = match length >> 6 {
            0 | 1 => new.len(),
            2 => 0,
            _ => 2 * new.len(),
        };
        let end = file
            .len()
            .min(at + if moves { replaced } else { new.len() });
        let new = if moves { new } else { &new[..end - at] };
        file.splice(at..end, new.iter().copied());
        edits = others;
    }
    file
}

/// The bytes of a record of an event that has everything.
pub(crate) fn whole_record() -> Vec<u8> {
    let mut event = FileEvent::new(EventKind::Rename, 12, 5);
    event.flags = EventFlags::REPLACED;
    event.target = ObjectId::of(1, 2);
    event.parent = ObjectId::of(3, 4);
    event.path = b"/new/name".to_vec();
    event.old_path = b"/old/name".to_vec();
    event.size = Some(4_096);
    event.uid = Some(500);
    event.gid = Some(100);
    event.job = "job.1".into();
    event.native = Some(NativeRecord { kind: 8, flags: 1 });
    event.detail = "nid=10.0.0.1@tcp".into();
    let mut bytes = Vec::new();
    encode(&event, &mut bytes);
    bytes
}

/// Reads bytes as the record of an event: what is read has these bytes and no others.
pub(crate) fn event_record(bytes: &[u8]) {
    let event = match decode(bytes, 7) {
        Ok(event) => event,
        Err(fault) => return assert!(!fault.to_string().is_empty()),
    };
    let mut again = Vec::new();
    encode(&event, &mut again);
    assert_eq!(again, bytes);
    assert!(bytes.len() <= RECORD_BYTES_MAX && event.ts == 7);
    assert!(event.path.ends_with(event.name()));
}

/// The records of a short log: names of all kinds, a rename, a migration, and a removal.
pub(crate) fn whole_log() -> Vec<u8> {
    let (directory, file) = (Fid::new(0x2_0000_0400, 1, 0), Fid::new(0x2_0000_0400, 2, 0));
    let told = |of: RecordType, target: Fid, parent: Fid, name: &'static [u8]| ChangelogRecord {
        type_number: of as u32,
        time: record_time(1_700_000_000_000_000_000),
        target,
        parent,
        name,
        ..ChangelogRecord::default()
    };
    let records = [
        told(RecordType::Mkdir, directory, Fid::ROOT, b"directory"),
        ChangelogRecord {
            job: b"job.1",
            user: Some((500, 100)),
            nid: Nid::parse("10.0.0.1@tcp"),
            ..told(RecordType::Create, file, directory, b"file")
        },
        ChangelogRecord {
            source: Some((file, directory)),
            old_name: b"file",
            ..told(RecordType::Rename, Fid::NONE, Fid::ROOT, b"renamed")
        },
        ChangelogRecord {
            open: Some(2),
            xattr: b"user.key",
            nid: Nid::parse("fe80::1@tcp2"),
            ..told(RecordType::Xattr, file, Fid::NONE, b"")
        },
        ChangelogRecord {
            source: Some((directory, Fid::ROOT)),
            old_name: b"directory",
            ..told(
                RecordType::Migrate,
                Fid::new(9, 9, 0),
                Fid::ROOT,
                b"directory",
            )
        },
        ChangelogRecord {
            flags: 1,
            ..told(RecordType::Unlink, file, Fid::ROOT, b"renamed")
        },
    ];
    let mut bytes = Vec::new();
    for (record, index) in records.iter().zip(1..) {
        ChangelogRecord { index, ..*record }.encode(&mut bytes);
    }
    bytes
}

/// Reads bytes as records of a ChangeLog: each that is read is the same when it is written and
/// read again. Then a collector takes the same bytes from a device.
pub(crate) fn changelog_records(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok((record, length)) = ChangelogRecord::parse(rest) {
        assert!(length > 0 && length <= rest.len() && record.index > 0);
        written_and_read(&record);
        let _ = (record.time_ns(), record.nid.map(|nid| nid.to_string()));
        rest = &rest[length..];
    }
    let paths = StandInPaths::default();
    let link = FidLink::new(Fid::ROOT, b"found");
    paths.set(Fid::new(0x2_0000_0400, 2, 0), vec![link]);
    let (options, resolver) = (MergeOptions::default(), ResolverOptions::default());
    let merge = ChangelogMerge::new(options, resolver, Box::new(paths));
    let device = Box::new(BytesDevice::new(bytes));
    let mut collector = ChangelogCollector::new(&merge, device, ChangelogOptions::default());
    let mut events = Vec::new();
    let mut last = 0;
    for call in 1..CALLS_MAX as i64 {
        let now = (
            1_700_000_000_000_000_000 + call * 2_000_000_000,
            call * 2_000_000_000,
        );
        let done = collector.collect(&mut events, 100, now);
        let is_over = done.is_err() || (events.is_empty() && call > 8);
        for event in events.drain(..) {
            assert!(
                event.index > last,
                "{} after {last}: numbers ascend",
                event.index
            );
            last = event.index;
            let mut record = Vec::new();
            encode(&event, &mut record);
            assert!(decode(&record, event.ts).is_ok());
        }
        if is_over {
            break;
        }
    }
    let _ = (collector.acknowledge(last), collector.status());
}

fn written_and_read(record: &ChangelogRecord<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let again = ChangelogRecord::parse(&bytes);
    assert_eq!(again, Ok((*record, bytes.len())));
}

/// A device that gives bytes as they are, once for each scan.
struct BytesDevice {
    bytes: Vec<u8>,
    at: usize,
}

impl BytesDevice {
    fn new(bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        Self { bytes, at: 0 }
    }
}

impl ChangelogDevice for BytesDevice {
    fn scan(&mut self, _: u64) -> io::Result<()> {
        self.at = 0;
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }

    fn clear(&mut self, _: ChangelogUser, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn path(&self) -> &Path {
        Path::new("bytes")
    }
}

/// Lines of several versions, to be damaged.
pub(crate) const LINES: &[u8] =
    b"4 01CREAT 02:10:01.749034600 2026.03.16 0x0 t=[0x200000401:0x1:0x0] ef=0xf u=0:0 nid=172.31.39.56@tcp p=[0x200000007:0x1:0x0] test.txt\n\
5 00MARK  15:56:39.603643887 2018.01.09 0x0 t=[0x20001:0x0:0x0] ef=0xf u=500:500 nid=0@<0:0> p=[0:0x50:0xb] mdd_obd-lustre-MDT0000-0\n\
16 08RENME 02:52:19.805772855 2026.03.16 0x0 t=[0:0x0:0x0] j=job 1 ef=0xf u=1000:1000 nid=172.31.39.56@tcp p=[0x200000401:0x2:0x0] new name s=[0x200000401:0x3:0x0] sp=[0x200000401:0x2:0x0] old name\n\
17 10OPEN 02:52:19.8 2026.03.16 0x24a t=[0x200000401:0x4:0x0] ef=0xf u=0:0 nid=0@lo m=-w- x=user.key p=[0x200000007:0x1:0x0]\n";

/// Reads bytes as lines of `lfs changelog`, each alone and all from a file.
pub(crate) fn changelog_lines(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        match parse_line(line) {
            Ok(record) => {
                assert!(begins_record(line) && record.index > 0);
                // Names without a NUL, which none has, and of the lengths that records have.
                let texts = [record.name, record.old_name, record.job, record.xattr];
                let is_short =
                    record.job.len() <= JOB_BYTES_MAX && record.xattr.len() <= XATTR_BYTES_MAX;
                if is_short && texts.iter().all(|text| !text.contains(&0)) {
                    written_and_read(&record);
                }
            }
            Err(fault) => assert_eq!(begins_record(line), fault != LineFault::Head),
        }
    }
    let mut file = tempfile::tempfile().expect("there is room for a file");
    file.write_all(bytes).expect("there is room for a file");
    io::Seek::rewind(&mut file).expect("a file goes back");
    let mut device = ChangelogLines::new(file, "lines").expect("it is a file");
    let _ = device.scan(0);
    let mut buffer = vec![0; 128 << 10];
    let mut records = VecDeque::new();
    loop {
        match device.read(&mut buffer) {
            Ok(0) => break,
            Ok(filled) => records.push_back(buffer[..filled].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
    for chunk in &records {
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let parsed = ChangelogRecord::parse(rest);
            let (_, length) = parsed.expect("a device gives whole records");
            rest = &rest[length..];
        }
    }
}

/// The bytes of some events of fanotify: a merged creation, a rename, an error, and an overflow.
pub(crate) fn whole_buffer() -> Vec<u8> {
    let handle = |kind: u8, name: &[u8]| {
        let mut body = [5u32, 6, 8, 1].map(u32::to_ne_bytes).concat();
        body.extend([9; 8]);
        body.extend(name);
        body.resize(body.len().next_multiple_of(4), 0);
        record(kind, &body)
    };
    let error = [117u32, 3].map(u32::to_ne_bytes).concat();
    [
        event(0x10a, &[handle(2, b"file\0"), handle(1, b"")]),
        event(
            0x1000_0000,
            &[handle(10, b"old\0"), handle(12, b"new\0"), handle(1, b"")],
        ),
        event(0x8000, &[record(5, &error), handle(1, b"")]),
        event(0x4000_0004, &[handle(3, b"")]),
        event(0x4000, &[]),
    ]
    .concat()
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let [low, high] = (4 + body.len() as u16).to_ne_bytes();
    [&[kind, 0, low, high][..], body].concat()
}

fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.concat();
    let mut bytes = (24 + records.len() as u32).to_ne_bytes().to_vec();
    bytes.extend([3, 0, 24, 0]);
    bytes.extend(mask.to_ne_bytes());
    bytes.extend((-1i32).to_ne_bytes());
    bytes.extend(77i32.to_ne_bytes());
    bytes.extend(records);
    bytes
}

/// Reads bytes as those that a fanotify group gives.
pub(crate) fn fanotify_buffer(bytes: &[u8]) {
    let (read, refused) = count_fanotify_events(bytes);
    // Each has the bytes of its header, but the last one, which may be cut.
    assert!((read + refused).saturating_sub(1) * 24 <= bytes.len());
}

/// The bytes of a whole snapshot, which is written to this path.
pub(crate) fn whole_snapshot(path: &Path) -> Vec<u8> {
    snapshot_door::write(path, SNAPSHOT_ENTRIES).expect("there is room for a file");
    std::fs::read(path).expect("it was written just now")
}

/// Changes a snapshot and makes its checksums match, as far as its blocks are where they were.
pub(crate) fn forged_snapshot(whole: &[u8], edits: &[u8]) -> Vec<u8> {
    let places = block_places(whole);
    let mut file = overlay(whole, edits, false);
    seal(&mut file, 0..20, 20);
    for (at, length) in places {
        seal(&mut file, at + 8..at + 8 + length, at + 4);
    }
    let tail = file.len() - 28;
    let index = u64::from_le_bytes(file[tail..tail + 8].try_into().expect("8 bytes"));
    let end = file.len() - 4;
    if let Ok(index) = usize::try_from(index)
        && index < end
    {
        seal(&mut file, index..end, end);
    }
    file
}

fn seal(file: &mut [u8], of: std::ops::Range<usize>, at: usize) {
    let crc = crc32fast::hash(&file[of]).to_le_bytes();
    file[at..at + 4].copy_from_slice(&crc);
}

/// Places and lengths of the blocks of a whole snapshot.
fn block_places(whole: &[u8]) -> Vec<(usize, usize)> {
    let tail = whole.len() - 28;
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().expect("8 bytes"));
    let (index, mut at, mut places) = (number(tail) as usize, 24, Vec::new());
    while at < index {
        let length = u32::from_le_bytes(whole[at..at + 4].try_into().expect("4 bytes")) as usize;
        places.push((at, length));
        at += 8 + length;
    }
    places
}

/// Reads a file as a snapshot: it is refused, or each of its entries is found again.
pub(crate) fn snapshot(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("there is room for a file");
    snapshot_door::read(path);
}
