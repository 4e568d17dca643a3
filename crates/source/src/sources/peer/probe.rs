//! Asks all peers at once and times each answer, with one thread, nonblocking sockets and one
//! epoll: a silent peer costs only its slot.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv,
    send, socket_with, sockopt,
};

use super::PeerMethod;
use super::icmp::Echo;

/// Longest packet that is read, in bytes; a longer one cannot be a reply to this process.
const PACKET_BYTES: usize = 512;
/// Most packets for other processes that are skipped at a time; a raw socket receives all of them.
const PACKETS_MAX: usize = 64;
/// Most answers that are taken at a time.
const EVENTS_MAX: usize = 64;

/// A peer's address and the method of asking it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerTarget {
    pub(super) method: PeerMethod,
    pub(super) address: SocketAddr,
}

/// The result of asking one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    Answered(Duration),
    Silent,
    /// The network reports that it cannot reach the peer.
    Unreachable(Errno),
    /// The question could not be sent, for a reason on this node.
    Ours(Errno),
}

/// Whether an error means that the system does not permit such a socket.
pub(super) fn is_denied(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS | Errno::PERM | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT
    )
}

/// A question without an answer so far.
struct Open {
    fd: OwnedFd,
    echo: Option<Echo>,
    since: Instant,
}

/// Asks all targets and waits until all have answered, at most `timeout` after the last was asked.
///
/// # Errors
///
/// An error of epoll itself.
pub(super) fn round(targets: &[PeerTarget], timeout: Duration) -> Result<Vec<ProbeOutcome>, Errno> {
    let mut round = Round {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        events: Vec::with_capacity(EVENTS_MAX),
        open: Vec::with_capacity(targets.len()),
        outcomes: vec![ProbeOutcome::Silent; targets.len()],
        left: 0,
    };
    // The cookie distinguishes replies to this round from late replies to another.
    let cookie = cookie();
    for (place, target) in targets.iter().enumerate() {
        round.start(place, target, cookie)?;
        // Otherwise the first answers would wait until the last question is sent.
        round.take(Duration::ZERO)?;
    }
    let deadline = now() + timeout;
    while round.left > 0 {
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            break;
        }
        round.take(left)?;
    }
    Ok(round.outcomes)
}

struct Round {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Open questions by index of their target; `None` once answered.
    open: Vec<Option<Open>>,
    outcomes: Vec<ProbeOutcome>,
    left: usize,
}

impl Round {
    fn start(&mut self, place: usize, target: &PeerTarget, cookie: u128) -> Result<(), Errno> {
        let since = now();
        let asked = match target.method {
            PeerMethod::Tcp => ask_tcp(target).map(|fd| (fd, None)),
            PeerMethod::Icmp => ask_icmp(target, place, cookie).map(|(fd, echo)| (fd, Some(echo))),
        };
        match asked {
            Ok((fd, echo)) => {
                let flags = match echo {
                    None => epoll::EventFlags::OUT,
                    Some(_) => epoll::EventFlags::IN,
                };
                let data = epoll::EventData::new_u64(place as u64);
                epoll::add(&self.epoll, &fd, data, flags)?;
                self.open.push(Some(Open { fd, echo, since }));
                self.left += 1;
            }
            Err(outcome) => {
                self.outcomes[place] = match outcome {
                    ProbeOutcome::Answered(_) => ProbeOutcome::Answered(now() - since),
                    other => other,
                };
                self.open.push(None);
            }
        }
        Ok(())
    }

    /// Takes the answers that have arrived, or arrive within `wait`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a slow source waits for answers on the thread that reads it"
    )]
    fn take(&mut self, wait: Duration) -> Result<(), Errno> {
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        self.events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, buffer, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let at = now();
        for event in &self.events {
            let place = event.data.u64() as usize;
            let Some(slot) = self.open.get_mut(place) else {
                continue;
            };
            let outcome = slot.as_ref().and_then(|open| open.outcome(at));
            if let Some(outcome) = outcome {
                self.outcomes[place] = outcome;
                self.left -= 1;
                // A closed descriptor is removed from the epoll as well.
                *slot = None;
            }
        }
        Ok(())
    }
}

