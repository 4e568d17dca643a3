//! Tests of single situations: the records of one or two logs, and the events that they give.

use std::path::Path;

use super::record::{ChangelogRecord, record_time};
use super::standin::{StandInDevice, StandInLog, StandInPaths};
use super::*;
use crate::collector::Collector;
use crate::event::{EventFlags, EventKind, FileEvent};

const CUT: EventFlags = EventFlags::PATH_INCOMPLETE;
const OLD_CUT: EventFlags = EventFlags::OLD_PATH_INCOMPLETE;

fn fid(object: u32) -> Fid {
    match object {
        0 => Fid::NONE,
        1 => Fid::ROOT,
        object => Fid::new(0x2_0000_0400, object, 0),
    }
}

/// A record with target, parent and name.
fn record(of: RecordType, target: u32, parent: u32, name: &str) -> ChangelogRecord<'_> {
    ChangelogRecord {
        type_number: of as u32,
        target: fid(target),
        parent: fid(parent),
        name: name.as_bytes(),
        ..ChangelogRecord::default()
    }
}

/// A record of a rename or migration, with what is new and what is old.
fn moved<'a>(
    of: RecordType,
    target: u32,
    new: (u32, &'a str),
    source: u32,
    old: (u32, &'a str),
) -> ChangelogRecord<'a> {
    ChangelogRecord {
        source: Some((fid(source), fid(old.0))),
        old_name: old.1.as_bytes(),
        ..record(of, target, new.0, new.1)
    }
}

