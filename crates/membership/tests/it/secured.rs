//! Nodes with certificates, over zenoh on loopback.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use barograph_fabric::security::{Credentials, REVOCATION_LIST};
use barograph_fabric::transport::{
    HELLO_VERSION, Hello, Transport as _, TransportEvent, ZenohConfig, ZenohFault, ZenohTransport,
};
use barograph_membership::Authority;
use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{Incarnation, SystemClock};
use ring::signature::Ed25519KeyPair;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zenoh::Wait as _;

use crate::admission::{authority, joined, now_ns};

/// Longest wait of a test for the network, in ns.
const PATIENCE_NS: i64 = 60 * NS_PER_S;

pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

pub(crate) fn hello(node: &str, number: u8) -> Hello {
    Hello {
        version: HELLO_VERSION,
        incarnation: Incarnation([number; 16]),
        start_ns: i64::from(number),
        cluster: "rack".into(),
        node: node.into(),
    }
}

/// The clock of the system, set ahead by some nanoseconds.
#[derive(Default)]
struct SetClock {
    system: SystemClock,
    ahead_ns: AtomicI64,
}

impl Clock for SetClock {
    fn now_ns(&self) -> i64 {
        self.system.now_ns() + self.ahead_ns.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> i64 {
        self.system.monotonic_ns()
    }
}

pub(crate) fn open(
    dir: Option<&Path>,
    hello: Hello,
    listen: &str,
    peers: &[&str],
) -> Result<ZenohTransport, ZenohFault> {
    open_by(Arc::new(SystemClock::new()), dir, hello, (&[listen], peers))
}

/// Opens a transport whose time is that of this clock.
pub(crate) fn open_by(
    clock: Arc<dyn Clock>,
    dir: Option<&Path>,
    hello: Hello,
    (listen, peers): (&[&str], &[&str]),
) -> Result<ZenohTransport, ZenohFault> {
    let credentials = dir.map(|dir| Credentials::load(dir, "rack", &hello.node));
    let config = ZenohConfig {
        credentials: credentials.transpose()?.flatten().map(Arc::new),
        revocation_list: dir.and_then(|dir| std::fs::read(dir.join(REVOCATION_LIST)).ok()),
        hello,
        listen: listen.iter().map(|&address| address.into()).collect(),
        peers: peers.iter().map(|&peer| peer.into()).collect(),
        death_ns: NS_PER_S,
    };
    ZenohTransport::open(&config, clock)
}

/// Receives at several nodes in turn until one of the events is the wanted one.
pub(crate) fn expect(
    transports: &mut [&mut ZenohTransport],
    is_it: impl Fn(&TransportEvent) -> bool,
) -> TransportEvent {
    let mut seen = Vec::new();
    let over_ns = now_ns() + PATIENCE_NS;
    while now_ns() < over_ns {
        for transport in &mut *transports {
            match transport.receive(now_ns() + NS_PER_S / 50) {
                Some(event) if is_it(&event) => return event,
                Some(event) => seen.push(event),
                None => {}
            }
        }
    }
    panic!("the event did not come; there were {seen:?}");
}

pub(crate) fn appeared(node: &str) -> impl Fn(&TransportEvent) -> bool {
    move |event| *event == TransportEvent::Appeared(node.into())
}

pub(crate) fn gone(node: &str) -> impl Fn(&TransportEvent) -> bool {
    move |event| *event == TransportEvent::Gone(node.into())
}

/// Receives at several nodes in turn until something holds of them. Events are not looked at.
fn wait_until(
    transports: &mut [&mut ZenohTransport],
    holds: impl Fn(&[&mut ZenohTransport]) -> bool,
) {
    let over_ns = now_ns() + PATIENCE_NS;
    while !holds(transports) {
        let state = |one: &&mut ZenohTransport| (one.peers(), one.refusals(), one.counts());
        let late = now_ns() >= over_ns;
        assert!(
            !late,
            "it does not hold: {:?}",
            transports.iter().map(state).collect::<Vec<_>>()
        );
        for transport in &mut *transports {
            transport.receive(now_ns() + NS_PER_S / 50);
        }
    }
}

/// Whether a node refuses another one for this reason.
fn refuses(transport: &ZenohTransport, reason: &str) -> bool {
    let refusals = transport.refusals().into_iter();
    refusals
        .map(|refusal| refusal.to_string())
        .any(|refusal| refusal.contains(reason))
}

/// The names of the nodes that a node works with.
fn names(transport: &ZenohTransport) -> Vec<String> {
    let peers = transport.peers().into_iter();
    peers.map(|peer| peer.node.to_string()).collect()
}

/// Sends a message until it has come, since a link that a busy machine has broken for a moment
/// loses messages. Returns how many came: all of them were sent here.
pub(crate) fn deliver(
    (from, of): (&mut ZenohTransport, &str),
    (to, name): (&mut ZenohTransport, &str),
    bytes: &[u8],
) -> u64 {
    let wanted = TransportEvent::Message {
        from: of.into(),
        bytes: bytes.to_vec(),
    };
    let mut came = 0;
    let over_ns = now_ns() + PATIENCE_NS;
    while came == 0 {
        assert!(now_ns() < over_ns, "{wanted:?} did not come");
        // While the other is away, there is nobody to send to.
        let _ = from.send(name, bytes.to_vec());
        let wait_ns = now_ns() + NS_PER_S / 5;
        while let Some(event) = to.receive(wait_ns) {
            came += is_one(Some(event), &wanted);
        }
        from.receive(now_ns() + NS_PER_S / 50);
    }
    came
}

/// Number of messages that came; another one than this is an error.
fn is_one(event: Option<TransportEvent>, wanted: &TransportEvent) -> u64 {
    let message = event.filter(is_message);
    if let Some(message) = &message {
        assert_eq!(message, wanted);
    }
    u64::from(message.is_some())
}

fn is_message(event: &TransportEvent) -> bool {
    matches!(event, TransportEvent::Message { .. })
}

#[test]
fn members_meet_and_talk() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let b_dir = joined(&a_dir, "b");
    let address = free_address();
    let mut a = open(Some(&a_dir), hello("a", 1), &address, &[]).unwrap();
    let mut b = open(Some(&b_dir), hello("b", 2), "127.0.0.1:0", &[&address]).unwrap();
    expect(&mut [&mut a], appeared("b"));
    expect(&mut [&mut b], appeared("a"));
    let bytes = vec![7; 300_000];
    b.send("a", bytes.clone()).unwrap();
    let came = expect(&mut [&mut a], is_message);
    let from = "b".into();
    assert_eq!(came, TransportEvent::Message { from, bytes });
    let over_ns = now_ns() + PATIENCE_NS;
    while a.peers().iter().any(|peer| peer.round_trip_ns.is_none()) {
        assert!(now_ns() < over_ns, "round trips: {:?}", a.peers());
        for transport in [&mut a, &mut b] {
            transport.receive(now_ns() + NS_PER_S / 100);
        }
    }
    assert!(a.own_fault().is_none());
    let left_ns = a.certificate_expires_ns().unwrap() - now_ns();
    assert!(left_ns > 364 * 86_400 * NS_PER_S, "{left_ns}");
}

