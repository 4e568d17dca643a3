//! A pipe or file with the lines of `lfs changelog` in place of the device.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::device::{ChangelogDevice, ChangelogUser};
use super::record::ChangelogRecord;
use super::text::{begins_record, parse_line};

/// Most bytes of a line and the lines that continue it. What is longer is passed over.
const LINE_BYTES_MAX: usize = 16 << 10;
const READ_BYTES: usize = 64 << 10;

/// Lines of `lfs changelog` from a pipe or file.
///
/// It reads from the beginning to the end once, and clears nothing, since texts have no way back.
/// A name with a line break goes on in the next line; therefore the last line waits until another
/// record begins or nothing more is there.
#[derive(Debug)]
pub struct ChangelogLines {
    path: PathBuf,
    file: File,
    /// Bytes that were read and make no whole line yet.
    partial: Vec<u8>,
    /// The lines of the last record, which may go on.
    last: Vec<u8>,
    /// Binary records to be handed out, and how much of the first one was.
    records: VecDeque<Vec<u8>>,
    /// Index of the first record that is wanted.
    from: u64,
    is_at_end: bool,
    refused: u64,
}

impl ChangelogLines {
    /// The lines of this file or pipe; the path is its name in messages. A pipe is made such that
    /// reading it does not wait.
    ///
    /// # Errors
    ///
    /// The mode of the file cannot be changed.
    pub fn new(file: File, path: impl Into<PathBuf>) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            path: path.into(),
            file,
            partial: Vec::new(),
            last: Vec::new(),
            records: VecDeque::new(),
            from: 0,
            is_at_end: false,
            refused: 0,
        })
    }

    /// Takes the whole lines out of what was read.
    fn split(&mut self) {
        let mut partial = std::mem::take(&mut self.partial);
        let mut start = 0;
        while let Some(length) = partial[start..].iter().position(|byte| *byte == b'\n') {
            self.take_line(&partial[start..start + length]);
            start += length + 1;
        }
        partial.drain(..start);
        if partial.len() > LINE_BYTES_MAX {
            self.refused += 1;
            partial.clear();
        }
        self.partial = partial;
    }

    fn take_line(&mut self, line: &[u8]) {
        if begins_record(line) || self.last.len() + line.len() > LINE_BYTES_MAX {
            self.finish();
            self.last.extend(line);
        } else if self.last.is_empty() {
            self.refused += u64::from(!line.is_empty());
        } else {
            self.last.push(b'\n');
            self.last.extend(line);
        }
    }

    /// Makes a record of the last lines.
    fn finish(&mut self) {
        let mut last = std::mem::take(&mut self.last);
        if !last.is_empty() {
            match parse_line(&last) {
                Ok(record) if record.index < self.from => {}
                Ok(record) => self.records.push_back(bytes_of(&record)),
                Err(_) => self.refused += 1,
            }
        }
        last.clear();
        self.last = last;
    }
}

fn bytes_of(record: &ChangelogRecord<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

impl ChangelogDevice for ChangelogLines {
    fn scan(&mut self, index: u64) -> io::Result<()> {
        self.from = index;
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.records.is_empty() {
            let start = self.partial.len();
            self.partial.resize(start + READ_BYTES, 0);
            let result = self.file.read(&mut self.partial[start..]);
            self.partial
                .truncate(start + *result.as_ref().unwrap_or(&0));
            self.is_at_end = matches!(result, Ok(0));
            match result {
                Ok(0) => {
                    let rest = std::mem::take(&mut self.partial);
                    if !rest.is_empty() {
                        self.take_line(&rest);
                    }
                    self.finish();
                }
                Ok(_) => self.split(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.partial.is_empty() {
                        self.finish();
                    }
                    if self.records.is_empty() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let mut filled = 0;
        while let Some(record) = self.records.front() {
            let Some(place) = buffer.get_mut(filled..filled + record.len()) else {
                break;
            };
            place.copy_from_slice(record);
            filled += record.len();
            self.records.pop_front();
        }
        match filled == 0 && !self.is_at_end {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(filled),
        }
    }

    fn clear(&mut self, _user: ChangelogUser, _index: u64) -> io::Result<()> {
        Ok(())
    }

    /// Number of lines that were no record, or could be read in two ways.
    fn refused(&self) -> u64 {
        self.refused
    }

    fn can_go_back(&self) -> bool {
        false
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_at_end).then(|| self.file.as_fd())
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(device: &mut ChangelogLines) -> Vec<(u64, String)> {
        let mut names = Vec::new();
        let mut buffer = vec![0; 4 << 10];
        loop {
            match device.read(&mut buffer) {
                Ok(0) => return names,
                Ok(filled) => {
                    let mut rest = &buffer[..filled];
                    while !rest.is_empty() {
                        let (record, length) = ChangelogRecord::parse(rest).unwrap();
                        names.push((record.index, String::from_utf8_lossy(record.name).into()));
                        rest = &rest[length..];
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return names;
                }
            }
        }
    }

    fn line(index: u64, name: &str) -> String {
        format!(
            "{index} 01CREAT 00:00:01.5 2020.01.01 0x0 t=[0x1:0x2:0x0] p=[0x9:0x1:0x0] {name}\n"
        )
    }

    #[test]
    fn a_pipe_gives_records_as_their_lines_come() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut write = File::from(write);
        let mut device = ChangelogLines::new(File::from(read), "pipe").unwrap();
        device.scan(2).unwrap();
        assert_eq!(names(&mut device), []);
        assert!(device.readable().is_some());
        let (two, three) = (line(2, "two"), line(3, "with\nbreak"));
        let text = [&line(1, "one"), &two[..], &three[..20]].concat();
        write.write_all(text.as_bytes()).unwrap();
        assert_eq!(names(&mut device), []);
        write.write_all(&three.as_bytes()[20..]).unwrap();
        let expected = [(2, "two".to_owned()), (3, "with\nbreak".to_owned())];
        assert_eq!(names(&mut device), expected);
        write
            .write_all(line(4, "last").trim_end().as_bytes())
            .unwrap();
        assert_eq!(names(&mut device), []);
        drop(write);
        assert_eq!(names(&mut device), [(4, "last".to_owned())]);
        assert!(device.readable().is_none());
        assert_eq!(device.refused(), 0);
    }

    #[test]
    fn a_file_with_foreign_lines_and_without_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let long = "x".repeat(2 * LINE_BYTES_MAX);
        let text = format!("what\n{}{}{long}", line(1, "a"), line(2, "b"));
        std::fs::write(&path, text).unwrap();
        let mut device = ChangelogLines::new(File::open(&path).unwrap(), &path).unwrap();
        device.scan(0).unwrap();
        let expected = [(1, "a".to_owned()), (2, "b".to_owned())];
        assert_eq!(names(&mut device), expected);
        assert_eq!(device.refused(), 2);
    }
}
