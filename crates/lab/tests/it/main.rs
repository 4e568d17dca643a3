//! The laboratory from outside: published figures, formats, recorded traces.

#[path = "../exercise.rs"]
mod exercise;
mod figures;
mod traces;
