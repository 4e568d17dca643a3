//! The laboratory from outside: published figures, formats, recorded traces.

mod figures;
mod traces;
