//! The columns of the files and their encodings, which were measured on an hour of a node's own
//! streams (the figures are in `docs/reference/archive-format.md`).

use std::sync::{Arc, LazyLock};

use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::{ColumnPath, SchemaDescriptor, TypePtr};

use super::{FORMAT as FORMAT_EVENTS, FileIdentity, GROUP_ROWS_MAX, PAGE_BYTES, PAGE_ROWS, seal};
use crate::Tier;

/// Level 3 is within a few per cent of level 9 at a third of the time.
pub(super) const ZSTD_LEVEL: i32 = 3;

/// Positions of the columns of raw files.
pub(super) mod raw {
    pub(crate) const TS: usize = 0;
    pub(crate) const NAME: usize = 1;
    pub(crate) const LABELS: usize = 2;
    pub(crate) const VALUE: usize = 3;
    pub(crate) const EXACT: usize = 4;
    pub(crate) const TEXT: usize = 5;
    pub(crate) const UNIT: usize = 6;
    pub(crate) const QUALITY: usize = 7;
    pub(crate) const ERROR: usize = 8;
    pub(crate) const LIFE: usize = 9;
    pub(crate) const NUMBER: usize = 10;
    /// Since version 2 of the index.
    pub(crate) const BYTES: usize = 11;
    pub(crate) const FLOATS: usize = 12;
}

/// Positions of the columns of tiers.
pub(super) mod tier {
    pub(crate) const TS: usize = 0;
    pub(crate) const NAME: usize = 1;
    pub(crate) const LABELS: usize = 2;
    pub(crate) const UNIT: usize = 3;
    pub(crate) const COUNT: usize = 4;
    pub(crate) const MIN: usize = 5;
    pub(crate) const MAX: usize = 6;
    /// `mean` in version 1.
    pub(crate) const SAMPLE_MEAN: usize = 7;
    pub(crate) const LAST: usize = 8;
    pub(crate) const MIN_EXACT: usize = 9;
    pub(crate) const MAX_EXACT: usize = 10;
    pub(crate) const LAST_EXACT: usize = 11;
    pub(crate) const LAST_TEXT: usize = 12;
    /// Since version 2 of the index.
    pub(crate) const HELD: usize = 13;
    pub(crate) const TIME_MEAN: usize = 14;
}

const RAW: &str = "message samples {
    required int64 ts;
    required binary name (STRING);
    required binary labels (STRING);
    optional double value;
    optional int64 exact;
    optional binary text (STRING);
    required binary unit (STRING);
    required binary quality (STRING);
    required float error;
    required int64 life;
    required int64 number;
    optional binary bytes;
    optional binary floats;
}";

/// The schema of files of an archive that may hold file events.
const RAW_EVENTS: &str = "message samples {
    required int64 ts;
    required binary name (STRING);
    required binary labels (STRING);
    optional double value;
    optional int64 exact;
    optional binary text (STRING);
    required binary unit (STRING);
    required binary quality (STRING);
    required float error;
    required int64 life;
    required int64 number;
    optional binary bytes;
    optional binary floats;
    optional binary kind (STRING);
    optional binary path (STRING);
    optional binary old_path (STRING);
    optional int64 size;
    optional int64 uid;
    optional int64 gid;
    optional binary job (STRING);
    optional boolean directory;
    optional boolean complete;
    optional int64 idx;
    optional binary source (STRING);
    optional binary path_bytes;
    optional binary old_path_bytes;
}";

const TIER: &str = "message buckets {
    required int64 ts;
    required binary name (STRING);
    required binary labels (STRING);
    required binary unit (STRING);
    required int64 count;
    optional double min;
    optional double max;
    optional double sample_mean;
    optional double last;
    optional int64 min_exact;
    optional int64 max_exact;
    optional int64 last_exact;
    optional binary last_text (STRING);
    required int64 held_ns;
    optional double time_mean;
}";

/// The schema of version 1, whose means are over samples: the column has another name there, so
/// that the two means cannot be confused.
const TIER_1: &str = "message buckets {
    required int64 ts;
    required binary name (STRING);
    required binary labels (STRING);
    required binary unit (STRING);
    required int64 count;
    optional double min;
    optional double max;
    optional double mean;
    optional double last;
    optional int64 min_exact;
    optional int64 max_exact;
    optional int64 last_exact;
    optional binary last_text (STRING);
}";

static SCHEMAS: LazyLock<[Arc<SchemaDescriptor>; 4]> = LazyLock::new(|| {
    [RAW, TIER, TIER_1, RAW_EVENTS].map(|text| {
        let schema = parse_message_type(text).expect("the schema is constant");
        Arc::new(SchemaDescriptor::new(Arc::new(schema)))
    })
});

