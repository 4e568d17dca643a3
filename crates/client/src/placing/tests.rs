//! Tests of files that are divided among tiers, moved and joined.

use std::fs;

use barograph_progressive::{ArraySource, ErrorBound, PackConfig, Shape, pack};
use tempfile::TempDir;

use super::*;
use crate::packed::{AppendError, append_array, replace_file};

/// A packed file of some time steps, and tiers for it.
struct Place {
    folder: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Place {
    fn new(steps: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let folder_path = folder.path().canonicalize().unwrap();
        let path = folder_path.join("field.baro");
        (0..steps).for_each(|step| append(&path, step).map(|_| ()).unwrap());
        for name in ["fast", "slow", "other"] {
            fs::create_dir(folder_path.join(name)).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        Self {
            folder,
            path,
            bytes,
        }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn tier(&self, name: &str, bytes_max: u64) -> TierDir {
        let dir = self.dir(name);
        TierDir { dir, bytes_max }
    }

    /// A tenth on the fast tier, all else on the slow one.
    fn tiers(&self) -> Vec<TierDir> {
        let tenth = self.bytes.len() as u64 / 10;
        vec![self.tier("fast", tenth), self.tier("slow", u64::MAX)]
    }

    fn place(&self, tiers: &[TierDir]) -> Result<Vec<FilePart>, PlaceError> {
        place_file(&self.path, tiers, |_, _| ())
    }

    /// The bytes as readers see them.
    fn seen(&self) -> Vec<u8> {
        let bytes = ArrayBytes::open(&self.path).unwrap();
        bytes.fetch(0..bytes.byte_count()).unwrap().into_owned()
    }

    /// Names of the files in a directory.
    fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir(name)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|it| it.contains("baro")).collect();
        names.sort();
        names
    }
}

fn append(path: &Path, step: u64) -> Result<u64, AppendError> {
    let value = |at: usize| ((at as u64 + step) as f64 * 0.05).sin() + (at % 7) as f64 * 1e-3;
    let values: Vec<f64> = (0..3_000).map(value).collect();
    let mut packed = pack(
        &values,
        Shape::new(&[3_000]).unwrap(),
        &PackConfig::default(),
    )
    .unwrap();
    packed.header.step = Some(step);
    append_array(path, &packed.header, &packed.buckets)
}

#[test]
fn a_file_over_two_tiers_is_read_as_one_and_joined_again() {
    let place = Place::new(3);
    let mut told = Vec::new();
    let all = place.bytes.len() as u64;
    let parts = place_file(&place.path, &place.tiers(), |done, all| {
        told.push((done, all))
    })
    .unwrap();
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), all);
    assert!(parts[0].bytes <= all / 10 && parts[0].bytes > all / 20);
    assert_eq!(told.last(), Some(&(all, all)));
    assert_eq!(place.seen(), place.bytes);
    // The index is small, and nothing else is left.
    assert!(fs::metadata(&place.path).unwrap().len() < 1_000);
    assert_eq!(place.files("."), ["field.baro"]);
    assert_eq!(
        (place.files("fast").len(), place.files("slow").len()),
        (1, 1)
    );
    // Any piece, over any border.
    let bytes = ArrayBytes::open(&place.path).unwrap();
    for start in (0..all).step_by(997) {
        for length in [0, 1, 500, all] {
            let end = all.min(start + length);
            let expect = &place.bytes[start as usize..end as usize];
            assert_eq!(&*bytes.fetch(start..end).unwrap(), expect);
        }
    }
    assert!(bytes.fetch(0..all + 1).is_err());
    assert_eq!(join_file(&place.path, |_, _| ()).unwrap(), all);
    assert_eq!(fs::read(&place.path).unwrap(), place.bytes);
    assert_eq!(
        (place.files("fast").len(), place.files("slow").len()),
        (0, 0)
    );
    assert!(matches!(
        join_file(&place.path, |_, _| ()),
        Err(PlaceError::One)
    ));
    assert_eq!(place.files("."), ["field.baro"]);
}

#[test]
fn a_coarse_reading_needs_no_slow_tier() {
    let place = Place::new(1);
    let parts = place.place(&place.tiers()).unwrap();
    fs::remove_file(&parts[1].path).unwrap();
    let array = ArraySource::open(ArrayBytes::open(&place.path).unwrap()).unwrap();
    let header = array.header().clone();
    let buckets = header.buckets_for(&ErrorBound::Nrmse(0.05)).unwrap();
    let whole = header.shape().whole();
    array.read::<f64>(buckets, whole, 0, 1).unwrap();
    let refused = array.read::<f64>(header.buckets().len(), whole, 0, 1);
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("slow/field.baro."), "{text}");
    // It is read again once the tier is back; another file in its place is refused.
    fs::write(&parts[1].path, "something else").unwrap();
    assert!(
        array
            .read::<f64>(header.buckets().len(), whole, 0, 1)
            .is_err()
    );
    let other = Place::new(1);
    let of_other = other.place(&other.tiers()).unwrap();
    fs::copy(&of_other[1].path, &parts[1].path).unwrap();
    let refused = array.read::<f64>(header.buckets().len(), whole, 0, 1);
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("part of another file"), "{text}");
}

