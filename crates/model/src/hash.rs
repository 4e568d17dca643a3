//! A short hash, the same in every build. It is in `model` because several parts compare texts by
//! it.

/// The hash of Fowler, Noll and Vo (FNV-1a, 64 bits): against accidents, not against an attacker.
///
/// ```
/// assert_eq!(barograph_model::fnv1a(b"foobar"), 0x85944171f73967e8);
/// ```
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
