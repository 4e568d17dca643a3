//! Keys that move when servers come and go, balance, shares by weight, and the time of a lookup:
//! rendezvous hashing beside modulo, a ring of virtual nodes, and jump hash.

use std::hint::black_box;
use std::time::Instant;

use barograph_placement::{
    DomainId, KeyHash, Rendezvous, RendezvousTarget, TargetId, bounded_assignment,
};

use crate::table::{count, list, paragraph};
use crate::targets::{Target, Wanted};

const KEYS: usize = 200_000;
const SERVERS: usize = 16;
/// Points of a server of weight 1 on the ring.
const POINTS: usize = 160;
/// The server that is removed, in the middle of the list.
const REMOVED: usize = 7;
/// Keys of a timed run, which is short so that some are not interrupted; the fastest counts.
const TIMED_KEYS: usize = 10_000;
const RUNS: usize = 100;

#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    Modulo,
    Ring,
    Jump,
    Rendezvous,
    /// Rendezvous with bounded load, by the factor above the mean.
    Bounded(f64),
}

const SCHEMES: &[(Scheme, &str)] = &[
    (Scheme::Modulo, "modulo"),
    (Scheme::Ring, "ring, 160 points for each server"),
    (Scheme::Jump, "jump hash"),
    (Scheme::Rendezvous, "rendezvous (ours)"),
    (
        Scheme::Bounded(1.05),
        "rendezvous, bounded load 1.05 (ours)",
    ),
    (
        Scheme::Bounded(1.01),
        "rendezvous, bounded load 1.01 (ours)",
    ),
];

/// What is counted of a scheme, and the time of a lookup.
struct SchemeRow {
    scheme: Scheme,
    name: &'static str,
    balance: f64,
    more_moved: f64,
    fewer_moved: f64,
    weighted: f64,
    lookup_ns: f64,
    assigned: Vec<usize>,
}

/// Prints the tables; the targets that they have figures for.
pub(crate) fn print() -> [Target; 2] {
    let keys: Vec<KeyHash> = (0..KEYS)
        .map(|key| KeyHash::of(format!("/data/{key}").as_bytes()))
        .collect();
    let rows = SCHEMES.iter().map(|it| row(it.0, it.1, &keys));
    let rows: Vec<SchemeRow> = rows.collect();
    print_model();
    println!(
        "| scheme | largest server by the mean | one more: moved | number {REMOVED} gone: moved | weights 1 and 4: fullest server by its share |\n| --- | ---: | ---: | ---: | ---: |"
    );
    for row in &rows {
        println!(
            "| {} | {:.3} | {:.2} % | {:.2} % | {:.3} |",
            row.name, row.balance, row.more_moved, row.fewer_moved, row.weighted
        );
    }
    println!();
    print_bounds(&rows);
    print_lookups(&rows);
    let ours = rows.iter().find(|it| it.scheme == Scheme::Rendezvous);
    let ours = ours.expect("it is one of the schemes");
    [
        Target {
            name: format!("keys moved, {SERVERS} servers and one more"),
            wanted: Wanted::AtMost(6.3),
            reached: vec![ours.more_moved],
            digits: 2,
            unit: " %",
        },
        Target {
            name: "balance, largest server by the mean".to_owned(),
            wanted: Wanted::AtMost(1.05),
            reached: vec![ours.balance],
            digits: 3,
            unit: "",
        },
    ]
}

fn print_model() {
    println!("## Hashing, exact\n");
    paragraph(&format!(
        "{} keys on {SERVERS} servers. Where keys are spread evenly before and after, {:.2} % of them have to move when \
        there is one server more, and {:.2} % when one is gone; a scheme that gives the new server less than its share \
        moves fewer. The weighted case has servers of weight 1 and 4 in turn: 1 is the share by weight.",
        count(KEYS),
        100.0 / (SERVERS + 1) as f64,
        100.0 / SERVERS as f64
    ));
    list(&[
        format!(
            "**Modulo** and **jump hash** know no weights. Jump hash can lose its last server only: where number \
            {REMOVED} is gone, those behind it get other numbers."
        ),
        "**The ring** is that of ketama: points of a server in proportion to its weight.".to_owned(),
        "**Bounded load** gives a key to the first server of its ranking that is below the bound, by the mean or by the \
        share of its weight. It needs all keys, in one order, or the load as it is.".to_owned(),
        "**Limits**: keys count the same, whatever their bytes and reads; the names are one set of paths, and another \
        set differs in the last digits.".to_owned(),
    ]);
}

/// How many keys a bound has given to other servers than their first.
fn print_bounds(rows: &[SchemeRow]) {
    let first = rows.iter().find(|it| it.scheme == Scheme::Rendezvous);
    let elsewhere = rows.iter().filter_map(|row| {
        let (Scheme::Bounded(factor), Some(first)) = (row.scheme, first) else {
            return None;
        };
        let pairs = row.assigned.iter().zip(&first.assigned);
        let elsewhere = pairs.filter(|(bounded, first)| bounded != first).count();
        Some(format!("{} under the bound of {factor}", count(elsewhere)))
    });
    let elsewhere: Vec<String> = elsewhere.collect();
    paragraph(&format!(
        "Keys that get another server than their first, with equal weights: {}.",
        elsewhere.join(", ")
    ));
}

