//! Tests of power, the clock and round trips to peers: values computed by hand, missing rights,
//! sensors that come and go, and real sockets.

use std::net::TcpListener;

use barograph_model::{NS_PER_S, Value};
use barograph_source::{Peer, PeerConfig, PeerMethod, SourceConfig, SourcesConfig};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::support::{Reader, Tree, source};

/// A machine with these files.
fn tree(files: &[(&str, &str)]) -> Tree {
    let tree = Tree::of("empty");
    for (path, text) in files {
        tree.write(path, format!("{text}\n"));
    }
    tree
}

/// Adds one power zone.
fn zone(tree: &Tree, directory: &str, name: &str, energy_uj: u64) {
    let path = |file: &str| format!("sys/class/powercap/{directory}/{file}");
    tree.write(&path("name"), format!("{name}\n"));
    tree.write(&path("energy_uj"), format!("{energy_uj}\n"));
    tree.write(&path("max_energy_range_uj"), "262143328850\n");
}

fn close(got: Option<f64>, expect: f64) {
    let got = got.expect("there is a value");
    assert!(
        (got - expect).abs() < 1e-9 * expect.abs().max(1e-3),
        "{got}, not {expect}"
    );
}

fn text(reader: &Reader, stream: &str) -> String {
    reader
        .get(stream)
        .expect("there is a value")
        .value
        .to_string()
}

#[test]
fn packages_and_their_memory_make_the_node() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    assert_eq!(reader.number("power.node.watts"), None);
    close(
        reader.number("power.energy.joules{zone=package-0}"),
        120_000.0,
    );
    tree.advance();
    reader.read().unwrap();
    let watts = |zone: &str| reader.number(&format!("power.draw.watts{{zone={zone}}}"));
    close(watts("package-0"), 185.3);
    close(watts("package-0/core"), 120.4);
    close(watts("package-1"), 150.0);
    // 90.25 J count as 90.2 J if the second began at a whole tenth.
    close(watts("package-1/core"), 90.2);
    close(watts("package-1/dram"), 16.3);
    // The counter wrapped: 65 712.999613 - 65 700 + 5.400387 = 18.4 J.
    close(watts("package-0/dram"), 18.4);
    close(
        reader.number("power.energy.joules{zone=package-0/dram}"),
        65_718.4,
    );
    close(
        reader.number("power.node.watts"),
        185.3 + 18.4 + 150.0 + 16.3,
    );
    assert_eq!(text(&reader, "power.node.source.name"), "packages");
}

#[test]
fn psys_covers_the_packages_and_a_meter_covers_all() {
    let tree = tree(&[]);
    zone(&tree, "intel-rapl:0", "package-0", 0);
    zone(&tree, "intel-rapl:1", "psys", 0);
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    zone(&tree, "intel-rapl:0", "package-0", 50_000_000);
    zone(&tree, "intel-rapl:1", "psys", 80_000_000);
    reader.read().unwrap();
    close(reader.number("power.node.watts"), 80.0);
    assert_eq!(text(&reader, "power.node.source.name"), "psys");

    tree.write("sys/class/hwmon/hwmon2/name", "power_meter\n");
    tree.write("sys/class/hwmon/hwmon2/power1_average", "123456789\n");
    // New sensors are found by a scan every half minute.
    for _ in 0..30 {
        reader.read().unwrap();
    }
    close(reader.number("power.node.watts"), 123.456789);
    assert_eq!(text(&reader, "power.node.source.name"), "power_meter");

    // Of two meters it is unknown whether one is behind the other.
    tree.write("sys/class/hwmon/hwmon3/name", "power_meter\n");
    tree.write("sys/class/hwmon/hwmon3/power1_average", "5000000\n");
    for _ in 0..30 {
        reader.read().unwrap();
    }
    assert_eq!(text(&reader, "power.node.source.name"), "psys");
    close(
        reader.number("power.draw.watts{zone=power_meter/power1@hwmon3}"),
        5.0,
    );
}

