//! Tests of the laboratory from outside: published figures, formats, recorded traces.

mod exercise;
mod figures;
mod io_record;
mod mapping;
mod plots;
mod storage;
mod traces;
