//! Binary records of a ChangeLog, as the character device of a metadata target gives them: a header
//! of 64 bytes in the order of the host, extensions that flags announce, and the name.

use thiserror::Error;

use super::fid::{FID_BYTES, Fid};
use super::nid::{NID_BYTES, Nid};
use super::record_type::RecordType;

/// Bytes of the header that every record has.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bits of `flags` that mean something for the record's type, such as the last link of `UNLNK`.
pub(crate) const TYPE_FLAGS: u16 = 0x0fff;
/// Most bytes of a job's id.
pub(crate) const JOB_BYTES_MAX: usize = 32;
/// Most bytes of the name of an extended attribute.
pub(crate) const XATTR_BYTES_MAX: usize = 256;
/// Most bytes of a record.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES
    + 2 * FID_BYTES
    + JOB_BYTES_MAX
    + 8
    + 16
    + NID_BYTES
    + 4
    + XATTR_BYTES_MAX
    + 65_535;

/// Bits of `flags` that announce extensions.
const HAS_RENAME: u16 = 0x2000;
const HAS_JOB: u16 = 0x4000;
const HAS_EXTRA: u16 = 0x8000;
/// Bits of the extra flags.
const EXTRA_USER: u64 = 0x1;
const EXTRA_NID: u64 = 0x2;
const EXTRA_OPEN: u64 = 0x4;
const EXTRA_XATTR: u64 = 0x8;
const EXTRA_NID_LARGE: u64 = 0x10;
const EXTRA_KNOWN: u64 = 0x1f;

/// A record of a ChangeLog. Its texts lie in the buffer that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangelogRecord<'a> {
    /// Number of the record's type; [`Self::record_type`] gives the type if it is known.
    pub type_number: u32,
    /// Flags of the type ([`TYPE_FLAGS`]).
    pub flags: u16,
    /// Number of the record in its log.
    pub index: u64,
    /// Number of another record, which no server writes so far.
    pub previous: u64,
    /// Time as the server writes it: seconds times 2^30, and nanoseconds.
    pub time: u64,
    /// The file or directory; for a rename, the one that was replaced; for a migration, the new
    /// FID.
    pub target: Fid,
    /// The directory of the name.
    pub parent: Fid,
    /// The file that was renamed, or the old FID of a migration, and its old directory.
    pub source: Option<(Fid, Fid)>,
    /// Id of the job; empty if there is none.
    pub job: &'a [u8],
    /// User and group.
    pub user: Option<(u64, u64)>,
    /// The client.
    pub nid: Option<Nid>,
    /// How a file was opened: 1 to read, 2 to write, 4 to execute.
    pub open: Option<u32>,
    /// Name of the extended attribute; empty if there is none.
    pub xattr: &'a [u8],
    /// The name within the parent; the new one for a rename.
    pub name: &'a [u8],
    /// The old name of a rename or migration.
    pub old_name: &'a [u8],
}

/// The reason why bytes are no record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ChangelogFault {
    /// The bytes end before the record does.
    #[error("the bytes end before the ChangeLog record does")]
    Short,
    /// The record has extensions of unknown length, so that its end is unknown as well.
    #[error("ChangeLog record {index} has unknown extensions (extra flags {extra:#x})")]
    Extensions {
        /// Number of the record.
        index: u64,
        /// The extra flags.
        extra: u64,
    },
    /// The record has the number 0 or the greatest one, which no server gives. After the greatest
    /// one no other could follow, so that it would be read again for ever.
    #[error("a ChangeLog record has no index")]
    Index,
}

