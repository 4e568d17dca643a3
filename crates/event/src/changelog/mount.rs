//! The places of files as a mounted Lustre file system tells them: the extended attribute
//! `trusted.link` has parent and name of each link.
//!
//! It is read through `.lustre/fid/[FID]` below the mount point, which needs the capability
//! `CAP_SYS_ADMIN` and no ioctl.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::fid::Fid;
use super::places::FidLink;
use super::resolver::{FidPaths, FidPlace};

/// The attribute with the links of a file.
const LINK_ATTRIBUTE: &str = "trusted.link";
/// Most bytes of an attribute that Linux allows.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// First bytes of the attribute, and bytes of its header (`struct link_ea_header`).
const MAGIC: u32 = 0x11ea_f1df;
const HEADER_BYTES: usize = 24;
/// Bytes of an entry before the name: its length and the parent's FID.
const ENTRY_BYTES: usize = 18;

/// A mounted Lustre file system that tells the places of files.
#[derive(Debug)]
pub struct MountPaths {
    directory: PathBuf,
    buffer: Vec<u8>,
}

impl MountPaths {
    /// The file system mounted at `mount`.
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        Self {
            directory: mount.into().join(".lustre/fid"),
            buffer: vec![0; ATTRIBUTE_BYTES_MAX],
        }
    }

    fn place(&mut self, fid: Fid) -> FidPlace {
        let path = self.directory.join(fid.to_string());
        match rustix::fs::getxattr(&path, LINK_ATTRIBUTE, &mut self.buffer) {
            Ok(length) => match links_of(&self.buffer[..length]) {
                Some(links) => FidPlace::Links(links),
                None => FidPlace::Refused(io::Error::other(format!(
                    "{LINK_ATTRIBUTE} of {} is not in the format of Lustre",
                    path.display()
                ))),
            },
            Err(Errno::NOENT | Errno::STALE) => self.gone_unless_unmounted(),
            Err(error) => FidPlace::Refused(error.into()),
        }
    }

    /// Without the mount no FID is found, which does not mean that it is gone.
    fn gone_unless_unmounted(&self) -> FidPlace {
        match rustix::fs::stat(&self.directory) {
            Ok(_) => FidPlace::Gone,
            Err(error) => FidPlace::Refused(error.into()),
        }
    }
}

impl FidPaths for MountPaths {
    fn places(&mut self, fids: &[Fid]) -> Vec<FidPlace> {
        fids.iter().map(|fid| self.place(*fid)).collect()
    }
}

/// Reads the links of the attribute; `None` if it is in another format.
fn links_of(bytes: &[u8]) -> Option<Vec<FidLink>> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (count, _) = rest.split_first_chunk()?;
    // Servers write the header in their own order.
    let count = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
        (MAGIC, _) => u32::from_le_bytes(*count),
        (_, MAGIC) => u32::from_be_bytes(*count),
        _ => return None,
    };
    let mut rest = bytes.get(HEADER_BYTES..)?;
    let mut links = Vec::new();
    for _ in 0..count {
        let length = u16::from_be_bytes(*rest.first_chunk()?).into();
        let (entry, after) = rest.split_at_checked(length)?;
        let (head, name) = entry.split_first_chunk::<ENTRY_BYTES>()?;
        let fid = u128::from_be_bytes(*head.last_chunk()?);
        let parent = Fid::new((fid >> 64) as u64, (fid >> 32) as u32, fid as u32);
        links.push(FidLink::new(parent, name));
        rest = after;
    }
    Some(links)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn attribute(links: &[FidLink]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend((links.len() as u32).to_le_bytes());
        bytes.extend([0; 16]);
        for link in links {
            bytes.extend(((ENTRY_BYTES + link.name.len()) as u16).to_be_bytes());
            bytes.extend(link.parent.sequence.to_be_bytes());
            bytes.extend(link.parent.object.to_be_bytes());
            bytes.extend(link.parent.version.to_be_bytes());
            bytes.extend(&*link.name);
        }
        bytes
    }

    proptest! {
        #[test]
        fn links_return(
            links in vec((any::<u64>(), any::<u32>(), vec(any::<u8>(), 0..40)), 0..8),
            cut in 1usize..30,
        ) {
            let link = |(sequence, object, name): &(u64, u32, Vec<u8>)| {
                FidLink::new(Fid::new(*sequence, *object, 0), name)
            };
            let links: Vec<_> = links.iter().map(link).collect();
            let bytes = attribute(&links);
            prop_assert_eq!(links_of(&bytes), Some(links));
            prop_assert_eq!(links_of(&bytes[..bytes.len().saturating_sub(cut)]), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), count in 0u32..9) {
            let head = [MAGIC.to_be_bytes(), count.to_be_bytes(), [0; 4], [0; 4], [0; 4], [0; 4]];
            let whole = [&head.concat()[..], &bytes].concat();
            if let Some(links) = links_of(&whole) {
                prop_assert_eq!(links.len(), count as usize);
            }
            prop_assert!(links_of(&bytes).is_none_or(|links| links.is_empty() || bytes.len() > 24));
        }
    }

    #[test]
    fn what_is_not_mounted_is_not_gone() {
        let directory = tempfile::tempdir().unwrap();
        let mut paths = MountPaths::new(directory.path());
        let places = paths.places(&[Fid::ROOT]);
        assert!(matches!(places[..], [FidPlace::Refused(_)]));
        std::fs::create_dir_all(directory.path().join(".lustre/fid")).unwrap();
        let places = paths.places(&[Fid::ROOT, Fid::ROOT]);
        assert!(matches!(places[..], [FidPlace::Gone, FidPlace::Gone]));
    }
}
