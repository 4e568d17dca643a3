//! Which files are those of one process: a library that is preloaded into a program
//! (`baro io --schedule`) and the library that the program calls have a file each, and phases of
//! each. Without this they would be two applications, and a process could wait for itself.

use std::collections::BTreeMap;

use barograph_intake::PhaseProcess;

/// A process: the user who owns its files, as the kernel says, and its number and the time of its
/// start, as the files say. What a file says counts among the files of its owner only.
type HostKey = (u32, u32, u64);

/// The files of processes that have phases.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The files of each process, in the order in which they were heard of.
    files: BTreeMap<HostKey, Vec<u128>>,
    hosts: BTreeMap<u128, HostKey>,
}

impl Hosts {
    /// The number that stands for a process in all of its files: that of the file that was heard of
    /// first. `None` if there is one file only, or if the start of the process is not known.
    pub(super) fn of(&mut self, process: &PhaseProcess) -> Option<u128> {
        if process.start_ticks == 0 {
            return None;
        }
        let file = u128::from_le_bytes(process.incarnation.0);
        let key = (process.uid, process.pid, process.start_ticks);
        let files = self.files.entry(key).or_default();
        if self.hosts.insert(file, key).is_none() {
            files.push(file);
        }
        files.first().copied().filter(|_| files.len() > 1)
    }

    /// Forgets a file, of which nothing more is heard.
    pub(super) fn leave(&mut self, file: u128) {
        let Some(key) = self.hosts.remove(&file) else {
            return;
        };
        if let Some(files) = self.files.get_mut(&key) {
            files.retain(|of| *of != file);
            if files.is_empty() {
                self.files.remove(&key);
            }
        }
    }
}
