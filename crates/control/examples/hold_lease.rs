//! Holds the lease of a group's weight until it is killed: tests look what the next start restores.
//!
//! `hold_lease <blkio root> <cgroup2 root> <block devices> <group> <device> <journal> <weights>`
//! prints the back end each time a weight is written. With one weight it then reads its standard
//! input to the end; with several (`300,400`) it sets them in turn without end.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use barograph_control::cgroup::{
    BlockDevice, CgroupRoots, IoSetting, WeightJournal, WeightLease, probe,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [v1, v2, block, group, device, journal, weights] = &*arguments else {
        return Err("usage: hold_lease V1 V2 BLOCK GROUP DEVICE JOURNAL WEIGHTS".into());
    };
    let roots = CgroupRoots::open(Path::new(v1), Path::new(v2), Path::new(block))?;
    let device = BlockDevice::read(roots.block(), device)?;
    let found = probe(&roots, group, &device);
    let backend = found.backend.ok_or_else(|| format!("{found:?}"))?;
    let journal = Arc::new(WeightJournal::open(Path::new(journal))?);
    let mut lease = WeightLease::take(&roots, group, backend, &journal, i64::MAX)?;
    let weights: Vec<u32> = weights
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    for weight in weights.iter().cycle() {
        let outcome = lease.set(IoSetting::Weight(*weight), 0)?;
        println!("{} {outcome:?}", backend.file());
        if weights.len() == 1 {
            break;
        }
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
