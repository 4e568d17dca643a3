//! The directories that are watched, and how a path stands to them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::collector::CollectorFault;

/// The watched directories and the directory whose descriptor is open, all as absolute paths
/// without a slash at the end.
#[derive(Debug)]
pub(super) struct Roots {
    base: Vec<u8>,
    roots: Vec<Vec<u8>>,
    /// Whether a root is all of the file system that is mounted at the base, so that a directory
    /// that is not known can lie nowhere else.
    pub(super) is_all: bool,
}

/// How a path stands to the watched directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// It is neither above nor below one.
    Beside,
    /// It is above one.
    Above,
    /// It is one, or below one.
    Inside,
}

impl Roots {
    /// The roots, which must be the base or below it.
    pub(super) fn new(base: &Path, roots: &[PathBuf]) -> Result<Self, CollectorFault> {
        let bare = |path: &Path| -> Result<Vec<u8>, CollectorFault> {
            let bytes = path.as_os_str().as_bytes();
            let is_plain = path.is_absolute() && !bytes.split(|b| *b == b'/').any(|p| p == b"..");
            let joined: PathBuf = path.components().collect();
            match is_plain {
                true => Ok(trimmed(joined.as_os_str().as_bytes()).to_vec()),
                false => Err(CollectorFault::Unusable(format!(
                    "{} is no absolute path without `..`",
                    path.display()
                ))),
            }
        };
        let base = bare(base)?;
        let mut bare_roots = Vec::with_capacity(roots.len());
        for root in roots {
            let bare_root = bare(root)?;
            if !is_within(&bare_root, &base) {
                return Err(CollectorFault::Unusable(format!(
                    "the root {} is not below {}, whose file system is marked",
                    root.display(),
                    String::from_utf8_lossy(&base)
                )));
            }
            bare_roots.push(bare_root);
        }
        let mut roots = Self {
            base,
            roots: bare_roots,
            is_all: false,
        };
        roots.is_all = roots.are_whole_file_system();
        Ok(roots)
    }

    /// The path of the base; `/` if it is the root directory.
    pub(super) fn base(&self) -> &[u8] {
        shown(&self.base)
    }

    /// The paths of the roots.
    pub(super) fn roots(&self) -> impl Iterator<Item = &[u8]> {
        self.roots.iter().map(|root| shown(root))
    }

    /// Whether a root is all of the file system that is mounted at the base
    /// (`proc_pid_mountinfo(5)`).
    fn are_whole_file_system(&self) -> bool {
        // The kernel escapes blanks and backslashes: such a mount point is not found, and taken for
        // a part of a file system.
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mut mounted = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            (point == self.base()).then_some(root)
        });
        self.roots.contains(&self.base) && mounted.next_back() == Some(b"/")
    }

    /// How an absolute path stands to the roots.
    pub(super) fn relation(&self, path: &[u8]) -> Relation {
        let path = trimmed(path);
        let mut relation = Relation::Beside;
        for root in &self.roots {
            if is_within(path, root) {
                return Relation::Inside;
            }
            if is_within(root, path) {
                relation = Relation::Above;
            }
        }
        relation
    }

    /// The roots that are `path` or below it.
    pub(super) fn roots_within(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let within = self
            .roots()
            .filter(|root| is_within(trimmed(root), trimmed(path)));
        within.map(<[u8]>::to_vec).collect()
    }

    /// A path relative to the base; `.` for the base itself and for what is not below it.
    pub(super) fn relative<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match path.strip_prefix(&self.base[..]) {
            Some([b'/', rest @ ..]) if !rest.is_empty() => rest,
            _ => b".",
        }
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn shown(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

fn is_within(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(base: &str, roots: &[&str]) -> Roots {
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        Roots::new(Path::new(base), &roots).unwrap()
    }

    #[test]
    fn relations() {
        let some = roots("/m", &["/m/a/b", "/m/c/"]);
        for (path, relation, relative) in [
            ("/m", Relation::Above, "."),
            ("/m/a", Relation::Above, "a"),
            ("/m/a/b", Relation::Inside, "a/b"),
            ("/m/a/b/x", Relation::Inside, "a/b/x"),
            ("/m/a/bb", Relation::Beside, "a/bb"),
            ("/m/c", Relation::Inside, "c"),
            ("/m/d", Relation::Beside, "d"),
            ("/", Relation::Above, "."),
        ] {
            assert_eq!(some.relation(path.as_bytes()), relation, "{path}");
            assert_eq!(
                some.relative(path.as_bytes()),
                relative.as_bytes(),
                "{path}"
            );
        }
        assert_eq!(some.roots_within(b"/m/a"), [b"/m/a/b".to_vec()]);
        let all = roots("/", &["/"]);
        assert_eq!(all.base(), b"/");
        assert_eq!(all.relation(b"/"), Relation::Inside);
        assert!(roots("/proc", &["/proc"]).is_all);
        assert!(!roots("/proc", &["/proc/self"]).is_all);
        assert!(!roots("/proc/self", &["/proc/self"]).is_all);
        assert_eq!(all.relation(b"/x/y"), Relation::Inside);
        assert_eq!(
            (all.relative(b"/"), all.relative(b"/x/y")),
            (&b"."[..], &b"x/y"[..])
        );
    }

    #[test]
    fn roots_elsewhere_are_refused() {
        for (base, root) in [("/m", "/n"), ("/m", "/mm"), ("m", "m"), ("/m", "/m/../n")] {
            assert!(
                Roots::new(Path::new(base), &[root.into()]).is_err(),
                "{root}"
            );
        }
    }
}
