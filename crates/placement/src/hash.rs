//! The hash of a key and a target. It is a file of its own because stored data depends on it: it
//! never changes, and tests pin it by known answers.
//!
//! The hash of a key is XXH64 with seed 0 (Collet, "xxHash fast digest algorithm", the public
//! specification). A target's number is mixed by SplitMix64 (Steele, Lea, Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014), and the two are mixed by its finalizer. The
//! logarithm is made of IEEE 754 additions, multiplications and divisions in a fixed order, so
//! it has the same bits on each machine; the logarithm of a system's library has not.

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

/// The increment of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash of a key's bytes, which is computed once and then used with many targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The XXH64 of the bytes, with seed 0.
    pub fn of(key: &[u8]) -> Self {
        Self(xxh64(key))
    }

    /// The hash as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Another hash of the same key, which does not depend on this one: for second choices.
    #[must_use]
    pub fn salted(self, salt: u64) -> Self {
        Self(mix(self.0 ^ target_seed(salt)))
    }
}

impl From<u64> for KeyHash {
    /// A hash that was computed before, or a number of the caller that is hashed already.
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// The number of a target as it goes into the hash of each key.
pub(crate) fn target_seed(target: u64) -> u64 {
    mix(target.wrapping_add(GOLDEN))
}

/// The hash of a key and a target: 64 bits that are as good as random.
pub(crate) fn pair(key: KeyHash, target_seed: u64) -> u64 {
    mix(key.0 ^ target_seed)
}

/// The draw of a pair: minus the logarithm of a number between 0 and 1, exponentially distributed
/// with mean 1, always above 0 and below 37.
pub(crate) fn exponential(hash: u64) -> f64 {
    // 52 bits and a half: exact, and neither 0 nor 1.
    let unit = ((hash >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64);
    -logarithm(unit)
}

/// The finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The natural logarithm of a positive normal number, by the series of the inverse hyperbolic
/// tangent; within a few units of the last place.
fn logarithm(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1_023;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | 1.0_f64.to_bits());
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // Below 0.172 in size, so that ten terms are as precise as a double.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let mut sum = 1.0 / 21.0;
    for divisor in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * z + 1.0 / divisor;
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * sum
}

fn xxh64(bytes: &[u8]) -> u64 {
    let mut stripes = bytes.chunks_exact(32);
    let mut hash = if bytes.len() >= 32 {
        let mut lanes = [
            PRIME_1.wrapping_add(PRIME_2),
            PRIME_2,
            0,
            0_u64.wrapping_sub(PRIME_1),
        ];
        for stripe in &mut stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word_of(word));
            }
        }
        let rotated = [1, 7, 12, 18].iter().zip(lanes);
        let sum = rotated.fold(0_u64, |sum, (by, lane)| {
            sum.wrapping_add(lane.rotate_left(*by))
        });
        lanes.iter().fold(sum, |hash, lane| {
            (hash ^ round(0, *lane))
                .wrapping_mul(PRIME_1)
                .wrapping_add(PRIME_4)
        })
    } else {
        PRIME_5
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    avalanche(tail(hash, stripes.remainder()))
}

/// The last bytes of a key, fewer than 32.
fn tail(mut hash: u64, rest: &[u8]) -> u64 {
    let mut words = rest.chunks_exact(8);
    for word in &mut words {
        hash = (hash ^ round(0, word_of(word)))
            .rotate_left(27)
            .wrapping_mul(PRIME_1)
            .wrapping_add(PRIME_4);
    }
    let mut halves = words.remainder().chunks_exact(4);
    for half in &mut halves {
        hash = (hash ^ word_of(half).wrapping_mul(PRIME_1))
            .rotate_left(23)
            .wrapping_mul(PRIME_2)
            .wrapping_add(PRIME_3);
    }
    for byte in halves.remainder() {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIME_5))
            .rotate_left(11)
            .wrapping_mul(PRIME_1);
    }
    hash
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2))
        .rotate_left(31)
        .wrapping_mul(PRIME_1)
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

/// Up to eight bytes as a number, the least first.
fn word_of(bytes: &[u8]) -> u64 {
    let shifted = bytes.iter().zip((0_u32..).step_by(8));
    shifted.fold(0, |word, (byte, by)| word | (u64::from(*byte) << by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_published_hashes() {
        let table: &[(&str, u64)] = &[
            ("", 0xEF46_DB37_51D8_E999),
            ("a", 0xD24E_C4F1_A98C_6E5B),
            ("abc", 0x44BC_2CF5_AD77_0999),
            (
                "Nobody inspects the spammish repetition",
                0xFBCE_A83C_8A37_8BF1,
            ),
        ];
        for (key, expect) in table {
            assert_eq!(KeyHash::of(key.as_bytes()).number(), *expect, "{key:?}");
        }
    }

    #[test]
    fn the_seed_of_target_0_is_the_first_number_of_splitmix64() {
        assert_eq!(target_seed(0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn logarithms_are_those_of_the_library_nearly() {
        let mut hash = 1_u64;
        for _ in 0..10_000 {
            hash = mix(hash.wrapping_add(GOLDEN));
            let unit = ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            let (ours, theirs) = (exponential(hash), -unit.ln());
            assert!((ours - theirs).abs() <= 4e-16 * theirs.max(0.1), "{unit}");
        }
        for hash in [0, u64::MAX] {
            let draw = exponential(hash);
            assert!(draw > 0.0 && draw < 37.0, "{hash:#x}: {draw}");
        }
    }
}
