//! The replica of a node that may lead, as a file in the state directory.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use barograph_control::{LeaderReplica, RECORD_BYTES_MAX, RECORD_KEY_BYTES_MAX, RECORDS_MAX};
use rustix::fs::{Mode, OFlags};

/// Name of the file in the state directory.
pub(crate) const REPLICA_FILE: &str = "leadership.json";
/// Most bytes of the file that are read: text grows at most sixfold as JSON.
const FILE_BYTES_MAX: u64 =
    (RECORDS_MAX * (RECORD_BYTES_MAX + RECORD_KEY_BYTES_MAX + 128) * 6) as u64;

/// The place of a replica.
#[derive(Debug)]
pub(crate) struct ReplicaFile(PathBuf);

impl ReplicaFile {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join(REPLICA_FILE))
    }

    /// Reads the replica; a new one if there is no file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is none that an agent has written. The node must not lead then:
    /// what it has promised is not known.
    pub(crate) fn read(&self) -> io::Result<LeaderReplica> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let size = match std::fs::metadata(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(LeaderReplica::default());
            }
            found => found?.len(),
        };
        if size > FILE_BYTES_MAX {
            return Err(invalid("it is larger than any that an agent writes".into()));
        }
        let text = std::fs::read_to_string(&self.0)?;
        let replica: LeaderReplica =
            serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        match replica.check() {
            Ok(()) => Ok(replica),
            Err(_) => Err(invalid("it has more than an agent writes".into())),
        }
    }

    /// Writes the replica; it is on disk when this returns.
    pub(crate) fn write(&self, replica: &LeaderReplica) -> io::Result<()> {
        let text = serde_json::to_string(replica)?;
        let new = self.0.with_extension("new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600))?;
        let mut file = std::fs::File::from(file);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0)?;
        let dir = self.0.parent().unwrap_or(Path::new("."));
        std::fs::File::open(dir)?.sync_all()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_control::LeaderWord;

    #[test]
    fn a_promise_is_read_again_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = ReplicaFile::new(dir.path());
        let mut replica = file.read().unwrap();
        assert_eq!(replica, LeaderReplica::default());
        let leaders = ["a".to_owned()];
        let claim = LeaderWord::Claim {
            term: 7,
            leaders: leaders.to_vec(),
        };
        assert!(replica.hear("a", &claim, &leaders, 0).unwrap().must_keep);
        file.write(&replica).unwrap();
        assert_eq!(file.read().unwrap().term(), 7);
        for text in [
            "",
            "{",
            "[]",
            r#"{"term":1,"promised_to":"a","records":{},"x":0}"#,
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert!(file.read().is_err(), "{text}");
        }
    }
}
