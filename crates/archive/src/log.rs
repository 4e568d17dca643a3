//! Log segments: checksummed frames, written by one, read by any.
