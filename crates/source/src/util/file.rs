//! Files of `/proc` and `/sys`, held open between reads.
//!
//! A read of `/proc` returns at most about a page, so files are read piece by piece; a held
//! descriptor halves the cost of a read, and one that fails (the device went away and came back) is
//! opened again.
//!
//! The read that only finds the end of a file costs nearly as much as the read of a short file.
//! Most files can do without it: see [`HeldFile::short_records`].

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::SourceError;
use crate::error::is_absent;
use crate::util::faults::Faults;

/// Most bytes that one file may have.
pub(crate) const FILE_BYTES_MAX: usize = 8 << 20;
/// Space that is reserved for the next piece of a file: the size of the smallest page, and so of
/// the smallest buffer that the kernel writes records into.
const PIECE_BYTES: usize = 4096;
/// A shorter piece of a file of short records is its last one.
const SHORT_BYTES: usize = PIECE_BYTES / 2;

/// The directory that stands for `/`.
#[derive(Clone, Debug)]
pub(crate) struct SysRoot(PathBuf);

impl SysRoot {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// A path below the root; `relative` has no leading slash.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.0.join(relative)
    }

    /// A file below the root, as [`HeldFile::short_records`].
    pub(crate) fn short_records(&self, relative: &str) -> HeldFile {
        HeldFile::short_records(self.path(relative))
    }

    /// A file below the root, as [`HeldFile::until_end`].
    pub(crate) fn until_end(&self, relative: &str) -> HeldFile {
        HeldFile::until_end(self.path(relative))
    }

    pub(crate) fn is_real(&self) -> bool {
        self.0 == Path::new("/")
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

/// A file that is read repeatedly.
#[derive(Debug)]
pub(crate) struct HeldFile {
    path: PathBuf,
    fd: Option<OwnedFd>,
    ending: Ending,
}

/// The sign of the end of a file.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// A piece shorter than [`SHORT_BYTES`] is the last one.
    ShortPiece,
    /// A read that gives nothing is the end.
    EmptyRead,
}

impl HeldFile {
    /// A file whose records are at most [`SHORT_BYTES`] long, or that is one record as a whole: the
    /// lists of counters in `/proc`, the attributes in `/sys` and of control groups.
    ///
    /// Such a file needs no read that finds its end. `seq_read_iter` (fs/seq_file.c of the kernel)
    /// writes records into a buffer of one page, larger only for a record that is itself larger,
    /// and stops before the end in two cases: the reader's buffer is full, or the next record does
    /// not fit behind those in the page. Both leave a piece of at least half a page.
    pub(crate) fn short_records(path: PathBuf) -> Self {
        Self::new(path, Ending::ShortPiece)
    }

    /// A file with records of any length, such as the lines of mountinfo, which contain paths. In
    /// such a file a piece of a few bytes may come before a long record.
    pub(crate) fn until_end(path: PathBuf) -> Self {
        Self::new(path, Ending::EmptyRead)
    }

