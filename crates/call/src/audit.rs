//! The audit of one user's calls: a file of JSON lines on disk. A call's line is written before the
//! call is in its slot, so that the file records who called whom, and a new agent knows the calls
//! of the one before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};
use tracing::warn;

/// Growth in bytes after which a file is put aside; it replaces the one that was put aside before.
const BYTES_MAX: u64 = 4 << 20;
/// Most bytes of a file that are read: more than [`BYTES_MAX`], since lines that are carried over
/// from file to file come on top.
const READ_BYTES_MAX: u64 = 64 << 20;
const MODE: u32 = 0o600;

/// One user's audit, if it is open. The holder of a desk waits for a disk and may take the lock of
/// the state meanwhile; a holder of that lock never waits for a desk.
pub(crate) type AuditDesk = Arc<Mutex<Option<Audit>>>;

/// The open audit of one user.
pub(crate) struct Audit {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Bytes of the lines that were carried over when the file was begun.
    carried: u64,
    /// Whether the file keeps its name after a power failure: its directory was synced.
    is_name_synced: bool,
}

impl Audit {
    /// Opens the file, and calls `each` with all lines, oldest first: those of the file before,
    /// then of this one. Lines that cannot be read are skipped, and their number is logged.
    pub(crate) fn open(path: &Path, each: &mut dyn FnMut(&Json)) -> io::Result<Self> {
        let mut damaged = 0;
        for path in [older(path), path.to_owned()] {
            damaged += read(&path, each)?;
        }
        if damaged > 0 {
            warn!(path = %path.display(), lines = damaged, "lines of an audit cannot be read");
        }
        let mut file = append_to(path)?;
        let bytes = file.metadata()?.len();
        let mut audit = Self {
            path: path.to_owned(),
            bytes,
            carried: 0,
            is_name_synced: false,
            file: file.try_clone()?,
        };
        if bytes > 0 && !ends_whole(path)? {
            file.write_all(b"\n")?;
            audit.bytes += 1;
        }
        Ok(audit)
    }

    /// Whether another file must be begun.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.saturating_sub(self.carried) >= BYTES_MAX
    }

    /// Begins another file, with lines that must not be lost.
    pub(crate) fn turn_over<'a>(
        &mut self,
        carried: impl Iterator<Item = Json> + 'a,
    ) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let _ = fs::remove_file(&new);
        let mut file = BufWriter::new(append_to(&new)?);
        let mut bytes = 0;
        for line in carried {
            let text = line.to_string();
            writeln!(file, "{text}")?;
            bytes += text.len() as u64 + 1;
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        // Between the two renames, the older file alone has everything that is carried over.
        match fs::rename(&self.path, older(&self.path)) {
            // An earlier attempt stopped between the two renames.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            put_aside => put_aside?,
        }
        fs::rename(&new, &self.path)?;
        self.file = file;
        self.bytes = bytes;
        self.carried = self.bytes;
        self.is_name_synced = false;
        Ok(())
    }

    /// Appends lines; if `must_last`, they are on disk when this returns. After a failure nothing
    /// is appended, as far as the file can be cut again.
    pub(crate) fn append(
        &mut self,
        lines: impl IntoIterator<Item = Json>,
        must_last: bool,
    ) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text += &line.to_string();
            text.push('\n');
        }
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| if must_last { self.sync() } else { Ok(()) });
        match written {
            Ok(()) => self.bytes += text.len() as u64,
            Err(_) => drop(self.file.set_len(self.bytes)),
        }
        written
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        if let (false, Some(dir)) = (self.is_name_synced, self.path.parent()) {
            File::open(dir)?.sync_all()?;
            self.is_name_synced = true;
        }
        Ok(())
    }
}

/// A line that records the last id, so that no id is given twice.
pub(crate) fn position(id: u64) -> Json {
    json!({ "event": "position", "id": id })
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("1.jsonl")
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .open(path)
}

/// Reads the lines of a file; returns the number of damaged ones.
fn read(path: &Path, each: &mut dyn FnMut(&Json)) -> io::Result<u64> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    let mut damaged = 0;
    for line in BufReader::new(file.take(READ_BYTES_MAX)).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(line) => each(&line),
            Err(_) => damaged += 1,
        }
    }
    Ok(damaged)
}

fn ends_whole(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let file = File::open(path)?;
    let mut last = [0];
    file.read_exact_at(&mut last, file.metadata()?.len().saturating_sub(1))?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &Path) -> (Audit, Vec<Json>) {
        let mut lines = Vec::new();
        let audit = Audit::open(path, &mut |line| lines.push(line.clone())).unwrap();
        (audit, lines)
    }

    #[test]
    fn lines_come_back_whatever_was_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.jsonl");
        let (mut audit, lines) = all(&path);
        assert_eq!(lines, Vec::<Json>::new());
        audit.append([json!({"id": 1})], true).unwrap();
        let mut file = append_to(&path).unwrap();
        file.write_all(b"{\"id\": 2").unwrap();
        let (mut audit, lines) = all(&path);
        assert_eq!(lines, [json!({"id": 1})]);
        audit.append([json!({"id": 3})], false).unwrap();
        assert_eq!(all(&path).1, [json!({"id": 1}), json!({"id": 3})]);
    }

    #[test]
    fn a_full_file_is_put_aside_and_one_older_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.jsonl");
        let (mut audit, _) = all(&path);
        let line = json!({"filler": "x".repeat(1 << 20)});
        let mut written = 0;
        for turn in 0..3 {
            while !audit.is_full() {
                audit.append([line.clone()], false).unwrap();
                written += 1;
            }
            audit.turn_over(std::iter::once(position(turn))).unwrap();
        }
        assert_eq!(written, 12);
        // The state after an attempt that put the file aside, and did no more.
        fs::rename(&path, older(&path)).unwrap();
        audit.append(vec![line.clone(); 4], false).unwrap();
        audit.turn_over(std::iter::once(position(3))).unwrap();
        let (audit, lines) = all(&path);
        assert!(!audit.is_full());
        let expect = [vec![position(2)], vec![line; 4], vec![position(3)]].concat();
        assert_eq!(lines, expect);
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2);
    }
}
