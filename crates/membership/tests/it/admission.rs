//! Authorities, invitations and joining, over loopback.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use barograph_fabric::security::{Credentials, CredentialsFault};
use barograph_membership::{
    Admission, Authority, InvitationServer, Joined, MembershipFault, Token,
};
use barograph_model::{Clock as _, NS_PER_S};
use barograph_stream::SystemClock;

pub(crate) const MINUTE_NS: i64 = 60 * NS_PER_S;

pub(crate) fn now_ns() -> i64 {
    SystemClock::new().now_ns()
}

/// A directory with the authority of a cluster, whose first node is `a`.
pub(crate) fn authority(dir: &Path, cluster: &str) -> PathBuf {
    let dir = dir.join(format!("{cluster}-authority"));
    Authority::create(&dir, cluster, "a", now_ns()).unwrap();
    dir
}

fn server(authority: &Path) -> InvitationServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let authority = Authority::open(authority).unwrap();
    InvitationServer::new(
        authority,
        listener,
        address,
        30,
        Arc::new(SystemClock::new()),
    )
    .unwrap()
}

/// Serves until all invitations are used, beside `meanwhile`. Returns what has come of the
/// requests.
#[expect(
    clippy::disallowed_methods,
    reason = "a shell: it waits for nodes that join"
)]
fn serve(server: InvitationServer, meanwhile: impl FnOnce()) -> Vec<String> {
    std::thread::scope(|threads| {
        let serving = threads.spawn(|| {
            let mut told = Vec::new();
            let tell = |admission| {
                told.push(match admission {
                    Admission::Admitted { node } => node,
                    Admission::Refused { reason, .. } => reason,
                });
            };
            let pause = || std::thread::sleep(Duration::from_millis(5));
            server.run(tell, pause).unwrap();
            told
        });
        meanwhile();
        serving.join().unwrap()
    })
}

/// Makes a node a member, and returns the directory of its certificates.
pub(crate) fn joined(authority: &Path, node: &str) -> PathBuf {
    let server = server(authority);
    let token = server.invite(node, now_ns() + MINUTE_NS).unwrap();
    let dir = authority.with_file_name(format!("{}-{node}", token.cluster));
    serve(server, || {
        barograph_membership::join(&dir, &token, now_ns()).unwrap();
    });
    dir
}

#[test]
fn what_is_above_the_certificates_is_for_everyone() {
    use std::os::unix::fs::PermissionsExt as _;
    let temp = tempfile::tempdir().unwrap();
    let state_dir = temp.path().join("state");
    let dir = state_dir.join("cluster");
    Authority::create(&dir, "rack", "a", now_ns()).unwrap();
    let mode = |dir: &Path| std::fs::metadata(dir).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state_dir), mode(&dir)), (0o755, 0o700));
}

