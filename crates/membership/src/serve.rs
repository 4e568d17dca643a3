//! The server that admits invited nodes. It runs while an administrator's command waits, and at no
//! other time, so that nothing that can certify nodes listens for ever.

use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::fault::MembershipFault;
use crate::invitation::{Invitations, Token};

/// Most bytes of a request or an answer.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// Longest time for which one node is served, in ns of the monotonic clock.
const SERVED_NS_MAX: i64 = 10 * NS_PER_S;
/// Longest wait of an invited node for the next bytes of the inviting one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Most nodes that are served at a time; more are closed at once, and try again.
const SERVED_MAX: usize = 16;

/// Request of an invited node: one line of JSON.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) secret: String,
    /// The request for a certificate, PEM.
    pub(crate) request: String,
}

/// Answer to it: one line of JSON.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Its certificate, PEM.
    Certificate(String),
    /// The reason why it is not admitted.
    Refused(String),
}

/// A connection that ends at a time, however slowly its other side sends, so that nobody keeps the
/// places of others.
struct TimedStream {
    stream: TcpStream,
    clock: Arc<dyn Clock>,
    until_ns: i64,
}

impl TimedStream {
    fn left(&self) -> std::io::Result<Duration> {
        let left_ns = self.until_ns.saturating_sub(self.clock.monotonic_ns());
        match u64::try_from(left_ns) {
            Ok(left_ns) if left_ns > 0 => Ok(Duration::from_nanos(left_ns)),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// Outcome of one node's request.
#[derive(Debug)]
pub enum Admission {
    /// A node was certified.
    Admitted {
        /// Its name.
        node: String,
    },
    /// A request was refused.
    Refused {
        /// Address of whoever asked.
        from: String,
        /// The reason.
        reason: String,
    },
}

/// A server that admits the nodes of its invitations.
pub struct InvitationServer {
    listener: TcpListener,
    /// Address that tokens name.
    address: String,
    config: Arc<ServerConfig>,
    desk: Arc<Desk>,
}

/// State that the threads of the server share.
struct Desk {
    authority: Authority,
    invitations: Mutex<Invitations>,
    days: u32,
    clock: Arc<dyn Clock>,
    served: AtomicUsize,
}

impl InvitationServer {
    /// A server behind a listener, whose address is `address` for invited nodes. Their certificates
    /// hold for so many days.
    pub fn new(
        authority: Authority,
        listener: TcpListener,
        address: String,
        days: u32,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, MembershipFault> {
        let (certificate, key) = authority.server(clock.now_ns())?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        let key = PrivateKeyDer::try_from(key.serialize_der());
        let (Ok(certificate), Ok(key)) = (certificate, key) else {
            let reason = "the certificate of the server cannot be read";
            return Err(MembershipFault::Certificate(reason.into()));
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok(Self {
            listener,
            address,
            config: Arc::new(config),
            desk: Arc::new(Desk {
                authority,
                invitations: Mutex::default(),
                days,
                clock,
                served: AtomicUsize::new(0),
            }),
        })
    }

    /// Opens an invitation of a node that ends at `expires_ns`, in ns since the epoch.
    pub fn invite(&self, node: &str, expires_ns: i64) -> Result<Token, MembershipFault> {
        let mut invitations = self.desk.invitations();
        Ok(Token {
            cluster: self.desk.authority.cluster().to_owned(),
            node: node.to_owned(),
            address: self.address.clone(),
            authority: self.desk.authority.certificate().to_owned(),
            secret: invitations.open(node, expires_ns)?,
            expires_ts: expires_ns,
        })
    }

    /// Serves until all invitations are used or have ended. What has come of each request is told
    /// to `tell`. `pause` waits for a moment between two looks.
    pub fn run(
        self,
        mut tell: impl FnMut(Admission),
        mut pause: impl FnMut(),
    ) -> Result<(), std::io::Error> {
        self.listener.set_nonblocking(true)?;
        let (told, admissions) = mpsc::sync_channel(2 * SERVED_MAX);
        loop {
            admissions.try_iter().for_each(&mut tell);
            let is_idle = self.desk.served.load(Ordering::Acquire) == 0;
            let now_ns = self.desk.clock.now_ns();
            if is_idle && self.desk.invitations().left(now_ns) == 0 {
                admissions.try_iter().for_each(&mut tell);
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, from)) => self.serve(stream, from.to_string(), told.clone()),
                // A connection that failed, and a limit that was reached, pass.
                Err(_) => pause(),
            }
        }
    }

    fn serve(&self, stream: TcpStream, from: String, told: mpsc::SyncSender<Admission>) {
        if self.desk.served.fetch_add(1, Ordering::AcqRel) >= SERVED_MAX {
            self.desk.served.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (desk, config) = (Arc::clone(&self.desk), Arc::clone(&self.config));
        let thread = std::thread::Builder::new().name("baro-invite".into());
        let spawned = thread.spawn(move || {
            let admission = match desk.answer(stream, config) {
                Ok(node) => Admission::Admitted { node },
                Err(reason) => Admission::Refused { from, reason },
            };
            // The count falls last, so that the server tells it before it ends.
            let _ = told.send(admission);
            desk.served.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            self.desk.served.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Desk {
    fn invitations(&self) -> std::sync::MutexGuard<'_, Invitations> {
        let invitations = self.invitations.lock();
        invitations.unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request. Returns the name of the node that was admitted, or why none was.
    fn answer(&self, stream: TcpStream, config: Arc<ServerConfig>) -> Result<String, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let blocking = stream.set_nonblocking(false);
        blocking.map_err(|error| told(&error))?;
        let connection = ServerConnection::new(config).map_err(|error| told(&error))?;
        let now_ns = self.clock.monotonic_ns();
        let stream = TimedStream {
            stream,
            clock: Arc::clone(&self.clock),
            until_ns: now_ns.saturating_add(SERVED_NS_MAX),
        };
        let mut stream = StreamOwned::new(connection, stream);
        let mut line = String::new();
        let mut reader = BufReader::new((&mut stream).take(MESSAGE_BYTES_MAX));
        reader.read_line(&mut line).map_err(|error| told(&error))?;
        let outcome = self.admit(&line);
        let (answer, outcome) = match outcome {
            Ok((node, certificate)) => (Answer::Certificate(certificate), Ok(node)),
            Err(reason) => (Answer::Refused(reason.clone()), Err(reason)),
        };
        let mut text = serde_json::to_string(&answer).map_err(|error| told(&error))?;
        text.push('\n');
        stream
            .write_all(text.as_bytes())
            .map_err(|error| told(&error))?;
        stream.conn.send_close_notify();
        stream.flush().map_err(|error| told(&error))?;
        outcome
    }

    fn admit(&self, line: &str) -> Result<(String, String), String> {
        let request: Request =
            serde_json::from_str(line).map_err(|_| "the request cannot be read".to_owned())?;
        let now_ns = self.clock.now_ns();
        let node = self.invitations().redeem(&request.secret, now_ns);
        let node = node.ok_or("there is no such invitation: it was used, or has ended")?;
        let certificate = self
            .authority
            .admit(&node, &request.request, self.days, now_ns)
            .map_err(|error| error.to_string())?;
        Ok((node, certificate))
    }
}
