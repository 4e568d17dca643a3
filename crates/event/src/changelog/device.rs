//! The devices that give the records of a metadata target: the character device of a client, and
//! the trait that stand-ins and texts fulfil as well.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;

/// A source of whole binary records of one metadata target.
pub trait ChangelogDevice: Send {
    /// Begins a scan of the log at the first record whose index is `index` or greater. It may go
    /// back as well.
    ///
    /// # Errors
    ///
    /// The log cannot be opened.
    fn scan(&mut self, index: u64) -> io::Result<()>;

    /// Reads whole records. 0 bytes mean that the scan has come to the end of the log: records that
    /// are written later are seen by another scan alone.
    ///
    /// # Errors
    ///
    /// Of kind `WouldBlock`: nothing is there yet, and the scan goes on. Others: the scan has
    /// failed.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Tells the target that a registered user needs no records up to `index` any more.
    ///
    /// # Errors
    ///
    /// Of kind `NotFound`: the user is not registered, or needs no records up to there already.
    fn clear(&mut self, user: ChangelogUser, index: u64) -> io::Result<()>;

    /// Number of records that the device itself could not read.
    fn refused(&self) -> u64 {
        0
    }

    /// Whether a scan can go back to records that were read before.
    fn can_go_back(&self) -> bool {
        true
    }

    /// A descriptor that is readable when [`Self::read`] has records; `None` if there is none, or
    /// if the scan has come to its end.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// The name of the device in messages.
    fn path(&self) -> &Path;
}

/// A user of ChangeLogs as `lctl changelog_register` has registered it: `cl1` is the user 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangelogUser(pub u32);

impl ChangelogUser {
    /// Reads `cl1` or `cl1-name`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.strip_prefix("cl")?;
        let number = number.split_once('-').map_or(number, |(number, _)| number);
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| is_number).map(Self)
    }
}

/// The character device `/dev/changelog-FS-MDTxxxx` of a Lustre client.
///
/// The kernel scans the log once for each opened file, up to its end. Following the log needs an
/// ioctl, which does the same again every second; here, the scan is begun again by opening the
/// device anew, which needs none. A scan skips records before the given index without sending them.
#[derive(Debug)]
pub struct ChangelogFile {
    path: PathBuf,
    file: Option<File>,
    is_at_end: bool,
}

impl ChangelogFile {
    /// The device at this path. It is opened by the first scan.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            file: None,
            is_at_end: false,
        }
    }

    /// The device of a metadata target, such as `lustre-MDT0000`.
    pub fn of_target(target: &str) -> Self {
        Self::new(format!("/dev/changelog-{target}"))
    }
}

impl ChangelogDevice for ChangelogFile {
    fn scan(&mut self, index: u64) -> io::Result<()> {
        // A file seeks forward only, so that each scan has a file of its own.
        self.file = None;
        let flags = OFlags::NONBLOCK.union(OFlags::CLOEXEC).bits();
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(&self.path)?;
        file.seek(SeekFrom::Start(index))?;
        start_scan(&file)?;
        self.file = Some(file);
        self.is_at_end = false;
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.file.as_mut();
        let file = file.ok_or_else(|| io::Error::other("no scan has been begun"))?;
        let result = file.read(buffer);
        match &result {
            Ok(0) => self.is_at_end = true,
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => self.file = None,
            Ok(_) => {}
        }
        result
    }

    fn clear(&mut self, user: ChangelogUser, index: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        let order = format!("clear:cl{}:{index}", user.0);
        // One write is one order, so that `write_all`, which may split it, is not used.
        let written = file.write(order.as_bytes())?;
        match written == order.len() {
            true => Ok(()),
            false => Err(io::Error::other(
                "the device took a part of the order to clear",
            )),
        }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        let file = self.file.as_ref().filter(|_| !self.is_at_end);
        file.map(AsFd::as_fd)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether a read that has failed this way is to be tried again as it is.
pub(crate) fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Has the kernel begin the scan: a read that must not wait does not begin it, but polling does.
#[expect(clippy::disallowed_methods, reason = "it does not wait: its time is 0")]
fn start_scan(file: &File) -> io::Result<()> {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        for (text, user) in [
            ("cl1", Some(1)),
            ("cl12-barograph", Some(12)),
            ("cl", None),
            ("1", None),
            ("cl+1", None),
            ("clx", None),
        ] {
            assert_eq!(
                ChangelogUser::parse(text),
                user.map(ChangelogUser),
                "{text}"
            );
        }
    }

    /// A regular file is no such device, but opening, seeking, reading and the order to clear are
    /// calls that it takes too: its position is one of bytes.
    #[test]
    fn the_calls_to_the_device() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("changelog-lustre-MDT0000");
        let mut device = ChangelogFile::new(&path);
        assert_eq!(device.scan(0).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, b"0123456789").unwrap();
        assert!(device.read(&mut [0; 4]).is_err());
        device.scan(6).unwrap();
        assert!(device.readable().is_some());
        let mut buffer = [0; 8];
        assert_eq!(device.read(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"6789");
        assert_eq!(device.read(&mut buffer).unwrap(), 0);
        assert!(device.readable().is_none());
        device.scan(2).unwrap();
        assert_eq!(device.read(&mut buffer).unwrap(), 8);
        device.clear(ChangelogUser(7), 42).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"clear:cl7:42");
        let target = ChangelogFile::of_target("lustre-MDT0001");
        assert_eq!(target.path(), Path::new("/dev/changelog-lustre-MDT0001"));
    }
}
