//! The requests of the kernel, answered by [`Operations`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::entry::Kind;
use crate::keys::COMPONENT_BYTES_MAX;
use crate::operations::{Changes, Operations, file_type};

/// Bytes of the largest write of the kernel.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Bytes that the kernel reads ahead.
const READ_AHEAD_BYTES: u32 = 1 << 20;
/// How long the kernel keeps a name: it asks each time, so that it sees what other mounts do.
const NAME_TIME: Duration = Duration::ZERO;
/// How long the kernel keeps attributes. Their number stands for one version of a file.
const ATTRIBUTE_TIME: Duration = Duration::from_secs(1);
/// The unit of the sizes of the file system.
const ROOM_UNIT_BYTES: u32 = 4_096;
/// The inode numbers of names in lists, as the kernel has it for unknown ones.
const UNKNOWN: INodeNo = INodeNo(0xffff_ffff);

/// The file system as the kernel sees it.
pub(crate) struct Kernel(pub(crate) Arc<Operations>);

impl Filesystem for Kernel {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel offers less of is as it offers it.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_readahead(READ_AHEAD_BYTES);
        // Locks come here, to be refused: those of one mount would hold for no other one.
        let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
        let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        Ok(())
    }

    fn destroy(&mut self) {
        self.0.end();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entered(self.0.lookup(parent.0, name.as_bytes()), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.0.table().forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        told(self.0.attributes_of(ino.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes {
            mode,
            uid,
            gid,
            size,
            mtime: mtime.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => self.0.now(),
            }),
        };
        told(self.0.change(ino.0, &changes), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.target(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::ENOTSUP);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes();
        let made = self.0.make(parent.0, name, Kind::Directory, mode, b"");
        entered(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.unlink(parent.0, name.as_bytes()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.remove_directory(parent.0, name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (name.as_bytes(), target.as_os_str().as_bytes());
        let made = self.0.make(parent.0, name, Kind::Link, 0o777, target);
        entered(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, to_name) = (name.as_bytes(), to_name.as_bytes());
        let places = ((parent.0, name), (to.0, to_name));
        let renamed = match flags == RenameFlags::RENAME_NOREPLACE {
            true => self.0.rename_new(places.0, places.1),
            false if flags.is_empty() => self.0.rename(places.0, places.1),
            false => Err(Errno::EINVAL),
        };
        done(renamed, reply);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOTSUP);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let is_writer = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.0.open(ino.0, is_writer) {
            Ok(handle) => reply.opened(FileHandle(handle), cached(is_writer)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.0.create(parent.0, name.as_bytes(), mode) {
            Ok((attributes, handle)) => {
                let handle = FileHandle(handle);
                let flags = cached(true);
                reply.created(&NAME_TIME, &attributes, Generation(0), handle, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(fh.0, offset, size.into()) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(fh.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, fh: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(self.0.flush(fh.0), reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.0.flush(fh.0), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.close(fh.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open_directory(ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = self.0.table().directory(fh.0);
        let names = match names {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, kind)) in (offset + 1..).zip(names.iter().skip(from)) {
            if reply.add(UNKNOWN, at, file_type(*kind), OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.table().close_directory(fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Names are stored when they are made.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (all, free) = self.0.room();
        let unit = ROOM_UNIT_BYTES;
        let [all, free] = [all, free].map(|bytes| bytes / u64::from(unit));
        reply.statfs(
            all,
            free,
            free,
            0,
            0,
            unit,
            COMPONENT_BYTES_MAX as u32,
            unit,
        );
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOTSUP);
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOTSUP);
    }
}

/// What the kernel may keep of a file that is opened: all for readers, since another file has
/// another number; nothing for writers, which also refuses shared mappings.
fn cached(is_writer: bool) -> FopenFlags {
    match is_writer {
        true => FopenFlags::FOPEN_DIRECT_IO,
        false => FopenFlags::FOPEN_KEEP_CACHE,
    }
}

fn entered(found: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match found {
        Ok(attributes) => {
            let generation = Generation(0);
            reply.entry_with_ttls(&ATTRIBUTE_TIME, &NAME_TIME, &attributes, generation);
        }
        Err(error) => reply.error(error),
    }
}

fn told(attributes: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match attributes {
        Ok(attributes) => reply.attr(&ATTRIBUTE_TIME, &attributes),
        Err(error) => reply.error(error),
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
