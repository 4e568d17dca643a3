//! Closes files of processes that have ended. Whoever closes a removed file last frees its memory, and that takes
//! longer than all else that is done for a short process: so a thread of its own does, and intake goes on.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use barograph_stream::ingest::IngestFile;
use tracing::warn;

/// The thread; dropping it waits until all is closed. What waits is bounded by the places of processes, which are
/// given back when their files are closed.
pub struct Closer {
    to: Option<Sender<Box<IngestFile>>>,
    closed: Receiver<u32>,
    /// Tells of what is closed where there is no thread.
    done: Sender<u32>,
    thread: Option<JoinHandle<()>>,
}

impl Closer {
    pub fn new() -> Self {
        let (to, files) = channel::<Box<IngestFile>>();
        let (done, closed) = channel();
        let tell = done.clone();
        let close_all = move || {
            for file in files {
                let (uid, _) = file.owner();
                drop(file);
                // Intake may have ended.
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
            done,
            thread: thread.ok(),
        }
    }

    pub fn close(&self, file: IngestFile) {
        let (uid, _) = file.owner();
        match &self.to {
            // The thread ends only after this does.
            Some(to) => drop(to.send(Box::new(file))),
            None => {
                drop(file);
                let _ = self.done.send(uid);
            }
        }
    }

    /// The users of the files that were closed since the last call.
    pub fn closed(&self) -> impl Iterator<Item = u32> {
        self.closed.try_iter()
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}
