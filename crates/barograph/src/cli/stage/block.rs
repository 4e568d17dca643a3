//! The key of a block on the command line, and what is shown of a block.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use barograph_staging::{BlockInfo, BlockKey, BlockName};
use clap::Args;
use serde::Serialize;

use super::Usage;

/// The key of a block.
#[derive(Args)]
pub(super) struct Block {
    /// The dataset: 1 to 255 bytes without control characters
    dataset: String,
    /// The name of the block in its dataset: at most 4096 bytes
    name: OsString,
    /// The name is a number: programs number blocks, and 7 as a number is another block than the
    /// name 7
    #[arg(long)]
    numbered: bool,
}

/// A block, for programs.
#[derive(Serialize)]
pub(super) struct BlockRow {
    dataset: String,
    /// The name as text; none if the block has a number, or the name is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The bytes of a name that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(flatten)]
    info: Option<InfoRow>,
}

/// What is known of a block, for programs.
#[derive(PartialEq, Serialize)]
pub(super) struct InfoRow {
    version: u64,
    bytes: u64,
    /// CRC-32 (IEEE) of the bytes.
    checksum: u32,
    epoch: u64,
    confirmed: bool,
    dirty: bool,
    /// The fastest tier of the server that has it: 0 for memory, n for its nth directory.
    tier: u8,
}

impl Block {
    pub(super) fn key(&self) -> anyhow::Result<BlockKey> {
        key(&self.dataset, &self.name, self.numbered)
    }
}

/// The key that words of a command line mean.
pub(super) fn key(dataset: &str, name: &OsString, is_number: bool) -> anyhow::Result<BlockKey> {
    let key = match is_number {
        false => BlockKey::named(dataset, name.as_bytes()),
        true => {
            let number = name.to_str().and_then(|text| text.parse().ok());
            let wrong = || Usage(format!("{} is no number of a block", name.display()));
            BlockKey::numbered(dataset, number.ok_or_else(wrong)?)
        }
    };
    Ok(key.map_err(|fault| Usage(fault.to_string()))?)
}

impl InfoRow {
    pub(super) fn new(info: &BlockInfo) -> Self {
        Self {
            version: info.version,
            bytes: info.bytes,
            checksum: info.checksum,
            epoch: info.epoch,
            confirmed: info.is_confirmed,
            dirty: info.is_dirty,
            tier: info.tier,
        }
    }
}

impl BlockRow {
    /// The key alone.
    pub(super) fn of_key(key: &BlockKey) -> Self {
        let (mut text, mut hex, mut its_number) = (None, None, None);
        match key.name() {
            BlockName::Number(number) => its_number = Some(*number),
            BlockName::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(name) => text = Some(name.to_owned()),
                Err(_) => hex = Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
        Self {
            dataset: key.dataset().to_owned(),
            name: text,
            name_hex: hex,
            number: its_number,
            info: None,
        }
    }

    pub(super) fn new(key: &BlockKey, info: &BlockInfo) -> Self {
        Self {
            info: Some(InfoRow::new(info)),
            ..Self::of_key(key)
        }
    }
}

/// The name of a block for people; that of a numbered one begins with `#`.
pub(super) fn name(key: &BlockKey) -> String {
    match key.name() {
        BlockName::Number(number) => format!("#{number}"),
        BlockName::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.escape_ascii().to_string(),
        },
    }
}

/// The tier of a block for people.
pub(super) fn tier(info: &BlockInfo, path: Option<&str>) -> String {
    match (info.tier, path) {
        (0, _) => "memory".to_owned(),
        (_, Some(path)) => path.to_owned(),
        (tier, None) => format!("directory {tier}"),
    }
}

/// The state of a block for people.
pub(super) fn state(info: &BlockInfo) -> &'static str {
    match (info.is_confirmed, info.is_dirty) {
        (false, _) => "may be old",
        (true, true) => "not durable yet",
        (true, false) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbers_only_if_that_is_said() {
        let name = |text: &str, is_number| {
            let key = key("d", &text.into(), is_number).map_err(|error| error.to_string());
            key.map(|key| name(&key))
        };
        assert_eq!(name("7", false), Ok("7".into()));
        assert_eq!(name("7", true), Ok("#7".into()));
        assert_eq!(name("x", true), Err("x is no number of a block".into()));
        let long = name(&"x".repeat(4_097), false).unwrap_err();
        assert_eq!(long, "the name of a block has at most 4096 bytes");
        let key = BlockKey::named("d", b"a\xff").unwrap();
        let row = serde_json::to_value(BlockRow::of_key(&key)).unwrap();
        assert_eq!(row, serde_json::json!({"dataset": "d", "name_hex": "61ff"}));
    }
}
