//! Parquet files of samples and of buckets: how they are written, and read back by series.
