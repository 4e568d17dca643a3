//! Generators of traces: HACC's capacity as Apollo's authors described it, and families with one
//! difficulty each.

use barograph_forecast::Random;
use barograph_model::NS_PER_S;

use crate::{Column, Trace};

/// Capacity of the disk at the start, in bytes: that of the paper's NVMe.
const CAPACITY: f64 = 250e9;

/// The two workloads of the paper (apollo.md 4.3.1), sampled once per second, and a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hacc {
    /// Writes of 38,000 B every 5 s.
    Regular,
    /// Writes of 19,000 to 38,000 B every 5 to 20 s, in whole seconds.
    Irregular,
    /// Like `Irregular`, but at any time, not only in whole seconds.
    Unaligned,
}

/// Generates `seconds` of capacity (`available`) and bytes written (`written`, a counter that costs
/// nothing to read).
pub fn hacc(kind: Hacc, seconds: usize, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let gap = |random: &mut Random| match kind {
        Hacc::Regular => 5.0,
        Hacc::Irregular => 5.0 + random.below(16) as f64,
        Hacc::Unaligned => random.between(5.0, 20.0),
    };
    let mut next_s = gap(&mut random);
    let mut written = 0.0;
    let written: Vec<f64> = (0..seconds)
        .map(|second| {
            while next_s <= second as f64 {
                written += match kind {
                    Hacc::Regular => 38_000.0,
                    _ => (19_000 + random.below(19_001)) as f64,
                };
                next_s += gap(&mut random);
            }
            written
        })
        .collect();
    let name = match kind {
        Hacc::Regular => "hacc-regular",
        Hacc::Irregular => "hacc-irregular",
        Hacc::Unaligned => "hacc-unaligned",
    };
    let available = written.iter().map(|written| CAPACITY - written).collect();
    let mut trace = Trace::of(name, "B", NS_PER_S, available);
    "available".clone_into(&mut trace.columns[0].name);
    trace.columns.push(Column {
        name: "written".to_owned(),
        unit: "B".to_owned(),
        values: written,
    });
    trace
}

/// A family of traces with one difficulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A constant value.
    Constant,
    /// The same increase each second.
    Ramp,
    /// A sine with a period of 60 s, and noise of a tenth of it.
    Sine,
    /// A random walk.
    Walk,
    /// A random process that keeps nine tenths of its deviation each second.
    Autoregressive,
    /// Zero, then large values for some seconds.
    Bursts,
    /// A new level after 40 s on average, without memory.
    Steps,
    /// Fills for 90 s, then drops to empty.
    Saw,
    /// Another of the above families every 200 s.
    Regimes,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 9] = [
        Self::Constant,
        Self::Ramp,
        Self::Sine,
        Self::Walk,
        Self::Autoregressive,
        Self::Bursts,
        Self::Steps,
        Self::Saw,
        Self::Regimes,
    ];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Ramp => "ramp",
            Self::Sine => "sine",
            Self::Walk => "walk",
            Self::Autoregressive => "autoregressive",
            Self::Bursts => "bursts",
            Self::Steps => "steps",
            Self::Saw => "saw",
            Self::Regimes => "regimes",
        }
    }
}

/// Generates `len` values of a family, one per second, between about 0 and 2000.
pub fn generate(family: Family, len: usize, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let values = match family {
        Family::Regimes => regimes(len, &mut random),
        family => plain(family, len, &mut random),
    };
    Trace::of(family.name(), "1", NS_PER_S, values)
}

fn plain(family: Family, len: usize, random: &mut Random) -> Vec<f64> {
    let mut level = 1000.0;
    let mut until = 0;
    let mut value = |tick: usize| {
        let phase = tick as f64;
        match family {
            Family::Constant | Family::Regimes => 1000.0,
            Family::Ramp => 3.0 * phase,
            Family::Sine => {
                1000.0
                    + 100.0 * (phase * std::f64::consts::TAU / 60.0).sin()
                    + 10.0 * random.normal()
            }
            Family::Walk => {
                level += 5.0 * random.normal();
                level
            }
            Family::Autoregressive => {
                level = 1000.0 + 0.9 * (level - 1000.0) + 10.0 * random.normal();
                level
            }
            Family::Bursts => {
                if tick >= until && random.chance(1.0 / 30.0) {
                    until = tick + 2 + random.below(8);
                    level = random.between(200.0, 2000.0);
                }
                if tick < until { level } else { 0.0 }
            }
            Family::Steps => {
                if random.chance(1.0 / 40.0) {
                    level = random.between(0.0, 2000.0);
                }
                level
            }
            Family::Saw => 20.0 * (tick % 90) as f64,
        }
    };
    (0..len).map(&mut value).collect()
}

fn regimes(len: usize, random: &mut Random) -> Vec<f64> {
    const EACH: usize = 200;
    let mut values = Vec::with_capacity(len);
    while values.len() < len {
        let family = Family::ALL[random.below(Family::ALL.len() - 1)];
        values.extend(plain(family, EACH.min(len - values.len()), random));
    }
    values
}
