//! Several mounts of one file system, and several servers of one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use barograph_stagefs::clean;
use rustix::io::Errno;

use crate::common::{
    BLOCK, Mounted, Served, bytes, can_mount, client, clock, config, eventually, stored, tree,
};

/// Changes of a file that readers look at meanwhile.
const CHANGES: u8 = 120;

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

#[test]
fn mounts_see_what_others_have_closed() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let [one, two] = [(); 2].map(|()| Mounted::new(&[&served]));
    fs::create_dir(one.path("d")).unwrap();
    fs::write(one.path("d/file"), bytes(1, 3 * BLOCK)).unwrap();
    assert_eq!(fs::read(two.path("d/file")).unwrap(), bytes(1, 3 * BLOCK));
    // What is open is not there yet for others, and its mount sees it.
    let mut open = File::create(one.path("d/open")).unwrap();
    open.write_all(b"text").unwrap();
    assert_eq!(fs::read(one.path("d/open")).unwrap(), b"text");
    assert_eq!(fs::read_dir(one.path("d")).unwrap().count(), 2);
    assert!(!two.path("d/open").exists());
    assert!(fs::remove_dir(one.path("d")).is_err());
    open.sync_all().unwrap();
    assert_eq!(fs::read(two.path("d/open")).unwrap(), b"text");
    // A reader keeps the file that it has opened; who opens it later has the new one.
    let mut reader = File::open(two.path("d/file")).unwrap();
    let mut first = vec![0; 3 * BLOCK];
    reader.read_exact(&mut first).unwrap();
    fs::write(one.path("d/file"), b"new").unwrap();
    assert_eq!(fs::read(two.path("d/file")).unwrap(), b"new");
    assert_eq!(reader.metadata().unwrap().len(), 3 * BLOCK as u64);
    fs::remove_file(one.path("d/file")).unwrap();
    assert!(!two.path("d/file").exists());
    drop(open);
    assert_eq!(tree(one.place.path()), tree(two.place.path()));
}

#[test]
fn of_two_who_change_a_file_the_second_is_refused() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let [one, two] = [(); 2].map(|()| Mounted::new(&[&served]));
    fs::write(one.path("file"), bytes(1, 5 * BLOCK)).unwrap();
    let writer = |mount: &Mounted| {
        File::options()
            .write(true)
            .open(mount.path("file"))
            .unwrap()
    };
    let (first, second) = (writer(&one), writer(&two));
    first.write_all_at(b"first", 0).unwrap();
    second.write_all_at(b"second", 2 * BLOCK as u64).unwrap();
    first.sync_all().unwrap();
    assert!(is_stale(&second.sync_all().unwrap_err()));
    drop(second);
    let mut expect = bytes(1, 5 * BLOCK);
    expect[..5].copy_from_slice(b"first");
    for mount in [&one, &two] {
        // Until the kernel has told of the end of the second writer, its file is the one here.
        eventually("the first change is there", || {
            fs::read(mount.path("file")).is_ok_and(|read| read == expect)
        });
    }
    // Two who create a file: the last one has it, whole.
    let mut created = [&one, &two].map(|mount| File::create(mount.path("new")).unwrap());
    for (at, file) in created.iter_mut().enumerate() {
        file.write_all(&bytes(at as u64, (3 - at) * BLOCK)).unwrap();
    }
    drop(created);
    drop((first, one.stop()));
    assert_eq!(fs::read(two.path("new")).unwrap().len() % BLOCK, 0);
    fs::remove_file(two.path("new")).unwrap();
    fs::remove_file(two.path("file")).unwrap();
    two.stop();
    eventually("nothing is left", || stored(&[&served]) == (0, 0));
}

/// Reads a file again and again: each time it is one of those that were written, whole.
fn read_until(path: &Path, is_over: &AtomicBool) -> usize {
    let (mut whole, mut last) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        match fs::read(path) {
            Ok(read) => {
                let number = read.first().copied().expect("no file is empty");
                assert_eq!(read, vec![number; usize::from(number) * 97 + 2 * BLOCK]);
                assert!(number >= last, "an old file has come back");
                (whole, last) = (whole + 1, number);
            }
            Err(error) => assert!(is_stale(&error), "{error}"),
        }
    }
    whole
}

#[test]
fn readers_see_an_old_file_or_a_new_one() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let [one, two] = [(); 2].map(|()| Mounted::new(&[&served]));
    let content = |number: u8| vec![number; usize::from(number) * 97 + 2 * BLOCK];
    fs::write(one.path("file"), content(0)).unwrap();
    let is_over = AtomicBool::new(false);
    let path = two.path("file");
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&path, &is_over));
        for number in 1..=CHANGES {
            // In place, and by a file that is renamed.
            match number % 2 {
                0 => fs::write(one.path("file"), content(number)).unwrap(),
                _ => {
                    fs::write(one.path("other"), content(number)).unwrap();
                    fs::rename(one.path("other"), one.path("file")).unwrap();
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(fs::read(two.path("file")).unwrap(), content(CHANGES));
    drop(two);
    one.stop();
    let blocks = content(CHANGES).len().div_ceil(BLOCK);
    eventually("the last file alone is left", || {
        stored(&[&served]) == (1, blocks)
    });
}

#[test]
fn one_of_two_servers_may_be_gone() {
    if !can_mount() {
        return;
    }
    let mut served = [Served::new(), Served::new()];
    let both = |served: &[Served; 2]| {
        let [a, b] = served.each_ref();
        Mounted::with(&[a, b], 2, &config())
    };
    let mounted = both(&served);
    for number in 0..12 {
        fs::write(
            mounted.path(&format!("early-{number}")),
            bytes(number, 2 * BLOCK),
        )
        .unwrap();
    }
    served[0].end();
    for number in 0..12 {
        let path = mounted.path(&format!("early-{number}"));
        assert_eq!(fs::read(&path).unwrap(), bytes(number, 2 * BLOCK));
        fs::write(
            mounted.path(&format!("late-{number}")),
            bytes(number, 3 * BLOCK),
        )
        .unwrap();
        if number % 2 == 0 {
            fs::remove_file(&path).unwrap();
        }
    }
    let late = tree(mounted.place.path());
    assert_eq!(late.len(), 18);
    // It comes back with what it had; what was removed stays removed.
    served[0].start();
    assert_eq!(tree(both(&served).place.path()), late);
    assert_eq!(tree(mounted.place.path()), late);
}

#[test]
fn blocks_that_a_kill_has_left_are_cleaned() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let mounted = Mounted::new(&[&served]);
    fs::write(mounted.path("file"), bytes(1, 3 * BLOCK)).unwrap();
    fs::create_dir(mounted.path("d")).unwrap();
    let lost = File::create(mounted.path("d/lost")).unwrap();
    lost.write_all_at(&bytes(2, 5 * BLOCK), 0).unwrap();
    // As after a kill, its blocks are there and no entry is.
    assert_eq!(stored(&[&served]), (2, 8));
    let other = client(&[&served], 1);
    assert_eq!(clean(&config(), other.clone(), clock()).unwrap(), 5);
    assert_eq!(clean(&config(), other, clock()).unwrap(), 0);
    assert_eq!(stored(&[&served]), (2, 3));
    assert_eq!(fs::read(mounted.path("file")).unwrap(), bytes(1, 3 * BLOCK));
}
