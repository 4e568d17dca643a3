//! One connection: who it is, and its requests.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use barograph_model::NS_PER_MS;

use super::admission::SessionId;
use super::serve::serve;
use super::shared::Shared;
use super::tokens::is_token_of;
use crate::block::UserId;
use crate::error::{FaultCode, StagingError};
use crate::transport::{FrameStream, Socket, TransportFault};
use crate::wire::{Answer, Hello, PROTOCOL, Request, Welcome};

/// The longest time for which a thread that waits for a request does not look whether the server
/// stops.
const LOOK_NS_MAX: i64 = 100 * NS_PER_MS;

/// Runs a connection to its end.
pub(super) fn run(socket: Socket, user: Option<UserId>, id: SessionId, shared: &Arc<Shared>) {
    let clock = Arc::clone(&shared.store.clock);
    let Ok(mut frames) = FrameStream::new(socket, clock) else {
        return;
    };
    let Ok(Some(user)) = greet(&mut frames, user, id, shared) else {
        shared.admission.count(|counts| counts.unknown += 1);
        return;
    };
    loop {
        let answered = match next(&mut frames, shared) {
            Ok(Some(request)) => serve(&mut frames, user, request, shared),
            Ok(None) => return,
            Err(fault) => Err(fault),
        };
        match answered {
            Ok(()) => {}
            Err(TransportFault::Closed) => return,
            Err(fault) => {
                shared.admission.count(|counts| counts.broken += 1);
                if matches!(fault, TransportFault::Wire(_)) {
                    let text = fault.to_string();
                    let error = StagingError::fault(FaultCode::BadRequest, text);
                    let until_ns = shared.store.clock.monotonic_ns() + shared.config.frame_ns;
                    // The connection is over in any case.
                    let _ = frames.send(&Answer::of_error(&error).encode(), until_ns);
                }
                return;
            }
        }
    }
}

/// Finds out who connects, and welcomes the user; `None` if the connection was refused.
fn greet(
    frames: &mut FrameStream,
    peer: Option<UserId>,
    id: SessionId,
    shared: &Shared,
) -> Result<Option<UserId>, TransportFault> {
    let until_ns = shared.store.clock.monotonic_ns() + shared.config.frame_ns;
    let head = frames.head(until_ns)?;
    let hello = match Request::decode(head.kind, frames.body(head, until_ns)?)? {
        Request::Hello(hello) => hello,
        _ => return Err(crate::wire::WireFault::Kind(head.kind).into()),
    };
    let user = match admitted(&hello, peer, id, shared) {
        Ok(user) => user,
        Err(error) => {
            frames.send(&Answer::of_error(&error).encode(), until_ns)?;
            return Ok(None);
        }
    };
    let memory = match hello.wants_memory && frames.is_unix() {
        true => shared.store.memory.shared(user).ok(),
        false => None,
    };
    let sizes = memory
        .as_ref()
        .map(|(_, layout)| (layout.bytes, layout.slots));
    let welcome = Answer::Welcome(Welcome::new(user, sizes)).encode();
    match &memory {
        Some((file, _)) => frames.send_with(&welcome, file.as_fd(), until_ns)?,
        None => frames.send(&welcome, until_ns)?,
    }
    Ok(Some(user))
}

fn admitted(
    hello: &Hello,
    peer: Option<UserId>,
    id: SessionId,
    shared: &Shared,
) -> Result<UserId, StagingError> {
    let denied = |text: &str| Err(StagingError::fault(FaultCode::Denied, text));
    if hello.protocol != PROTOCOL {
        let text = format!("this server speaks version {PROTOCOL} of the protocol alone");
        return Err(StagingError::fault(FaultCode::BadRequest, text));
    }
    if let Some(user) = peer {
        return Ok(user);
    }
    let tokens = shared.config.tokens.as_deref();
    let is_known = tokens.is_some_and(|tokens| is_token_of(tokens, hello.user, &hello.token));
    if !is_known || !shared.config.serves(hello.user) {
        return denied("this is not the token of a user who is served");
    }
    match shared.admission.identify(id, hello.user, &shared.config) {
        true => Ok(hello.user),
        false => denied("too many connections, of this user or of all"),
    }
}

/// The next request; `None` if the connection was idle for too long or the server stops.
fn next(frames: &mut FrameStream, shared: &Shared) -> Result<Option<Request>, TransportFault> {
    let clock = &shared.store.clock;
    let idle_ns = clock.monotonic_ns().saturating_add(shared.config.idle_ns);
    loop {
        let now_ns = clock.monotonic_ns();
        if shared.is_stopping() || now_ns >= idle_ns {
            return Ok(None);
        }
        match frames.wait(now_ns.saturating_add(LOOK_NS_MAX).min(idle_ns)) {
            Err(TransportFault::Late) => {}
            Ok(()) => break,
            Err(fault) => return Err(fault),
        }
    }
    let until_ns = clock.monotonic_ns().saturating_add(shared.config.frame_ns);
    let head = frames.head(until_ns)?;
    let body = frames.body(head, until_ns)?;
    Ok(Some(Request::decode(head.kind, body)?))
}
