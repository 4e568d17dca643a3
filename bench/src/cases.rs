//! The cases, one file each: observe, then know, then Apollo's figures.

mod agent;
mod app;
mod append;
mod archive;
mod busy;
mod events;
mod fabric;
mod figures;
mod history;
mod hops;
mod idle;
mod insight;
mod lustre;
mod machines;
mod mirror;
mod neighbour;
mod overhead;
mod predicted;
mod process;
mod proof;
mod read;
mod served;
mod source;
mod sql;
mod trace;
mod visible;
mod woken;

use std::process::ExitCode;

use barograph_model::{Descriptor, Kind, Labels, Name, Unit, ValueType};
use barograph_stream::{Segment, SegmentConfig};

use crate::report::{Fault, Report};
use crate::scratch::{DiskScratch, Scratch};

/// A case: the prefix of its rows, and the function that runs it.
pub(crate) type BenchCase = (&'static str, fn(&mut Report) -> Result<(), Fault>);

/// All cases, in the order of running.
pub(crate) const ALL: &[BenchCase] = &[
    ("read.latest", read::run),
    ("read.latest", proof::system_calls),
    ("read.latest", proof::python),
    ("read.latest", served::http),
    ("read.predicted", predicted::run),
    ("read.woken", woken::run),
    ("stream.append", append::run),
    ("app.put", app::put),
    ("app.drain", app::drain),
    ("app.visible", visible::run),
    ("app.busy_disk", busy::run),
    ("app.neighbour", neighbour::run),
    ("agent.idle", idle::idle),
    ("source.1khz", idle::one_khz),
    ("source.read", source::run),
    ("source.machine", machines::run),
    ("source.devices", machines::devices),
    ("process.scan", process::run),
    ("block_trace.parse", trace::run),
    ("lustre.jobs", lustre::run),
    ("insight.dag", insight::run),
    ("sql.latest", sql::run),
    ("archive.append", archive::append),
    ("archive.start", archive::crashed),
    ("archive.bytes", archive::bytes),
    ("sql.history", history::run),
    ("fabric.frames", fabric::run),
    ("mirror.age", mirror::age),
    ("mirror.flow", mirror::flow),
    ("fabric.rate", mirror::rate),
    ("fs.rate", events::rate),
    ("changelog.rate", events::changelog),
    ("event.memory", events::memory),
    ("rule.eval", events::rules),
    ("ripple.tables", events::ripple),
    ("poll.skew", served::hostile),
    ("apollo.fig4", figures::anatomy),
    ("apollo.fig5", overhead::run),
    ("apollo.fig6", figures::throughput),
    ("apollo.fig7", hops::run),
];

/// Runs the helper process of a case.
pub(crate) fn role(role: &str, arguments: &[String]) -> ExitCode {
    let done = match role {
        "writer" => read::writer(arguments),
        "waker" => woken::waker(arguments),
        "reader" => proof::reader(arguments),
        "log" => archive::log(arguments),
        "day" => history::day(arguments),
        "hops" => hops::publisher(arguments),
        "stranger" => neighbour::stranger(arguments),
        "make" => events::make(arguments),
        "watch" => events::watch(arguments),
        "known" => events::known(arguments),
        "monitor" => events::monitor(arguments),
        "consumer" => events::consumer(arguments),
        _ => Err(format!("no role {role}").into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench {role}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Creates a segment in a scratch directory.
pub(crate) fn segment(scratch: &Scratch) -> Result<Segment, Fault> {
    Ok(Segment::create(
        &scratch.0.join("segment"),
        SegmentConfig::new("bench"),
        0,
    )?)
}

/// Returns the descriptor of a float gauge called `bench.value.count` with label `i`.
pub(crate) fn descriptor(i: usize) -> Descriptor {
    named("bench.value.count", i)
}

/// Returns the descriptor of a float gauge of this name with label `i`.
pub(crate) fn named(name: &str, i: usize) -> Descriptor {
    Descriptor {
        name: Name::new(name).expect("a literal"),
        labels: Labels::new([("i", i.to_string())]).expect("a short label"),
        value_type: ValueType::Float,
        unit: Unit::new("count").expect("a literal"),
        kind: Kind::Gauge,
        help: String::new(),
    }
}