#[test]
fn a_file_is_moved_and_what_stays_is_not_copied() {
    let place = Place::new(2);
    let before = place.place(&place.tiers()).unwrap();
    let tiers = [place.tiers()[0].clone(), place.tier("other", u64::MAX)];
    let mut copied = 0;
    let after = place_file(&place.path, &tiers, |done, _| copied = done).unwrap();
    assert_eq!(before[0], after[0]);
    assert_eq!(copied, after[1].bytes);
    assert_eq!(place.seen(), place.bytes);
    assert_eq!(
        (place.files("slow").len(), place.files("other").len()),
        (0, 1)
    );
    // A file that lies as it should is left alone.
    let seen = fs::metadata(&place.path).unwrap().ino();
    assert_eq!(place.place(&tiers).unwrap(), after);
    assert_eq!(fs::metadata(&place.path).unwrap().ino(), seen);
    assert_eq!(place.files("."), ["field.baro"]);
    // All to one tier, through a link.
    let link = place.dir("link");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    place_file(&link, &[place.tier("slow", u64::MAX)], |_, _| ()).unwrap();
    assert_eq!(place.seen(), place.bytes);
    assert_eq!(
        (place.files("fast").len(), place.files("other").len()),
        (0, 0)
    );
}

#[test]
fn a_part_is_as_private_as_the_file() {
    let place = Place::new(1);
    for mode in [0o600, 0o640, 0o644] {
        fs::set_permissions(&place.path, Permissions::from_mode(mode)).unwrap();
        let parts = place.place(&place.tiers()).unwrap();
        let files = parts.iter().map(|part| &part.path).chain([&place.path]);
        for file in files {
            assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, mode);
        }
        join_file(&place.path, |_, _| ()).unwrap();
        assert_eq!(fs::metadata(&place.path).unwrap().mode() & 0o777, mode);
    }
}

#[test]
fn root_leaves_a_file_to_its_owner_and_removes_no_part_of_others() {
    let place = Place::new(1);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (owner, stranger) = (3_000_001, 3_000_002);
    std::os::unix::fs::chown(&place.path, Some(owner), Some(owner)).unwrap();
    let parts = place.place(&place.tiers()).unwrap();
    for file in parts.iter().map(|part| &part.path).chain([&place.path]) {
        assert_eq!(fs::metadata(file).unwrap().uid(), owner);
    }
    std::os::unix::fs::chown(&parts[1].path, Some(stranger), None).unwrap();
    join_file(&place.path, |_, _| ()).unwrap();
    assert_eq!(fs::metadata(&place.path).unwrap().uid(), owner);
    assert_eq!(
        (place.files("fast").len(), place.files("slow").len()),
        (0, 1)
    );
}

#[test]
fn what_cannot_be_placed_leaves_the_file_as_it_was() {
    let place = Place::new(2);
    let refused = place.place(&[place.tier("fast", 500), place.tier("slow", 900)]);
    assert!(
        matches!(refused, Err(PlaceError::NoRoom { .. })),
        "{refused:?}"
    );
    assert!(matches!(place.place(&[]), Err(PlaceError::Tiers)));
    let gone = [place.tiers()[0].clone(), place.tier("none", u64::MAX)];
    assert!(matches!(place.place(&gone), Err(PlaceError::Io { .. })));
    assert_eq!(fs::read(&place.path).unwrap(), place.bytes);
    assert_eq!(
        (place.files("fast").len(), place.files(".")),
        (0, vec!["field.baro".into()])
    );
    // A part that is already there cannot be read, so nothing is moved.
    let parts = place.place(&place.tiers()).unwrap();
    let index = fs::read(&place.path).unwrap();
    let away = place.dir("away");
    fs::rename(&parts[1].path, &away).unwrap();
    assert!(place.place(&[place.tier("other", u64::MAX)]).is_err());
    assert!(join_file(&place.path, |_, _| ()).is_err());
    assert_eq!(fs::read(&place.path).unwrap(), index);
    assert_eq!(place.files("other").len(), 0);
    fs::rename(&away, &parts[1].path).unwrap();
    assert_eq!(place.seen(), place.bytes);
    assert_eq!(place.files("."), ["field.baro"]);
}

#[test]
fn what_takes_the_place_of_a_tiered_file_leaves_no_part() {
    let place = Place::new(1);
    place.place(&place.tiers()).unwrap();
    replace_file(&place.path, &[&place.bytes]).unwrap();
    assert_eq!(
        (place.files("fast").len(), place.files("slow").len()),
        (0, 0)
    );
    assert_eq!(place.seen(), place.bytes);
}

