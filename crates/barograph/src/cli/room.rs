//! The room that a command may take of a directory's file system.

use std::path::Path;

use barograph_model::Level;

/// The share of a file system that stays free, unless a room is given.
const KEPT_FREE: f64 = 0.05;

/// A directory and its room as people write it: `DIR=ROOM`, or `DIR` alone.
pub(super) fn split(text: &str) -> (&str, Option<&str>) {
    // A directory may have the sign in its name.
    match text.rsplit_once('=') {
        Some((dir, room)) if !Path::new(text).is_dir() => (dir, Some(room)),
        _ => (text, None),
    }
}

/// Bytes that may be taken: a size, a share of what is available, or all but 5 % of the file
/// system. `own` are bytes there that are the taker's already: their room is its own.
pub(super) fn bytes(dir: &Path, room: Option<&str>, own: u64) -> Result<u64, String> {
    let seen = rustix::fs::statvfs(dir).map_err(|error| error.to_string())?;
    let available = seen
        .f_bavail
        .saturating_mul(seen.f_frsize)
        .saturating_add(own);
    let room = room.map(Level::parse).transpose();
    match room.map_err(|error| error.to_string())? {
        Some(Level::Absolute(bytes)) if bytes >= 0.0 => Ok(available.min(bytes as u64)),
        Some(Level::Share(share)) if (0.0..=1.0).contains(&share) => {
            Ok((available as f64 * share) as u64)
        }
        Some(_) => Err("the room is a size, or a share of 0 to 100 %".to_owned()),
        None => {
            let all = seen.f_blocks.saturating_mul(seen.f_frsize);
            Ok(available.saturating_sub((all as f64 * KEPT_FREE) as u64))
        }
    }
}