#[test]
fn a_node_joins_once_by_its_token() {
    let temp = tempfile::tempdir().unwrap();
    let authority = authority(temp.path(), "rack");
    let server = server(&authority);
    let token = server.invite("b", now_ns() + MINUTE_NS).unwrap();
    let text = token.text();
    let dir = temp.path().join("state/cluster");
    let told = serve(server, || {
        let token = Token::read(&text).unwrap();
        // A wrong secret is refused, and uses nothing up.
        let mut wrong = text.clone().into_bytes();
        let at = wrong.len() - 20;
        wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
        let wrong = Token::read(std::str::from_utf8(&wrong).unwrap());
        assert!(wrong.is_err() || wrong.unwrap() != token);
        let joined = barograph_membership::join(&dir, &token, now_ns()).unwrap();
        let (cluster, node) = ("rack".into(), "b".into());
        assert_eq!(joined, Joined { cluster, node });
        let fault = barograph_membership::join(&temp.path().join("other"), &token, now_ns());
        assert!(fault.is_err(), "the token was used: {fault:?}");
    });
    assert_eq!(told[0], "b");
    let found = Credentials::load(&dir, "rack", "b").unwrap();
    assert!(found.is_some());
    let mode = std::fs::metadata(dir.join("node.pem")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    let other = Credentials::load(&dir, "rack", "c").unwrap_err();
    assert!(matches!(other, CredentialsFault::Other { .. }), "{other}");
    let members = Authority::open(&authority).unwrap().members().unwrap();
    let names: Vec<&str> = members.iter().map(|member| &*member.node).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(members.iter().all(|member| member.holds(now_ns())));
}

#[test]
fn what_is_wrong_with_an_invitation_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let rack = authority(temp.path(), "rack");
    let other = authority(temp.path(), "other");
    let server = server(&rack);
    let token = server.invite("b", now_ns() + MINUTE_NS).unwrap();
    assert!(server.invite("../b", now_ns() + MINUTE_NS).is_err());
    let join = |dir: &Path, token: &Token, now_ns| {
        let fault = barograph_membership::join(dir, token, now_ns);
        fault.unwrap_err().to_string()
    };
    let late = join(temp.path(), &token, token.expires_ts);
    assert!(late.contains("baro cluster invite b"), "{late}");
    let elsewhere = join(&other, &token, now_ns());
    assert!(
        elsewhere.contains("has certificates already"),
        "{elsewhere}"
    );
    // Nobody answers any more.
    drop(server);
    let gone = join(&temp.path().join("b"), &token, now_ns());
    assert!(gone.contains("must be running"), "{gone}");
    assert!(!temp.path().join("b").exists(), "nothing is left behind");

    let fault = Authority::create(&rack, "rack", "a", now_ns())
        .err()
        .unwrap();
    assert!(matches!(fault, MembershipFault::Exists { .. }), "{fault}");
    let fault = Authority::open(temp.path()).err().unwrap();
    assert!(fault.to_string().contains("baro cluster init"), "{fault}");
    let fault = Authority::open(&rack).unwrap().revoke("nobody", now_ns());
    assert!(matches!(fault, Err(MembershipFault::NoMember { .. })));
}

#[test]
fn a_server_is_believed_only_with_the_certificate_of_the_token() {
    let temp = tempfile::tempdir().unwrap();
    let rack = authority(temp.path(), "rack");
    let impostor = authority(temp.path(), "impostor");
    let real = server(&rack);
    let token = real.invite("b", now_ns() + MINUTE_NS).unwrap();
    drop(real);
    let false_server = server(&impostor);
    let bait = false_server.invite("b", now_ns() + NS_PER_S).unwrap();
    let mut token_text = serde_json::to_value(&token).unwrap();
    token_text["address"] = bait.address.into();
    let token: Token = serde_json::from_value(token_text).unwrap();
    serve(false_server, || {
        let fault = barograph_membership::join(&temp.path().join("b"), &token, now_ns());
        assert!(fault.is_err(), "the impostor was believed");
    });
    assert!(!temp.path().join("b").exists());
}

#[test]
fn garbage_does_not_disturb_the_server() {
    use std::io::Write as _;
    let temp = tempfile::tempdir().unwrap();
    let rack = authority(temp.path(), "rack");
    let server = server(&rack);
    let token = server.invite("b", now_ns() + MINUTE_NS).unwrap();
    let told = serve(server, || {
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000]] {
            let mut stream = std::net::TcpStream::connect(&token.address).unwrap();
            let _ = stream.write_all(bytes);
        }
        barograph_membership::join(&temp.path().join("b"), &token, now_ns()).unwrap();
    });
    assert!(told.contains(&"b".to_owned()), "{told:?}");
}

#[test]
fn a_line_of_the_ledger_that_was_cut_short_loses_nothing_else() {
    use std::io::Write as _;
    let temp = tempfile::tempdir().unwrap();
    let rack = authority(temp.path(), "rack");
    let ledger = rack.join("members.jsonl");
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&ledger)
        .unwrap();
    file.write_all(b"{\"event\":\"issued\",\"node\":\"x")
        .unwrap();
    joined(&rack, "b");
    let authority = Authority::open(&rack).unwrap();
    let names = || -> Vec<String> {
        let members = authority.members().unwrap().into_iter();
        members.map(|member| member.node).collect()
    };
    assert_eq!(names(), ["a", "b"]);
    authority.revoke("b", now_ns()).unwrap();
    let members = authority.members().unwrap();
    let holds: Vec<bool> = members
        .iter()
        .map(|member| member.holds(now_ns()))
        .collect();
    assert_eq!(holds, [true, false]);
}