/// Returns how many columns files of a tier have, by the version of their index.
pub(super) fn columns(tier: Tier, version: u32) -> usize {
    match (tier, version) {
        (Tier::Raw, 1) => raw::BYTES,
        (Tier::Second | Tier::Minute | Tier::Hour, 1) => tier::HELD,
        _ => schema_of(tier, version).num_columns(),
    }
}

/// Returns the columns of files of a tier and version; old raw files have only the first of them.
pub(super) fn schema_of(tier: Tier, version: u32) -> &'static Arc<SchemaDescriptor> {
    match (tier, version) {
        (Tier::Second | Tier::Minute | Tier::Hour, 1) => &SCHEMAS[2],
        (Tier::Raw, FORMAT_EVENTS) => &SCHEMAS[3],
        _ => schema(tier),
    }
}

/// Returns the columns of files of a tier, in the newest version, without those of file events.
pub(super) fn schema(tier: Tier) -> &'static Arc<SchemaDescriptor> {
    &SCHEMAS[usize::from(tier != Tier::Raw)]
}

/// Like [`schema_of`], in the type that the writer needs.
pub(super) fn root(tier: Tier, version: u32) -> TypePtr {
    schema_of(tier, version).root_schema_ptr()
}

/// Returns the encodings of the columns, and the keys of the footer for other programs.
pub(super) fn properties(about: &FileIdentity, version: u32) -> WriterPropertiesPtr {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has this level");
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("barograph ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_column_data_page_row_count_limit(ColumnPath::from("ts"), GROUP_ROWS_MAX)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_max_row_group_row_count(Some(GROUP_ROWS_MAX))
        // Readers skip row groups by these statistics; they need none of pages.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(unsealed_key_values(about, version)));
    for column in ["ts", "name", "labels"] {
        let column = ColumnPath::from(column);
        builder = builder.set_column_statistics_enabled(column, EnabledStatistics::Chunk);
    }
    // Streams of a source share times: zstd finds the repeated runs in plain encoding, but would
    // not in deltas packed to odd numbers of bits. Values seldom repeat. BYTE_STREAM_SPLIT would
    // take 6 % less for them, but Spark's vectorised reader cannot read it (SPARK-56894).
    let plain = match about.tier {
        Tier::Raw => &[
            "ts", "value", "exact", "bytes", "floats", "path", "old_path",
        ][..],
        _ => &[
            "ts",
            "min",
            "max",
            "sample_mean",
            "time_mean",
            "last",
            "min_exact",
            "max_exact",
            "last_exact",
        ],
    };
    for column in plain {
        builder = builder.set_column_dictionary_enabled(ColumnPath::from(*column), false);
    }
    // Each number is mostly the previous one plus one.
    for column in ["number", "idx"] {
        let number = ColumnPath::from(column);
        builder = builder
            .set_column_dictionary_enabled(number.clone(), false)
            .set_column_encoding(number, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(builder.build())
}

/// Returns the keys of the footer that describe a file, for people and other programs.
pub(super) fn key_values(about: &FileIdentity, version: u32) -> Vec<KeyValue> {
    let (first, last) = about.sequences;
    let pair = |key: &str, value: String| KeyValue::new(format!("barograph.{key}"), value);
    vec![
        pair("format", version.to_string()),
        pair("node", about.node.clone()),
        pair("tier", about.tier.as_str().into()),
        pair("sequences", format!("{first}-{last}")),
    ]
}

/// Like [`key_values`], with a place for the footer's checksum.
fn unsealed_key_values(about: &FileIdentity, version: u32) -> Vec<KeyValue> {
    let mut pairs = key_values(about, version);
    pairs.push(KeyValue::new(seal::KEY.into(), seal::UNSEALED.to_owned()));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_at_their_places() {
        let names = |tier| {
            let columns = schema(tier).columns().iter();
            columns.map(|c| c.name().to_owned()).collect::<Vec<_>>()
        };
        let of_raw = names(Tier::Raw);
        assert_eq!(of_raw[raw::VALUE], "value");
        assert_eq!(of_raw[raw::NUMBER], "number");
        assert_eq!(of_raw[raw::FLOATS], "floats");
        assert_eq!(of_raw.len(), raw::FLOATS + 1);
        assert_eq!(columns(Tier::Raw, 1), raw::NUMBER + 1);
        let of_tier = names(Tier::Hour);
        assert_eq!(of_tier[tier::LAST], "last");
        assert_eq!(of_tier[tier::LAST_TEXT], "last_text");
        assert_eq!(of_tier[tier::SAMPLE_MEAN], "sample_mean");
        assert_eq!(of_tier[tier::HELD], "held_ns");
        assert_eq!(of_tier[tier::TIME_MEAN], "time_mean");
        assert_eq!(of_tier.len(), tier::TIME_MEAN + 1);
        let of_old = schema_of(Tier::Hour, 1).columns();
        assert_eq!(of_old[tier::SAMPLE_MEAN].name(), "mean");
        assert_eq!(of_old.len(), columns(Tier::Hour, 1));
    }
}
