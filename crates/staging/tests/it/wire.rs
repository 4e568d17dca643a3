//! The decoder against every kind of bytes.

use barograph_staging::wire::{
    Answer, FRAME_BYTES_MAX, FrameHead, GetForm, HEAD_BYTES, Hello, LocatedBlocks, LocatedTier,
    MemoryPlace, Request, Welcome,
};
use barograph_staging::{
    BlockInfo, BlockKey, FaultCode, ListPage, ListQuery, PutHead, PutTarget, ReadCost,
    ServerCounts, ServerStatus, StoreCounts, TierStatus, TierUse,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn keys() -> impl Strategy<Value = BlockKey> {
    let named = ("[a-z]{1,20}", vec(any::<u8>(), 0..200));
    let numbered = ("[a-z]{1,20}", any::<u64>());
    prop_oneof![
        named.prop_map(|(dataset, name)| BlockKey::named(&dataset, &name).unwrap()),
        numbered.prop_map(|(dataset, number)| BlockKey::numbered(&dataset, number).unwrap()),
    ]
}

fn infos() -> impl Strategy<Value = BlockInfo> {
    let fields = (
        any::<u64>(),
        0..=1_u64 << 30,
        any::<u32>(),
        any::<u64>(),
        any::<[bool; 2]>(),
        any::<u8>(),
    );
    fields.prop_map(
        |(version, bytes, checksum, epoch, [is_confirmed, is_dirty], tier)| BlockInfo {
            version,
            bytes,
            checksum,
            epoch,
            is_confirmed,
            is_dirty,
            tier,
        },
    )
}

fn puts() -> impl Strategy<Value = Request> {
    let fields = (
        keys(),
        any::<u64>(),
        0..=1_u64 << 30,
        any::<[u32; 3]>(),
        any::<bool>(),
    );
    fields.prop_map(
        |(key, version, bytes, [checksum, refetch_us, wait_ms], is_durable)| {
            Request::Put(PutHead {
                key,
                version,
                bytes,
                checksum,
                epoch: version / 2,
                refetch_us,
                target: if is_durable {
                    PutTarget::Durable
                } else {
                    PutTarget::Fast
                },
                wait_ns: i64::from(wait_ms) * 1_000_000,
            })
        },
    )
}

fn requests() -> impl Strategy<Value = Request> {
    let hello = (any::<u32>(), vec(any::<u8>(), 0..=256), any::<bool>());
    let get = (keys(), any::<[u64; 3]>(), any::<[bool; 2]>());
    let list = (
        "[a-z]{0,9}",
        vec(any::<u8>(), 0..50),
        proptest::option::of(keys()),
        any::<u32>(),
    );
    prop_oneof![
        hello.prop_map(|(user, token, wants)| Request::Hello(Hello::new(user, &token, wants))),
        puts(),
        get.prop_map(
            |(key, [epoch, from, bytes], [accept_unconfirmed, is_place])| Request::Get {
                epoch,
                key,
                from,
                bytes,
                accept_unconfirmed,
                form: if is_place {
                    GetForm::Place
                } else {
                    GetForm::Bytes
                },
            }
        ),
        (keys(), any::<u64>()).prop_map(|(key, epoch)| Request::Stat { epoch, key }),
        (keys(), any::<u64>()).prop_map(|(key, version_max)| Request::Delete {
            epoch: 1,
            key,
            version_max,
        }),
        Just(Request::Status),
        (vec(keys(), 0..9), any::<u64>()).prop_map(|(keys, epoch)| Request::Locate { epoch, keys }),
        list.prop_map(|(dataset, name, after, blocks_max)| Request::List {
            epoch: 3,
            query: ListQuery {
                dataset,
                name,
                after,
                blocks_max
            },
        }),
    ]
}

fn statuses() -> impl Strategy<Value = ServerStatus> {
    let path = proptest::option::of("[a-zä/]{0,99}");
    let tier = (path, any::<[u64; 5]>(), any::<bool>());
    let tier = tier.prop_map(
        |(path, [bytes, bytes_max, blocks, blocks_max, faults], is_passed_over)| TierStatus {
            path,
            held: TierUse {
                bytes,
                bytes_max,
                blocks,
                blocks_max,
                faults,
                is_passed_over,
            },
        },
    );
    (any::<[u64; 5]>(), vec(tier, 0..5)).prop_map(|([fence, dirty_bytes, a, b, c], tiers)| {
        ServerStatus {
            fence,
            dirty_bytes,
            store: StoreCounts {
                puts: a,
                corrupt: b,
                left_behind: c,
                ..StoreCounts::default()
            },
            server: ServerCounts {
                admitted: b,
                fenced: c,
                ..ServerCounts::default()
            },
            tiers,
        }
    })
}

fn located() -> impl Strategy<Value = LocatedBlocks> {
    let cost = (0.0..1e9_f64, 0.0..1.0_f64);
    let cost = cost.prop_map(|(latency_s, byte_s)| ReadCost { latency_s, byte_s });
    let tier = (
        proptest::option::of("[a-zä/]{0,99}"),
        proptest::option::of(cost),
    );
    let tier = tier.prop_map(|(path, cost)| LocatedTier { path, cost });
    let blocks = vec(proptest::option::of(infos()), 0..9);
    (vec(tier, 0..=16), blocks).prop_map(|(tiers, blocks)| LocatedBlocks { tiers, blocks })
}

fn answers() -> impl Strategy<Value = Answer> {
    let page = (vec((keys(), infos()), 0..20), proptest::option::of(keys()));
    prop_oneof![
        any::<(u32, Option<(u64, u32)>)>()
            .prop_map(|(user, memory)| { Answer::Welcome(Welcome::new(user, memory)) }),
        Just(Answer::Go),
        infos().prop_map(Answer::Info),
        infos().prop_map(|info| Answer::Block {
            info,
            bytes: info.bytes / 2
        }),
        (infos(), any::<(u64, u32, u64)>()).prop_map(|(info, (at, slot, generation))| {
            Answer::Place {
                info,
                place: MemoryPlace {
                    at,
                    slot,
                    generation,
                },
            }
        }),
        any::<u64>().prop_map(|version| Answer::Deleted { version }),
        located().prop_map(Answer::Places),
        statuses().prop_map(|status| Answer::Status(status.into())),
        page.prop_map(|(blocks, next)| Answer::Page(ListPage { blocks, next })),
        (any::<u64>(), "[a-zäöü ]{0,99}").prop_map(|(number, text)| Answer::Fault {
            code: FaultCode::Fenced,
            number,
            text,
        }),
    ]
}

/// The kind and body of a frame.
fn parts(frame: &[u8]) -> (u8, &[u8]) {
    let (start, body) = frame.split_first_chunk::<HEAD_BYTES>().unwrap();
    let head = FrameHead::decode(*start).unwrap();
    assert_eq!(head.bytes, body.len());
    (head.kind, body)
}

proptest! {
    #[test]
    fn requests_come_back(request in requests()) {
        let frame = request.encode();
        let (kind, body) = parts(&frame);
        prop_assert_eq!(Request::decode(kind, body), Ok(request));
        for end in 0..body.len() {
            prop_assert!(Request::decode(kind, &body[..end]).is_err(), "cut at {}", end);
        }
        prop_assert!(Answer::decode(kind, body).is_err());
    }

    #[test]
    fn answers_come_back(answer in answers()) {
        let frame = answer.encode();
        let (kind, body) = parts(&frame);
        prop_assert_eq!(Answer::decode(kind, body), Ok(answer));
        for end in 0..body.len() {
            prop_assert!(Answer::decode(kind, &body[..end]).is_err(), "cut at {}", end);
        }
    }

    #[test]
    fn changed_bytes_give_an_error_or_another_request(
        request in requests().prop_filter("it has a body", |it| *it != Request::Status),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = request.encode();
        let at = HEAD_BYTES + at.index(frame.len() - HEAD_BYTES);
        frame[at] = byte;
        let (kind, body) = parts(&frame);
        if let Ok(other) = Request::decode(kind, body)
            && !matches!(other, Request::Hello(_))
        {
            prop_assert_eq!(other.encode(), frame);
        }
    }

    #[test]
    fn foreign_bytes_are_no_panic(kind in any::<u8>(), body in vec(any::<u8>(), 0..300)) {
        let _ = Request::decode(kind, &body);
        let _ = Answer::decode(kind, &body);
    }

    #[test]
    fn heads_are_bounded(start in any::<[u8; HEAD_BYTES]>()) {
        if let Ok(head) = FrameHead::decode(start) {
            let bytes_max = if head.is_data() { 1 << 20 } else { FRAME_BYTES_MAX };
            prop_assert!(head.bytes <= bytes_max);
            prop_assert_eq!(head.encode(), start);
        }
    }
}
