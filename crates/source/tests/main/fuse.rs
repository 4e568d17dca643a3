//! Tests with a mount that really hangs: a FUSE file system whose server never answers. If this
//! machine permits no such mount, the function that reads a file system hangs instead (as in
//! `mounts.rs`).

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use barograph_source::SourcesConfig;
use barograph_source::sources::filesystem::Filesystems;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::support::Reader;

/// A mounted file system on which every request waits until this is dropped.
struct Silent<'a> {
    server: Option<File>,
    point: &'a Path,
}

impl<'a> Silent<'a> {
    fn mount(point: &'a Path) -> std::io::Result<Self> {
        let server = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0\0",
            server.as_raw_fd()
        );
        let options = CStr::from_bytes_with_nul(options.as_bytes()).expect("ends in zero");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("barograph-test", point, "fuse", flags, options)?;
        Ok(Self {
            server: Some(server),
            point,
        })
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        // Without a server the kernel answers every open request with an error.
        self.server.take();
        unmount(self.point, UnmountFlags::DETACH).expect("what was mounted can be unmounted");
    }
}

#[test]
fn a_real_mount_that_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().canonicalize().unwrap();
    let silent = match Silent::mount(&point) {
        Ok(silent) => silent,
        Err(e) => {
            println!("no FUSE mount here ({e}): a function hangs instead");
            return crate::mounts::a_hung_mount_among_others();
        }
    };
    let mut config = SourcesConfig::default();
    config.filesystem.timeout_ms = 1500;
    let mut reader = Reader::new(Box::new(Filesystems::new(
        &config.sys_root,
        &config.tiers,
        &config.filesystem,
    )));
    let label = format!("mount={}", point.display());
    for _ in 0..2 {
        reader.read().unwrap();
        let own = reader.streams(&label);
        assert_eq!(own.len(), 1, "only the flag: {own:?}");
        assert_eq!(reader.number(&own[0]), Some(0.0));
        let roots = reader.streams("filesystem.total.bytes{");
        assert!(
            roots
                .iter()
                .any(|s| s.contains("mount=/,") && reader.get(s).is_some()),
            "{roots:?}"
        );
    }
    let missing = reader.source.report().missing;
    let named = missing
        .iter()
        .any(|m| m.what.contains(&*point.to_string_lossy()));
    assert!(named, "{missing:?}");
    drop(silent);
    reader.read().unwrap();
    assert!(reader.streams(&label).is_empty(), "it was unmounted");
}
