//! Parser of `/proc/mdstat`: the arrays, their members, and the progress of rebuilds.
//!
//! The file is documented only by the kernel code that writes it (`md_seq_show` in
//! drivers/md/md.c).

use crate::util::faults::BadLines;
use crate::util::parse::{Words, cut, lines, number, words};

#[derive(Clone, Debug)]
pub(super) struct ListedArray<'a> {
    pub(super) name: &'a [u8],
    /// Whether the array runs.
    pub(super) active: bool,
    /// Level, such as `raid6`; nothing for an array that does not run.
    pub(super) level: Option<&'a str>,
    members: Words<'a>,
    /// Number of members that the array should have, and number of those that are in place.
    pub(super) disks: Option<(u64, u64)>,
    pub(super) sync: Option<ArraySync>,
    /// Whether all lines about the array were complete.
    pub(super) whole: bool,
}

/// One device of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    pub(super) name: &'a [u8],
    pub(super) role: MemberRole,
}

/// The role of a device in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberRole {
    /// A member with a place of its own, whether it is rebuilt already or not.
    Placed,
    Failed,
    Spare,
    /// Holds a log, or will replace another member.
    Helper,
}

/// A rebuild or a check in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ArraySync {
    /// The action, as `sync_action` names it.
    pub(super) action: &'static str,
    /// Share of the work that is done; nothing while it waits.
    pub(super) ratio: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
}

impl<'a> ListedArray<'a> {
    pub(super) fn members(&self) -> impl Iterator<Item = Member<'a>> {
        self.members.clone().filter_map(member)
    }

    /// Number of devices with this role.
    pub(super) fn count(&self, role: MemberRole) -> u64 {
        self.members().filter(|m| m.role == role).count() as u64
    }

    fn detail(&mut self, line: &[u8]) {
        if self.disks.is_none() {
            self.disks = words(line).find_map(disks);
        }
        if self.sync.is_none() {
            self.sync = sync(line);
        }
    }
}

/// Calls `each` with every listed array; reports lines that cannot be understood, and a list
/// without its end.
pub(super) fn arrays<'a>(
    bytes: &'a [u8],
    bad: &mut BadLines,
    mut each: impl FnMut(ListedArray<'a>),
) {
    let mut open: Option<ListedArray<'a>> = None;
    let mut ended = false;
    for line in lines(bytes) {
        if let (Some(b' ' | b'\t'), Some(array)) = (line.first(), &mut open) {
            array.detail(line);
            continue;
        }
        if let Some(mut array) = open.take() {
            array.whole = true;
            each(array);
        }
        ended = line.starts_with(b"unused devices:");
        let is_frame = line.trim_ascii().is_empty() || line.starts_with(b"Personalities :");
        if !ended && !is_frame {
            open = head(line);
            if open.is_none() {
                bad.add(line);
            }
        }
    }
    if let Some(array) = open {
        each(array);
    }
    if !ended || !cut(bytes).is_empty() {
        bad.add(cut(bytes));
    }
}

/// Parses `md0 : active (auto-read-only) raid6 sdf[5] sdc[2](F) sda[0]`.
fn head(line: &[u8]) -> Option<ListedArray<'_>> {
    let mut rest = words(line);
    let name = rest.next()?;
    if !name.starts_with(b"md") || rest.next()? != b":" {
        return None;
    }
    let active = match rest.next()? {
        b"active" => true,
        b"inactive" => false,
        _ => return None,
    };
    let mut level = None;
    let mut members = rest.clone();
    while let Some(word) = rest.next() {
        if member(word).is_some() {
            break;
        }
        let is_level = level.is_none() && word.iter().all(u8::is_ascii_alphanumeric);
        if is_level {
            level = std::str::from_utf8(word).ok();
        } else if !word.starts_with(b"(") {
            return None;
        }
        members = rest.clone();
    }
    if !members.clone().all(|word| member(word).is_some()) {
        return None;
    }
    Some(ListedArray {
        name,
        active,
        level,
        members,
        disks: None,
        sync: None,
        whole: false,
    })
}

/// Parses `sdc[2](F)`.
fn member(word: &[u8]) -> Option<Member<'_>> {
    let open = word.iter().position(|b| *b == b'[')?;
    let close = word.iter().position(|b| *b == b']')?;
    let (name, flags) = (&word[..open], &word[close + 1..]);
    number(word.get(open + 1..close)?)?;
    let has = |letter: u8| flags.windows(3).any(|w| w == [b'(', letter, b')']);
    let role = if has(b'F') {
        MemberRole::Failed
    } else if has(b'S') {
        MemberRole::Spare
    } else if has(b'J') || has(b'R') {
        MemberRole::Helper
    } else {
        MemberRole::Placed
    };
    (!name.is_empty()).then_some(Member { name, role })
}

/// Parses `[5/4]`.
fn disks(word: &[u8]) -> Option<(u64, u64)> {
    let (wanted, placed) = fraction(word.strip_prefix(b"[")?.strip_suffix(b"]")?)?;
    (placed <= wanted).then_some((wanted, placed))
}

fn fraction(word: &[u8]) -> Option<(u64, u64)> {
    let slash = word.iter().position(|b| *b == b'/')?;
    Some((number(&word[..slash])?, number(&word[slash + 1..])?))
}