#[test]
fn who_has_no_certificate_of_this_cluster_is_not_seen() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let address = free_address();
    let mut a = open(Some(&a_dir), hello("a", 1), &address, &[]).unwrap();
    // Another authority that uses the same names.
    let foreign = authority(&temp.path().join("foreign"), "rack");
    let foreign = joined(&foreign, "b");
    let mut b = open(Some(&foreign), hello("b", 2), "127.0.0.1:0", &[&address]).unwrap();
    let mut c = open(None, hello("c", 3), "127.0.0.1:0", &[&address]).unwrap();
    let until_ns = now_ns() + 3 * NS_PER_S;
    while now_ns() < until_ns {
        for transport in [&mut a, &mut b, &mut c] {
            let event = transport.receive(now_ns() + NS_PER_S / 10);
            assert_eq!(event, None);
            // TLS ends the link before the nodes have told each other why.
            assert_eq!(
                (transport.refusals().len(), transport.counts().refused),
                (0, 0)
            );
        }
    }
}

#[test]
fn a_member_whose_certificate_ends_is_dismissed_while_it_is_connected() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let dirs = [joined(&a_dir, "b"), joined(&a_dir, "c")];
    let address = free_address();
    let clock = Arc::new(SetClock::default());
    let to = Arc::clone(&clock);
    let mut a = open_by(to, Some(&a_dir), hello("a", 1), (&[&address], &[])).unwrap();
    let join = |dir, hello| open(Some(dir), hello, "127.0.0.1:0", &[&address]).unwrap();
    let mut b = join(&dirs[0], hello("b", 2));
    expect(&mut [&mut a], appeared("b"));
    assert!(a.own_fault().is_none() && !refuses(&a, "expired"));
    // The certificate of b holds for 30 days, and that of a for 365. The links stay: their time is
    // that of the system.
    let days = |days: i64| {
        clock
            .ahead_ns
            .store(days * 86_400 * NS_PER_S, Ordering::SeqCst)
    };
    days(31);
    expect(&mut [&mut a], gone("b"));
    wait_until(&mut [&mut a, &mut b], |all| {
        refuses(all[0], "node b is not let in: its certificate has expired")
    });
    assert!(a.send("b", vec![1]).is_err());
    assert!(a.own_fault().is_none());
    // Another one comes with a certificate that has ended, and is not let in either.
    let mut c = join(&dirs[1], hello("c", 3));
    wait_until(&mut [&mut a, &mut b, &mut c], |all| {
        refuses(all[0], "node c is not let in: its certificate has expired")
    });
    assert_eq!(names(&a), Vec::<String>::new());
    // Who has gone is refused no longer, and the clock was wrong: b is let in when it comes again.
    drop((b, c));
    wait_until(&mut [&mut a], |all| all[0].refusals().is_empty());
    days(0);
    let mut b = join(&dirs[0], hello("b", 4));
    expect(&mut [&mut a, &mut b], appeared("b"));
    // The certificate of a itself ends.
    days(366);
    let fault = a.own_fault().unwrap_or_default();
    assert!(fault.contains("has expired"), "{fault}");
}

