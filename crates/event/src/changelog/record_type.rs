//! The types of ChangeLog records, with their numbers, names and kinds of events.

use crate::event::EventKind;

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $code:literal $word:literal $kind:ident,)*) => {
        /// Type of a record of a ChangeLog (`enum changelog_rec_type`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum RecordType {
            $($(#[$doc])* $name = $code,)*
        }

        impl RecordType {
            /// All types, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name that `lfs changelog` prints.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// Kind of the event that a record of this type tells, before its flags are looked at.
            pub fn kind(self) -> EventKind {
                match self {
                    $(Self::$name => EventKind::$kind,)*
                }
            }
        }
    };
}

types! {
    /// The log was begun, ended or cleared.
    Mark = 0 "MARK" Mark,
    /// A regular file was made.
    Create = 1 "CREAT" Create,
    /// A directory was made.
    Mkdir = 2 "MKDIR" Mkdir,
    /// A hard link was made.
    HardLink = 3 "HLINK" Link,
    /// A symbolic link was made.
    SoftLink = 4 "SLINK" Symlink,
    /// A device, pipe or socket was made.
    Mknod = 5 "MKNOD" Mknod,
    /// A name of a file was removed.
    Unlink = 6 "UNLNK" Unlink,
    /// A directory was removed.
    Rmdir = 7 "RMDIR" Rmdir,
    /// A file or directory was renamed.
    Rename = 8 "RENME" Rename,
    /// The second record of a rename, which old servers write.
    RenameTo = 9 "RNMTO" Rename,
    /// A file was opened.
    Open = 10 "OPEN" Open,
    /// A file was closed.
    Close = 11 "CLOSE" Close,
    /// The layout of a file was changed.
    Layout = 12 "LYOUT" Layout,
    /// The size of a file was set.
    Truncate = 13 "TRUNC" Truncate,
    /// Owner, mode or another attribute was set.
    SetAttribute = 14 "SATTR" Attrib,
    /// An extended attribute was set or removed.
    Xattr = 15 "XATTR" Xattr,
    /// A hierarchical storage manager acted.
    Hsm = 16 "HSM" Hsm,
    /// The time of the last modification was changed. Whether by writing or by setting it, such a
    /// record does not tell, so that its event is one of attributes.
    ModificationTime = 17 "MTIME" Attrib,
    /// The time of the last change of the inode was changed.
    ChangeTime = 18 "CTIME" Attrib,
    /// The time of the last access was changed.
    AccessTime = 19 "ATIME" Attrib,
    /// A file or directory was moved to another metadata target and has another FID since.
    Migrate = 20 "MIGRT" Migrate,
    /// A mirror of a file was written first.
    FirstWrite = 21 "FLRW" Resync,
    /// The mirrors of a file were made equal.
    Resync = 22 "RESYNC" Resync,
    /// An extended attribute was read.
    GetXattr = 23 "GXATR" XattrRead,
    /// An open was refused.
    OpenDenied = 24 "NOPEN" OpenDenied,
}

impl RecordType {
    /// The type with this number; `None` if it is unknown.
    pub fn from_number(number: u32) -> Option<Self> {
        let at = usize::try_from(number).ok()?;
        Self::ALL.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_listed_by_their_numbers() {
        for (at, of) in RecordType::ALL.iter().enumerate() {
            assert_eq!(*of as usize, at);
            assert_eq!(RecordType::from_number(at as u32), Some(*of));
        }
        assert_eq!(RecordType::ALL.len(), 25);
        assert_eq!(RecordType::from_number(25), None);
    }
}
