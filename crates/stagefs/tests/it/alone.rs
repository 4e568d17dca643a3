//! One mount: what programs may do, what they may not, and what is left behind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use barograph_stagefs::{Mount, MountError, Stopped, clean};
use rustix::fs::{FlockOperation, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::common::{
    BLOCK, Mounted, Served, bytes, can_mount, client, clock, config, eventually, stored,
};

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    let code = result.err()?.raw_os_error()?;
    Some(Errno::from_raw_os_error(code))
}

#[test]
fn files_of_all_lengths_come_back_with_their_attributes() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    for length in [
        0,
        1,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        3 * BLOCK,
        300 * BLOCK + 17,
    ] {
        let (path, data) = (mounted.path("file"), bytes(length as u64, length));
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let known = fs::metadata(&path).unwrap();
        assert_eq!(
            (known.len(), known.uid()),
            (length as u64, rustix::process::geteuid().as_raw())
        );
    }
    let name = OsStr::from_bytes(b"not \xff utf\n8");
    let path = mounted.place.path().join(name);
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_234_567, 891);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let known = fs::metadata(&path).unwrap();
    assert_eq!(
        (known.mode() & 0o7777, known.modified().unwrap()),
        (0o4750, time)
    );
    assert_eq!(fs::read(&path).unwrap(), b"x");
    let names: Vec<_> = fs::read_dir(mounted.place.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, [OsStr::new("file"), name]);
    // A file with a hole: nothing is stored of it.
    let sparse = File::create(mounted.path("sparse")).unwrap();
    sparse.write_all_at(b"end", 1 << 40).unwrap();
    drop(sparse);
    let mut sparse = File::open(mounted.path("sparse")).unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), (1 << 40) + 3);
    let mut end = [1; 8];
    sparse.seek(io::SeekFrom::Start((1 << 40) - 5)).unwrap();
    sparse.read_exact(&mut end).unwrap();
    assert_eq!(&end, b"\0\0\0\0\0end");
}

#[test]
fn a_directory_of_many_names_is_read_once() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    fs::create_dir(mounted.path("d")).unwrap();
    let name =
        |number: usize| format!("a-long-name-so-that-one-answer-has-not-room-for-all-{number:05}");
    for number in 0..1_500 {
        symlink("x", mounted.path("d").join(name(number))).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(mounted.path("d"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, (0..1_500).map(name).collect::<Vec<_>>());
    assert_eq!(
        errno(fs::remove_dir(mounted.path("d"))),
        Some(Errno::NOTEMPTY)
    );
    fs::remove_dir_all(mounted.path("d")).unwrap();
    assert_eq!(stored(&[&served]), (0, 0));
}

#[test]
fn what_is_not_supported_is_refused() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    let (file, other) = (mounted.path("file"), mounted.path("other"));
    fs::write(&file, b"text").unwrap();
    assert_eq!(errno(fs::hard_link(&file, &other)), Some(Errno::OPNOTSUPP));
    let opened = File::open(&file).unwrap();
    let locked = rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked, Err(Errno::OPNOTSUPP));
    let locked = rustix::fs::fcntl_lock(&opened, FlockOperation::NonBlockingLockShared);
    assert_eq!(locked, Err(Errno::OPNOTSUPP));
    let set = rustix::fs::setxattr(&file, "user.x", b"y", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        &other,
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    );
    assert_eq!(fifo, Err(Errno::OPNOTSUPP));
    assert_eq!(
        errno(fs::write(mounted.path(&"n".repeat(256)), b"")),
        Some(Errno::NAMETOOLONG)
    );
    // `mv` copies on this error.
    fs::create_dir(mounted.path("d")).unwrap();
    assert_eq!(
        errno(fs::rename(mounted.path("d"), mounted.path("e"))),
        Some(Errno::XDEV)
    );
    let exclusive = rustix::fs::open(&file, OFlags::CREATE | OFlags::EXCL, Mode::RUSR);
    assert_eq!(exclusive.err(), Some(Errno::EXIST));
    let renamed = rustix::fs::renameat_with(
        rustix::fs::CWD,
        mounted.path("d/none"),
        rustix::fs::CWD,
        &file,
        rustix::fs::RenameFlags::NOREPLACE,
    );
    assert_eq!(renamed, Err(Errno::NOENT));
    assert_eq!(fs::read(&file).unwrap(), b"text");
}

#[test]
fn a_file_that_is_open_outlives_its_name_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    let (path, data) = (mounted.path("file"), bytes(1, 9 * BLOCK));
    fs::write(&path, &data).unwrap();
    let mut reader = File::open(&path).unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    writer.write_all_at(b"changed", BLOCK as u64).unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(
        (read.len(), &read[BLOCK..BLOCK + 7]),
        (data.len(), &b"changed"[..])
    );
    assert_eq!(&read[..BLOCK], &data[..BLOCK]);
    // One that is replaced by a rename, likewise.
    fs::write(&path, b"old").unwrap();
    fs::write(mounted.path("new"), b"new").unwrap();
    let mut old = File::open(&path).unwrap();
    fs::rename(mounted.path("new"), &path).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(
        (text.as_str(), fs::read(&path).unwrap()),
        ("old", b"new".to_vec())
    );
    drop((reader, writer, old));
    // Blocks that are replaced or cut off go as well.
    for length in [20, 3, 7] {
        fs::write(&path, bytes(2, length * BLOCK)).unwrap();
    }
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), &bytes(2, 100)[..]);
    let temporary = tempfile::tempfile_in(mounted.place.path()).unwrap();
    temporary.write_all_at(&data, 0).unwrap();
    drop(temporary);
    assert_eq!(mounted.stop().files_failed, 0);
    // The kernel tells of closed files a moment later.
    eventually("what is not needed is removed", || {
        stored(&[&served]) == (1, 1)
    });
}

