//! A file that keeps the pieces of an array while it is packed. It has no name, so nothing of it is
//! left when the program ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use barograph_progressive::{PieceSpool, SpooledArray};
use rustix::fs::{FallocateFlags, fallocate};

use super::beside;

/// Bytes of a bucket that are kept in memory before they are written. An array that is packed into
/// fewer needs no file, and what is read back lies in runs of this length at least.
const CHUNK_BYTES: usize = 256 << 10;

/// The pieces of each bucket, in memory and, once they are many, in a file without a name.
#[derive(Debug)]
pub struct SpoolFile {
    /// The file that the array is for; the spool is on the same file system.
    output: PathBuf,
    file: Option<File>,
    end: u64,
    buckets: Vec<SpooledBucket>,
}

#[derive(Debug, Default)]
struct SpooledBucket {
    /// The places in the file, in order.
    chunks: Vec<Range<u64>>,
    /// The bytes after those in the file.
    rest: Vec<u8>,
}

impl PieceSpool for SpoolFile {
    fn append(&mut self, bucket: usize, bytes: &[u8]) -> io::Result<()> {
        if self.buckets.len() <= bucket {
            self.buckets.resize_with(bucket + 1, Default::default);
        }
        let bucket = &mut self.buckets[bucket];
        bucket.rest.extend(bytes);
        if bucket.rest.len() < CHUNK_BYTES {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless(&self.output)?),
        };
        file.write_all_at(&bucket.rest, self.end)?;
        let start = self.end;
        self.end += bucket.rest.len() as u64;
        bucket.chunks.push(start..self.end);
        bucket.rest.clear();
        Ok(())
    }
}

impl SpoolFile {
    /// An empty spool for an array that is to be written to this path.
    pub fn new(output: &Path) -> Self {
        Self {
            output: output.to_owned(),
            file: None,
            end: 0,
            buckets: Vec::new(),
        }
    }

    /// Writes the buckets of the array whose pieces are here. The spool gives back its room on the
    /// disk meanwhile, where the file system can do that.
    ///
    /// # Errors
    ///
    /// Pieces cannot be read, or the buckets cannot be written.
    pub fn write_buckets(self, array: &SpooledArray, out: &mut impl Write) -> io::Result<()> {
        let mut buckets = self.buckets.into_iter();
        for start in &array.starts {
            out.write_all(start)?;
            // The last buckets may have no pieces.
            let bucket = buckets.next().unwrap_or_default();
            if let Some(file) = &self.file {
                move_chunks(file, &bucket.chunks, out)?;
            }
            out.write_all(&bucket.rest)?;
        }
        Ok(())
    }
}

fn move_chunks(file: &File, chunks: &[Range<u64>], out: &mut impl Write) -> io::Result<()> {
    let mut bytes = Vec::new();
    for chunk in chunks {
        let count = chunk.end - chunk.start;
        bytes.resize(count as usize, 0);
        file.read_exact_at(&mut bytes, chunk.start)?;
        out.write_all(&bytes)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where holes are not possible, the file takes its room until the end.
        let _ = fallocate(file, flags, chunk.start, count);
    }
    Ok(())
}

/// A file without a name, on the file system of another one.
fn nameless(output: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let folder = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let made = options.clone().custom_flags(libc::O_TMPFILE).open(folder);
    made.or_else(|_| {
        // Network file systems have no such files.
        let path = beside(output)?;
        let file = options.create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    })
}

#[cfg(test)]
mod tests {
    use barograph_progressive::{PackConfig, Shape, ValueSource, pack_from};

    use super::*;

    struct Constant;

    impl ValueSource<f64> for Constant {
        fn put_values(
            &self,
            _: &barograph_progressive::Region,
            values: &mut [f64],
        ) -> io::Result<()> {
            values.fill(1.0);
            Ok(())
        }
    }

    #[test]
    fn pieces_come_back_in_order_and_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.baro");
        let shape = Shape::new(&[8]).unwrap();
        // An array with two buckets, in place of whose pieces there are others.
        let mut array = pack_from(
            &Constant,
            shape,
            &PackConfig::default(),
            &mut SpoolFile::new(&path),
        )
        .unwrap();
        array.starts = vec![b"first".to_vec(), b"second".to_vec(), b"third".to_vec()];
        let mut spool = SpoolFile::new(&path);
        let (mut one, mut two) = (array.starts[0].clone(), array.starts[1].clone());
        for at in 0..1_000_u32 {
            let piece = at.to_le_bytes().repeat(300);
            spool.append(at as usize % 2, &piece).unwrap();
            [&mut one, &mut two][at as usize % 2].extend(piece);
        }
        assert!(spool.file.is_some() && spool.buckets[1].chunks.len() > 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut written = Vec::new();
        spool.write_buckets(&array, &mut written).unwrap();
        assert!(written == [&one[..], &two, b"third"].concat());
    }

    #[test]
    fn few_pieces_need_no_file() {
        let mut spool = SpoolFile::new(Path::new("/nowhere/a.baro"));
        spool.append(3, &[7; CHUNK_BYTES - 1]).unwrap();
        assert!(spool.append(3, &[7]).is_err());
    }
}
