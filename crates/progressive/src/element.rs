//! The two types of values, and the slices that hold them.

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl ElementType {
    /// Bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Values of one of the types.
pub trait Element: Copy + Send + Sync + Default + 'static {
    /// Which type it is.
    const TYPE: ElementType;

    /// The same value as f64.
    fn to_f64(self) -> f64;

    /// The nearest value to one that is within the range of this type.
    fn from_f64(value: f64) -> Self;

    /// The bits of the value.
    fn to_bits(self) -> u64;

    /// The value that has these bits; bits beyond its size are left out.
    fn from_bits(bits: u64) -> Self;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::F32;

    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn from_f64(value: f64) -> Self {
        value as Self
    }

    fn to_bits(self) -> u64 {
        u64::from(Self::to_bits(self))
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
}

impl Element for f64 {
    const TYPE: ElementType = ElementType::F64;

    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> Self {
        value
    }

    fn to_bits(self) -> u64 {
        Self::to_bits(self)
    }

    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

/// The place of a value among all of its type, in the order of their bits: neighbours differ by 1,
/// also around 0.
pub(crate) fn ordered<T: Element>(value: T) -> u64 {
    let sign = 1 << (T::TYPE.size() * 8 - 1);
    let bits = value.to_bits();
    match bits & sign {
        0 => bits | sign,
        _ => !bits & (sign | (sign - 1)),
    }
}

/// The value that has a place.
pub(crate) fn of_ordered<T: Element>(place: u64) -> T {
    let sign = 1 << (T::TYPE.size() * 8 - 1);
    let all = sign | (sign - 1);
    match place & sign {
        0 => T::from_bits(!place & all),
        _ => T::from_bits(place & !sign & all),
    }
}

/// The exponent of the lowest bit of a value that is set; `None` of 0 and of what is not normal.
pub(crate) fn lowest_bit(value: f64) -> Option<i32> {
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32;
    let mantissa = value.to_bits() & ((1 << 52) - 1) | 1 << 52;
    let is_normal = (1..0x7ff).contains(&exponent);
    is_normal.then(|| exponent - 1_075 + mantissa.trailing_zeros() as i32)
}

/// 2 to the power of an exponent that a normal number has.
#[inline]
pub(crate) fn exp2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1_023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_bits() {
        for (value, expect) in [
            (1.0, Some(0)),
            (-12.0, Some(2)),
            (0.75, Some(-2)),
            (0.1, Some(-55)),
            (f64::MAX, Some(971)),
            (0.0, None),
            (5e-324, None),
            (f64::NAN, None),
        ] {
            assert_eq!(lowest_bit(value), expect, "{value}");
        }
    }

    #[test]
    fn places_are_in_the_order_of_values() {
        let values = [
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -0.0,
            0.0,
            5e-324,
            1.0,
            f64::MAX,
        ];
        for pair in values.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
        }
        for value in values {
            assert_eq!(of_ordered::<f64>(ordered(value)).to_bits(), value.to_bits());
        }
        for value in [f32::MIN, -0.0, 0.0, 1.0, f32::MAX, f32::NAN, f32::INFINITY] {
            assert_eq!(of_ordered::<f32>(ordered(value)).to_bits(), value.to_bits());
        }
        assert_eq!(ordered(1.0_f64.next_up()) - ordered(1.0_f64), 1);
    }
}
