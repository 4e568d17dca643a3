//! The model of file events that all sources share.

use std::fmt;

/// Most bytes of a path. A longer one is cut at its beginning and marked as incomplete.
pub const PATH_BYTES_MAX: usize = 4_096;

/// The beginning of the detail of an event of the kind `mark` that a rule has put on a file; the
/// mark follows, up to a blank.
pub const MARK_KEY: &str = "mark=";

/// Something that happened to a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// Kind of the event.
    pub kind: EventKind,
    /// What else is known of the event.
    pub flags: EventFlags,
    /// Number of the event in its source. Numbers ascend; a source that counts its own records,
    /// such as a ChangeLog, may leave numbers out.
    pub index: u64,
    /// Time of the event by the clock of its source, in ns since the epoch.
    pub ts: i64,
    /// The file or directory; [`ObjectId::NONE`] if the source does not know it.
    pub target: ObjectId,
    /// The directory in which it is; [`ObjectId::NONE`] if the source does not know it.
    pub parent: ObjectId,
    /// Path at the time of the event, as raw bytes; after the event for a rename. If it is marked
    /// as incomplete, it is what is known of its end, and may be empty.
    pub path: Vec<u8>,
    /// Path before a rename or migration; empty for other kinds.
    pub old_path: Vec<u8>,
    /// Size of the file after the event, in bytes.
    pub size: Option<u64>,
    /// User that caused the event; the owner of the file where only that is known.
    pub uid: Option<u32>,
    /// Group of that user.
    pub gid: Option<u32>,
    /// Job that caused the event, as the source names it; empty if it is unknown.
    pub job: Box<str>,
    /// The record of the source, where the model says less than it did.
    pub native: Option<NativeRecord>,
    /// Further fields of the source as `key=value`, with blanks between them.
    pub detail: Box<str>,
}

impl FileEvent {
    /// An event of this kind, number and time of which nothing else is known yet.
    pub fn new(kind: EventKind, index: u64, ts: i64) -> Self {
        Self {
            kind,
            flags: EventFlags::default(),
            index,
            ts,
            target: ObjectId::NONE,
            parent: ObjectId::NONE,
            path: Vec::new(),
            old_path: Vec::new(),
            size: None,
            uid: None,
            gid: None,
            job: Box::default(),
            native: None,
            detail: Box::default(),
        }
    }

    /// The mark that a rule has put on the file with this event; empty if it is another event.
    pub fn mark(&self) -> &str {
        let mark = self.detail.strip_prefix(MARK_KEY);
        let mark = mark.and_then(|rest| rest.split(' ').next());
        mark.filter(|_| self.kind == EventKind::Mark)
            .unwrap_or_default()
    }

    /// The last component of the path.
    pub fn name(&self) -> &[u8] {
        name_of(&self.path)
    }
}

