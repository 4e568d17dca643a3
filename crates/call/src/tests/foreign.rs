//! Tests of foreign bytes: damaged audits, and requests of strangers. Random changes from fixed
//! seeds.

use std::fs;

use barograph_model::RequestSender;
use barograph_stream::calls::AckStatus;
use serde_json::{Value as Json, json};

use super::{OURS, World, member, who};
use crate::CallRequest;

/// Well mixed bits of `n` (SplitMix64).
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Replacements for a number, a text or a list.
const ODD: [&str; 10] = [
    "0",
    "-1",
    "18446744073709551615",
    "4611686018427387905",
    "1e300",
    "null",
    "[]",
    "{}",
    "\"\"",
    "\"x\"",
];

/// The text with a byte changed, a piece cut out or doubled, or a value replaced by an odd one.
fn damaged(text: &str, seed: u64) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for step in 0..1 + seed % 3 {
        let random = mix(seed * 8 + step);
        let at = (random >> 8) as usize % bytes.len();
        let length = (random >> 40) as usize % 40;
        let end = (at + length).min(bytes.len());
        match random % 4 {
            0 => bytes[at] = (random >> 56) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let colon = bytes[at..].iter().position(|b| *b == b':');
                let Some(from) = colon.map(|colon| at + colon + 1) else {
                    continue;
                };
                let is_end = |b: &u8| b",}]".contains(b);
                let to = bytes[from..].iter().position(is_end).unwrap_or(0);
                let odd = ODD[(random >> 32) as usize % ODD.len()];
                bytes.splice(from..from + to, odd.bytes());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes
}

#[test]
fn whatever_an_audit_holds_its_users_calls_are_opened_and_the_next_is_made() {
    const SEEDS: u64 = 400;
    let mut world = World::new();
    world.join(member(1, OURS));
    for payload in [json!(1), json!("\u{e9}"), json!([0.5]), json!({"a": 1})] {
        let body = json!({"name": "checkpoint", "payload": payload, "target": {"rank": 1}});
        let fired = world.fire(body).unwrap();
        world
            .board
            .answer(OURS, who(1), fired.calls[0].1, AckStatus::Done);
    }
    let knob = json!({"name": "solver.dt", "knob": true, "payload": 0.5, "at_frame": 7});
    world.fire(knob).unwrap();
    world.board.write_now();
    let path = world.dir.path().join("state/u1000/calls.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    for seed in 0..SEEDS {
        fs::write(&path, damaged(&whole, seed)).unwrap();
        // With the file of calls, and without it.
        if seed % 2 == 0 {
            let _ = fs::remove_file(world.calls_file());
        }
        world.restart();
        world.join(member(1, OURS));
        let written = world.reader().written();
        let fired = world.fire(json!({"name": "checkpoint"}));
        let fired = fired.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(fired.calls, [(OURS, written + 1)], "seed {seed}");
        world.rows();
    }
}

#[test]
fn whatever_is_asked_is_made_or_refused() {
    let world = World::new();
    world.join(member(1, OURS));
    let asker = RequestSender {
        uid: Some(0),
        may_control: true,
        ..RequestSender::default()
    };
    let bodies = [
        json!({"name": "checkpoint", "payload": {"a": [1, "b"]}, "target": {"rank": 1}, "expires_s": 9.5}),
        json!({"name": "solver.dt", "knob": true, "payload": 0.5, "payload_type": "float", "at_frame": 3}),
        json!({"name": "checkpoint", "payload": "AP8=", "payload_type": "bytes", "wait_s": 0, "incarnation":
            who(1).to_string()}),
    ];
    let mut asked = 0;
    for seed in 0..6_000 {
        let body = bodies[seed as usize % bodies.len()].to_string();
        let Ok(body) = serde_json::from_slice::<Json>(&damaged(&body, seed)) else {
            continue;
        };
        asked += 1;
        if let Ok((request, _)) = CallRequest::parse(&body, &asker)
            && let Ok(fired) = world.board.fire(&request)
        {
            for (uid, id) in fired.calls {
                world.board.answer(uid, who(1), id, AckStatus::Done);
            }
        }
    }
    assert!(asked > 1_000, "only {asked} were JSON");
}