#[test]
fn sensors_of_chips() {
    let tree = tree(&[
        ("sys/class/hwmon/hwmon0/name", "coretemp"),
        ("sys/class/hwmon/hwmon0/temp1_input", "40000"),
        ("sys/class/hwmon/hwmon1/name", "pmbus"),
        ("sys/class/hwmon/hwmon1/power1_input", "410000000"),
        ("sys/class/hwmon/hwmon1/power1_average", "400000000"),
        ("sys/class/hwmon/hwmon1/power1_label", "pin"),
        ("sys/class/hwmon/hwmon1/power1_cap", "900000000"),
        ("sys/class/hwmon/hwmon1/power2_average", "380000000"),
        ("sys/class/hwmon/hwmon2/name", "amd_energy"),
        ("sys/class/hwmon/hwmon2/energy1_input", "1234567890"),
        ("sys/class/hwmon/hwmon2/energy1_label", "Esocket0"),
    ]);
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    let expect = [
        "power.draw.watts{zone=pmbus/pin}",
        "power.draw.watts{zone=pmbus/power2}",
        "power.energy.joules{zone=amd_energy/Esocket0}",
    ];
    assert_eq!(reader.streams(""), expect);
    close(reader.number(expect[0]), 410.0);
    close(reader.number(expect[1]), 380.0);
    close(reader.number(expect[2]), 1234.5);
    let missing = reader.source.report().missing;
    assert!(missing[0].why.contains("do not add up"), "{missing:?}");
}

#[test]
fn a_sensor_that_breaks_and_recovers() {
    let path = "sys/class/hwmon/hwmon0/power1_input";
    let tree = tree(&[("sys/class/hwmon/hwmon0/name", "amdgpu"), (path, "9000000")]);
    let stream = "power.draw.watts{zone=amdgpu/power1}";
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    close(reader.number(stream), 9.0);
    for bad in ["N/A\n", "-1\n", "1000000000001\n"] {
        assert_eq!(reader.streams(""), [stream]);
        tree.write(path, bad);
        let fault = reader.read().unwrap_err().to_string();
        assert!(fault.contains("no reading"), "{fault}");
    }
    // An old reading does not stand for the present for long.
    assert!(reader.streams("").is_empty());
    tree.write(path, "11000000\n");
    reader.read().unwrap();
    close(reader.number(stream), 11.0);
}

#[test]
fn no_more_than_a_reading_a_second_however_often_it_is_read() {
    let tree = tree(&[]);
    let mut reader = Reader::new(tree.source("power"));
    let mut published = 0;
    for read in 0..101 {
        zone(&tree, "intel-rapl:0", "package-0", read * 7_654_321);
        reader.read_after(NS_PER_S / 10).unwrap();
        if let Some(joules) = reader.number("power.energy.joules{zone=package-0}") {
            published += 1;
            let tenths = joules * 10.0;
            assert!((tenths - tenths.round()).abs() < 1e-9, "{joules}");
        }
    }
    assert_eq!(published, 11);
}

/// Runs a test without the capability to ignore the modes of files, even if it runs as root.
fn without_privilege(test: impl FnOnce()) {
    let before = capabilities(None).unwrap();
    let empty = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: empty,
        ..before
    };
    set_capabilities(None, none).unwrap();
    test();
    set_capabilities(None, before).unwrap();
}

#[test]
fn counters_for_root_only_are_reported_and_no_fault() {
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::of("nvme-four");
    let mode = |mode: u32| {
        for zone in ["0", "0:0", "0:1", "1", "1:0", "1:1"] {
            let path = format!("sys/class/powercap/intel-rapl:{zone}/energy_uj");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(tree.path().join(path), mode).unwrap();
        }
    };
    let mut reader = Reader::new(tree.source("power"));
    mode(0);
    without_privilege(|| {
        reader.read().unwrap();
        reader.read().unwrap();
    });
    assert!(reader.names.is_empty());
    let report = reader.source.report();
    assert_eq!(report.missing.len(), 1, "{report:?}");
    let missing = &report.missing[0];
    assert!(missing.what.contains("package-0/core"), "{missing:?}");
    assert!(missing.why.contains("CVE-2020-8694"), "{missing:?}");
    assert!(
        missing.remedy.contains("CAP_DAC_READ_SEARCH"),
        "{missing:?}"
    );
    // When the right is given, it is noticed at the next scan for zones.
    mode(0o400);
    for _ in 0..32 {
        reader.read().unwrap();
    }
    assert!(reader.number("power.node.watts").is_some());
    assert!(reader.source.report().missing.is_empty());
}

#[test]
fn zones_that_are_named_and_hidden() {
    let tree = tree(&[]);
    std::fs::create_dir_all(tree.path().join("sys/class/powercap/intel-rapl:0")).unwrap();
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    let missing = reader.source.report().missing;
    assert!(missing[0].why.contains("containers"), "{missing:?}");
}