/// The last component of a path.
pub(crate) fn name_of(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|byte| *byte == b'/');
    start.map_or(path, |at| &path[at + 1..])
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $word:literal,)*) => {
        /// Kind of a file event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum EventKind {
            $($(#[$doc])* $name = $code,)*
        }

        impl EventKind {
            /// All kinds, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word for the kind in SQL, rules and commands.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// A regular file was made.
    Create = 1 "create",
    /// A directory was made.
    Mkdir = 2 "mkdir",
    /// Another name was made for a file.
    Link = 3 "link",
    /// A symbolic link was made.
    Symlink = 4 "symlink",
    /// A device, pipe or socket was made.
    Mknod = 5 "mknod",
    /// A name of a file was removed.
    Unlink = 6 "unlink",
    /// A directory was removed.
    Rmdir = 7 "rmdir",
    /// A file or directory got another name or place.
    Rename = 8 "rename",
    /// A file was opened.
    Open = 9 "open",
    /// A file was closed that had not been open for writing, or of which that is unknown.
    Close = 10 "close",
    /// A file was closed that had been open for writing.
    CloseWrite = 11 "close_write",
    /// The contents of a file were written.
    Write = 12 "write",
    /// A file was made shorter or longer.
    Truncate = 13 "truncate",
    /// Owner, mode or times were changed.
    Attrib = 14 "attrib",
    /// An extended attribute was changed.
    Xattr = 15 "xattr",
    /// The layout of a file on the storage targets was changed.
    Layout = 16 "layout",
    /// A hierarchical storage manager acted on a file.
    Hsm = 17 "hsm",
    /// A file or directory was moved to another metadata target, and has another id since.
    Migrate = 18 "migrate",
    /// The mirrors of a file were made equal, or one of them was written first.
    Resync = 19 "resync",
    /// An extended attribute was read.
    XattrRead = 20 "xattr_read",
    /// An open was refused for lack of permission.
    OpenDenied = 21 "open_denied",
    /// The source began, ended or cleared its log; of the source of marks, a rule has marked the
    /// file.
    Mark = 22 "mark",
    /// Events were lost here: the source had no room for them, or nobody looked.
    Gap = 23 "gap",
    /// What was lost in the gap before has been found by comparing, and told.
    Reconciled = 24 "reconciled",
}

impl EventKind {
    /// The kind with this number; `None` if there is none.
    pub fn from_u8(code: u8) -> Option<Self> {
        let at = usize::from(code).checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// The kind with this word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }

    /// Whether a name comes to be with the event.
    pub fn makes_name(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Mkdir | Self::Link | Self::Symlink | Self::Mknod
        )
    }

    /// Whether a name ceases to be with the event.
    pub fn removes_name(self) -> bool {
        matches!(self, Self::Unlink | Self::Rmdir)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Properties of an event, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventFlags(pub u16);

impl EventFlags {
    /// The event was not seen when it happened: comparing with what was known has found it. Its
    /// time is when it was found, or the time that the file has.
    pub const RECONCILED: Self = Self(1);
    /// The path lacks its beginning: a directory above was removed before it was resolved, or is
    /// unknown.
    pub const PATH_INCOMPLETE: Self = Self(1 << 1);
    /// The old path lacks its beginning.
    pub const OLD_PATH_INCOMPLETE: Self = Self(1 << 2);
    /// The target is a directory.
    pub const DIRECTORY: Self = Self(1 << 3);
    /// The target is gone with this name: it was the last one.
    pub const LAST_LINK: Self = Self(1 << 4);
    /// A rename has replaced another file.
    pub const REPLACED: Self = Self(1 << 5);
    /// The kernel has merged several events of the target into one while they waited.
    pub const MERGED: Self = Self(1 << 6);
    /// The target came from outside of what is watched, or went there.
    pub const BEYOND: Self = Self(1 << 7);

    /// Whether all of these bits are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of the other.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits if the condition holds.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        match condition {
            true => self,
            false => Self(0),
        }
    }
}

/// The identity of a file or directory within its source: a Lustre FID, device and inode, or a file
/// handle. It tells objects apart and has no other meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 16]);

impl ObjectId {
    /// The id of no object.
    pub const NONE: Self = Self([0; 16]);

    /// The id of an object by two numbers, such as device and inode.
    pub fn of(high: u64, low: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    /// Whether it is the id of no object.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Type and flags of a record as its source has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeRecord {
    /// Number of the record's type, such as 8 for `RENME` of a ChangeLog.
    pub kind: u8,
    /// Its flags.
    pub flags: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_numbers_and_words_of_their_own() {
        for (at, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, at + 1);
            assert_eq!(EventKind::from_u8(*kind as u8), Some(*kind));
            assert_eq!(EventKind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(
            (EventKind::from_u8(0), EventKind::from_u8(25)),
            (None, None)
        );
        assert_eq!(EventKind::parse("delete"), None);
    }

    #[test]
    fn flags() {
        let flags = EventFlags::DIRECTORY.with(EventFlags::LAST_LINK.when(true));
        assert!(flags.has(EventFlags::DIRECTORY) && flags.has(EventFlags::LAST_LINK));
        assert!(!flags.has(EventFlags::MERGED.with(EventFlags::DIRECTORY)));
        assert_eq!(EventFlags::MERGED.when(false), EventFlags::default());
    }
}
