//! `barograph._barograph`: the client for Python. The package `barograph` (pure Python, typed) is
//! built on it; this module has only the parts that must be fast or must access the segment.

mod advice;
mod archive;
mod calls;
mod control_events;
mod errors;
mod events;
mod io_phases;
mod life;
mod observer;
mod packed;
mod publication;
mod reading;
mod rows;
mod sample;
mod server_maps;
mod staging;
mod staging_blocks;
mod staging_places;
mod stream;
mod tasks;
mod value;
mod wait;
mod watch;

use pyo3::prelude::*;

/// Streams in shared memory, read in this process.
#[pymodule]
fn _barograph(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(module)?;
    module.add_class::<advice::Advice>()?;
    module.add_class::<advice::AdvisedBlock>()?;
    module.add_class::<advice::Adviser>()?;
    module.add_class::<archive::Archive>()?;
    module.add_class::<archive::Table>()?;
    module.add_class::<calls::Call>()?;
    module.add_class::<calls::Knob>()?;
    module.add_class::<control_events::ControlEvent>()?;
    module.add_class::<control_events::ControlEvents>()?;
    module.add_class::<control_events::ControlPublisher>()?;
    module.add_class::<events::Event>()?;
    module.add_class::<events::Events>()?;
    module.add_class::<events::Gap>()?;
    module.add_class::<io_phases::IoPhase>()?;
    module.add_class::<io_phases::IoVolume>()?;
    module.add_class::<server_maps::MapOperation>()?;
    module.add_class::<server_maps::MapRequest>()?;
    module.add_class::<server_maps::MapServer>()?;
    module.add_class::<server_maps::ServerMap>()?;
    module.add_class::<staging::StagingClient>()?;
    module.add_class::<staging_blocks::BlockList>()?;
    module.add_class::<staging_blocks::MappedBlock>()?;
    module.add_class::<staging_blocks::StagedBlock>()?;
    module.add_class::<staging_places::BlockReplica>()?;
    module.add_class::<staging_places::LocatedBlock>()?;
    module.add_class::<staging_places::LocatedBlocks>()?;
    module.add_class::<observer::Observer>()?;
    module.add_class::<observer::Status>()?;
    module.add_class::<observer::StreamInfo>()?;
    module.add_class::<packed::PackedArray>()?;
    module.add_class::<reading::Questions>()?;
    module.add_class::<publication::Publication>()?;
    module.add_class::<publication::Step>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<sample::Sample>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<value::ValueHandle>()?;
    module.add_class::<watch::Watch>()?;
    module.add_function(wrap_pyfunction!(packed::pack_array, module)?)?;
    module.add_function(wrap_pyfunction!(packed::check_bound, module)?)?;
    module.add_function(wrap_pyfunction!(packed::place_packed, module)?)?;
    module.add_function(wrap_pyfunction!(packed::join_packed, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::place_task, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::take_over, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