#[test]
fn zones_come_and_go_and_their_names_stay_apart() {
    let tree = tree(&[]);
    zone(&tree, "intel-rapl:0", "package-0", 1_000_000);
    zone(&tree, "intel-rapl:1", "package-0", 2_000_000);
    let mut reader = Reader::new(tree.source("power"));
    reader.read().unwrap();
    let both = [
        "power.energy.joules{zone=package-0@intel-rapl:1}",
        "power.energy.joules{zone=package-0}",
    ];
    let mut streams = reader.streams("");
    streams.sort();
    assert_eq!(streams, both);
    std::fs::remove_dir_all(tree.path().join("sys/class/powercap/intel-rapl:1")).unwrap();
    for _ in 0..31 {
        reader.read().unwrap();
    }
    assert!(reader.streams("intel-rapl").is_empty());
    // The counter of an offline package gives an error; another package is not affected.
    zone(&tree, "intel-rapl:2", "package-2", 3_000_000);
    zone(&tree, "intel-rapl:2", "x".repeat(600).as_str(), 3_000_000);
    for _ in 0..31 {
        reader.read().unwrap();
    }
    let missing = reader.source.report().missing;
    assert!(
        missing.iter().any(|m| m.remedy.contains("shorter")),
        "{missing:?}"
    );
}

#[test]
fn more_zones_than_are_followed() {
    let tree = tree(&[]);
    for n in 0..300 {
        zone(
            &tree,
            &format!("intel-rapl:{n}"),
            &format!("package-{n}"),
            1_000_000,
        );
    }
    let mut reader = Reader::new(tree.source("power"));
    let fault = reader.read().unwrap_err().to_string();
    assert!(fault.contains("44 power zones were left out"), "{fault}");
    assert_eq!(reader.names.len(), 256);
}

#[test]
fn a_range_that_is_garbage_is_no_range() {
    for range in ["", "0", "x", "-1", "99999999999999999999999"] {
        let tree = tree(&[]);
        zone(&tree, "intel-rapl:0", "package-0", 5_000_000);
        tree.write(
            "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
            format!("{range}\n"),
        );
        let mut reader = Reader::new(tree.source("power"));
        reader.read().unwrap();
        tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");
        reader.read().unwrap();
        assert_eq!(
            reader.number("power.draw.watts{zone=package-0}"),
            None,
            "{range}"
        );
        close(reader.number("power.energy.joules{zone=package-0}"), 5.0);
    }
}

#[test]
fn the_bmc() {
    let tree = Tree::of("lustre-server");
    let mut reader = Reader::new(tree.source("bmc"));
    reader.read().unwrap();
    close(reader.number("bmc.draw.watts{zone=node}"), 217.0);
    close(reader.number("bmc.draw.average.watts{zone=node}"), 201.0);
    close(reader.number("bmc.draw.minimum.watts{zone=node}"), 96.0);
    close(reader.number("bmc.draw.maximum.watts{zone=node}"), 388.0);
    let answer = String::from_utf8(tree.read("commands/ipmitool-dcmi-power")).unwrap();
    tree.write(
        "commands/ipmitool-dcmi-power",
        answer.replace("activated", "deactivated"),
    );
    reader.read().unwrap();
    assert!(reader.batch.samples().is_empty());
    let missing = reader.source.report().missing;
    assert!(missing[0].why.contains("not active"), "{missing:?}");
    assert_eq!(reader.streams("").len(), 4);
    // An old reading does not stand for the present for long.
    reader.read().unwrap();
    reader.read().unwrap();
    assert!(reader.streams("").is_empty());
    tree.write("commands/ipmitool-dcmi-power", answer);
    reader.read().unwrap();
    close(reader.number("bmc.draw.watts{zone=node}"), 217.0);
    assert!(!SourcesConfig::default().poll_of("bmc").is_enabled());
}

#[test]
fn a_clock_that_chrony_keeps() {
    let tree = Tree::of("lustre-server");
    let mut reader = Reader::new(tree.source("clock"));
    reader.read().unwrap();
    close(reader.number("clock.time.seconds"), 1_700_000_000.0);
    let error = f64::from(reader.get("clock.time.seconds").unwrap().error);
    assert!((634.8e-6..635.1e-6).contains(&error), "{error}");
    // "-0.000041250 slow" means ahead.
    close(reader.number("clock.offset.seconds"), 41.25e-6);
    // 0.000041250 + 0.000187330 + 0.000812440 / 2
    close(reader.number("clock.error.max.seconds"), 634.8e-6);
    close(reader.number("clock.error.estimated.seconds"), 29.377e-6);
    close(reader.number("clock.frequency.ratio"), 12.731e-6);
    close(reader.number("clock.skew.ratio"), 0.046e-6);
    close(reader.number("clock.root.delay.seconds"), 812.44e-6);
    close(reader.number("clock.root.dispersion.seconds"), 187.33e-6);
    assert_eq!(reader.number("clock.stratum.count"), Some(2.0));
    assert_eq!(text(&reader, "clock.source.name"), "203.0.113.5");
    assert_eq!(text(&reader, "clock.synchronised.flag"), "true");
}

