//! Access-control lists of files and directories, in the kernel's binary form
//! (`include/uapi/linux/posix_acl_xattr.h`): the owner, one more user or group, and nobody else.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, setxattr};
use rustix::io::Errno;

/// The user or group that has access beside the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// A user, by number.
    User(u32),
    /// One group.
    Group(u32),
}

/// An access-control list. Rights are those of a mode: 4 to read, 2 to write, 1 to execute or
/// enter.
#[derive(Clone, Copy, Debug)]
pub struct AccessList {
    /// Rights of the owner.
    pub owner: u16,
    /// The other user or group.
    pub grantee: Grantee,
    /// Rights of the grantee.
    pub rights: u16,
}

const ATTRIBUTE: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

impl AccessList {
    /// Sets this list on a path. Returns false if the file system has no lists.
    pub fn set(&self, path: &Path) -> io::Result<bool> {
        outcome(setxattr(
            path,
            ATTRIBUTE,
            &self.encode(),
            XattrFlags::empty(),
        ))
    }

    /// Sets this list on an open file. Returns false if the file system has no lists.
    pub fn set_on(&self, file: impl AsFd) -> io::Result<bool> {
        outcome(fsetxattr(
            file,
            ATTRIBUTE,
            &self.encode(),
            XattrFlags::empty(),
        ))
    }

    fn encode(&self) -> Vec<u8> {
        let (tag, id) = match self.grantee {
            Grantee::User(id) => (USER, id),
            Grantee::Group(id) => (GROUP, id),
        };
        let mut entries = [
            (USER_OBJ, self.owner, NO_ID),
            (tag, self.rights, id),
            (GROUP_OBJ, 0, NO_ID),
            (MASK, self.rights, NO_ID),
            (OTHER, 0, NO_ID),
        ];
        // The kernel requires the entries in the order of their tags.
        entries.sort_by_key(|entry| entry.0);
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}

fn outcome(set: Result<(), Errno>) -> io::Result<bool> {
    match set {
        Ok(()) => Ok(true),
        Err(Errno::NOTSUP | Errno::PERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
