//! Tests of the reader with a device that plays a script: late, missing and senseless records, and
//! the rules of clearing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::device::{ChangelogDevice, ChangelogUser};
use super::item::{LogContent, LogItem};
use super::reader::*;
use super::record::{ChangelogRecord, RECORD_BYTES_MAX};

/// What a device was told, and what its reads give: records, or other bytes.
#[derive(Default)]
struct Script {
    reads: VecDeque<io::Result<Vec<u8>>>,
    scans: Vec<u64>,
    clears: Vec<(u32, u64)>,
    clear_fault: Option<io::ErrorKind>,
    scan_fault: Option<io::ErrorKind>,
    goes_back: bool,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn reads(&self, bytes: &[u8]) {
        self.0.lock().unwrap().reads.push_back(Ok(bytes.to_vec()));
    }

    fn fails(&self, kind: io::ErrorKind) {
        self.0.lock().unwrap().reads.push_back(Err(kind.into()));
    }

    fn take_scans(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap().scans)
    }
}

impl ChangelogDevice for Scripted {
    fn scan(&mut self, index: u64) -> io::Result<()> {
        let mut script = self.0.lock().unwrap();
        script.scans.push(index);
        script.scan_fault.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.lock().unwrap().reads.pop_front();
        let bytes = read.unwrap_or_else(|| Ok(Vec::new()))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn clear(&mut self, user: ChangelogUser, index: u64) -> io::Result<()> {
        let mut script = self.0.lock().unwrap();
        script.clears.push((user.0, index));
        script.clear_fault.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn can_go_back(&self) -> bool {
        self.0.lock().unwrap().goes_back
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn path(&self) -> &Path {
        Path::new("scripted")
    }
}

fn records(indexes: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in indexes {
        let record = ChangelogRecord {
            type_number: 1,
            index: *index,
            time: index << 30,
            ..ChangelogRecord::default()
        };
        record.encode(&mut bytes);
    }
    bytes
}

fn reader(resume: Option<u64>, options: ReaderOptions) -> (Scripted, LogReader) {
    let device = Scripted::default();
    let user = Some(ChangelogUser(3));
    let reader = LogReader::new(Box::new(device.clone()), user, options, (resume, resume));
    (device, reader)
}

/// The items of a read: positive indexes are those of records, negative ones begin gaps.
fn read(reader: &mut LogReader, now_ns: i64) -> (Vec<i64>, ReadTo) {
    let mut items = VecDeque::new();
    let read_to = reader.read(&mut items, 1_000, (5, now_ns)).unwrap();
    let index = |item: LogItem| match item.content {
        LogContent::Record(_) => vec![item.index as i64],
        LogContent::Gap { first } => vec![-(first as i64), -(item.index as i64)],
    };
    (items.into_iter().flat_map(index).collect(), read_to)
}

const END: ReadTo = ReadTo::End(5);

#[test]
fn records_come_in_order() {
    let options = ReaderOptions::default();
    let (poll, late) = (options.poll_ns, options.late_ns);
    let (device, mut reader) = reader(Some(4), options);
    device.reads(&records(&[5, 7, 6, 9]));
    // The log has been read up to the missing one, and not to its end.
    assert_eq!(read(&mut reader, 0), (vec![5, 6, 7], ReadTo::Waiting));
    assert_eq!(device.take_scans(), [5]);
    // The next scan is not due.
    assert_eq!(read(&mut reader, poll - 1), (vec![], ReadTo::Waiting));
    assert_eq!(device.take_scans(), []);
    // The missing one is looked for again, and comes.
    device.reads(&records(&[8, 9, 10]));
    assert_eq!(read(&mut reader, poll), (vec![8, 9, 10], END));
    assert_eq!(device.take_scans(), [8]);
    // One that does not come is lost.
    device.reads(&records(&[13, 14]));
    assert_eq!(read(&mut reader, 2 * poll), (vec![], ReadTo::Waiting));
    let after = 2 * poll + late;
    device.reads(&records(&[13, 14]));
    assert_eq!(read(&mut reader, after), (vec![-11, -12, 13, 14], END));
    assert_eq!(device.take_scans(), [11, 11]);
    assert_eq!(reader.senseless(), 0);
    // One that comes after all is not told: its gap was.
    device.reads(&records(&[12, 15]));
    assert_eq!(read(&mut reader, 2 * after), (vec![15], END));
    assert_eq!(reader.senseless(), 1);
}

#[test]
fn missing_indexes_of_a_filtered_log_are_no_gaps() {
    let options = ReaderOptions {
        missing: MissingIndex::Filtered,
        ..ReaderOptions::default()
    };
    let late = options.late_ns;
    let (device, mut reader) = reader(None, options);
    device.reads(&records(&[7, 9]));
    assert_eq!(read(&mut reader, 0).0, [7]);
    assert_eq!(read(&mut reader, late).0, [9]);
}

#[test]
fn few_records_wait_for_a_missing_one() {
    let options = ReaderOptions {
        late_records_max: 2,
        ..ReaderOptions::default()
    };
    let (device, mut reader) = reader(Some(0), options);
    device.reads(&records(&[3, 4, 6]));
    assert_eq!(read(&mut reader, 0).0, [-1, -2, 3, 4]);
    device.reads(&records(&[5, 6, 7]));
    assert_eq!(read(&mut reader, 1 << 40).0, [5, 6, 7]);
}

#[test]
fn senseless_bytes_are_passed_over() {
    let late = ReaderOptions::default().late_ns;
    let (device, mut reader) = reader(Some(0), ReaderOptions::default());
    let bad = |index: u64| {
        let mut bytes = records(&[index]);
        // Extensions of unknown length.
        bytes[2..4].copy_from_slice(&0x8000u16.to_ne_bytes());
        bytes.extend(u64::MAX.to_ne_bytes());
        bytes
    };
    device.reads(&[records(&[1, 2]), bad(3), records(&[4])].concat());
    device.reads(&records(&[4, 5]));
    assert_eq!(read(&mut reader, 0).0, [1, 2]);
    assert_eq!(device.take_scans(), [1, 4]);
    device.reads(&[bad(3), records(&[4])].concat());
    device.reads(&records(&[4, 5]));
    assert_eq!(read(&mut reader, late).0, [-3, -3, 4, 5]);
    // A record without an index tells not even how far to go.
    device.reads(&[records(&[6]), records(&[0]), records(&[8])].concat());
    device.reads(&[records(&[0]), records(&[8])].concat());
    device.reads(&records(&[8]));
    assert_eq!(read(&mut reader, 2 * late).0, [6]);
    let scans = device.take_scans();
    assert_eq!(scans[scans.len() - 3..], [6, 7, 8]);
    assert_eq!(read(&mut reader, 3 * late).0, [-7, -7, 8]);
    // A jump that no log makes.
    device.reads(&records(&[1 << 60, 9]));
    assert_eq!(read(&mut reader, 4 * late).0, [9]);
    assert!(reader.senseless() >= 4);
}

#[test]
fn scans_that_find_nonsense_only_end() {
    let (device, mut reader) = reader(Some(0), ReaderOptions::default());
    for _ in 0..100 {
        device.reads(&[7; 70]);
    }
    assert_eq!(read(&mut reader, 0), (vec![], ReadTo::Waiting));
    let scans = device.take_scans();
    assert!(scans.is_sorted() && scans.len() < 20, "{scans:?}");
}

#[test]
fn faults_pass() {
    let poll = ReaderOptions::default().poll_ns;
    let (device, mut reader) = reader(Some(0), ReaderOptions::default());
    device.fails(io::ErrorKind::Interrupted);
    device.reads(&records(&[1]));
    device.fails(io::ErrorKind::WouldBlock);
    assert_eq!(read(&mut reader, 0), (vec![1], ReadTo::Waiting));
    device.fails(io::ErrorKind::TimedOut);
    let mut items = VecDeque::new();
    assert!(reader.read(&mut items, 10, (5, 0)).is_err());
    assert_eq!(reader.due_ns(), Some(poll));
    device.0.lock().unwrap().scan_fault = Some(io::ErrorKind::NotFound);
    assert!(reader.read(&mut items, 10, (5, poll)).is_err());
    device.0.lock().unwrap().scan_fault = None;
    device.reads(&records(&[2]));
    assert_eq!(read(&mut reader, 2 * poll).0, [2]);
}

#[test]
fn only_what_was_handed_out_is_cleared_and_never_nothing() {
    let (device, mut reader) = reader(Some(2), ReaderOptions::default());
    // What was durable before the start is cleared too, unless the target has done it.
    device.0.lock().unwrap().clear_fault = Some(io::ErrorKind::NotFound);
    for index in [0, 1, 100, 2] {
        reader.clear(index).unwrap();
    }
    assert_eq!(device.0.lock().unwrap().clears, [(3, 1), (3, 2)]);
    device.0.lock().unwrap().clear_fault = None;
    device.reads(&records(&[3, 4, 5, 7]));
    assert_eq!(read(&mut reader, 0).0, [3, 4, 5]);
    for index in [0, 4, 4, 3, 100, 100] {
        reader.clear(index).unwrap();
    }
    assert_eq!(device.0.lock().unwrap().clears[2..], [(3, 4), (3, 5)]);
    // A clear that failed is tried again.
    device.reads(&records(&[6]));
    assert_eq!(read(&mut reader, 1 << 40).0, [6, 7]);
    device.0.lock().unwrap().clear_fault = Some(io::ErrorKind::NotFound);
    assert!(reader.clear(7).is_err());
    device.0.lock().unwrap().clear_fault = None;
    reader.clear(7).unwrap();
    assert_eq!(device.0.lock().unwrap().clears[4..], [(3, 7), (3, 7)]);
}

#[test]
fn a_read_stops_where_there_is_no_room() {
    let options = ReaderOptions {
        buffer_bytes: 0,
        ..ReaderOptions::default()
    };
    let (device, mut reader) = reader(Some(0), options);
    let mut large = records(&[1]);
    large[..2].copy_from_slice(&u16::MAX.to_ne_bytes());
    large.extend([b'n'; u16::MAX as usize]);
    assert!(large.len() <= RECORD_BYTES_MAX);
    device.reads(&large);
    device.reads(&records(&[2, 3]));
    device.reads(&records(&[4]));
    let mut items = VecDeque::new();
    let read_to = reader.read(&mut items, 2, (5, 0)).unwrap();
    assert_eq!((items.len(), read_to), (3, ReadTo::Room));
}

#[test]
fn a_backlog_is_surveyed_before_it_is_read() {
    let device = Scripted::default();
    device.0.lock().unwrap().goes_back = true;
    let options = ReaderOptions::default();
    let mut reader = LogReader::new(Box::new(device.clone()), None, options, (Some(0), Some(0)));
    device.reads(&records(&[1, 2]));
    device.fails(io::ErrorKind::WouldBlock);
    assert_eq!(read(&mut reader, 0), (vec![], ReadTo::Waiting));
    device.fails(io::ErrorKind::TimedOut);
    let mut items = VecDeque::new();
    assert!(reader.read(&mut items, 10, (5, 0)).is_err());
    assert!(reader.is_surveying());
    // The end of the log ends the survey, and the log is read from its beginning.
    let poll = ReaderOptions::default().poll_ns;
    device.reads(&records(&[1, 2]));
    device.reads(&[]);
    device.reads(&records(&[1, 2]));
    assert_eq!(read(&mut reader, poll), (vec![1, 2], END));
    assert!(!reader.is_surveying() && reader.surveyed.is_some());
    assert_eq!(device.take_scans(), [1, 1, 1]);
}

#[test]
fn a_survey_is_bounded() {
    let device = Scripted::default();
    device.0.lock().unwrap().goes_back = true;
    let options = ReaderOptions {
        survey_records_max: 4,
        ..ReaderOptions::default()
    };
    let mut reader = LogReader::new(Box::new(device.clone()), None, options, (Some(0), Some(0)));
    for _ in 0..2 {
        device.reads(&records(&[1, 2]));
    }
    device.reads(&records(&[1]));
    assert_eq!(read(&mut reader, 0), (vec![1], END));
}