#[test]
fn certificates_that_do_not_hold_are_an_error_at_the_start() {
    let temp = tempfile::tempdir().unwrap();
    let open = |dir: &Path| {
        let fault = open(Some(dir), hello("a", 1), "127.0.0.1:0", &[]);
        fault
            .err()
            .map(|fault| fault.to_string())
            .unwrap_or_default()
    };
    let expired = temp.path().join("expired");
    let long_ago_ns = now_ns() - 400 * 86_400 * NS_PER_S;
    Authority::create(&expired, "rack", "a", long_ago_ns).unwrap();
    assert!(open(&expired).contains("has expired"), "{}", open(&expired));
    let early = temp.path().join("early");
    Authority::create(&early, "rack", "a", now_ns() + 86_400 * NS_PER_S).unwrap();
    assert!(open(&early).contains("not valid yet"), "{}", open(&early));
    let other = temp.path().join("other");
    Authority::create(&other, "rack", "b", now_ns()).unwrap();
    assert!(open(&other).contains("rack/b"), "{}", open(&other));
    let mixed = authority(temp.path(), "rack");
    std::fs::copy(other.join("authority.pem"), mixed.join("authority.pem")).unwrap();
    assert!(open(&mixed).contains("authority"), "{}", open(&mixed));
    std::fs::write(mixed.join("node.pem"), "nothing").unwrap();
    assert!(
        open(&mixed).contains("baro cluster join"),
        "{}",
        open(&mixed)
    );
}

#[test]
fn a_member_that_is_revoked_is_dismissed_while_it_is_connected() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let dirs = [joined(&a_dir, "b"), joined(&a_dir, "c")];
    let address = free_address();
    let mut a = open(Some(&a_dir), hello("a", 1), &address, &[]).unwrap();
    let join = |dir, hello| open(Some(dir), hello, "127.0.0.1:0", &[&address]).unwrap();
    let mut b = join(&dirs[0], hello("b", 2));
    let mut c = join(&dirs[1], hello("c", 3));
    expect(&mut [&mut a], appeared("b"));
    expect(&mut [&mut c], appeared("b"));
    Authority::open(&a_dir)
        .unwrap()
        .revoke("b", now_ns())
        .unwrap();
    let list = std::fs::read(a_dir.join(REVOCATION_LIST)).unwrap();
    let mut forged = list.clone();
    let at = forged.len() - 1;
    forged[at] ^= 1;
    assert!(!a.revoke(&forged), "it is not the authority's");
    assert!(a.revoke(&list) && !a.revoke(&list), "it is taken once");
    expect(&mut [&mut a], gone("b"));
    let reason = "node b is not let in: its certificate was revoked";
    wait_until(&mut [&mut a, &mut b, &mut c], |all| {
        all.iter().any(|one| refuses(one, reason))
    });
    assert!(a.send("b", vec![1]).is_err());
    // The others learn it from the network, and the node itself asks, since it knows nobody any
    // more.
    let over_ns = now_ns() + PATIENCE_NS;
    let is_told = |transport: &ZenohTransport| {
        let names = transport.peers().into_iter().map(|peer| peer.node);
        transport.revocation_list().is_some() && names.collect::<Vec<_>>().len() == 1
    };
    while !(is_told(&a) && is_told(&c) && b.own_fault().is_some()) {
        assert!(now_ns() < over_ns, "{:?} {:?}", a.peers(), c.peers());
        for transport in [&mut a, &mut b, &mut c] {
            transport.receive(now_ns() + NS_PER_S / 100);
        }
    }
    assert_eq!(c.revocation_list().as_deref(), Some(&*list));
    let fault = b.own_fault();
    assert!(
        fault
            .as_ref()
            .is_some_and(|fault| fault.contains("revoked")),
        "{fault:?}"
    );
    // They work with each other as before.
    deliver((&mut a, "a"), (&mut c, "c"), &[1]);
    // The links to the node carry nothing any more, so that it is not there to be refused.
    wait_until(&mut [&mut a, &mut b, &mut c], |all| {
        !refuses(all[0], reason) && !refuses(all[2], reason)
    });
    // A later life of the node gets no further than to the answer why.
    drop(b);
    let mut b = join(&dirs[0], hello("b", 4));
    let over_ns = now_ns() + PATIENCE_NS;
    while b.own_fault().is_none() {
        assert!(now_ns() < over_ns, "{:?}", b.counts());
        for transport in [&mut a, &mut b, &mut c] {
            transport.receive(now_ns() + NS_PER_S / 10);
        }
    }
    assert!(
        is_told(&a) && is_told(&c),
        "{:?} {:?}",
        a.peers(),
        c.peers()
    );
    // With a new certificate it is let in again.
    drop(b);
    let mut b = join(&joined(&a_dir, "b"), hello("b", 5));
    expect(&mut [&mut a, &mut b], appeared("b"));
}