#[test]
fn a_clock_that_loses_its_server() {
    let tree = Tree::of("lustre-server");
    let mut reader = Reader::new(tree.source("clock"));
    reader.read().unwrap();
    let lost = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,12.731,0.000,0.000,1.000000000,1.000000000,0.0,Not synchronised\n";
    tree.write("commands/chronyc-tracking", lost);
    reader.read().unwrap();
    let expect = [
        "clock.frequency.ratio",
        "clock.synchronised.flag",
        "clock.time.seconds",
    ];
    assert_eq!(reader.streams(""), expect);
    assert!(
        reader
            .get("clock.time.seconds")
            .unwrap()
            .error
            .is_infinite()
    );
    let missing = reader.source.report().missing;
    assert!(
        missing
            .iter()
            .any(|m| m.why.contains("nothing synchronises")),
        "{missing:?}"
    );
    tree.write(
        "commands/chronyc-tracking",
        Tree::of("lustre-server").read("commands/chronyc-tracking"),
    );
    reader.read().unwrap();
    close(reader.number("clock.offset.seconds"), 41.25e-6);
}

#[test]
fn a_clock_of_which_only_the_kernel_knows() {
    let tree = Tree::of("nvme-four");
    let mut reader = Reader::new(tree.source("clock"));
    reader.read().unwrap();
    // -183512 ns have to be added: the clock is ahead.
    close(reader.number("clock.offset.seconds"), 183.512e-6);
    close(reader.number("clock.error.max.seconds"), 0.2645);
    close(reader.number("clock.error.estimated.seconds"), 850e-6);
    // -834123 / 65536 ppm are added to the frequency.
    close(
        reader.number("clock.frequency.ratio"),
        834_123.0 / 65_536.0 * 1e-6,
    );
    let missing = reader.source.report().missing;
    assert!(
        missing[0].why.contains("chronyc is not installed"),
        "{missing:?}"
    );
}

/// This machine's clock has a time, and the kernel knows whether it is synchronized, by any
/// program.
#[test]
fn the_clock_of_this_machine() {
    let mut reader = Reader::new(source(&SourcesConfig::default(), "clock"));
    let _ = reader.read();
    assert!(reader.number("clock.time.seconds").is_some());
    let flag = reader
        .get("clock.synchronised.flag")
        .expect("the kernel knows")
        .value
        .clone();
    let bounded = reader.number("clock.error.max.seconds").is_some();
    assert_eq!(flag, Value::Bool(bounded));
}

fn peers(list: &[(&str, &str)], methods: &[PeerMethod]) -> SourcesConfig {
    let peer = |(name, address): &(&str, &str)| Peer {
        name: (*name).to_owned(),
        address: (*address).to_owned(),
    };
    let peer = PeerConfig {
        peers: list.iter().map(peer).collect(),
        methods: methods.to_vec(),
        ..PeerConfig::default()
    };
    SourcesConfig {
        peer,
        ..SourcesConfig::default()
    }
}

#[test]
fn peers_that_listen_and_peers_that_refuse() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let config = peers(&[("open", &open), ("closed", &closed)], &[PeerMethod::Tcp]);
    let mut reader = Reader::new(source(&config, "peer"));
    for _ in 0..3 {
        reader.read().unwrap();
        for peer in ["open", "closed"] {
            let get = |fact: &str| reader.get(&format!("peer.{fact}{{method=tcp,peer={peer}}}"));
            let seconds = get("round_trip.seconds").unwrap().value.as_f64().unwrap();
            assert!(seconds > 0.0 && seconds < 2.0, "{seconds}");
            assert_eq!(get("reachable.flag").unwrap().value, Value::Bool(true));
            assert_eq!(get("failures.count").unwrap().value, Value::Int(0));
        }
    }
    let report = reader.source.report();
    assert_eq!(report.sees, "2 peers, of which 2 answered");
    assert!(report.missing.is_empty());
}

