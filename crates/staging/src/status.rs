//! What a server tells of itself to its own user: what has happened, and what its tiers hold.

use crate::bytes::{ByteReader, BytesFault, put_text};
use crate::store::{StoreCounts, TierUse};

/// Most tiers of which a server tells.
const TIERS_MAX: usize = 64;
/// Bytes of the longest path of a tier that is told; a longer one is cut short.
const PATH_BYTES_MAX: usize = 512;

/// What has happened since the start of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections that were let in.
    pub admitted: u64,
    /// Connections that were refused because there were too many, of the user or of all.
    pub refused: u64,
    /// Connections that did not say who they are in time, or in vain.
    pub unknown: u64,
    /// Connections that ended because a frame was malformed or did not come in time.
    pub broken: u64,
    /// Requests that were served.
    pub served: u64,
    /// Requests that were refused because their epoch is before the fence.
    pub fenced: u64,
}

/// A tier of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierStatus {
    /// The directory; `None` for memory.
    pub path: Option<String>,
    /// What is held there.
    pub held: TierUse,
}

/// What a server tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// The first epoch that is served.
    pub fence: u64,
    /// Bytes that are on no durable tier yet.
    pub dirty_bytes: u64,
    /// What has happened in the store.
    pub store: StoreCounts,
    /// What has happened to connections and requests.
    pub server: ServerCounts,
    /// The tiers: memory first.
    pub tiers: Vec<TierStatus>,
}

impl ServerCounts {
    /// The counts with their names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("admitted", self.admitted),
            ("refused", self.refused),
            ("unknown", self.unknown),
            ("broken", self.broken),
            ("served", self.served),
            ("fenced", self.fenced),
        ]
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        Ok(Self {
            admitted: reader.u64()?,
            refused: reader.u64()?,
            unknown: reader.u64()?,
            broken: reader.u64()?,
            served: reader.u64()?,
            fenced: reader.u64()?,
        })
    }
}

impl ServerStatus {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.fence.to_le_bytes());
        out.extend(self.dirty_bytes.to_le_bytes());
        let counts = self.store.named().into_iter().chain(self.server.named());
        out.extend(counts.flat_map(|(_, count)| count.to_le_bytes()));
        let tiers = &self.tiers[..self.tiers.len().min(TIERS_MAX)];
        out.push(tiers.len() as u8);
        for tier in tiers {
            tier.encode(out);
        }
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        let mut status = Self {
            fence: reader.u64()?,
            dirty_bytes: reader.u64()?,
            store: StoreCounts::decode(reader)?,
            server: ServerCounts::decode(reader)?,
            tiers: Vec::new(),
        };
        let tiers = usize::from(reader.u8()?);
        if tiers > TIERS_MAX {
            return Err(BytesFault);
        }
        for _ in 0..tiers {
            status.tiers.push(TierStatus::decode(reader)?);
        }
        Ok(status)
    }
}

impl TierStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        let path = self.path.as_deref().unwrap_or_default();
        let held = &self.held;
        out.push(u8::from(self.path.is_some()));
        put_text(out, &path[..path.floor_char_boundary(PATH_BYTES_MAX)]);
        for number in [held.bytes, held.bytes_max, held.blocks, held.blocks_max] {
            out.extend(number.to_le_bytes());
        }
        out.extend(held.faults.to_le_bytes());
        out.push(u8::from(held.is_passed_over));
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        let is_directory = reader.flag()?;
        let path = reader.text(PATH_BYTES_MAX)?;
        Ok(Self {
            path: is_directory.then(|| path.to_owned()),
            held: TierUse {
                bytes: reader.u64()?,
                bytes_max: reader.u64()?,
                blocks: reader.u64()?,
                blocks_max: reader.u64()?,
                faults: reader.u64()?,
                is_passed_over: reader.flag()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_many_long_paths_fits_into_a_frame_and_comes_back() {
        let tier = TierStatus {
            path: Some("ü".repeat(400)),
            ..TierStatus::default()
        };
        let status = ServerStatus {
            tiers: vec![tier; 90],
            ..ServerStatus::default()
        };
        let mut bytes = Vec::new();
        status.encode(&mut bytes);
        assert!(bytes.len() < crate::wire::FRAME_BYTES_MAX);
        let back = ServerStatus::decode(&mut ByteReader::new(&bytes)).expect("a status");
        assert_eq!(back.tiers.len(), TIERS_MAX);
        assert_eq!(back.tiers[0].path, Some("ü".repeat(256)));
    }
}
