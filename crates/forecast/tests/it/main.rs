//! Tests of the crate from outside: properties of every sequence of looks. One binary, with one
//! allocator that counts.

mod allocation;
mod cascade;
mod checkpoints;
mod delphi;
mod exercise;
mod families;
mod families_hold;
mod interference;
mod interval;
mod life;
mod properties;
mod schedule;
mod sharing;
mod simple;
