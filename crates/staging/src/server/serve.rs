//! The answers to requests.

use super::costs::SocketKind;
use super::shared::Shared;
use crate::block::UserId;
use crate::error::{FaultCode, StagingError};
use crate::store::{BlockReader, PutHead, PutWriter};
use crate::transport::{FrameStream, TransportFault};
use crate::wire::{
    Answer, CHUNK_BYTES_MAX, EAGER_BYTES_MAX, GetForm, LocatedBlocks, MemoryPlace, Request,
    WireFault,
};

/// Bytes that are taken or sent at a time where they go through a buffer, and are checked while
/// they are in the processor's cache.
const PIECE_BYTES: usize = 256 << 10;

/// A part of a block that is wanted.
struct Wanted {
    from: u64,
    bytes: u64,
    form: GetForm,
}

/// Serves one request.
pub(super) fn serve(
    frames: &mut FrameStream,
    user: UserId,
    request: Request,
    shared: &Shared,
) -> Result<(), TransportFault> {
    shared.admission.count(|counts| counts.served += 1);
    let store = &shared.store;
    let answer = match request {
        Request::Hello(_) => return Err(WireFault::Kind(1).into()),
        Request::Put(head) => return put(frames, user, head, shared),
        Request::Get {
            epoch,
            key,
            from,
            bytes,
            accept_unconfirmed,
            form,
        } => {
            let begun_ns = store.clock.monotonic_ns();
            let opened = pass(shared, epoch, || store.get(user, &key, accept_unconfirmed));
            let wanted = Wanted { from, bytes, form };
            return match opened {
                Ok(reader) => get(frames, &reader, &wanted, begun_ns, shared),
                Err(error) => refuse(frames, &error, shared),
            };
        }
        Request::Delete {
            epoch,
            key,
            version_max,
        } => pass(shared, epoch, || store.delete(user, &key, version_max))
            .map(|version| Answer::Deleted { version }),
        Request::Stat { epoch, key } => {
            pass(shared, epoch, || store.stat(user, &key)).map(Answer::Info)
        }
        Request::Locate { epoch, keys } => {
            let tiers = shared.located_tiers(user, SocketKind::of(frames));
            pass(shared, epoch, || Ok(store.locate(user, &keys)))
                .map(|blocks| Answer::Places(LocatedBlocks { tiers, blocks }))
        }
        Request::Status => match Shared::tells_status(user) {
            true => Ok(Answer::Status(shared.status().into())),
            false => {
                let text = "a server tells its status to its own user and to root alone";
                Err(StagingError::fault(FaultCode::Denied, text))
            }
        },
        Request::List { epoch, query } => {
            pass(shared, epoch, || Ok(store.list(user, &query))).map(Answer::Page)
        }
    };
    match answer {
        Ok(answer) => frames.send(&answer.encode(), frame_until(shared)),
        Err(error) => refuse(frames, &error, shared),
    }
}

/// Does something in an epoch, unless it is over.
fn pass<T>(
    shared: &Shared,
    epoch: u64,
    act: impl FnOnce() -> Result<T, StagingError>,
) -> Result<T, StagingError> {
    let pass = shared.fence.pass(epoch);
    if pass.is_err() {
        shared.admission.count(|counts| counts.fenced += 1);
    }
    let _pass = pass?;
    act()
}

fn frame_until(shared: &Shared) -> i64 {
    let now_ns = shared.store.clock.monotonic_ns();
    now_ns.saturating_add(shared.config.frame_ns)
}

fn data_until(shared: &Shared, bytes: u64) -> i64 {
    let now_ns = shared.store.clock.monotonic_ns();
    now_ns.saturating_add(shared.config.data_ns(bytes))
}

fn refuse(
    frames: &mut FrameStream,
    error: &StagingError,
    shared: &Shared,
) -> Result<(), TransportFault> {
    frames.send(&Answer::of_error(error).encode(), frame_until(shared))
}

fn put(
    frames: &mut FrameStream,
    user: UserId,
    head: PutHead,
    shared: &Shared,
) -> Result<(), TransportFault> {
    let (bytes, epoch) = (head.bytes, head.epoch);
    let is_eager = bytes <= EAGER_BYTES_MAX;
    let begun = pass(shared, epoch, || Ok(())).and_then(|()| shared.store.put(user, head));
    let until_ns = data_until(shared, bytes);
    let stored = match begun {
        Err(error) => {
            if is_eager {
                pass_over(frames, bytes, until_ns)?;
            }
            return refuse(frames, &error, shared);
        }
        Ok(mut writer) => {
            if !is_eager {
                frames.send(&Answer::Go.encode(), frame_until(shared))?;
            }
            match receive(frames, &mut writer, until_ns) {
                // A fence that was told meanwhile holds for this put, too.
                Ok(()) => pass(shared, epoch, || writer.finish()),
                Err(PutFault::Transport(fault)) => return Err(fault),
                Err(PutFault::Store(error, left)) => {
                    pass_over_rest(frames, left, until_ns)?;
                    Err(error)
                }
            }
        }
    };
    match stored {
        Ok(info) => frames.send(&Answer::Info(info).encode(), frame_until(shared)),
        Err(error) => refuse(frames, &error, shared),
    }
}

