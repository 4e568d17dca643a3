//! Closes files of processes that have ended. Whoever closes a removed file last frees its memory, and that takes
//! longer than all else that is done for a short process: so a thread of its own does, and intake goes on.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use barograph_stream::ingest::IngestFile;
use tracing::warn;

/// Files that wait to be closed; one more is closed by who brings it.
const WAITING_MAX: usize = 256;

/// The thread; dropping it waits until all is closed.
pub struct Closer {
    to: Option<SyncSender<Box<IngestFile>>>,
    thread: Option<JoinHandle<()>>,
}

impl Closer {
    pub fn new() -> Self {
        let (to, files) = sync_channel(WAITING_MAX);
        let close_all = move |files: Receiver<Box<IngestFile>>| files.into_iter().for_each(drop);
        let thread = std::thread::Builder::new()
            .name("baro-closer".into())
            .spawn(move || close_all(files));
        match thread {
            Ok(thread) => Self {
                to: Some(to),
                thread: Some(thread),
            },
            Err(error) => {
                warn!(%error, "files of programs are closed by who reads them");
                Self {
                    to: None,
                    thread: None,
                }
            }
        }
    }

    pub fn close(&self, file: IngestFile) {
        if let Some(to) = &self.to {
            // What finds no room comes back, and is dropped here.
            let _ = to.try_send(Box::new(file));
        }
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