impl Open {
    /// The outcome by the state of the socket; nothing if it received no reply to this question.
    fn outcome(&self, at: Instant) -> Option<ProbeOutcome> {
        let time = at.saturating_duration_since(self.since);
        match &self.echo {
            None => {
                let result = sockopt::socket_error(&self.fd).and_then(|result| result);
                Some(tcp_outcome(result, time))
            }
            Some(echo) => self.reply(echo, time),
        }
    }

    fn reply(&self, echo: &Echo, time: Duration) -> Option<ProbeOutcome> {
        let mut packet = [0; PACKET_BYTES];
        for _ in 0..PACKETS_MAX {
            match recv(&self.fd, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((_, length)) => {
                    if echo.is_answered_by(&packet[..length.min(PACKET_BYTES)]) {
                        return Some(ProbeOutcome::Answered(time));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(errno) => return Some(unanswered(errno)),
            }
        }
        None
    }
}

/// Starts a TCP connection without waiting for it. A result that is known at once is returned as
/// the error.
fn ask_tcp(target: &PeerTarget) -> Result<OwnedFd, ProbeOutcome> {
    let fd = open(target, SocketType::STREAM, Some(ipproto::TCP)).map_err(ProbeOutcome::Ours)?;
    // Closing sends a reset, so that no state is left on either side.
    let _ = sockopt::set_socket_linger(&fd, Some(Duration::ZERO));
    match connect(&fd, &target.address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(tcp_outcome(Err(errno), Duration::ZERO)),
    }
}

/// Sends an echo request, without privilege if `ping_group_range` permits it, else with it.
fn ask_icmp(
    target: &PeerTarget,
    place: usize,
    cookie: u128,
) -> Result<(OwnedFd, Echo), ProbeOutcome> {
    let protocol = match target.address.is_ipv6() {
        true => ipproto::ICMPV6,
        false => ipproto::ICMP,
    };
    let (fd, is_raw) = match open(target, SocketType::DGRAM, Some(protocol)) {
        Ok(fd) => (fd, false),
        Err(errno) if is_denied(errno) => {
            let raw = open(target, SocketType::RAW, Some(protocol));
            (raw.map_err(ProbeOutcome::Ours)?, true)
        }
        Err(errno) => return Err(ProbeOutcome::Ours(errno)),
    };
    connect(&fd, &target.address).map_err(unanswered)?;
    // Two peers may have the same address: each has its own sequence number.
    let echo = Echo::new(&target.address, is_raw, place as u16, cookie);
    match send(
        &fd,
        &echo.request(),
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    ) {
        Ok(_) => Ok((fd, echo)),
        Err(errno) => Err(unanswered(errno)),
    }
}

fn open(
    target: &PeerTarget,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, Errno> {
    let family = match target.address.is_ipv6() {
        true => AddressFamily::INET6,
        false => AddressFamily::INET,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, kind, flags, protocol)
}

fn tcp_outcome(result: Result<(), Errno>, time: Duration) -> ProbeOutcome {
    match result {
        Ok(()) | Err(Errno::CONNREFUSED | Errno::CONNRESET) => ProbeOutcome::Answered(time),
        Err(errno) => unanswered(errno),
    }
}

/// Classifies an error as one of the network or one of this node.
fn unanswered(errno: Errno) -> ProbeOutcome {
    match errno {
        Errno::TIMEDOUT => ProbeOutcome::Silent,
        Errno::MFILE
        | Errno::NFILE
        | Errno::NOBUFS
        | Errno::NOMEM
        | Errno::AGAIN
        | Errno::ADDRNOTAVAIL
        | Errno::ACCESS
        | Errno::PERM
        | Errno::INVAL
        | Errno::AFNOSUPPORT => ProbeOutcome::Ours(errno),
        _ => ProbeOutcome::Unreachable(errno),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is the time between two system calls, which no clock of the agent sees"
)]
fn now() -> Instant {
    Instant::now()
}

/// A number that differs in each round and each process.
#[expect(
    clippy::disallowed_methods,
    reason = "round trips are measured beside the network"
)]
fn cookie() -> u128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let process = u128::from(
        rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
    );
    (process << 96)
        | ((time.tv_sec.unsigned_abs() as u128) << 32)
        | time.tv_nsec.unsigned_abs() as u128
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr, TcpListener};

    use super::*;

    /// A long timeout, as other programs may keep the processors busy.
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn target(method: PeerMethod, address: impl Into<SocketAddr>) -> PeerTarget {
        PeerTarget {
            method,
            address: address.into(),
        }
    }

    fn answered(outcome: ProbeOutcome) -> bool {
        matches!(outcome, ProbeOutcome::Answered(time) if time < TIMEOUT)
    }

    /// An address of this host with a listener, and one without.
    fn addresses(ip: &str) -> Option<(TcpListener, SocketAddr, SocketAddr)> {
        let listener = TcpListener::bind((ip, 0)).ok()?;
        let closed = TcpListener::bind((ip, 0)).ok()?.local_addr().ok()?;
        let address = listener.local_addr().ok()?;
        Some((listener, address, closed))
    }

    #[test]
    fn who_listens_and_who_refuses_answers() {
        for ip in ["127.0.0.1", "::1"] {
            let Some((_listener, open, closed)) = addresses(ip) else {
                assert_eq!(ip, "::1", "not every machine has IPv6");
                continue;
            };
            let targets = [open, closed].map(|a| target(PeerMethod::Tcp, a));
            let outcomes = round(&targets, TIMEOUT).unwrap();
            assert!(outcomes.iter().all(|o| answered(*o)), "{ip}: {outcomes:?}");
        }
    }

    /// A listener with a full queue drops connections: such a peer looks as if it were gone.
    fn black_hole() -> (OwnedFd, Vec<OwnedFd>, SocketAddr) {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let any = target(PeerMethod::Tcp, address);
        let listener = open(&any, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = rustix::net::getsockname(&listener).unwrap();
        let address = SocketAddr::try_from(address).unwrap();
        let fillers = (0..8).map(|_| {
            let fd = open(&any, SocketType::STREAM, None).unwrap();
            let _ = connect(&fd, &address);
            fd
        });
        let fillers = fillers.collect();
        std::thread::sleep(Duration::from_millis(50));
        (listener, fillers, address)
    }

    #[test]
    fn who_is_silent_holds_up_nobody_and_no_longer_than_the_timeout() {
        let (_hole, _fillers, silent) = black_hole();
        let (_listener, open, _) = addresses("127.0.0.1").unwrap();
        let mut targets = vec![target(PeerMethod::Tcp, silent); 100];
        targets.push(target(PeerMethod::Tcp, open));
        let start = now();
        let outcomes = round(&targets, Duration::from_millis(400)).unwrap();
        let took = start.elapsed();
        assert!(
            outcomes[..100].iter().all(|o| *o == ProbeOutcome::Silent),
            "{outcomes:?}"
        );
        let ProbeOutcome::Answered(time) = outcomes[100] else {
            panic!("{outcomes:?}");
        };
        assert!(time < Duration::from_millis(400), "{time:?}");
        assert!(
            took >= Duration::from_millis(400) && took < TIMEOUT,
            "{took:?}"
        );
    }

    #[test]
    fn as_many_as_there_may_be() {
        let (_listener, open, closed) = addresses("127.0.0.1").unwrap();
        let both = [open, closed].map(|a| target(PeerMethod::Tcp, a));
        let targets: Vec<_> = both
            .into_iter()
            .cycle()
            .take(super::super::PEERS_MAX)
            .collect();
        let outcomes = round(&targets, TIMEOUT).unwrap();
        assert!(outcomes.iter().all(|o| answered(*o)), "{outcomes:?}");
    }

    #[test]
    fn echoes() {
        for ip in ["127.0.0.1", "::1"] {
            if addresses(ip).is_none() {
                continue;
            }
            let ip: IpAddr = ip.parse().unwrap();
            let targets = [target(PeerMethod::Icmp, (ip, 0)); 3];
            for outcome in round(&targets, TIMEOUT).unwrap() {
                let denied = matches!(outcome, ProbeOutcome::Ours(errno) if is_denied(errno));
                assert!(answered(outcome) || denied, "{ip}: {outcome:?}");
            }
        }
    }

    /// No packet leaves: there is no route to these addresses.
    #[test]
    fn what_cannot_be_asked_is_no_failure_of_the_peer() {
        let link_local = SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)), 1);
        let outcomes = round(&[target(PeerMethod::Tcp, link_local)], TIMEOUT).unwrap();
        assert!(
            matches!(
                outcomes[0],
                ProbeOutcome::Ours(_) | ProbeOutcome::Unreachable(_)
            ),
            "{outcomes:?}"
        );
        assert_eq!(round(&[], TIMEOUT).unwrap(), []);
    }
}
