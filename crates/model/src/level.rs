//! A level that a stream may reach, or an error bound, as people write it: `10 GiB`, `90 %`, `20
//! ms`, `0.5`.
//!
//! It is a module of its own because a share is resolved by stream names: the total of a capacity
//! is the stream whose name ends in `total`.

use crate::{ModelError, TEXT_BYTES_MAX};

/// Units that may follow a number, with their factors to the stream's unit: streams are in bytes
/// and seconds.
const UNITS: [(&str, f64); 23] = [
    ("", 1.0),
    ("B", 1.0),
    ("k", 1e3),
    ("kB", 1e3),
    ("KB", 1e3),
    ("M", 1e6),
    ("MB", 1e6),
    ("G", 1e9),
    ("GB", 1e9),
    ("T", 1e12),
    ("TB", 1e12),
    ("PB", 1e15),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("TiB", 1099511627776.0),
    ("PiB", 1125899906842624.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
];

/// A level of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// An absolute level, in the stream's unit.
    Absolute(f64),
    /// A share. For a ratio, the value itself; for a capacity, how full it is, as a share of its
    /// total.
    Share(f64),
}

impl Level {
    /// Parses a number with an optional unit (`0.5`, `10GiB`, `1.5 TB`, `20 ms`), or per cent (`90
    /// %`).
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let trimmed = text.trim();
        let of_unit = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
        let (number, unit) = (of_unit.trim_end(), &trimmed[of_unit.len()..]);
        let fault = || ModelError::Level {
            text: text.chars().take(TEXT_BYTES_MAX).collect(),
        };
        let number: f64 = number.parse().map_err(|_| fault())?;
        let level = if unit == "%" {
            Self::Share(number / 100.0)
        } else {
            let (_, times) = UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(fault)?;
            Self::Absolute(number * times)
        };
        let (Self::Absolute(finite) | Self::Share(finite)) = level;
        finite.is_finite().then_some(level).ok_or_else(fault)
    }

    /// The level at which a stream of this name is exhausted: 0 for the names `available` and
    /// `free`, `None` for all others.
    pub fn of_exhaustion(name: &str) -> Option<Self> {
        let (_, what, _) = words(name)?;
        is_left(what).then_some(Self::Absolute(0.0))
    }

    /// Converts the level to the unit of the stream `name`. `total` returns the newest value of the
    /// stream of the given name, which is the total of `name`. Returns `None` for a share of a
    /// stream that has no total.
    pub fn of_stream(
        self,
        name: &str,
        unit: &str,
        total: impl FnOnce(&str) -> Option<f64>,
    ) -> Option<f64> {
        let share = match self {
            Self::Absolute(level) => return Some(level),
            Self::Share(share) if unit == "ratio" => return Some(share),
            Self::Share(share) => share,
        };
        let (stem, what, unit) = words(name)?;
        if what != "used" && !is_left(what) {
            return None;
        }
        let total = total(&format!("{stem}.total.{unit}"))?;
        let used = total * share;
        Some(if is_left(what) { total - used } else { used })
    }
}

/// Splits a stream name into the capacity, its quantity (`used`, `free`…) and its unit.
fn words(name: &str) -> Option<(&str, &str, &str)> {
    let (rest, unit) = name.rsplit_once('.')?;
    let (stem, what) = rest.rsplit_once('.')?;
    Some((stem, what, unit))
}

fn is_left(what: &str) -> bool {
    matches!(what, "available" | "free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_people_write_them() {
        let check = |text: &str, expect: Option<Level>| {
            assert_eq!(Level::parse(text).ok(), expect, "{text}");
        };
        check("0", Some(Level::Absolute(0.0)));
        check(" -1.5e3 ", Some(Level::Absolute(-1500.0)));
        check("10GiB", Some(Level::Absolute(10_737_418_240.0)));
        check("1.5 TB", Some(Level::Absolute(1.5e12)));
        check("2k", Some(Level::Absolute(2000.0)));
        check("20 ms", Some(Level::Absolute(0.02)));
        check("5min", Some(Level::Absolute(300.0)));
        check("90%", Some(Level::Share(0.9)));
        check("50 %", Some(Level::Share(0.5)));
        for text in [
            "",
            "%",
            "GiB",
            "1 furlong",
            "1 % %",
            "inf",
            "NaN",
            "1e308 TB",
            "é",
        ] {
            check(text, None);
        }
        let error = Level::parse("full").unwrap_err().to_string();
        assert!(error.contains("90 %"), "{error}");
    }

    #[test]
    fn shares_are_of_the_total() {
        let check = |name: &str, unit: &str, expect: Option<f64>| {
            let total = |name: &str| match name {
                "filesystem.total.bytes" => Some(1000.0),
                "filesystem.files.total.count" => Some(50.0),
                _ => None,
            };
            let level = Level::Share(0.75).of_stream(name, unit, total);
            assert_eq!(level, expect, "{name}");
        };
        check("filesystem.available.bytes", "bytes", Some(250.0));
        check("filesystem.files.free.count", "count", Some(12.5));
        check("filesystem.used.bytes", "bytes", Some(750.0));
        check("filesystem.total.bytes", "bytes", None);
        check("swap.free.bytes", "bytes", None);
        check("disk.busy.ratio", "ratio", Some(0.75));
        check("load", "1", None);
        for (name, is_capacity) in [
            ("filesystem.available.bytes", true),
            ("filesystem.files.free.count", true),
            ("filesystem.used.bytes", false),
            ("free.bytes", false),
            ("free", false),
        ] {
            assert_eq!(Level::of_exhaustion(name).is_some(), is_capacity, "{name}");
        }
    }
}
