//! Tests of the fabric.

mod frames;