#[test]
fn a_stop_stores_what_was_written() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    let mut file = File::create(mounted.path("file")).unwrap();
    file.write_all(b"so far").unwrap();
    let stopped = mounted.stop();
    let busy = Stopped {
        files_failed: 0,
        was_busy: true,
    };
    assert_eq!(stopped, busy);
    assert_eq!(errno(file.write_all(b"later")), Some(Errno::SHUTDOWN));
    drop(file);
    let again = Mounted::new(&[&served]);
    assert_eq!(fs::read(again.path("file")).unwrap(), b"so far");
}

#[test]
fn a_file_system_for_reading_alone_takes_nothing() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    fs::write(mounted.path("file"), b"text").unwrap();
    let mut reading = config();
    reading.is_read_only = true;
    let reader = Mounted::with(&[&served], 1, &reading);
    assert_eq!(fs::read(reader.path("file")).unwrap(), b"text");
    assert_eq!(
        errno(fs::write(reader.path("other"), b"x")),
        Some(Errno::ROFS)
    );
    assert_eq!(
        errno(fs::remove_file(reader.path("file"))),
        Some(Errno::ROFS)
    );
}

#[test]
fn servers_that_are_gone_are_an_error_and_come_back() {
    if !can_mount() {
        return;
    }
    let mut served = Served::new();
    let mounted = Mounted::new(&[&served]);
    fs::write(mounted.path("file"), bytes(1, 4 * BLOCK)).unwrap();
    let mut open = File::create(mounted.path("open")).unwrap();
    open.write_all(b"before").unwrap();
    let reader = File::open(mounted.path("file")).unwrap();
    served.end();
    assert_eq!(errno(fs::metadata(mounted.path("file"))), Some(Errno::IO));
    assert_eq!(errno(fs::read_dir(mounted.place.path())), Some(Errno::IO));
    assert_eq!(errno(fs::write(mounted.path("new"), b"x")), Some(Errno::IO));
    assert_eq!(errno(reader.read_at(&mut [0; 9], 0)), Some(Errno::IO));
    // As much is taken as the buffer has room for, and then nothing.
    let taken = (0..1_000)
        .take_while(|_| open.write_all(&bytes(3, BLOCK / 2)).is_ok())
        .count();
    assert!(taken < 32, "{taken} half blocks");
    assert_eq!(errno(open.sync_all()), Some(Errno::IO));
    served.start();
    open.sync_all().unwrap();
    let read = fs::read(mounted.path("open")).unwrap();
    assert_eq!(&read[..6], b"before");
    assert_eq!(&read[6..6 + BLOCK / 2], bytes(3, BLOCK / 2));
    fs::write(mounted.path("new"), b"x").unwrap();
}

#[test]
fn servers_that_are_full_refuse_and_files_can_be_removed() {
    if !can_mount() {
        return;
    }
    let served = Served::small(1 << 20);
    let mounted = Mounted::new(&[&served]);
    let data = bytes(1, 16 * BLOCK);
    let name = |number: usize| mounted.path(&format!("file{number}"));
    let written = (0..100).take_while(|number| match fs::write(name(*number), &data) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
            false
        }
    });
    let written = written.count();
    assert!((8..17).contains(&written), "{written} files");
    // The one for which there was no room is not there, or as it was when it was created.
    for number in 0..written {
        assert_eq!(fs::read(name(number)).unwrap(), data);
        fs::remove_file(name(number)).unwrap();
    }
    fs::write(name(0), &data).unwrap();
    assert_eq!(fs::read(name(0)).unwrap(), data);
}

#[test]
fn what_cannot_be_mounted_says_what_to_do() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let refused = |place: &Path, change: &dyn Fn(&mut barograph_stagefs::MountConfig)| {
        let mut config = config();
        change(&mut config);
        let mount = Mount::new(&config, client(&[&served], 1), clock(), place);
        mount.err().expect("a refusal").to_string()
    };
    let place = tempfile::tempdir().unwrap();
    let none = place.path().join("none");
    assert!(refused(&none, &|_| ()).contains("No such file"));
    fs::write(&none, b"").unwrap();
    assert!(refused(&none, &|_| ()).contains("at a directory"));
    let here = place.path();
    assert!(refused(here, &|config| config.volume = "a/b".into()).contains("letters"));
    assert!(refused(here, &|config| config.block_bytes = 100).contains("4 KiB"));
    assert!(refused(here, &|config| config.buffer_bytes = 100).contains("two blocks"));
    let gone = Served::new();
    let nobody = client(&[&gone], 1);
    drop(gone);
    let error = Mount::new(&config(), nobody.clone(), clock(), here).err();
    assert!(matches!(error, Some(MountError::Servers(_))), "{error:?}");
    assert!(clean(&config(), nobody, clock()).is_err());
}