/// Why the bytes of a put were not taken.
enum PutFault {
    Transport(TransportFault),
    /// The store failed, while so many bytes of the data frame and of the block were to come.
    Store(StagingError, (usize, u64)),
}

impl From<TransportFault> for PutFault {
    fn from(fault: TransportFault) -> Self {
        Self::Transport(fault)
    }
}

impl From<StagingError> for PutFault {
    fn from(error: StagingError) -> Self {
        Self::Store(error, (0, 0))
    }
}

fn receive(
    frames: &mut FrameStream,
    writer: &mut PutWriter<'_>,
    until_ns: i64,
) -> Result<(), PutFault> {
    let mut spare = Vec::new();
    if writer.needs_spare() {
        spare.resize(PIECE_BYTES, 0);
    }
    while writer.left() > 0 {
        let mut left = data_head(frames, writer.left(), until_ns)?;
        while left > 0 {
            let before = writer.left();
            let piece = left.min(PIECE_BYTES);
            let filled = writer.fill(piece, &mut spare, |place| {
                frames.take(place, until_ns).map_err(PutFault::from)
            });
            if let Err(PutFault::Store(error, _)) = filled {
                // The piece itself was received.
                let rest = (left - piece, before - piece as u64);
                return Err(PutFault::Store(error, rest));
            }
            filled?;
            left -= piece;
        }
    }
    Ok(())
}

/// The length of the next data frame, which is not empty and not longer than what is to come.
fn data_head(frames: &mut FrameStream, left: u64, until_ns: i64) -> Result<usize, TransportFault> {
    let head = frames.head(until_ns)?;
    match head.is_data() && head.bytes > 0 && head.bytes as u64 <= left {
        true => Ok(head.bytes),
        false => Err(WireFault::Kind(head.kind).into()),
    }
}

/// Receives the bytes of a block that is refused, so that the next request is found behind them.
fn pass_over(frames: &mut FrameStream, bytes: u64, until_ns: i64) -> Result<(), TransportFault> {
    pass_over_rest(frames, (0, bytes), until_ns)
}

fn pass_over_rest(
    frames: &mut FrameStream,
    (mut of_frame, mut of_block): (usize, u64),
    until_ns: i64,
) -> Result<(), TransportFault> {
    let mut piece = vec![0; PIECE_BYTES.min(of_block as usize)];
    while of_block > 0 {
        if of_frame == 0 {
            of_frame = data_head(frames, of_block, until_ns)?;
        }
        let bytes = of_frame.min(piece.len());
        frames.take(&mut piece[..bytes], until_ns)?;
        of_frame -= bytes;
        of_block -= bytes as u64;
    }
    Ok(())
}

fn get(
    frames: &mut FrameStream,
    reader: &BlockReader,
    wanted: &Wanted,
    begun_ns: i64,
    shared: &Shared,
) -> Result<(), TransportFault> {
    let info = *reader.info();
    if wanted.form == GetForm::Place
        && let Some(place) = reader.place()
    {
        let place = MemoryPlace {
            at: place.at,
            slot: place.slot,
            generation: place.generation,
        };
        let answer = Answer::Place { info, place };
        return frames.send(&answer.encode(), frame_until(shared));
    }
    if wanted.from > info.bytes {
        let text = format!("the block has {} bytes", info.bytes);
        let error = StagingError::fault(FaultCode::BadRequest, text);
        return refuse(frames, &error, shared);
    }
    let bytes = wanted.bytes.min(info.bytes - wanted.from);
    let until_ns = data_until(shared, bytes);
    let head = Answer::Block { info, bytes }.encode();
    match reader.bytes() {
        Some(all) => {
            let from = wanted.from as usize;
            send_memory(frames, &head, &all[from..from + bytes as usize], until_ns)
        }
        None => send_file(frames, &head, reader, (wanted.from, bytes), until_ns),
    }?;
    let took_ns = shared.store.clock.monotonic_ns().saturating_sub(begun_ns);
    let socket = SocketKind::of(frames);
    shared.costs.observe(info.tier, socket, bytes, took_ns);
    Ok(())
}

/// Sends bytes from memory, with the head of the answer before the first.
fn send_memory(
    frames: &mut FrameStream,
    head: &[u8],
    bytes: &[u8],
    until_ns: i64,
) -> Result<(), TransportFault> {
    let mut chunks = bytes.chunks(CHUNK_BYTES_MAX);
    let Some(first) = chunks.next() else {
        return frames.send(head, until_ns);
    };
    frames.send_data(head, first, until_ns)?;
    chunks.try_for_each(|chunk| frames.send_data(&[], chunk, until_ns))
}

fn send_file(
    frames: &mut FrameStream,
    head: &[u8],
    reader: &BlockReader,
    (from, bytes): (u64, u64),
    until_ns: i64,
) -> Result<(), TransportFault> {
    frames.send(head, until_ns)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < bytes {
        let piece = &mut piece[..(bytes - at).min(PIECE_BYTES as u64) as usize];
        if let Err(error) = reader.read_at(from + at, piece) {
            // A fault in place of data ends the connection: the client cannot use it any more.
            frames.send(&Answer::of_error(&error).encode(), until_ns)?;
            return Err(TransportFault::Closed);
        }
        frames.send_data(&[], piece, until_ns)?;
        at += piece.len() as u64;
    }
    Ok(())
}