fn print_lookups(rows: &[SchemeRow]) {
    let ring = rows.iter().find(|it| it.scheme == Scheme::Ring);
    let ring_ns = ring.map_or(f64::NAN, |it| it.lookup_ns);
    println!("| scheme | ns for a lookup | by the ring's |\n| --- | ---: | ---: |");
    for row in rows {
        let SchemeRow {
            name, lookup_ns, ..
        } = row;
        println!("| {name} | {lookup_ns:.0} | {:.2} |", lookup_ns / ring_ns);
    }
    println!();
    paragraph(&format!(
        "Times are those of whichever machine made this page, in one run: ratios count. Each is the least of {RUNS} runs \
        over {} keys, with the hash of the key in hand, less the time to make the ring or the map. The time of bounded \
        load is that of an assignment of these keys, for each key. Rendezvous hashing looks at every server: its time \
        grows with their number, that of the ring with its logarithm.",
        count(TIMED_KEYS)
    ));
}

fn row(scheme: Scheme, name: &'static str, keys: &[KeyHash]) -> SchemeRow {
    let equal: Vec<(usize, f64)> = (0..SERVERS).map(|id| (id, 1.0)).collect();
    let more: Vec<(usize, f64)> = (0..=SERVERS).map(|id| (id, 1.0)).collect();
    let fewer: Vec<_> = equal.iter().copied().filter(|it| it.0 != REMOVED).collect();
    let weighted: Vec<(usize, f64)> = (0..SERVERS).map(|id| (id, [1.0, 4.0][id % 2])).collect();
    let before = assigned(scheme, &equal, keys);
    let moved = |after: &[usize]| {
        let pairs = before.iter().zip(after);
        100.0 * pairs.filter(|(a, b)| a != b).count() as f64 / KEYS as f64
    };
    SchemeRow {
        scheme,
        name,
        balance: worst(&before, &equal),
        more_moved: moved(&assigned(scheme, &more, keys)),
        fewer_moved: moved(&assigned(scheme, &fewer, keys)),
        weighted: worst(&assigned(scheme, &weighted, keys), &weighted),
        lookup_ns: lookup_ns(scheme, &equal, keys),
        assigned: before,
    }
}

/// The largest number of keys of a server by that of its weight.
fn worst(assigned: &[usize], servers: &[(usize, f64)]) -> f64 {
    let mut held = [0_usize; SERVERS + 1];
    for server in assigned {
        held[*server] += 1;
    }
    let weights: f64 = servers.iter().map(|it| it.1).sum();
    let shares = servers
        .iter()
        .map(|(server, weight)| held[*server] as f64 / (assigned.len() as f64 * weight / weights));
    shares.fold(0.0, f64::max)
}

fn lookup_ns(scheme: Scheme, servers: &[(usize, f64)], keys: &[KeyHash]) -> f64 {
    let least_ns = |keys: &[KeyHash]| {
        let times = (0..RUNS).map(|_| {
            let start = Instant::now();
            black_box(assigned(scheme, servers, black_box(keys)));
            start.elapsed().as_nanos() as f64
        });
        times.fold(f64::INFINITY, f64::min)
    };
    (least_ns(&keys[..TIMED_KEYS]) - least_ns(&[])) / TIMED_KEYS as f64
}

fn assigned(scheme: Scheme, servers: &[(usize, f64)], keys: &[KeyHash]) -> Vec<usize> {
    let len = servers.len() as u64;
    match scheme {
        Scheme::Modulo => {
            let index = |key: &KeyHash| (key.number() % len) as usize;
            keys.iter().map(|key| servers[index(key)].0).collect()
        }
        Scheme::Jump => {
            let index = |key: &KeyHash| jump(key.number(), servers.len() as i64);
            keys.iter().map(|key| servers[index(key)].0).collect()
        }
        Scheme::Ring => {
            let ring = ring(servers);
            let at = |key: &KeyHash| {
                let index = ring.partition_point(|point| point.0 < key.number());
                ring[index % ring.len()].1
            };
            keys.iter().map(at).collect()
        }
        Scheme::Rendezvous => {
            let map = map(servers);
            let first = |key: &KeyHash| map.first(*key).expect("all weights are above 0").0;
            keys.iter().map(|key| first(key) as usize).collect()
        }
        Scheme::Bounded(factor) => {
            let placed = bounded_assignment(&map(servers), factor, keys);
            let placed = placed.expect("the factor is above 1");
            placed.iter().map(|it| it.target.0 as usize).collect()
        }
    }
}

fn map(servers: &[(usize, f64)]) -> Rendezvous {
    let targets = servers.iter().map(|(server, weight)| RendezvousTarget {
        id: TargetId(*server as u64),
        domain: DomainId(*server as u64),
        weight: *weight,
    });
    Rendezvous::new(&targets.collect::<Vec<_>>()).expect("sound targets")
}

/// Points of servers on a circle of hashes, as ketama has them.
fn ring(servers: &[(usize, f64)]) -> Vec<(u64, usize)> {
    let points = servers.iter().flat_map(|(server, weight)| {
        let points = (POINTS as f64 * weight) as usize;
        (0..points).map(move |point| {
            let name = format!("server-{server}-{point}");
            (KeyHash::of(name.as_bytes()).number(), *server)
        })
    });
    let mut ring: Vec<_> = points.collect();
    ring.sort_unstable();
    ring
}

/// Lamping, Veach, "A fast, minimal memory, consistent hash algorithm", 2014.
fn jump(mut key: u64, buckets: i64) -> usize {
    let (mut bucket, mut next) = (-1_i64, 0_i64);
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let scale = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * scale) as i64;
    }
    bucket as usize
}
