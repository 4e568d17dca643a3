//! Copies between places of both kinds.

use std::io::{Read as _, Write as _};

use barograph_action::TransferTask;
use barograph_model::NS_PER_S;

use crate::local::{LocalPlace, LocalSource, LocalTarget, io_fault};
use crate::remote::{RemotePlace, RemoteReader};
use crate::{OpenPlace, TransferFault};

/// Bytes that are handed on at a time between this machine and a service.
const PIECE_BYTES: usize = 4 << 20;
/// How far the clock of a file's server may be behind this machine's, in ns.
const CLOCKS_NS_MAX: i64 = 60 * NS_PER_S;

fn gone() -> TransferFault {
    TransferFault::Lasting("there is no such file (any more)".into())
}

/// Copies a file, and returns its size in bytes.
pub(crate) fn copy(
    from: &OpenPlace,
    to: &OpenPlace,
    key: &str,
) -> Result<Option<u64>, TransferFault> {
    let copied = match from {
        OpenPlace::Local(from) => {
            let source = from.source()?.ok_or_else(gone)?;
            copy_local(&source, to, key)
        }
        OpenPlace::Remote(from) => copy_remote(from, to, key),
    };
    copied.map(Some)
}

/// Moves a file, and returns its size in bytes; `None` if an earlier attempt has moved it.
pub(crate) fn relocate(
    from: &OpenPlace,
    to: &OpenPlace,
    task: &TransferTask,
) -> Result<Option<u64>, TransferFault> {
    let key = &task.key;
    match from {
        OpenPlace::Local(from) => {
            let Some(source) = from.source()? else {
                return moved_before(to, task);
            };
            if let OpenPlace::Local(to) = to
                && to.take(from, &source)?.is_some()
            {
                return Ok(Some(source.size()));
            }
            let bytes = copy_local(&source, to, key)?;
            from.delete_copied(&source)?;
            Ok(Some(bytes))
        }
        OpenPlace::Remote(from) => {
            if !from.exists()? {
                return moved_before(to, task);
            }
            let bytes = copy_remote(from, to, key)?;
            from.delete()?;
            Ok(Some(bytes))
        }
    }
}

/// Finds out, where a source is gone, whether an earlier attempt has moved it without telling.
/// Then the file at the target has come there since the attempts began.
fn moved_before(to: &OpenPlace, task: &TransferTask) -> Result<Option<u64>, TransferFault> {
    let Some(since_ns) = task.tried_since_ns else {
        return Err(gone());
    };
    match to.arrived_ns()? {
        Some(arrived_ns) if arrived_ns >= since_ns.saturating_sub(CLOCKS_NS_MAX) => Ok(None),
        Some(_) => Err(TransferFault::Lasting(
            "there is no such file any more, and the file at the target is an older one".into(),
        )),
        None => Err(gone()),
    }
}

fn copy_local(source: &LocalSource, to: &OpenPlace, key: &str) -> Result<u64, TransferFault> {
    match to {
        OpenPlace::Local(to) => put_local(to, key, |target| {
            let mut source_file = &source.file;
            let bytes = std::io::copy(&mut source_file, &mut &target.file)
                .map_err(|error| io_fault(&error))?;
            source.check_same()?;
            target.resemble(source)?;
            Ok(bytes)
        }),
        OpenPlace::Remote(to) => {
            let mut writer = to.writer(key)?;
            let sent = send(source, |piece| writer.write(piece)).and_then(|bytes| {
                source.check_same()?;
                Ok(bytes)
            });
            match sent {
                Ok(bytes) => {
                    writer.finish()?;
                    to.check_size(bytes)?;
                    Ok(bytes)
                }
                Err(fault) => {
                    writer.abandon();
                    Err(fault)
                }
            }
        }
    }
}

/// Hands a file on in pieces.
fn send(
    source: &LocalSource,
    mut put: impl FnMut(Vec<u8>) -> Result<(), TransferFault>,
) -> Result<u64, TransferFault> {
    let mut bytes = 0;
    loop {
        let mut piece = Vec::new();
        let read = (&source.file)
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut piece);
        let read = read.map_err(|error| io_fault(&error))?;
        if read == 0 {
            return Ok(bytes);
        }
        bytes += read as u64;
        put(piece)?;
    }
}

fn copy_remote(from: &RemotePlace, to: &OpenPlace, key: &str) -> Result<u64, TransferFault> {
    let mut reader = from.reader()?.ok_or_else(gone)?;
    match to {
        OpenPlace::Local(to) => put_local(to, key, |target| {
            let bytes = receive(&mut reader, |piece| {
                (&target.file)
                    .write_all(&piece)
                    .map_err(|error| io_fault(&error))
            })?;
            target.permit()?;
            Ok(bytes)
        }),
        OpenPlace::Remote(to) => {
            let mut writer = to.writer(key)?;
            match receive(&mut reader, |piece| writer.write(piece)) {
                Ok(bytes) => {
                    writer.finish()?;
                    to.check_size(bytes)?;
                    Ok(bytes)
                }
                Err(fault) => {
                    writer.abandon();
                    Err(fault)
                }
            }
        }
    }
}

fn receive(
    reader: &mut RemoteReader<'_>,
    mut put: impl FnMut(Vec<u8>) -> Result<(), TransferFault>,
) -> Result<u64, TransferFault> {
    let mut bytes = 0;
    while let Some(piece) = reader.next()? {
        bytes += piece.len() as u64;
        put(piece)?;
    }
    match bytes == reader.size() {
        true => Ok(bytes),
        false => Err(TransferFault::Passing(format!(
            "{bytes} of {} bytes were received",
            reader.size()
        ))),
    }
}

/// Writes a target and gives it its name, or removes what was written.
fn put_local(
    to: &LocalPlace,
    key: &str,
    write: impl FnOnce(&LocalTarget) -> Result<u64, TransferFault>,
) -> Result<u64, TransferFault> {
    let target = to.target(key)?;
    match write(&target) {
        Ok(bytes) => {
            to.put(target)?;
            Ok(bytes)
        }
        Err(fault) => {
            target.abandon();
            Err(fault)
        }
    }
}
