//! Energy counters of the processors (`Documentation/power/powercap/powercap.rst` of the kernel),
//! as coarse as what everybody may see of them has to be.
//!
//! A counter that can be read often and finely tells what others compute (PLATYPUS,
//! CVE-2020-8694), which is why the kernel gives it to root alone. What goes out here is rounded to
//! a tenth of a joule, and read only when a second of the machine's clock begins: whoever asks more
//! often waits, and all who ask within a second get the counters of the same moment. The second
//! guard needs no memory, so it holds though each request has a process of its own.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What a counter is rounded down to.
const STEP_UJ: u64 = 100_000;
/// Most zones; a machine has a few for each socket.
const ZONES_MAX: usize = 256;
const NS_PER_S: u64 = 1_000_000_000;

/// `ZONE NAME ENERGY_UJ MAX_ENERGY_RANGE_UJ`, a line for each zone.
pub(crate) fn read_at_full_second(sys: &Path) -> Result<Vec<u8>, String> {
    let now = clock_gettime(ClockId::Monotonic);
    let into = u64::try_from(now.tv_nsec).unwrap_or(0) % NS_PER_S;
    std::thread::sleep(Duration::from_nanos(NS_PER_S - into));
    read(sys)
}

fn read(sys: &Path) -> Result<Vec<u8>, String> {
    let folder = sys.join("class/powercap");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.map_err(|_| "the kernel has no powercap interface".to_owned())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut zones: Vec<_> = names
        .filter(|name| folder.join(name).join("energy_uj").is_file())
        .take(ZONES_MAX)
        .collect();
    zones.sort();
    let mut lines = String::new();
    for zone in zones {
        let file = |name: &str| std::fs::read_to_string(folder.join(&zone).join(name));
        let number = |name: &str| file(name).ok()?.trim().parse::<u64>().ok();
        let (Some(energy_uj), Some(range_uj)) =
            (number("energy_uj"), number("max_energy_range_uj"))
        else {
            continue;
        };
        let name = file("name").unwrap_or_default();
        let name = match name.trim() {
            "" => "-".to_owned(),
            name => name.split_whitespace().collect::<Vec<_>>().join("_"),
        };
        let coarse_uj = energy_uj - energy_uj % STEP_UJ;
        let _ = writeln!(lines, "{zone} {name} {coarse_uj} {range_uj}");
    }
    match lines.is_empty() {
        true => Err("no zone of powercap has an energy counter".to_owned()),
        false => Ok(lines.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_coarse_and_zones_without_one_left_out() {
        let sys = tempfile::tempdir().unwrap();
        assert!(read(sys.path()).is_err());
        let zone = |zone: &str, files: &[(&str, &str)]| {
            let folder = sys.path().join("class/powercap").join(zone);
            std::fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                std::fs::write(folder.join(name), text).unwrap();
            }
        };
        zone("intel-rapl", &[("enabled", "1\n")]);
        assert!(read(sys.path()).is_err());
        let range = ("max_energy_range_uj", "262143328850\n");
        let package = [
            ("name", "package-0\n"),
            ("energy_uj", "98765432199\n"),
            range,
        ];
        zone("intel-rapl:0", &package);
        zone(
            "intel-rapl:0:0",
            &[("name", "dram two\n"), ("energy_uj", "99999\n"), range],
        );
        zone("intel-rapl:1", &[("energy_uj", "garbage\n"), range]);
        zone("intel-rapl:2", &[("energy_uj", "100000\n"), range]);
        let text = String::from_utf8(read(sys.path()).unwrap()).unwrap();
        let expect = "intel-rapl:0 package-0 98765400000 262143328850\n\
                      intel-rapl:0:0 dram_two 0 262143328850\n\
                      intel-rapl:2 - 100000 262143328850\n";
        assert_eq!(text, expect);
    }

    #[test]
    fn it_is_read_when_a_second_begins() {
        let sys = tempfile::tempdir().unwrap();
        let second = || clock_gettime(ClockId::Monotonic).tv_sec;
        for _ in 0..2 {
            let asked = second();
            assert!(read_at_full_second(sys.path()).is_err());
            assert!(second() > asked);
        }
    }
}