/// A session of zenoh with a member's certificate, in the hands of somebody hostile.
fn hostile_session(dir: &Path, address: &str) -> zenoh::Session {
    let file = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let network = serde_json::json!({
        "mode": "peer",
        "connect": {"endpoints": [format!("tls/{address}")]},
        "scouting": {"multicast": {"enabled": false}},
        "transport": {"link": {"tls": {
            "root_ca_certificate": file("authority.pem"),
            "enable_mtls": true,
            "listen_private_key": file("node.pem"),
            "listen_certificate": file("node.pem"),
            "connect_private_key": file("node.pem"),
            "connect_certificate": file("node.pem"),
            "verify_name_on_connect": false,
        }}},
    });
    let config = zenoh::Config::from_json5(&network.to_string()).unwrap();
    zenoh::open(config).wait().unwrap()
}

/// The key of a hello with a proof by the certificate in this directory, whosever hello it is.
fn hello_key(dir: &Path, hello: &Hello) -> String {
    let text = std::fs::read(dir.join("node.pem")).unwrap();
    let certificate = CertificateDer::from_pem_slice(&text).unwrap();
    let key = PrivatePkcs8KeyDer::from_pem_slice(&text).unwrap();
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der()).unwrap();
    let public = [9; 32];
    let signed = [b"barograph hello 1\0".as_slice(), &public, &hello.write()].concat();
    let proof = [&public, key.sign(&signed).as_ref(), &certificate].concat();
    hello.key(Some(&proof))
}

