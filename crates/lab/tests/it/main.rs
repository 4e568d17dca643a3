//! The laboratory from outside: published figures, formats, recorded traces.

mod figures;
mod plots;
mod traces;