fn last(record: ChangelogRecord<'_>) -> ChangelogRecord<'_> {
    ChangelogRecord { flags: 1, ..record }
}

/// A file system with logs in a directory.
struct Situation {
    directory: tempfile::TempDir,
    paths: StandInPaths,
    merge: ChangelogMerge,
    now_ns: i64,
}

impl Situation {
    fn new() -> Self {
        let paths = StandInPaths::default();
        let resolver = ResolverOptions {
            root: b"/mnt".to_vec(),
            ..ResolverOptions::default()
        };
        let merge = ChangelogMerge::new(MergeOptions::default(), resolver, Box::new(paths.clone()));
        Self {
            directory: tempfile::tempdir().unwrap(),
            paths,
            merge,
            now_ns: 0,
        }
    }

    fn path(&self, log: usize) -> std::path::PathBuf {
        Path::new(self.directory.path()).join(log.to_string())
    }

    /// Writes records, a microsecond apart.
    fn write(&mut self, log: usize, records: &[ChangelogRecord<'_>]) {
        let mut file = StandInLog::open(self.path(log)).unwrap();
        for record in records {
            self.now_ns += 1_000;
            let time = record_time(self.now_ns);
            file.append(&ChangelogRecord { time, ..*record });
        }
        file.flush().unwrap();
    }

    fn collector(&self, log: usize, resume: Option<u64>) -> ChangelogCollector {
        let device = Box::new(StandInDevice::new(self.path(log)));
        let options = ChangelogOptions {
            name: log.to_string(),
            resume,
            ..ChangelogOptions::default()
        };
        ChangelogCollector::new(&self.merge, device, options)
    }

    fn collect(&self, collector: &mut ChangelogCollector, monotonic_ns: i64) -> Vec<FileEvent> {
        let mut events = Vec::new();
        let now_ns = self.now_ns + MergeOptions::default().skew_ns;
        let now = (now_ns, monotonic_ns);
        collector.collect(&mut events, 1_000, now).unwrap();
        events
    }

    /// Writes the records of one log and gives its events.
    fn events(&mut self, records: &[ChangelogRecord<'_>]) -> Vec<FileEvent> {
        self.write(0, records);
        let mut collector = self.collector(0, None);
        self.collect(&mut collector, 0)
    }
}

/// The kind, path, old path and the flags about completeness of each event.
fn told(events: &[FileEvent]) -> Vec<(EventKind, String, String, EventFlags)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let told = |event: &FileEvent| {
        let flags = EventFlags(event.flags.0 & CUT.with(OLD_CUT).0);
        (event.kind, text(&event.path), text(&event.old_path), flags)
    };
    events.iter().map(told).collect()
}

fn row(kind: EventKind, path: &str) -> (EventKind, String, String, EventFlags) {
    (kind, path.into(), String::new(), EventFlags::default())
}

fn cut(kind: EventKind, path: &str) -> (EventKind, String, String, EventFlags) {
    (kind, path.into(), String::new(), CUT)
}

fn renamed(kind: EventKind, path: &str, old: &str) -> (EventKind, String, String, EventFlags) {
    (kind, path.into(), old.into(), EventFlags::default())
}

#[test]
fn a_file_of_several_names() {
    let events = Situation::new().events(&[
        record(RecordType::Mkdir, 2, 1, "d"),
        record(RecordType::Create, 3, 2, "a"),
        record(RecordType::HardLink, 3, 1, "b"),
        record(RecordType::Close, 3, 0, ""),
        record(RecordType::Unlink, 3, 1, "b"),
        record(RecordType::Close, 3, 0, ""),
        last(record(RecordType::Unlink, 3, 2, "a")),
        record(RecordType::Close, 3, 0, ""),
        last(record(RecordType::Rmdir, 2, 1, "d")),
    ]);
    let expected = [
        row(EventKind::Mkdir, "/mnt/d"),
        row(EventKind::Create, "/mnt/d/a"),
        row(EventKind::Link, "/mnt/b"),
        row(EventKind::Close, "/mnt/b"),
        row(EventKind::Unlink, "/mnt/b"),
        row(EventKind::Close, "/mnt/d/a"),
        row(EventKind::Unlink, "/mnt/d/a"),
        cut(EventKind::Close, ""),
        row(EventKind::Rmdir, "/mnt/d"),
    ];
    assert_eq!(told(&events), expected);
    let is_last = |event: &FileEvent| event.flags.has(EventFlags::LAST_LINK);
    let last: Vec<bool> = events.iter().map(is_last).collect();
    assert_eq!(last.iter().filter(|is_last| **is_last).count(), 2);
    let is_directory = |event: &&FileEvent| event.flags.has(EventFlags::DIRECTORY);
    assert_eq!(events.iter().filter(is_directory).count(), 2);
}

#[test]
fn renames_of_directories_and_what_is_replaced() {
    let mut situation = Situation::new();
    let events = situation.events(&[
        record(RecordType::Mkdir, 2, 1, "a"),
        record(RecordType::Mkdir, 3, 2, "b"),
        record(RecordType::Create, 4, 3, "f"),
        moved(RecordType::Rename, 0, (1, "x"), 2, (1, "a")),
        record(RecordType::SetAttribute, 4, 0, ""),
        record(RecordType::Create, 5, 3, "g"),
        last(moved(RecordType::Rename, 5, (3, "g"), 4, (3, "f"))),
        record(RecordType::Close, 4, 0, ""),
        record(RecordType::Close, 5, 0, ""),
    ]);
    let expected = [
        row(EventKind::Mkdir, "/mnt/a"),
        row(EventKind::Mkdir, "/mnt/a/b"),
        row(EventKind::Create, "/mnt/a/b/f"),
        renamed(EventKind::Rename, "/mnt/x", "/mnt/a"),
        row(EventKind::Attrib, "/mnt/x/b/f"),
        row(EventKind::Create, "/mnt/x/b/g"),
        renamed(EventKind::Rename, "/mnt/x/b/g", "/mnt/x/b/f"),
        row(EventKind::Close, "/mnt/x/b/g"),
        cut(EventKind::Close, ""),
    ];
    assert_eq!(told(&events), expected);
    assert!(events[6].flags.has(EventFlags::REPLACED));
    assert!(!events[3].flags.has(EventFlags::REPLACED));
    assert_eq!(events[3].target, fid(2).id());
    assert_eq!(situation.paths.take_asked(), []);
}

/// Directories that are unknown here and are renamed, migrated or removed by later records have
/// the names that those records tell, and nobody is asked.
#[test]
fn what_was_read_ahead_tells_names_of_before() {
    let mut situation = Situation::new();
    let events = situation.events(&[
        record(RecordType::Create, 9, 4, "f"),
        last(record(RecordType::Unlink, 9, 4, "f")),
        moved(RecordType::Rename, 0, (1, "new"), 2, (1, "old")),
        record(RecordType::Close, 8, 0, ""),
        last(record(RecordType::Rmdir, 4, 3, "c")),
        moved(RecordType::Migrate, 7, (2, "b"), 3, (2, "b")),
        last(record(RecordType::Unlink, 8, 2, "g")),
    ]);
    let expected = [
        row(EventKind::Create, "/mnt/old/b/c/f"),
        row(EventKind::Unlink, "/mnt/old/b/c/f"),
        renamed(EventKind::Rename, "/mnt/new", "/mnt/old"),
        row(EventKind::Close, "/mnt/new/g"),
        row(EventKind::Rmdir, "/mnt/new/b/c"),
        renamed(EventKind::Migrate, "/mnt/new/b", "/mnt/new/b"),
        row(EventKind::Unlink, "/mnt/new/g"),
    ];
    assert_eq!(told(&events), expected);
    assert_eq!(situation.paths.take_asked(), []);
}

/// A directory that is not empty keeps its children under its old FID until they are migrated.
#[test]
fn a_migrated_directory_with_children() {
    let events = Situation::new().events(&[
        record(RecordType::Mkdir, 2, 1, "d"),
        record(RecordType::Mkdir, 3, 2, "e"),
        moved(RecordType::Migrate, 4, (1, "d"), 2, (1, "d")),
        record(RecordType::Create, 5, 3, "f"),
        record(RecordType::Create, 6, 4, "g"),
        moved(RecordType::Rename, 0, (1, "x"), 4, (1, "d")),
        record(RecordType::Close, 5, 0, ""),
        record(RecordType::SetAttribute, 2, 0, ""),
    ]);
    let expected = [
        row(EventKind::Mkdir, "/mnt/d"),
        row(EventKind::Mkdir, "/mnt/d/e"),
        renamed(EventKind::Migrate, "/mnt/d", "/mnt/d"),
        row(EventKind::Create, "/mnt/d/e/f"),
        row(EventKind::Create, "/mnt/d/g"),
        renamed(EventKind::Rename, "/mnt/x", "/mnt/d"),
        row(EventKind::Close, "/mnt/x/e/f"),
        row(EventKind::Attrib, "/mnt/x"),
    ];
    assert_eq!(told(&events), expected);
    assert!(events[2].flags.has(EventFlags::DIRECTORY));
}

#[test]
fn unknown_directories_are_asked_for_once_and_gone_ones_are_cut() {
    let mut situation = Situation::new();
    let link = |parent: u32, name: &str| vec![FidLink::new(fid(parent), name.as_bytes())];
    situation.paths.set(fid(4), link(3, "c"));
    // A part of a striped directory lies in it under a name of the servers.
    situation
        .paths
        .set(fid(3), link(2, "[0x240000402:0x3:0x0]:2"));
    situation.paths.set(fid(2), link(1, "a"));
    situation
        .paths
        .set(fid(9), [link(4, "f"), link(2, "g")].concat());
    let records = [
        record(RecordType::Create, 5, 4, "n"),
        record(RecordType::Create, 6, 4, "m"),
        record(RecordType::Create, 7, 8, "lost"),
        record(RecordType::Close, 9, 0, ""),
        record(RecordType::Open, 9, 2, ""),
        record(RecordType::SetAttribute, 3, 0, ""),
    ];
    let events = situation.events(&records);
    let expected = [
        row(EventKind::Create, "/mnt/a/c/n"),
        row(EventKind::Create, "/mnt/a/c/m"),
        cut(EventKind::Create, "lost"),
        row(EventKind::Close, "/mnt/a/c/f"),
        row(EventKind::Open, "/mnt/a/g"),
        row(EventKind::Attrib, "/mnt/a"),
    ];
    assert_eq!(told(&events), expected);
    let mut asked = situation.paths.take_asked();
    asked.sort();
    assert_eq!(asked, [fid(2), fid(3), fid(4), fid(8), fid(9)]);
}

/// Names as paths from the root on, and encrypted names whose record has no target.
#[test]
fn names_of_other_services() {
    let events = Situation::new().events(&[
        record(RecordType::Mkdir, 2, 1, "d"),
        record(RecordType::Create, 3, 2, "f"),
        moved(RecordType::Rename, 0, (2, "g"), 3, (2, "/d/f")),
        record(RecordType::Close, 3, 0, ""),
        last(record(RecordType::Unlink, 3, 2, "/d/g")),
        last(record(RecordType::Rmdir, 2, 1, "/d")),
        record(RecordType::Unlink, 0, 1, "digest"),
    ]);
    let expected = [
        row(EventKind::Mkdir, "/mnt/d"),
        row(EventKind::Create, "/mnt/d/f"),
        renamed(EventKind::Rename, "/mnt/d/g", "/mnt/d/f"),
        row(EventKind::Close, "/mnt/d/g"),
        row(EventKind::Unlink, "/mnt/d/g"),
        row(EventKind::Rmdir, "/mnt/d"),
        row(EventKind::Unlink, "/mnt/digest"),
    ];
    assert_eq!(told(&events), expected);
}

/// Old servers write two records for a rename, with others between.
#[test]
fn a_rename_of_two_records() {
    let mut situation = Situation::new();
    situation.write(
        0,
        &[
            record(RecordType::Create, 3, 1, "a"),
            record(RecordType::Rename, 3, 1, "a"),
            record(RecordType::Create, 4, 1, "c"),
            record(RecordType::RenameTo, 0, 1, "b"),
            record(RecordType::Close, 3, 0, ""),
            record(RecordType::RenameTo, 0, 1, "alone"),
            ChangelogRecord {
                type_number: 99,
                ..ChangelogRecord::default()
            },
        ],
    );
    let mut collector = situation.collector(0, None);
    let events = situation.collect(&mut collector, 0);
    let mut alone = row(EventKind::Rename, "/mnt/alone");
    alone.3 = OLD_CUT;
    let expected = [
        row(EventKind::Create, "/mnt/a"),
        row(EventKind::Create, "/mnt/c"),
        renamed(EventKind::Rename, "/mnt/b", "/mnt/a"),
        row(EventKind::Close, "/mnt/b"),
        alone,
    ];
    assert_eq!(told(&events), expected);
    let indexes: Vec<u64> = events.iter().map(|event| event.index).collect();
    assert_eq!(indexes, [1, 3, 4, 5, 6]);
    assert_eq!(collector.status().senseless, 1);
}

/// A kill between the two records: the first one is read again, although the events after it are
/// durable.
#[test]
fn a_rename_of_two_records_with_a_restart_between() {
    let mut situation = Situation::new();
    let positions = situation.directory.path().join("positions");
    situation.merge.keep_in(&positions);
    let before = [
        record(RecordType::Create, 3, 1, "a"),
        record(RecordType::Rename, 3, 1, "a"),
        record(RecordType::Create, 4, 1, "c"),
    ];
    situation.write(0, &before);
    let mut collector = situation.collector(0, None);
    let events = situation.collect(&mut collector, 0);
    assert_eq!(events.last().map(|event| event.index), Some(3));
    collector.acknowledge(3).unwrap();
    drop(collector);
    situation.write(0, &[record(RecordType::RenameTo, 0, 1, "b")]);
    let resolver = ResolverOptions::default();
    let paths = Box::new(situation.paths.clone());
    situation.merge = ChangelogMerge::new(MergeOptions::default(), resolver, paths);
    situation.merge.keep_in(&positions);
    let mut collector = situation.collector(0, Some(3));
    let events = situation.collect(&mut collector, 0);
    assert_eq!(told(&events), [renamed(EventKind::Rename, "/b", "/a")]);
    assert_eq!(events[0].index, 4);
}

/// Recording that was off is a gap, and what was known of places is forgotten; a server that was
/// started again is none.
#[test]
fn marks_of_recording() {
    let mut situation = Situation::new();
    let mark = |flags: u64| ChangelogRecord {
        target: Fid::new(flags, 0, 0),
        ..record(RecordType::Mark, 0, 0, "mdd_obd-lustre-MDT0000-0")
    };
    situation.write(
        0,
        &[
            mark(0x1_0001),
            record(RecordType::Mkdir, 2, 1, "d"),
            mark(0x1_0001),
            record(RecordType::Create, 3, 2, "f"),
            mark(0x2_0001),
            mark(0x1_0001),
            record(RecordType::Create, 4, 2, "g"),
        ],
    );
    let mut collector = situation.collector(0, None);
    let events = situation.collect(&mut collector, 0);
    let expected = [
        row(EventKind::Mark, ""),
        row(EventKind::Mkdir, "/mnt/d"),
        row(EventKind::Mark, ""),
        row(EventKind::Create, "/mnt/d/f"),
        row(EventKind::Mark, ""),
        row(EventKind::Gap, ""),
        // The directory is gone by now.
        cut(EventKind::Create, "g"),
    ];
    assert_eq!(told(&events), expected);
    assert_eq!(collector.status().gaps, 1);
    assert!(events[5].detail.contains("mark=start"));
    drop(collector);
    let mut collector = situation.collector(0, Some(2));
    let events = situation.collect(&mut collector, 0);
    assert_eq!(events[0].kind, EventKind::Gap, "it may have been off");
}

/// A rename across targets is in the log of the new directory alone; the other log has what came
/// before and after.
#[test]
fn a_record_waits_for_the_other_log() {
    let mut situation = Situation::new();
    situation.write(0, &[record(RecordType::Mkdir, 2, 1, "a")]);
    situation.write(0, &[record(RecordType::Mkdir, 3, 1, "b")]);
    situation.write(0, &[record(RecordType::Create, 4, 2, "f")]);
    situation.write(1, &[moved(RecordType::Rename, 0, (3, "g"), 4, (2, "f"))]);
    situation.write(0, &[record(RecordType::Close, 4, 0, "")]);
    situation.write(1, &[last(record(RecordType::Unlink, 4, 3, "g"))]);
    let mut first = situation.collector(0, None);
    let mut second = situation.collector(1, None);
    assert_eq!(situation.collect(&mut second, 0), []);
    let of_first = situation.collect(&mut first, 0);
    let expected = [
        row(EventKind::Mkdir, "/mnt/a"),
        row(EventKind::Mkdir, "/mnt/b"),
        row(EventKind::Create, "/mnt/a/f"),
        row(EventKind::Close, "/mnt/b/g"),
    ];
    assert_eq!(told(&of_first), expected);
    let expected = [
        renamed(EventKind::Rename, "/mnt/b/g", "/mnt/a/f"),
        row(EventKind::Unlink, "/mnt/b/g"),
    ];
    assert_eq!(told(&situation.collect(&mut second, 0)), expected);
    assert_eq!(situation.paths.take_asked(), []);
}

#[test]
fn a_full_table_and_few_questions_are_reported() {
    let mut situation = Situation::new();
    let resolver = ResolverOptions {
        root: b"/mnt".to_vec(),
        directories_max: 2,
        asked_max: 1,
        ..ResolverOptions::default()
    };
    let paths = Box::new(situation.paths.clone());
    situation.merge = ChangelogMerge::new(MergeOptions::default(), resolver, paths);
    let records = [
        record(RecordType::Mkdir, 2, 1, "a"),
        record(RecordType::Mkdir, 3, 1, "b"),
        record(RecordType::Create, 4, 3, "f"),
        record(RecordType::Create, 5, 7, "g"),
        record(RecordType::Create, 6, 8, "h"),
    ];
    situation.write(0, &records);
    let mut collector = situation.collector(0, None);
    let events = situation.collect(&mut collector, 0);
    let expected = [
        row(EventKind::Mkdir, "/mnt/a"),
        row(EventKind::Mkdir, "/mnt/b"),
        cut(EventKind::Create, "f"),
        cut(EventKind::Create, "g"),
        cut(EventKind::Create, "h"),
    ];
    assert_eq!(told(&events), expected);
    assert_eq!(situation.paths.take_asked().len(), 1);
    let status = collector.status();
    assert_eq!(status.unresolved, 3);
    assert!(
        status.trouble.contains("directories_max"),
        "{}",
        status.trouble
    );
}

/// The lines of `lfs changelog` in place of the device.
#[test]
fn lines_give_the_same_events() {
    let situation = Situation::new();
    let path = situation.path(0);
    let lines = "a line of another program\n\
        1 02MKDIR 15:15:21.977666834 2018.01.09 0x0 t=[0x200000400:0x2:0x0] j=mkdir.500 ef=0xf \
        u=500:500 nid=10.128.11.159@tcp p=[0x200000007:0x1:0x0] pics\n\
        2 01CREAT 15:15:36.687592024 2018.01.09 0x0 t=[0x200000400:0x3:0x0] \
        p=[0x200000400:0x2:0x0] a\nb\n\
        4 08RENME 15:15:41.305116815 2018.01.09 0x0 t=[0:0x0:0x0] p=[0x200000400:0x2:0x0] c d \
        s=[0x200000400:0x3:0x0] sp=[0x200000400:0x2:0x0] a\nb\n";
    std::fs::write(&path, lines).unwrap();
    let device = ChangelogLines::new(std::fs::File::open(&path).unwrap(), &path).unwrap();
    let options = ChangelogOptions::default();
    let late_ns = options.reader.late_ns;
    let mut collector = ChangelogCollector::new(&situation.merge, Box::new(device), options);
    let mut events = situation.collect(&mut collector, 0);
    assert_eq!(events.len(), 2, "the third one is missing, and may be late");
    events.extend(situation.collect(&mut collector, late_ns));
    let expected = [
        row(EventKind::Mkdir, "/mnt/pics"),
        row(EventKind::Create, "/mnt/pics/a\nb"),
        row(EventKind::Gap, ""),
        // What was known of places is not believed after a gap, and the file system is asked.
        cut(EventKind::Rename, "c d"),
    ];
    let mut told = told(&events);
    assert_eq!(told[3].2, "a\nb");
    told[3].2.clear();
    told[3].3 = CUT;
    assert_eq!(told, expected);
    assert!(events[3].flags.has(CUT.with(OLD_CUT)));
    assert_eq!(&*events[0].detail, "nid=10.128.11.159@tcp");
    assert_eq!((events[0].uid, &*events[0].job), (Some(500), "mkdir.500"));
    assert_eq!(collector.status().senseless, 1);
}
