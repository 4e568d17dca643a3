//! Announcements: a stream's descriptor, and the reference that stands for it in later batches of
//! its feed.

use barograph_model::{Descriptor, HELP_BYTES_MAX, Kind, Labels, Name, Unit, ValueType};
use barograph_stream::bytes::{ByteReader, put_bytes, put_i64, put_u64};

use super::fault::{FrameFault, malformed};

/// A stream of the sender, and its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Number that stands for the stream in batches of this feed.
    pub reference: u32,
    /// The stream's descriptor.
    pub descriptor: Descriptor,
    /// Time at which the stream was registered at its owner, ns since the epoch. With the series,
    /// it identifies the life whose samples are numbered.
    pub life_ns: i64,
    /// Number of samples that the owner's ring holds.
    pub depth: u32,
    /// The longest value of the stream, in bytes; 0 for streams of numbers.
    pub value_bytes_max: u32,
    /// Expected time between looks, in ns; 0 if it is not known.
    pub interval_ns: i64,
}

const PART: &str = "announcements";

impl Announcement {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let descriptor = &self.descriptor;
        put_u64(out, u64::from(self.reference));
        out.push(descriptor.value_type as u8);
        out.push(descriptor.kind as u8);
        put_bytes(out, descriptor.name.as_str().as_bytes());
        put_bytes(out, descriptor.unit.as_str().as_bytes());
        put_bytes(out, descriptor.help.as_bytes());
        put_u64(out, descriptor.labels.iter().len() as u64);
        for (name, value) in descriptor.labels.iter() {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value.as_bytes());
        }
        put_i64(out, self.life_ns);
        put_u64(out, u64::from(self.depth));
        put_u64(out, u64::from(self.value_bytes_max));
        put_i64(out, self.interval_ns);
    }

    pub(super) fn read(cut: &mut ByteReader<'_>) -> Result<Self, FrameFault> {
        let bad = || malformed(PART);
        let reference = u32_of(cut)?;
        let value_type = cut.u8().and_then(ValueType::from_u8).ok_or_else(bad)?;
        let kind = cut.u8().and_then(Kind::from_u8).ok_or_else(bad)?;
        let name = Name::new(cut.text().ok_or_else(bad)?)?;
        let unit = Unit::new(cut.text().ok_or_else(bad)?)?;
        let help = cut.text().filter(|help| help.len() <= HELP_BYTES_MAX);
        let help = help.ok_or_else(bad)?.to_owned();
        let count = cut.count(2).ok_or_else(bad)?;
        let pair = |_| Some((cut.text()?, cut.text()?));
        let pairs: Option<Vec<_>> = (0..count).map(pair).collect();
        let labels = Labels::new(pairs.ok_or_else(bad)?)?;
        Ok(Self {
            reference,
            descriptor: Descriptor {
                name,
                labels,
                value_type,
                unit,
                kind,
                help,
            },
            life_ns: cut.i64().ok_or_else(bad)?,
            depth: u32_of(cut)?,
            value_bytes_max: u32_of(cut)?,
            interval_ns: cut.i64().ok_or_else(bad)?,
        })
    }
}

fn u32_of(cut: &mut ByteReader<'_>) -> Result<u32, FrameFault> {
    let number = cut.u64().and_then(|v| u32::try_from(v).ok());
    number.ok_or_else(|| malformed(PART))
}
