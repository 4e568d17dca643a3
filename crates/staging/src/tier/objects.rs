//! Copies as objects of a store: `u<uid>/<life>-<number>.<head>`, one for each version of a block.
//!
//! A name is never used twice, also not by a later server: `life` is the time of a server's start.
//! So a version is never overwritten, not even by a request of a former life that comes late. The
//! head, if it is short, is in the name (in URL-safe base 64), so that a list tells what is there;
//! each object begins with its header as a file does, where that of a long name is read from.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::found::{FoundCopy, Scan};
use super::header::FileHead;
use crate::block::UserId;
use crate::remote::{ObjectStore, ObjectWriter};

/// The name of the object that says that the server stopped in order.
const CLEAN: &str = "clean";
/// In place of a head that is too long for a name.
const LONG: &str = "-";
/// Most characters of a head in a name: stores that are on file systems take 255 bytes between two
/// slashes, of which life and number take 34 at most.
const HEAD_CHARACTERS_MAX: usize = 220;

/// A store of objects.
pub(crate) struct ObjectMedium {
    store: Arc<dyn ObjectStore>,
    life: AtomicU64,
}

/// What the name of an object says.
struct NamedObject {
    user: UserId,
    life: u64,
    head: Option<FileHead>,
}

impl ObjectMedium {
    /// A store, for a server that starts at this time of day.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, now_ns: i64) -> Self {
        Self {
            store,
            life: AtomicU64::new(now_ns.max(0).unsigned_abs()),
        }
    }

    pub(crate) fn object_bytes_max(&self) -> u64 {
        self.store.object_bytes_max()
    }

    /// Begins an object, with its header.
    pub(crate) fn create(
        &self,
        number: u64,
        head: &FileHead,
    ) -> io::Result<(Box<str>, Box<dyn ObjectWriter>)> {
        let header = head.encode();
        let name = name(
            self.life.load(Ordering::Relaxed),
            number,
            head.user,
            &header,
        );
        let bytes = head.bytes + header.len() as u64;
        let mut object = self.store.create(&name, bytes)?;
        object.append(&header)?;
        Ok((name.into(), object))
    }

    /// The store, of which readers ask what they want.
    pub(crate) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        self.store.remove(name)
    }

    /// Looks at what is there. A store may list an object more than once.
    pub(crate) fn scan(&self) -> io::Result<Scan> {
        let mut listed = BTreeMap::new();
        self.store.list(&mut |name, bytes| {
            listed.insert(Box::<str>::from(name), bytes);
        })?;
        let mut scan = Scan::default();
        for (name, bytes) in listed {
            if &*name == CLEAN {
                let mut epoch = [0; 8];
                let read = self.store.read_at(&name, &mut epoch, 0);
                scan.clean_epoch = read.is_ok().then(|| u64::from_le_bytes(epoch));
                self.store.remove(&name)?;
                continue;
            }
            let Some(named) = NamedObject::of_name(&name) else {
                continue;
            };
            self.life
                .fetch_max(named.life.saturating_add(1), Ordering::Relaxed);
            match self.found(&name, named, bytes)? {
                Some(copy) => scan.copies.push(copy),
                None => {
                    scan.torn += 1;
                    self.store.remove(&name)?;
                }
            }
        }
        Ok(scan)
    }

    /// An object, if it is complete and has a valid header. Fails if the store does: an object that
    /// could not be looked at is not one that is torn.
    fn found(&self, name: &str, named: NamedObject, bytes: u64) -> io::Result<Option<FoundCopy>> {
        let user = named.user;
        let head = match named.head {
            Some(head) => Some(head),
            None => self.read_head(name, bytes)?,
        };
        let Some(head) = head else { return Ok(None) };
        let header_bytes = head.encode().len() as u64;
        let is_whole = header_bytes.checked_add(head.bytes) == Some(bytes);
        if !is_whole || head.user != user || head.bytes > crate::BLOCK_BYTES_MAX {
            return Ok(None);
        }
        Ok(Some(FoundCopy {
            name: name.into(),
            head,
            header_bytes,
        }))
    }

    fn read_head(&self, name: &str, bytes: u64) -> io::Result<Option<FileHead>> {
        let mut start = [0; 10];
        if bytes < start.len() as u64 {
            return Ok(None);
        }
        self.store.read_at(name, &mut start, 0)?;
        let Some(length) = FileHead::length(&start).filter(|length| *length as u64 <= bytes) else {
            return Ok(None);
        };
        let mut header = vec![0; length];
        self.store.read_at(name, &mut header, 0)?;
        Ok(FileHead::decode(&header).ok())
    }

    /// Notes that the server stops in order.
    pub(crate) fn mark_clean(&self, joined_epoch: u64) -> io::Result<()> {
        let note = joined_epoch.to_le_bytes();
        let mut object = self.store.create(CLEAN, note.len() as u64)?;
        object.append(&note)?;
        object.finish()
    }
}

fn name(life: u64, number: u64, user: UserId, header: &[u8]) -> String {
    let head = URL_SAFE_NO_PAD.encode(header);
    let head = match head.len() <= HEAD_CHARACTERS_MAX {
        true => &head,
        false => LONG,
    };
    format!("u{user}/{life:016x}-{number:x}.{head}")
}

impl NamedObject {
    /// An object of ours; its name is foreign.
    fn of_name(name: &str) -> Option<Self> {
        let (user, rest) = name.strip_prefix('u')?.split_once('/')?;
        let (place, head) = rest.split_once('.')?;
        let (life, number) = place.split_once('-')?;
        u64::from_str_radix(number, 16).ok()?;
        let head = match head {
            LONG => None,
            head => {
                let header = URL_SAFE_NO_PAD.decode(head).ok()?;
                Some(FileHead::decode(&header).ok()?)
            }
        };
        Some(Self {
            user: user.parse().ok()?,
            life: u64::from_str_radix(life, 16).ok()?,
            head,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::BlockKey;

    #[test]
    fn names_tell_their_heads_and_fit_between_two_slashes() {
        for (length, is_told) in [(0, true), (103, true), (104, false), (4_096, false)] {
            let head = FileHead {
                user: u32::MAX,
                key: BlockKey::named("dataset", &vec![b'/'; length]).expect("within its bounds"),
                version: 7,
                epoch: 2,
                bytes: 1 << 20,
                checksum: 5,
                refetch_us: 0,
            };
            let name = name(u64::MAX, u64::MAX, head.user, &head.encode());
            assert!(name.split('/').all(|part| part.len() <= 255), "{name}");
            let named = NamedObject::of_name(&name).expect("a name of ours");
            assert_eq!((named.user, named.life), (u32::MAX, u64::MAX));
            assert_eq!(named.head, is_told.then_some(head), "{length}");
        }
        let strangers = [
            "",
            "u",
            "u1/",
            "u1/2-3",
            "x1/2-3.-",
            "u1/2-3.AAAA",
            "u1/g-3.-",
            "clean",
        ];
        for stranger in strangers {
            assert!(NamedObject::of_name(stranger).is_none(), "{stranger}");
        }
    }
}
