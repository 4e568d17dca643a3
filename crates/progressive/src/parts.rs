//! The bytes of a packed file over several tiers of storage: which of them lie on which tier, and
//! the header of the file that has those of one tier.

use crate::ProgressiveError;
use crate::listing::ArrayListing;

/// The bytes with which a part begins.
pub const PART_MAGIC: [u8; 8] = *b"BAROPART";
/// The version of the header of parts.
pub const PART_VERSION: u32 = 1;

/// The header of a part: a file with the bytes of one tier. They follow the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    /// A number that no other part has, so that no other file is taken for this one.
    pub id: [u8; 16],
    /// Number of bytes after the header.
    pub bytes: u64,
}

impl PartHeader {
    /// Bytes of the header.
    pub const BYTES: usize = 64;
    /// Bytes that the checksum covers.
    const CHECKED: usize = 60;

    /// The header as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&PART_MAGIC);
        bytes[8..12].copy_from_slice(&PART_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..Self::CHECKED]);
        bytes[Self::CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// These are not the bytes of a header, they are damaged, or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProgressiveError> {
        let damaged = |reason: &str| ProgressiveError::Damaged {
            part: "the header of a part".into(),
            reason: reason.into(),
        };
        let Some(bytes) = bytes.first_chunk::<{ Self::BYTES }>() else {
            return Err(damaged("it is cut short"));
        };
        if bytes[..8] != PART_MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        if number(Self::CHECKED) != crc32fast::hash(&bytes[..Self::CHECKED]) {
            return Err(damaged("its checksum does not match"));
        }
        if number(8) != PART_VERSION {
            return Err(damaged("it is of a later version"));
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let bytes = u64::from(number(32)) | u64::from(number(36)) << 32;
        Ok(Self { id, bytes })
    }
}

/// Bytes one after the other that lie on one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedExtent {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of the tier.
    pub tier: usize,
}

/// The bytes that were not placed, since no tier has room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Number of bytes.
    pub bytes: u64,
}

/// A bucket that is to be placed; the first one of an array is placed with the header.
struct Unit {
    bytes: u64,
    /// NRMSE of a reading without it.
    before: f64,
}

/// Divides the arrays of a file among tiers, of which each has room for so many bytes, and returns
/// the extents in the order of the file (Tango, section III-B: the base on the fast tier, the
/// augmentation on the slow one).
///
/// The tiers are given from the fastest to the slowest. A bucket that a coarser reading needs never
/// lies on a slower tier than one that only a finer reading needs: buckets are placed by the error
/// of a reading without them, over all arrays, each on the tier of the one before or a slower one.
/// What follows the last whole array is left out.
///
/// # Errors
///
/// The tiers have too little room, in this order.
pub fn place_arrays(listing: &ArrayListing, rooms: &[u64]) -> Result<Vec<PlacedExtent>, NoRoom> {
    let units = units(listing);
    let mut order: Vec<usize> = (0..units.len()).collect();
    // The sort is stable: arrays whose buckets are alike stay in their order.
    order.sort_by(|&a, &b| units[b].before.total_cmp(&units[a].before));
    let mut tiers = vec![0; units.len()];
    let (mut tier, mut used) = (0, 0_u64);
    for (placed, &at) in order.iter().enumerate() {
        let bytes = units[at].bytes;
        while tier < rooms.len() && used.saturating_add(bytes) > rooms[tier] {
            (tier, used) = (tier + 1, 0);
        }
        if tier == rooms.len() {
            let left = order[placed..].iter().map(|&at| units[at].bytes).sum();
            return Err(NoRoom { bytes: left });
        }
        used += bytes;
        tiers[at] = tier;
    }
    let mut extents: Vec<PlacedExtent> = Vec::new();
    for (unit, tier) in units.iter().zip(tiers) {
        match extents.last_mut() {
            Some(last) if last.tier == tier => last.bytes += unit.bytes,
            _ => extents.push(PlacedExtent {
                bytes: unit.bytes,
                tier,
            }),
        }
    }
    Ok(extents)
}

