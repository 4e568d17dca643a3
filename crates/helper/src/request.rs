//! The request: one short line, and its only word that is not a constant of this crate.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::fanotify;
use crate::run::{Deadline, ready};
use crate::verbs::HelperVerb;

/// Longest request in bytes, including its newline.
pub const REQUEST_BYTES_MAX: usize = 256;
/// Longest name of a disk in bytes: the kernel's `DISK_NAME_LEN` is 32.
const DEVICE_BYTES_MAX: usize = 32;

/// Reads a line and returns it without its newline.
pub(crate) fn read(input: impl AsFd, within: Duration) -> Result<Vec<u8>, String> {
    let deadline = Deadline::after(within);
    let mut line = Vec::with_capacity(REQUEST_BYTES_MAX);
    loop {
        if let Some(end) = line.iter().position(|b| *b == b'\n') {
            if end + 1 != line.len() {
                return Err("a request is one line".to_owned());
            }
            line.truncate(end);
            return Ok(line);
        }
        if line.len() >= REQUEST_BYTES_MAX {
            return Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes"));
        }
        if !ready(&input, PollFlags::IN, deadline)? {
            return Err("the request came too slowly".to_owned());
        }
        let mut piece = [0; REQUEST_BYTES_MAX];
        let room = REQUEST_BYTES_MAX - line.len();
        match rustix::io::read(&input, &mut piece[..room]) {
            Ok(0) => return Err("the request has no end of line".to_owned()),
            Ok(n) => line.extend_from_slice(&piece[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(format!("the request cannot be read: {errno}")),
        }
    }
}

/// The argument of a request for a fanotify group; `None` for other requests.
pub(crate) fn device_number(line: &[u8]) -> Result<Option<&str>, String> {
    let (name, argument) = words(line)?;
    Ok((name == fanotify::VERB).then_some(argument))
}

/// Parses the verb and its argument, which is empty if there is none.
pub(crate) fn parse<'a>(
    line: &'a [u8],
    verbs: &'static [HelperVerb],
) -> Result<(&'static HelperVerb, &'a str), String> {
    let (name, argument) = words(line)?;
    let verb = verbs.iter().find(|verb| verb.name == name);
    Ok((verb.ok_or("no such verb")?, argument))
}

/// The first word of a request, and the rest.
fn words(line: &[u8]) -> Result<(&str, &str), String> {
    // A request is text without control characters, so that no later message has to escape it.
    let is_plain = line.iter().all(|b| (b' '..=b'~').contains(b));
    let text = std::str::from_utf8(line).ok().filter(|_| is_plain);
    let text = text.ok_or("a request is printable ASCII")?;
    Ok(text.split_once(' ').unwrap_or((text, "")))
}

/// The path in `/dev` of a whole disk, from its name in `/sys/block`.
pub(crate) fn device(name: &str, sys: &Path) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'!' | b'_' | b'-');
    let is_name = !name.is_empty()
        && name.len() <= DEVICE_BYTES_MAX
        && !name.starts_with('-')
        && name.bytes().all(fits);
    if !is_name {
        return Err("that is no name of a disk".to_owned());
    }
    if !sys.join("block").join(name).join("size").is_file() {
        return Err(format!("{name} is no whole disk of this machine"));
    }
    // sysfs writes `!` for a slash in the name of the node: cciss!c0d0 is /dev/cciss/c0d0.
    Ok(format!("/dev/{}", name.replace('!', "/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::VERBS;

    /// Mixes the bits of `n` well (SplitMix64).
    fn mix(n: u64) -> u64 {
        let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn of_any_bytes_a_verb_of_the_list_or_a_refusal() {
        let sys = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(sys.path().join("block/sda")).unwrap();
        std::fs::write(sys.path().join("block/sda/size"), "1").unwrap();
        let mut accepted = 0;
        for seed in 0..20_000_u64 {
            let verb = &VERBS[mix(seed) as usize % VERBS.len()];
            let mut line = format!("{} sda", verb.name).into_bytes();
            for step in 0..seed % 4 {
                let random = mix(seed * 4 + step);
                let at = (random >> 16) as usize % (line.len() + 1);
                match random % 3 {
                    0 => line.insert(at, (random >> 8) as u8),
                    1 => line.truncate(at),
                    _ => line.extend_from_within(at..),
                }
            }
            let Ok((found, argument)) = parse(&line, VERBS) else {
                continue;
            };
            assert!(VERBS.iter().any(|verb| std::ptr::eq(verb, found)));
            if let Ok(path) = device(argument, sys.path()) {
                assert_eq!(path, "/dev/sda");
                accepted += 1;
            }
        }
        assert!(accepted > 5_000, "{accepted}");
    }

    #[test]
    fn requests() {
        let check = |line: &[u8], expect: Option<(&str, &str)>| {
            let got = parse(line, VERBS).ok().map(|(v, a)| (v.name, a));
            assert_eq!(got, expect, "{}", line.escape_ascii());
        };
        check(b"smart sda", Some(("smart", "sda")));
        check(b"gpfs", Some(("gpfs", "")));
        check(b"smart  sda", Some(("smart", " sda")));
        for bad in [
            &b""[..],
            b" ",
            b"SMART sda",
            b"smartctl",
            b"smart\tsda",
            b"smart\0sda",
            b"sm\xffart",
            b"smart sda\r",
            b"/usr/sbin/smartctl",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn only_whole_disks_that_are_there() {
        let sys = tempfile::tempdir().unwrap();
        for name in ["sda", "cciss!c0d0", "dm-0"] {
            let folder = sys.path().join("block").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("size"), "8\n").unwrap();
        }
        let part = sys.path().join("block/sda/sda1");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::write(part.join("size"), "8\n").unwrap();
        let of = |name: &str| device(name, sys.path());
        assert_eq!(of("sda").unwrap(), "/dev/sda");
        assert_eq!(of("cciss!c0d0").unwrap(), "/dev/cciss/c0d0");
        let long = "a".repeat(33);
        for bad in [
            "",
            "sdb",
            "sda1",
            "sda/sda1",
            "/dev/sda",
            "../block/sda",
            "..",
            ".",
            "-a",
            "--all",
            "sda ",
            " sda",
            "sda sdb",
            "sda;id",
            "$(id)",
            "sd*",
            "sda\\",
            "sdä",
            &long,
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
