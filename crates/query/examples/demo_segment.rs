//! Makes a run directory with known streams and keeps it alive until its standard input closes:
//! `cargo run -p barograph-query --example demo_segment -- DIR`.
//! A line on standard input adds the stream `late.arrival.count` while it runs.
#![expect(clippy::unwrap_used, reason = "the streams are the tests' own")]

#[path = "../tests/it/demo.rs"]
mod demo;

use std::io::BufRead as _;
use std::path::PathBuf;

use barograph_model::{Kind, ValueType};

fn main() {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: demo_segment DIR");
        std::process::exit(2);
    };
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let mut demo = demo::Demo::known(&dir);
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    if lines.next().is_some() {
        let late = demo::descriptor("late.arrival.count", &[], ValueType::Int, Kind::Counter);
        demo.add(&late, [(9, 1.into())]);
        println!("late");
    }
    lines.for_each(drop);
}
