//! Keys that move when servers come and go, balance, shares by weight, and the time of a lookup:
//! rendezvous hashing beside modulo, a ring of virtual nodes, and jump hash.

use std::hint::black_box;
use std::time::Instant;

use barograph_placement::{
    DomainId, KeyHash, Rendezvous, RendezvousTarget, TargetId, bounded_assignment,
};

const KEYS: usize = 200_000;
const SERVERS: usize = 16;
/// Points of a server of weight 1 on the ring.
const POINTS: usize = 160;
const FACTOR: f64 = 1.05;
/// The server that is removed, in the middle of the list.
const REMOVED: usize = 7;

#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    Modulo,
    Ring,
    Jump,
    Rendezvous,
    Bounded,
}

const SCHEMES: &[(Scheme, &str)] = &[
    (Scheme::Modulo, "modulo"),
    (Scheme::Ring, "ring, 160 points"),
    (Scheme::Jump, "jump hash"),
    (Scheme::Rendezvous, "rendezvous (ours)"),
    (Scheme::Bounded, "rendezvous, bounded load 1.05 (ours)"),
];

pub(crate) fn print() {
    let keys: Vec<KeyHash> = (0..KEYS)
        .map(|key| KeyHash::of(format!("/data/{key}").as_bytes()))
        .collect();
    println!(
        "## Hashing, exact\n\n{KEYS} keys on {SERVERS} servers. One more may move {:.2} % at least, one of them gone {:.2} %.\n",
        100.0 / (SERVERS + 1) as f64,
        100.0 / SERVERS as f64
    );
    println!(
        "| scheme | most by mean | one more: moved | number 7 gone: moved | weights 1 and 4: worst share by ideal | ns for a lookup |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (scheme, name) in SCHEMES {
        println!("{}", row(*scheme, name, &keys));
    }
    println!(
        "\nThe time is the least of 9 runs, with the hash of the key in hand. Jump hash can only lose its last server, and modulo and jump hash know no weights. The time of bounded load is that of an assignment of all keys, for each key.\n"
    );
}

fn row(scheme: Scheme, name: &str, keys: &[KeyHash]) -> String {
    let equal: Vec<(usize, f64)> = (0..SERVERS).map(|id| (id, 1.0)).collect();
    let more: Vec<(usize, f64)> = (0..=SERVERS).map(|id| (id, 1.0)).collect();
    let fewer: Vec<_> = equal.iter().copied().filter(|it| it.0 != REMOVED).collect();
    let weighted: Vec<(usize, f64)> = (0..SERVERS).map(|id| (id, [1.0, 4.0][id % 2])).collect();
    let before = assigned(scheme, &equal, keys);
    let moved = |after: &[usize]| {
        let pairs = before.iter().zip(after);
        100.0 * pairs.filter(|(a, b)| a != b).count() as f64 / KEYS as f64
    };
    format!(
        "| {name} | {:.3} | {:.2} % | {:.2} % | {:.3} | {:.0} |",
        worst(&before, &equal),
        moved(&assigned(scheme, &more, keys)),
        moved(&assigned(scheme, &fewer, keys)),
        worst(&assigned(scheme, &weighted, keys), &weighted),
        lookup_ns(scheme, &equal, keys),
    )
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
    let times = (0..9).map(|_| {
        let start = Instant::now();
        black_box(assigned(scheme, servers, black_box(keys)));
        start.elapsed().as_nanos() as f64 / keys.len() as f64
    });
    times.fold(f64::INFINITY, f64::min)
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
        Scheme::Bounded => {
            let placed = bounded_assignment(&map(servers), FACTOR, keys);
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
