//! From log segments to Parquet and tiers, and from many Parquet files of an hour to one.