#[test]
fn a_hostile_member_cannot_speak_for_another_node_or_read_its_messages() {
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let (b_dir, evil_dir) = (joined(&a_dir, "b"), joined(&a_dir, "evil"));
    let address = free_address();
    let mut a = open(Some(&a_dir), hello("a", 1), &address, &[]).unwrap();
    let evil = hostile_session(&evil_dir, &address);
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let to = Arc::clone(&heard);
    let _hellos = evil
        .liveliness()
        .declare_subscriber("barograph/**")
        .history(true)
        .callback(move |sample| to.lock().unwrap().push(sample.key_expr().to_string()))
        .wait()
        .unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let to = Arc::clone(&seen);
    let _messages = evil
        .declare_subscriber("barograph/to/**")
        .callback(move |sample| {
            to.lock()
                .unwrap()
                .push(sample.payload().to_bytes().into_owned())
        })
        .wait()
        .unwrap();
    let mut b = open(Some(&b_dir), hello("b", 2), "127.0.0.1:0", &[&address]).unwrap();
    expect(&mut [&mut a], appeared("b"));
    expect(&mut [&mut b], appeared("a"));
    // It shows b's own hello, hellos with b's proof for other lives, hellos without a proof, and a
    // hello of b with its own proof.
    let of_b = |key: &String| key.contains("/rack/b/");
    let over_ns = now_ns() + PATIENCE_NS;
    while !heard.lock().unwrap().iter().any(of_b) {
        assert!(now_ns() < over_ns, "{heard:?}");
        a.receive(now_ns() + NS_PER_S / 100);
    }
    let proven = heard
        .lock()
        .unwrap()
        .iter()
        .find(|key| of_b(key))
        .unwrap()
        .clone();
    let incarnation = Incarnation([2; 16]).to_string();
    let later = Incarnation([9; 16]).to_string();
    let mut tokens = Vec::new();
    let bare = proven.rsplit_once('/').unwrap().0.to_owned();
    for key in [
        proven.clone(),
        proven.replace(&incarnation, &later),
        proven.replace(&format!("{incarnation}/2/"), &format!("{later}/9/")),
        bare.replace(&incarnation, &later),
        format!("{}/AAAA", bare.replace(&incarnation, &later)),
        format!(
            "{}/{}",
            bare.replace(&incarnation, &later),
            "A".repeat(60_000)
        ),
        "barograph/node/1/rack".to_owned(),
        hello_key(&evil_dir, &hello("b", 8)),
        hello_key(&evil_dir, &hello("evil", 7)),
    ] {
        tokens.push(evil.liveliness().declare_token(key).wait().unwrap());
    }
    // It writes as b, and floods.
    let before = a.counts();
    for kind in ["data", "ping", "pong", "revoked", "other"] {
        for bytes in [vec![], vec![0; 24], vec![7; 2_000_000]] {
            let key = format!("barograph/to/rack/a/{kind}/b/{incarnation}");
            evil.put(key, bytes).wait().unwrap();
        }
    }
    let mut came = deliver((&mut b, "b"), (&mut a, "a"), b"genuine");
    let genuine = TransportEvent::Message {
        from: "b".into(),
        bytes: b"genuine".to_vec(),
    };
    while a.counts().unreceived < before.unreceived + 8 {
        assert!(now_ns() < over_ns, "{:?}", a.counts());
        came += is_one(a.receive(now_ns() + NS_PER_S / 100), &genuine);
    }
    // It may be a node under its own name.
    while names(&a) != ["b", "evil"] {
        assert!(now_ns() < over_ns, "{:?}", names(&a));
        came += is_one(a.receive(now_ns() + NS_PER_S / 100), &genuine);
    }
    deliver((&mut a, "a"), (&mut b, "b"), b"still");
    assert_eq!(a.counts().received, before.received + came);
    // What it overheard has nothing in it that it can read.
    let has_text = |bytes: &Vec<u8>| bytes.windows(7).any(|part| part == b"genuine");
    assert!(!seen.lock().unwrap().iter().any(has_text));
}

#[test]
fn hellos_of_a_hostile_member_are_bounded_and_take_nobody_with_them() {
    const SHOWN: usize = 1_000;
    let temp = tempfile::tempdir().unwrap();
    let a_dir = authority(temp.path(), "rack");
    let (b_dir, evil_dir) = (joined(&a_dir, "b"), joined(&a_dir, "evil"));
    let address = free_address();
    let mut a = open(Some(&a_dir), hello("a", 1), &address, &[]).unwrap();
    let mut b = open(Some(&b_dir), hello("b", 2), "127.0.0.1:0", &[&address]).unwrap();
    expect(&mut [&mut a], appeared("b"));
    let evil = hostile_session(&evil_dir, &address);
    let show = |key: String| evil.liveliness().declare_token(key).wait().unwrap();
    // The hello of b, in the life that it has, without a proof and with another one.
    let of_b = hello("b", 2);
    let mut tokens = vec![show(of_b.key(None)), show(of_b.key(Some(&[0; 3])))];
    // Hellos of many nodes, which are as long as they can be.
    let of_many = (0..SHOWN).map(|number| hello(&format!("n{number}"), 9).key(Some(&[0; 2_048])));
    tokens.extend(of_many.map(show));
    let shown = tokens.len() as u64;
    wait_until(&mut [&mut a, &mut b], |all| {
        all[0].counts().refused >= shown
    });
    assert!(a.refusals().len() <= 256, "{}", a.refusals().len());
    wait_until(&mut [&mut a, &mut b], |all| all[0].refusals().len() == 256);
    // It withdraws them all: nobody is refused any more, and b is there as before.
    tokens
        .into_iter()
        .for_each(|token| token.undeclare().wait().unwrap());
    wait_until(&mut [&mut a, &mut b], |all| all[0].refusals().is_empty());
    wait_until(&mut [&mut a, &mut b], |all| names(all[0]) == ["b"]);
    deliver((&mut a, "a"), (&mut b, "b"), b"still");
}
