//! Closes the files of processes that have ended. Whoever closes a removed file last frees its
//! memory, which takes longer than all other work for a short process; so a thread of its own
//! closes them while the intake goes on.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use barograph_recorder::Work;
use barograph_stream::ingest::IngestFile;
use tracing::warn;

/// Files that wait to be closed; a further one is closed by the intake thread.
const CLOSING_MAX: usize = 8_192;

/// The closing thread, if there is one; dropping it waits until all files are closed. A process's
/// place is free again when its file is closed.
pub(crate) struct Closer {
    to: Option<SyncSender<Box<IngestFile>>>,
    closed: Receiver<u32>,
    /// Users of the files that were closed on the calling thread.
    closed_here: Vec<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Closer {
    pub(crate) fn new(work: &Work) -> Self {
        if work.is_stepped() {
            return Self {
                to: None,
                closed: sync_channel(0).1,
                closed_here: Vec::new(),
                thread: None,
            };
        }
        let (to, files) = sync_channel::<Box<IngestFile>>(CLOSING_MAX);
        let (tell, closed) = sync_channel(CLOSING_MAX);
        let close_all = move || {
            for file in files {
                let (uid, _) = file.owner();
                drop(file);
                // The intake may have ended.
                let _ = tell.send(uid);
            }
        };
        let thread = std::thread::Builder::new()
            .name("baro-closer".into())
            .spawn(close_all);
        let thread = thread.inspect_err(|error| {
            warn!(%error, "files of programs are closed by who reads them");
        });
        Self {
            to: thread.is_ok().then_some(to),
            closed,
            closed_here: Vec::new(),
            thread: thread.ok(),
        }
    }

    pub(crate) fn close(&mut self, file: IngestFile) {
        let (uid, _) = file.owner();
        let left = match &self.to {
            Some(to) => to.try_send(Box::new(file)).err(),
            None => Some(TrySendError::Disconnected(Box::new(file))),
        };
        if left.is_some() {
            drop(left);
            self.closed_here.push(uid);
        }
    }

    /// The users of the files that were closed since the last call.
    pub(crate) fn closed(&mut self) -> impl Iterator<Item = u32> {
        self.closed_here.drain(..).chain(self.closed.try_iter())
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.to = None;
        // Drops the receiver, so that the thread does not wait to report closed files.
        self.closed = sync_channel(0).1;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already reported.
            let _ = thread.join();
        }
    }
}
