//! Reads any bytes as frames between clients and servers of staging, as requests and as answers:
//! what is read comes back when it is written and read again.

#![no_main]

use barograph_staging::wire::{Answer, FrameHead, HEAD_BYTES, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    if let Ok(head) = FrameHead::decode(*head)
        && let Some(body) = rest.get(..head.bytes)
    {
        take_in(head.kind, body);
    }
    // Random lengths are seldom those of bodies.
    take_in(head[0], rest);
});

fn take_in(kind: u8, body: &[u8]) {
    if let Ok(request) = Request::decode(kind, body) {
        let (kind, body) = parts(request.encode());
        assert_eq!(Request::decode(kind, &body).as_ref(), Ok(&request));
    }
    if let Ok(answer) = Answer::decode(kind, body) {
        let (kind, body) = parts(answer.encode());
        assert_eq!(Answer::decode(kind, &body).as_ref(), Ok(&answer));
    }
}

/// The kind and body of a frame that was written here.
fn parts(frame: Vec<u8>) -> (u8, Vec<u8>) {
    let (head, body) = frame.split_first_chunk::<HEAD_BYTES>().expect("a head");
    let head = FrameHead::decode(*head).expect("a head of this protocol");
    assert_eq!(head.bytes, body.len());
    (head.kind, body.to_vec())
}