/// Parses `[==>...]  recovery = 12.5% (1464843776/11718750208) finish=1390.7min speed=122880K/sec`,
/// or `resync=DELAYED`.
fn sync(line: &[u8]) -> Option<ArraySync> {
    const ACTIONS: [(&[u8], &str); 4] = [
        (b"recovery", "recover"),
        (b"resync", "resync"),
        (b"reshape", "reshape"),
        (b"check", "check"),
    ];
    let mut rest = words(line).skip_while(|word| word.starts_with(b"["));
    let word = rest.next()?;
    let (name, action) = ACTIONS.iter().find(|(name, _)| word.starts_with(name))?;
    let mut sync = ArraySync {
        action,
        ratio: None,
        bytes_per_second: None,
    };
    match &word[name.len()..] {
        b"" if rest.next()?.starts_with(b"=") => {}
        waits if waits.starts_with(b"=") => return Some(sync),
        _ => return None,
    }
    for word in rest {
        let inner = word.strip_prefix(b"(").and_then(|w| w.strip_suffix(b")"));
        if let Some((done, all)) = inner.and_then(fraction) {
            sync.ratio = share(done, all);
        }
        let speed = word.strip_prefix(b"speed=");
        if let Some(kibibytes) = speed.and_then(|w| number(w.strip_suffix(b"K/sec")?)) {
            sync.bytes_per_second = Some(kibibytes as f64 * 1024.0);
        }
    }
    Some(sync)
}

/// The quotient of `done` and `all`, if it is between 0 and 1.
pub(super) fn share(done: u64, all: u64) -> Option<f64> {
    (all > 0 && done <= all).then(|| done as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str], bad: bool) {
        let mut lines = BadLines::default();
        let mut got = Vec::new();
        arrays(text.as_bytes(), &mut lines, |array| {
            let members: Vec<_> = array
                .members()
                .map(|m| format!("{}={:?}", String::from_utf8_lossy(m.name), m.role))
                .collect();
            let sync = array.sync.map(|s| {
                let rate = s.bytes_per_second.map(|v| v / 1024.0);
                format!("{} {:?} {:?}", s.action, s.ratio, rate)
            });
            got.push(format!(
                "{} {} {:?} {} {:?} {:?} {}",
                String::from_utf8_lossy(array.name),
                array.active,
                array.level,
                members.join(","),
                array.disks,
                sync,
                array.whole
            ));
        });
        assert_eq!(
            (got, lines.any()),
            (expect.iter().map(|e| e.to_string()).collect(), bad),
            "{text}"
        );
    }

    #[test]
    fn arrays_of_every_kind() {
        let end = "\nunused devices: <none>\n";
        let list = |body: &str| format!("Personalities : [raid1] [raid10] \n{body}{end}");
        check(&list(""), &[], false);
        check("Personalities : \nunused devices: <none>\n", &[], false);
        check(
            &list(
                "md1 : active raid1 sdb1[1] sda1[0](W)\n      1048512 blocks super 1.2 [2/2] [UU]\n      bitmap: 0/1 pages [0KB], 65536KB chunk\n",
            ),
            &[r#"md1 true Some("raid1") sdb1=Placed,sda1=Placed Some((2, 2)) None true"#],
            false,
        );
        check(
            &list("md127 : inactive sdb[0](S)\n      976631512 blocks super 1.2\n       \n"),
            &[r#"md127 false None sdb=Spare None None true"#],
            false,
        );
        check(
            &list(
                "md3 : active (auto-read-only) raid10 sdd[3](S) sdc[2](F) sdb[1] sda[0](J)\n      2 blocks super external:/md127/0 2 near-copies [3/1] [_U_]\n      \tresync=PENDING\n",
            ),
            &[
                r#"md3 true Some("raid10") sdd=Spare,sdc=Failed,sdb=Placed,sda=Helper Some((3, 1)) Some("resync None None") true"#,
            ],
            false,
        );
        check(
            &list("md4 : active raid0 sdb[1] sda[0]\n      200 blocks super 1.2 512k chunks\n"),
            &[r#"md4 true Some("raid0") sdb=Placed,sda=Placed None None true"#],
            false,
        );
        for (line, expect) in [
            (
                "[=>...]  check =  5.0% (5/100) finish=0.1min speed=10K/sec",
                "check Some(0.05) Some(10.0)",
            ),
            (
                "[=====]  resync =100.0% (7/7) finish=0.0min speed=1K/sec",
                "resync Some(1.0) Some(1.0)",
            ),
            (
                "[>....]  reshape =  0.0% (9/7) finish=0.0min speed=-1K/sec",
                "reshape None None",
            ),
            ("      resync=DELAYED", "resync None None"),
        ] {
            check(
                &list(&format!(
                    "md5 : active raid5 sda[0]\n      1 blocks [1/1] [U]\n      {line}\n"
                )),
                &[&format!(
                    r#"md5 true Some("raid5") sda=Placed Some((1, 1)) Some("{expect}") true"#
                )],
                false,
            );
        }
    }

    #[test]
    fn lists_without_their_end() {
        check("", &[], true);
        check("Personalities : [raid1]\n", &[], true);
        for nonsense in [
            "nonsense",
            "md1 : sleeping raid1 sda1[0]",
            "md1 : active raid1 sda1[x]",
            "md1 : active raid1 sda1[0] extra sdb1[1",
        ] {
            check(&format!("{nonsense}\nunused devices: <none>\n"), &[], true);
        }
        let cut_short = "md1 : active raid1 sdb1[1] sda1[0]\n      10485";
        check(
            cut_short,
            &[r#"md1 true Some("raid1") sdb1=Placed,sda1=Placed None None false"#],
            true,
        );
    }
}