impl<'a> ChangelogRecord<'a> {
    /// Reads the record at the beginning of `bytes`, and gives its length in bytes.
    ///
    /// # Errors
    ///
    /// There is no whole record, or its length cannot be known.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), ChangelogFault> {
        let mut rest = Rest(bytes);
        let name_bytes = usize::from(u16::from_ne_bytes(rest.array()?));
        let flags = u16::from_ne_bytes(rest.array()?);
        let mut record = Self {
            flags: flags & TYPE_FLAGS,
            type_number: u32::from_ne_bytes(rest.array()?),
            index: rest.u64()?,
            previous: rest.u64()?,
            time: rest.u64()?,
            target: rest.fid()?,
            parent: rest.fid()?,
            ..Self::default()
        };
        if matches!(record.index, 0 | u64::MAX) {
            return Err(ChangelogFault::Index);
        }
        if flags & HAS_RENAME != 0 {
            let source = (rest.fid()?, rest.fid()?);
            // Servers may leave room for the extension in records that are no renames.
            record.source = Some(source).filter(|(of, parent)| !of.is_none() || !parent.is_none());
        }
        if flags & HAS_JOB != 0 {
            record.job = text_of(rest.take(JOB_BYTES_MAX)?);
        }
        if flags & HAS_EXTRA != 0 {
            record.take_extra(&mut rest)?;
        }
        let name = rest.take(name_bytes)?;
        record.name = text_of(name);
        let old_name = name.get(record.name.len() + 1..).unwrap_or_default();
        if record.has_two_names() {
            record.old_name = text_of(old_name);
        }
        Ok((record, bytes.len() - rest.0.len()))
    }

    fn take_extra(&mut self, rest: &mut Rest<'a>) -> Result<(), ChangelogFault> {
        let extra = rest.u64()?;
        if extra & !EXTRA_KNOWN != 0 {
            let index = self.index;
            return Err(ChangelogFault::Extensions { index, extra });
        }
        if extra & EXTRA_USER != 0 {
            self.user = Some((rest.u64()?, rest.u64()?));
        }
        if extra & EXTRA_NID != 0 {
            self.nid = Some(Nid::from_bytes(
                &rest.array()?,
                extra & EXTRA_NID_LARGE != 0,
            ));
        }
        if extra & EXTRA_OPEN != 0 {
            self.open = Some(u32::from_ne_bytes(rest.array()?));
        }
        if extra & EXTRA_XATTR != 0 {
            self.xattr = text_of(rest.take(XATTR_BYTES_MAX)?);
        }
        Ok(())
    }

    /// Appends the bytes of the record. Texts that are too long lose their end.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut extra = 0;
        let mut announce = |is_there: bool, bits: u64| extra |= if is_there { bits } else { 0 };
        announce(self.user.is_some(), EXTRA_USER);
        announce(self.nid.is_some(), EXTRA_NID);
        announce(matches!(self.nid, Some(Nid::Large(_))), EXTRA_NID_LARGE);
        announce(self.open.is_some(), EXTRA_OPEN);
        announce(!self.xattr.is_empty(), EXTRA_XATTR);
        let mut flags = self.flags & TYPE_FLAGS;
        let mut announce = |is_there: bool, bit: u16| flags |= if is_there { bit } else { 0 };
        announce(self.source.is_some(), HAS_RENAME);
        announce(!self.job.is_empty(), HAS_JOB);
        announce(extra != 0, HAS_EXTRA);
        let has_old_name = self.has_two_names() && !self.old_name.is_empty();
        let old_name = if has_old_name { self.old_name } else { &[] };
        let name_bytes = self.name.len() + usize::from(has_old_name) + old_name.len();
        let name_bytes = u16::try_from(name_bytes).unwrap_or(u16::MAX);
        to.extend(name_bytes.to_ne_bytes());
        to.extend(flags.to_ne_bytes());
        to.extend(self.type_number.to_ne_bytes());
        for word in [self.index, self.previous, self.time] {
            to.extend(word.to_ne_bytes());
        }
        to.extend(self.target.to_bytes());
        to.extend(self.parent.to_bytes());
        if let Some((source, parent)) = self.source {
            to.extend(source.to_bytes());
            to.extend(parent.to_bytes());
        }
        if !self.job.is_empty() {
            put_padded(to, self.job, JOB_BYTES_MAX);
        }
        if extra != 0 {
            to.extend(extra.to_ne_bytes());
        }
        let user = self.user.iter().flat_map(|(user, group)| [*user, *group]);
        user.for_each(|id| to.extend(id.to_ne_bytes()));
        to.extend(self.nid.iter().flat_map(|nid| nid.to_bytes()));
        to.extend(self.open.iter().flat_map(|open| open.to_ne_bytes()));
        if !self.xattr.is_empty() {
            put_padded(to, self.xattr, XATTR_BYTES_MAX);
        }
        let names = self
            .name
            .iter()
            .chain(has_old_name.then_some(&0))
            .chain(old_name);
        to.extend(names.take(name_bytes.into()));
    }

    /// The type of the record; `None` if its number is unknown.
    pub fn record_type(&self) -> Option<RecordType> {
        RecordType::from_number(self.type_number)
    }

    /// Time of the event in ns since the epoch.
    pub fn time_ns(&self) -> i64 {
        time_ns_of(self.time)
    }

    /// Whether the name field of records of this type has the old name after the new one.
    fn has_two_names(&self) -> bool {
        let of = self.record_type();
        self.source.is_some() || matches!(of, Some(RecordType::Rename | RecordType::Migrate))
    }
}

/// Target and source of a record, without reading the rest of it.
pub(crate) fn fids_of(bytes: &[u8]) -> Option<(Fid, Fid)> {
    let fid = |at: usize| {
        let fid = bytes.get(at..at + FID_BYTES)?.try_into().ok()?;
        Some(Fid::from_bytes(fid))
    };
    let flags = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
    let source = match flags & HAS_RENAME {
        0 => Fid::NONE,
        _ => fid(HEADER_BYTES)?,
    };
    Some((fid(HEADER_BYTES - 2 * FID_BYTES)?, source))
}

/// The time of a record as servers write it.
pub fn record_time(ns: i64) -> u64 {
    let ns = u64::try_from(ns).unwrap_or(0);
    ((ns / 1_000_000_000) << 30) | (ns % 1_000_000_000)
}

/// Time in ns since the epoch of the time in a record.
fn time_ns_of(time: u64) -> i64 {
    let seconds = i64::try_from(time >> 30).unwrap_or(i64::MAX);
    let ns = (time & ((1 << 30) - 1)) as i64;
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// The text before the first NUL.
fn text_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

fn put_padded(to: &mut Vec<u8>, text: &[u8], bytes: usize) {
    let end = to.len() + bytes;
    to.extend(&text[..text.len().min(bytes)]);
    to.resize(end, 0);
}

/// What is left of the bytes.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ChangelogFault> {
        let parts = self.0.split_at_checked(count);
        let (taken, rest) = parts.ok_or(ChangelogFault::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ChangelogFault> {
        let parts = self.0.split_first_chunk();
        let (taken, rest) = parts.ok_or(ChangelogFault::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, ChangelogFault> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    fn fid(&mut self) -> Result<Fid, ChangelogFault> {
        Ok(Fid::from_bytes(self.array()?))
    }
}
