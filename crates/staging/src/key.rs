//! The keys of blocks: a dataset, and within it a number or bytes.

use std::fmt;

use thiserror::Error;

use crate::bytes::{ByteReader, BytesFault, put_short};

/// Bytes of the longest name of a dataset.
pub const DATASET_BYTES_MAX: usize = 255;
/// Bytes of the longest name of a block.
pub const NAME_BYTES_MAX: usize = 4_096;

const NUMBER_TAG: u8 = 0;
const BYTES_TAG: u8 = 1;

/// The key of a block. Keys are sorted by dataset, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    dataset: Box<str>,
    name: BlockName,
}

/// The name of a block within its dataset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockName {
    /// The number of a block.
    Number(u64),
    /// Bytes, at most [`NAME_BYTES_MAX`].
    Bytes(Box<[u8]>),
}

/// The reason why a key is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum KeyFault {
    /// The name of the dataset is empty, too long, or has control characters.
    #[error("a dataset needs a name of 1 to {DATASET_BYTES_MAX} bytes without control characters")]
    Dataset,
    /// The name of the block is too long.
    #[error("the name of a block has at most {NAME_BYTES_MAX} bytes")]
    Name,
}

impl BlockKey {
    /// The key of a numbered block.
    ///
    /// # Errors
    ///
    /// The dataset has no valid name.
    pub fn numbered(dataset: &str, number: u64) -> Result<Self, KeyFault> {
        Self::new(dataset, BlockName::Number(number))
    }

    /// The key of a block that is named by bytes.
    ///
    /// # Errors
    ///
    /// The dataset has no valid name, or the name is too long.
    pub fn named(dataset: &str, name: &[u8]) -> Result<Self, KeyFault> {
        Self::new(dataset, BlockName::Bytes(name.into()))
    }

    fn new(dataset: &str, name: BlockName) -> Result<Self, KeyFault> {
        let is_sized = (1..=DATASET_BYTES_MAX).contains(&dataset.len());
        if !is_sized || dataset.chars().any(char::is_control) {
            return Err(KeyFault::Dataset);
        }
        if matches!(&name, BlockName::Bytes(bytes) if bytes.len() > NAME_BYTES_MAX) {
            return Err(KeyFault::Name);
        }
        let dataset = dataset.into();
        Ok(Self { dataset, name })
    }

    /// The name of the dataset.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// The name within the dataset.
    pub fn name(&self) -> &BlockName {
        &self.name
    }

    /// Appends the key as bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_short(out, self.dataset.as_bytes());
        match &self.name {
            BlockName::Number(number) => {
                out.push(NUMBER_TAG);
                out.extend(number.to_le_bytes());
            }
            BlockName::Bytes(bytes) => {
                out.push(BYTES_TAG);
                put_short(out, bytes);
            }
        }
    }

    /// Bytes that the key takes in a frame, at most.
    pub(crate) fn wire_bytes(&self) -> usize {
        let name = match &self.name {
            BlockName::Bytes(name) => name.len(),
            BlockName::Number(_) => 8,
        };
        self.dataset.len() + name + 8
    }

    /// Takes a key from foreign bytes.
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, BytesFault> {
        let dataset = reader.text(DATASET_BYTES_MAX)?;
        let name = match reader.u8()? {
            NUMBER_TAG => BlockName::Number(reader.u64()?),
            BYTES_TAG => BlockName::Bytes(reader.short(NAME_BYTES_MAX)?.into()),
            _ => return Err(BytesFault),
        };
        Self::new(dataset, name).map_err(|_| BytesFault)
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            BlockName::Number(number) => write!(formatter, "{}/{number}", self.dataset),
            BlockName::Bytes(bytes) => {
                write!(formatter, "{}/{}", self.dataset, bytes.escape_ascii())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_and_come_back() {
        let long = "d".repeat(256);
        for (dataset, name, expect) in [
            ("d", vec![], Ok(())),
            ("d", vec![7; 4_096], Ok(())),
            ("d", vec![7; 4_097], Err(KeyFault::Name)),
            ("", vec![], Err(KeyFault::Dataset)),
            ("a\nb", vec![], Err(KeyFault::Dataset)),
            (&*long, vec![], Err(KeyFault::Dataset)),
        ] {
            let key = BlockKey::named(dataset, &name);
            assert_eq!(key.clone().map(drop), expect, "{dataset:?}");
            let Ok(key) = key else { continue };
            let mut bytes = Vec::new();
            key.encode(&mut bytes);
            assert!(bytes.len() <= key.wire_bytes());
            assert_eq!(BlockKey::decode(&mut ByteReader::new(&bytes)), Ok(key));
            bytes.pop();
            assert!(BlockKey::decode(&mut ByteReader::new(&bytes)).is_err());
        }
    }
}