/// The buckets of all whole arrays, in the order of the file.
fn units(listing: &ArrayListing) -> Vec<Unit> {
    let mut units = Vec::new();
    let has_mesh = listing.whole().any(|header| header.on_mesh);
    for header in listing.whole() {
        // The coordinates of a mesh are needed to the last bit, by all readings of values on it.
        let is_base = has_mesh && header.is_coordinate();
        let mut before = f64::INFINITY;
        for (bucket, entry) in header.buckets().iter().enumerate() {
            let bytes = match bucket {
                0 => header.encode().len() as u64 + entry.bytes,
                _ => entry.bytes,
            };
            units.push(Unit { bytes, before });
            // A bucket can make the measured error greater by a little: it is still needed for
            // those after it.
            let nrmse = entry.error.nrmse(header.range());
            if !is_base {
                before = before.min(if nrmse.is_nan() { 0.0 } else { nrmse });
            }
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PackConfig, Shape, pack};

    /// A file of two arrays, of which the second is finer.
    fn file() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (step, amplitude) in [(1, 1.0), (2, 5.0)] {
            let value = |at: usize| amplitude * (at as f64 * 0.05).sin() + (at % 7) as f64 * 1e-3;
            let values: Vec<f64> = (0..5_000).map(value).collect();
            let shape = Shape::new(&[5_000]).unwrap();
            let mut packed = pack(&values, shape, &PackConfig::default()).unwrap();
            packed.header.step = Some(step);
            bytes.extend(packed.header.encode());
            packed
                .buckets
                .iter()
                .for_each(|bucket| bytes.extend(bucket));
        }
        bytes
    }

    #[test]
    fn coarse_buckets_lie_on_fast_tiers_and_every_byte_has_a_place() {
        let bytes = file();
        let listing = ArrayListing::read(&&bytes[..]).unwrap();
        let all = bytes.len() as u64;
        let alone = place_arrays(&listing, &[u64::MAX]).unwrap();
        assert_eq!(
            alone,
            [PlacedExtent {
                bytes: all,
                tier: 0
            }]
        );
        let rooms = [4_000, 10_000, u64::MAX];
        let extents = place_arrays(&listing, &rooms).unwrap();
        assert_eq!(extents.iter().map(|it| it.bytes).sum::<u64>(), all);
        for (tier, room) in rooms.iter().enumerate() {
            let of = extents.iter().filter(|it| it.tier == tier);
            let placed: u64 = of.map(|it| it.bytes).sum();
            assert!(placed > 0 && placed <= *room, "{tier}: {placed}");
        }
        // Each array goes from fast to slow once.
        let tiers: Vec<usize> = extents.iter().map(|it| it.tier).collect();
        assert_eq!(tiers, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn too_little_room_is_said_with_what_is_left() {
        let bytes = file();
        let listing = ArrayListing::read(&&bytes[..]).unwrap();
        let all = bytes.len() as u64;
        assert_eq!(place_arrays(&listing, &[]), Err(NoRoom { bytes: all }));
        let NoRoom { bytes: left } = place_arrays(&listing, &[1_000, 2_000]).unwrap_err();
        assert!(left < all && left > all - 3_000, "{left} of {all}");
        // A tier without room is passed over.
        let extents = place_arrays(&listing, &[0, u64::MAX]).unwrap();
        assert_eq!(
            extents,
            [PlacedExtent {
                bytes: all,
                tier: 1
            }]
        );
    }

    #[test]
    fn what_an_append_has_left_is_left_out() {
        let mut bytes = file();
        let whole = bytes.len() as u64;
        bytes.extend([7; 100]);
        let listing = ArrayListing::read(&&bytes[..]).unwrap();
        let extents = place_arrays(&listing, &[u64::MAX]).unwrap();
        assert_eq!(
            extents,
            [PlacedExtent {
                bytes: whole,
                tier: 0
            }]
        );
    }

    #[test]
    fn a_header_of_a_part_is_read_back_and_nothing_else_is() {
        let header = PartHeader {
            id: *b"0123456789abcdef",
            bytes: 1 << 40,
        };
        let bytes = header.encode();
        assert_eq!(PartHeader::decode(&bytes).unwrap(), header);
        assert!(PartHeader::decode(&bytes[..63]).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(PartHeader::decode(&damaged).is_err(), "{at}");
        }
    }
}