    fn new(path: PathBuf, ending: Ending) -> Self {
        Self {
            path,
            fd: None,
            ending,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces `bytes` with the whole file and keeps the descriptor.
    pub(crate) fn read(&mut self, bytes: &mut Vec<u8>) -> Result<(), SourceError> {
        match self.attempt(bytes) {
            Ok(()) | Err(Errno::FBIG) => self.bounded(bytes),
            Err(errno) => Err(self.fault(errno)),
        }
    }

    /// Reads the file, and opens it first if needed. Leaves no bytes on an error other than `FBIG`.
    fn attempt(&mut self, bytes: &mut Vec<u8>) -> Result<(), Errno> {
        if let Some(fd) = &self.fd {
            match read_whole(fd, self.ending, bytes) {
                result @ (Err(Errno::FBIG) | Ok(())) => return result,
                // The device behind the descriptor is gone; its name may belong to a new one.
                Err(_) => self.fd = None,
            }
        }
        let opened = rustix::fs::open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let result = opened.and_then(|fd| {
            let read = read_whole(&fd, self.ending, bytes);
            self.fd = Some(fd);
            read
        });
        if !matches!(result, Ok(()) | Err(Errno::FBIG)) {
            self.fd = None;
            bytes.clear();
        }
        result
    }

    fn fault(&self, errno: Errno) -> SourceError {
        SourceError::Read {
            path: self.path.clone(),
            errno,
        }
    }

    /// Reads the file without keeping the descriptor: for attributes that are rarely read.
    pub(crate) fn read_and_close(&mut self, bytes: &mut Vec<u8>) -> Result<(), SourceError> {
        let result = self.read(bytes);
        self.fd = None;
        result
    }

    /// Reads a file that not every kernel has, and returns whether it was read. Its absence is no
    /// fault, leaves no bytes, and allocates nothing.
    pub(crate) fn read_if_there(&mut self, bytes: &mut Vec<u8>, faults: &mut Faults) -> bool {
        match self.attempt(bytes) {
            Ok(()) | Err(Errno::FBIG) => faults.take(self.bounded(bytes)).is_some(),
            Err(errno) => {
                if !is_absent(errno) {
                    faults.add(self.fault(errno));
                }
                false
            }
        }
    }

    fn bounded(&self, bytes: &mut Vec<u8>) -> Result<(), SourceError> {
        if bytes.len() <= FILE_BYTES_MAX {
            return Ok(());
        }
        bytes.clear();
        Err(SourceError::TooLarge {
            path: self.path.clone(),
            bytes_max: FILE_BYTES_MAX,
        })
    }
}

fn read_whole(fd: &OwnedFd, ending: Ending, bytes: &mut Vec<u8>) -> Result<(), Errno> {
    collect(ending, bytes, |bytes| {
        let offset = bytes.len() as u64;
        rustix::io::pread(fd, rustix::buffer::spare_capacity(bytes), offset)
    })
}

/// Joins the pieces of a file; `append` appends the next piece to the bytes.
fn collect(
    ending: Ending,
    bytes: &mut Vec<u8>,
    mut append: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    bytes.clear();
    loop {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        // `reserve` doubles, so a file of steady size soon needs no more memory.
        if bytes.capacity() - bytes.len() < PIECE_BYTES {
            bytes.reserve(PIECE_BYTES);
        }
        match (append(bytes), ending) {
            (Ok(0), _) | (Ok(1..SHORT_BYTES), Ending::ShortPiece) => return Ok(()),
            (Ok(_) | Err(Errno::INTR), _) => {}
            (Err(errno), _) => return Err(errno),
        }
    }
}

/// The names in a directory, sorted and at most `max` of them, and the number of all names.
pub(crate) fn names_in(path: &Path, max: usize) -> Result<(Vec<Vec<u8>>, usize), SourceError> {
    use std::os::unix::ffi::OsStringExt;
    let fault = |e: std::io::Error| SourceError::Read {
        path: path.to_owned(),
        errno: Errno::from_io_error(&e).unwrap_or(Errno::IO),
    };
    let mut names = Vec::new();
    let mut all = 0;
    for entry in std::fs::read_dir(path).map_err(fault)? {
        all += 1;
        if names.len() < max {
            names.push(entry.map_err(fault)?.file_name().into_vec());
        }
    }
    names.sort();
    Ok((names, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both kinds of file.
    const KINDS: [fn(PathBuf) -> HeldFile; 2] = [HeldFile::short_records, HeldFile::until_end];

    #[test]
    fn files_of_every_length_are_read_whole_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        for kind in KINDS {
            let mut file = kind(path.clone());
            let mut bytes = Vec::new();
            let lengths = [70_000, 5, 2047, 2048, 2049, 0, 4095, 4096, 4097, 6143, 6144];
            for length in lengths {
                let text = vec![b'x'; length];
                std::fs::write(&path, &text).unwrap();
                file.read(&mut bytes).unwrap();
                assert!(bytes == text, "{length}: {file:?}");
            }
        }
    }

    /// A file of `/proc` as the kernel gives it: as many whole records as fit into a page, and a
    /// longer record by itself.
    struct Records {
        lengths: Vec<usize>,
        next: usize,
        reads: usize,
    }

    impl Records {
        fn append(&mut self, bytes: &mut Vec<u8>) -> usize {
            self.reads += 1;
            let mut piece = 0;
            while let Some(length) = self.lengths.get(self.next) {
                // The kernel takes a full buffer for an overflow: seq_has_overflowed().
                if piece > 0 && piece + length >= PIECE_BYTES {
                    break;
                }
                piece += length;
                self.next += 1;
            }
            bytes.resize(bytes.len() + piece, b'x');
            piece
        }
    }

    /// Number of bytes and of reads.
    fn collected(ending: Ending, lengths: &[usize]) -> (usize, usize) {
        let mut records = Records {
            lengths: lengths.to_vec(),
            next: 0,
            reads: 0,
        };
        let mut bytes = Vec::new();
        collect(ending, &mut bytes, |bytes| Ok(records.append(bytes))).unwrap();
        (bytes.len(), records.reads)
    }

    #[test]
    fn short_records_need_no_read_of_the_end() {
        let check = |lengths: &[usize], reads: usize| {
            let all: usize = lengths.iter().sum();
            let got = collected(Ending::ShortPiece, lengths);
            assert_eq!(got, (all, reads), "{lengths:?}");
            let (got, more) = collected(Ending::EmptyRead, lengths);
            assert!(got == all && more >= reads, "{lengths:?}");
        };
        check(&[], 1);
        check(&[1], 1);
        check(&[SHORT_BYTES - 1], 1);
        check(&[SHORT_BYTES], 2);
        check(&[100; 20], 1);
        check(&[128; 40], 2);
        // The longest records that are short: each fills its half of the page, so that the next one
        // does not fit.
        check(&[SHORT_BYTES; 3], 4);
        check(&[10, SHORT_BYTES, SHORT_BYTES], 3);
        check(&[10, SHORT_BYTES, SHORT_BYTES - 1], 2);
        check(&[90_000], 2);
    }

    #[test]
    fn every_length_of_short_records_is_read_whole() {
        for length in 1..=SHORT_BYTES {
            for count in [1, 2, 3, PIECE_BYTES / length, PIECE_BYTES / length + 1] {
                let lengths = vec![length; count];
                let (got, _) = collected(Ending::ShortPiece, &lengths);
                assert_eq!(got, length * count, "{count} of {length}");
            }
        }
    }

    #[test]
    fn a_long_record_behind_a_short_one_needs_the_read_of_the_end() {
        let lengths = [100, 4090, 30];
        assert_eq!(collected(Ending::EmptyRead, &lengths), (4220, 4));
        // The reason why such a file must not be read as one of short records.
        assert_eq!(collected(Ending::ShortPiece, &lengths), (100, 1));
    }

    #[test]
    fn a_file_that_grows_between_reads_is_read_on() {
        let mut pieces = [SHORT_BYTES, 7].into_iter();
        let mut bytes = Vec::new();
        collect(Ending::ShortPiece, &mut bytes, |bytes| {
            let piece = pieces.next().unwrap_or(0);
            bytes.resize(bytes.len() + piece, b'x');
            Ok(piece)
        })
        .unwrap();
        assert_eq!(bytes.len(), SHORT_BYTES + 7);
    }

    #[test]
    fn an_interrupted_read_is_made_again() {
        let mut results = [Err(Errno::INTR), Ok(0)].into_iter();
        let mut bytes = b"old".to_vec();
        let got = collect(Ending::ShortPiece, &mut bytes, |_| results.next().unwrap());
        assert_eq!((got, &*bytes, results.next()), (Ok(()), &b""[..], None));
    }

    #[test]
    fn an_absent_file_leaves_no_bytes_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = HeldFile::until_end(path.clone());
        let mut bytes = b"old".to_vec();
        assert!(file.read(&mut bytes).unwrap_err().is_absent());
        assert!(bytes.is_empty());
        std::fs::write(&path, b"new").unwrap();
        file.read(&mut bytes).unwrap();
        assert_eq!(bytes, b"new");
    }

    #[test]
    fn an_endless_file_is_refused() {
        let mut file = HeldFile::until_end("/dev/zero".into());
        let mut bytes = Vec::new();
        let fault = file.read(&mut bytes).unwrap_err();
        assert!(matches!(fault, SourceError::TooLarge { .. }), "{fault}");
    }
}