#[test]
fn nobody_appends_to_a_tiered_file_or_while_it_is_placed() {
    let place = Place::new(1);
    let held = HeldFile::hold(&place.path).unwrap();
    assert!(matches!(append(&place.path, 9), Err(AppendError::Busy)));
    assert!(matches!(place.place(&place.tiers()), Err(PlaceError::Busy)));
    held.finish();
    place.place(&place.tiers()).unwrap();
    assert!(matches!(append(&place.path, 9), Err(AppendError::Tiered)));
    join_file(&place.path, |_, _| ()).unwrap();
    append(&place.path, 9).unwrap();
}

#[test]
fn parts_that_a_killed_one_has_left_are_removed_and_others_are_not() {
    let place = Place::new(1);
    place.place(&place.tiers()).unwrap();
    let held = HeldFile::hold(&place.path).unwrap();
    let extents = planned(&held.source, &[place.tier("other", u64::MAX)]).unwrap();
    let parts = held
        .parts_of(&extents, &[place.tier("other", u64::MAX)])
        .unwrap();
    held.note(&parts).unwrap();
    let all = 0..place.bytes.len() as u64;
    held.write_part(&parts[0].part, &[all], |_| ()).unwrap();
    // As after a kill: the notes and the new part are there.
    drop(held);
    assert_eq!(place.files("other").len(), 1);
    let held = HeldFile::hold(&place.path).unwrap();
    assert_eq!(place.files("other").len(), 0);
    held.finish();
    assert_eq!(
        (place.seen(), place.files(".")),
        (place.bytes.clone(), vec!["field.baro".into()])
    );
    // Notes that name what is no part of theirs remove nothing.
    let precious = place.dir("precious");
    fs::write(&precious, "contents").unwrap();
    let notes = json!([{ "file": precious.to_str(), "id": hex(&[7; 16]) }, { "file": 5 }, 7]);
    fs::write(
        with_suffix(&place.path, ".placing").unwrap(),
        notes.to_string(),
    )
    .unwrap();
    HeldFile::hold(&place.path).unwrap().finish();
    assert!(precious.exists());
    fs::write(with_suffix(&place.path, ".placing").unwrap(), "[{").unwrap();
    HeldFile::hold(&place.path).unwrap().finish();
    assert_eq!(place.seen(), place.bytes);
}

#[test]
fn an_index_that_is_damaged_is_refused() {
    let place = Place::new(1);
    place.place(&place.tiers()).unwrap();
    let index: Json = serde_json::from_slice(&fs::read(&place.path).unwrap()).unwrap();
    let extents = index["extents"].as_array().unwrap().len();
    let mut changes = vec![
        ("/format", json!("something")),
        ("/version", json!(2)),
        ("/parts", json!(7)),
        ("/parts/0/id", json!("zz")),
        ("/parts/0/bytes", json!(-1)),
        ("/parts/1/bytes", json!(u64::MAX)),
        ("/parts/0/file", json!(null)),
        ("/extents/0/1", json!(9)),
        ("/extents/0/0", json!(u64::MAX)),
        ("/extents", json!([])),
        ("/extents", json!([[u64::MAX, 0], [u64::MAX, 1]])),
    ];
    changes.push(("/extents/1", json!([])));
    assert!(extents >= 2);
    for (at, value) in changes {
        let mut damaged = index.clone();
        *damaged.pointer_mut(at).unwrap() = value;
        fs::write(&place.path, damaged.to_string()).unwrap();
        let opened = ArrayBytes::open(&place.path);
        assert!(opened.is_err(), "{at}: {opened:?}");
    }
    fs::write(&place.path, "{").unwrap();
    assert!(ArrayBytes::open(&place.path).is_err());
    fs::write(&place.path, vec![b'{'; 17 << 20]).unwrap();
    assert!(ArrayBytes::open(&place.path).is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn no_index_makes_a_reader_panic(
        changes in proptest::collection::vec((0_usize..500, proptest::prelude::any::<u8>()), 1..4),
        digits in proptest::collection::vec((0_usize..500, b'0'..=b'9'), 0..9),
        places in proptest::collection::vec((0_u64..1 << 20, 0_u64..1 << 20), 8),
    ) {
        static PLACE: std::sync::OnceLock<(Place, Vec<u8>)> = std::sync::OnceLock::new();
        let (place, index) = PLACE.get_or_init(|| {
            let place = Place::new(1);
            place.place(&place.tiers()).unwrap();
            let index = fs::read(&place.path).unwrap();
            (place, index)
        });
        let mut damaged = index.clone();
        let length = damaged.len();
        changes.iter().for_each(|(at, byte)| damaged[at % length] = *byte);
        for (at, digit) in digits {
            // Numbers stay numbers, so that what they say is what is tried.
            if damaged[at % length].is_ascii_digit() {
                damaged[at % length] = digit;
            }
        }
        let path = place.dir("damaged.baro");
        fs::write(&path, damaged).unwrap();
        if let Ok(bytes) = ArrayBytes::open(&path) {
            for (start, end) in places {
                let _ = bytes.fetch(start.min(end)..start.max(end));
            }
            let end = bytes.byte_count();
            let _ = bytes.fetch(end.saturating_sub(9)..end);
        }
    }
}