/// Runs in a network namespace in which not even the loopback interface is up.
#[test]
fn peers_without_a_way_to_them_are_counted() {
    // The thread keeps the namespace, so it is not one of the test harness.
    let network = std::thread::spawn(|| {
        #[expect(
            deprecated,
            reason = "the unsafe form warns of file descriptors, which are not unshared"
        )]
        let unshared = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
        if unshared.is_err() {
            return;
        }
        let config = peers(&[("gone", "127.0.0.1:1")], &[PeerMethod::Tcp]);
        let mut reader = Reader::new(source(&config, "peer"));
        for failures in 1..=3 {
            reader.read().unwrap();
            let get = |fact: &str| reader.get(&format!("peer.{fact}{{method=tcp,peer=gone}}"));
            assert_eq!(get("reachable.flag").unwrap().value, Value::Bool(false));
            assert_eq!(get("failures.count").unwrap().value, Value::Int(failures));
            assert!(get("round_trip.seconds").is_none());
        }
        let missing = reader.source.report().missing;
        assert!(missing[0].why.contains("unreachable"), "{missing:?}");
    });
    network.join().unwrap();
}

#[test]
fn echo_to_this_machine() {
    let config = peers(
        &[("here", "127.0.0.1"), ("six", "::1")],
        &[PeerMethod::Icmp],
    );
    let mut reader = Reader::new(source(&config, "peer"));
    reader.read().unwrap();
    let report = reader.source.report();
    match reader.number("peer.round_trip.seconds{method=icmp,peer=here}") {
        Some(seconds) => assert!(seconds > 0.0 && seconds < 2.0, "{seconds}"),
        None => assert!(
            report.missing[0].remedy.contains("ping_group_range"),
            "{report:?}"
        ),
    }
}

#[test]
fn without_the_right_to_echo_it_is_said_once() {
    let config = peers(
        &[("a", "127.0.0.1"), ("b", "127.0.0.1")],
        &[PeerMethod::Icmp],
    );
    without_privilege(|| {
        let mut reader = Reader::new(source(&config, "peer"));
        reader.read().unwrap();
        let report = reader.source.report();
        // Some systems permit it to everyone.
        if reader.names.is_empty() {
            assert_eq!(report.missing.len(), 1, "{report:?}");
            assert!(
                report.missing[0].remedy.contains("ping_group_range"),
                "{report:?}"
            );
        }
    });
}

#[test]
fn nothing_is_asked_below_another_root() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let mut config = peers(&[("open", &open)], &[PeerMethod::Tcp]);
    config.sys_root = Tree::of("empty").path().to_owned();
    let mut reader = Reader::new(source(&config, "peer"));
    reader.read().unwrap();
    assert!(reader.names.is_empty() && listener.accept().is_err());
    let missing = reader.source.report().missing;
    assert!(missing[0].why.contains("another root"), "{missing:?}");
}

#[test]
fn which_peers_are_refused() {
    let check = |text: &str, word: &str| {
        let config: Result<SourcesConfig, _> = toml::from_str(text);
        let fault = match config {
            Ok(config) => config.validate().unwrap_err().to_string(),
            Err(e) => e.to_string(),
        };
        assert!(fault.contains(word), "{text}: {fault}");
    };
    check("[[peer.peers]]\nname = 'a'\naddress = 'a:0'", "1 to 65535");
    check("[[peer.peers]]\nname = 'a'", "\"\" is no address");
    check("[[peer.peers]]\naddress = '10.0.0.1'", "not a name");
    check("[[peer.peers]]\nname = 'a'\nadress = '10.0.0.1'", "adress");
    let two = "[[peer.peers]]\nname = 'a'\naddress = '10.0.0.1'\n".repeat(2);
    check(&two, "twice");
    check(
        "[peer]\nmethods = ['tcp']\n[[peer.peers]]\nname = 'a'\naddress = 'b'",
        "no port",
    );
    check("[peer]\nmethods = []", "empty");
    check("[peer]\nmethods = ['udp']", "udp");
    check("[peer]\ntimeout_ms = 0", "timeout_ms");
    check("[peer]\ntimeout_ms = 4001", "timeout_ms");
    let many: String = (0..257)
        .map(|n| format!("[[peer.peers]]\nname = 'n{n}'\naddress = '10.0.0.1'\n"))
        .collect();
    check(&many, "more than 256");
    let good = "[peer]\npeers = [{ name = 'node2', address = '10.0.0.2:22' }]";
    let config: SourcesConfig = toml::from_str(good).unwrap();
    config.validate().unwrap();
    let _: SourceConfig = config.poll_of("peer");
}
