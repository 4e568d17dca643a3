//! Tests of lines: those that have been published, and traps.

use proptest::prelude::*;

use super::fid::Fid;
use super::record::ChangelogRecord;
use super::text::*;

/// Lines that `lfs changelog` printed, which the Lustre manual, a mailing list and an open-source
/// test suite have published; comments name the places.
const PUBLISHED: &str = include_str!("../../tests/data/changelog-lines.txt");

fn published() -> impl Iterator<Item = &'static str> {
    PUBLISHED.lines().filter(|line| !line.starts_with('#'))
}

/// The line of a record as a new version prints it.
fn line_of(record: &ChangelogRecord<'_>) -> String {
    let of = record.record_type().unwrap();
    let time = record.time_ns();
    let seconds = time / 1_000_000_000;
    let (of_day, days) = (seconds % 86_400, seconds / 86_400);
    let mut line = format!(
        "{} {:02}{:<5} {:02}:{:02}:{:02}.{:09} DAY{days} {:#x} t={}",
        record.index,
        record.type_number,
        of.as_str(),
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60,
        time % 1_000_000_000,
        record.flags,
        record.target
    );
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if !record.job.is_empty() {
        line += &format!(" j={}", text(record.job));
    }
    if let Some((user, group)) = record.user {
        line += &format!(" ef=? u={user}:{group}");
    }
    if let Some(nid) = record.nid {
        line += &format!(" nid={nid}");
    }
    if let Some(open) = record.open {
        let letter = |bit: u32, letter| if open & bit != 0 { letter } else { '-' };
        line += &format!(" m={}{}{}", letter(1, 'r'), letter(2, 'w'), letter(4, 'x'));
    }
    if !record.xattr.is_empty() {
        line += &format!(" x={}", text(record.xattr));
    }
    if !record.parent.is_none() {
        line += &format!(" p={}", record.parent);
    }
    if !record.name.is_empty() {
        line += &format!(" {}", text(record.name));
    }
    if let Some((source, parent)) = record.source {
        line += &format!(" s={source} sp={parent} {}", text(record.old_name));
    }
    line
}

/// Each published line says what its record says: what is printed again is the line itself, but
/// for the date, the extra flags, blanks after the type and nanoseconds that were not filled up.
#[test]
fn published_lines_are_read_whole() {
    let mut count = 0;
    for line in published() {
        let record = parse_line(line.as_bytes()).unwrap();
        let printed = line_of(&record);
        let words = |line: &str| -> Vec<String> {
            let of_line = line.split_ascii_whitespace().enumerate();
            let kept = of_line.filter(|(at, word)| *at != 3 && !word.starts_with("ef="));
            kept.map(|(_, word)| word.replace("23.43229006", "23.043229006"))
                .collect()
        };
        assert_eq!(words(&printed), words(line));
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(ChangelogRecord::parse(&bytes), Ok((record, bytes.len())));
        count += 1;
    }
    assert_eq!(count, 22);
}

#[test]
fn times_of_lines() {
    let check = |time: &str, ns: Option<i64>| {
        let line = format!("1 01CREAT {time} 0x0 t=[0x1:0x2:0x0]");
        let read = parse_line(line.as_bytes()).ok();
        assert_eq!(read.map(|record| record.time_ns()), ns, "{time}");
    };
    check("00:00:00.000000000 1970.01.01", Some(0));
    check(
        "15:15:21.977666834 2018.01.09",
        Some(1_515_510_921_977_666_834),
    );
    check(
        "12:49:23.43229006 2016.03.24",
        Some(1_458_823_763_043_229_006),
    );
    check(
        "23:59:59.999999999 2024.02.29",
        Some(1_709_251_199_999_999_999),
    );
    check("24:00:00.0 2018.01.09", None);
    let most = u64::MAX;
    check(&format!("{most}:{most}:{most}.{most} 2018.01.09"), None);
    check(&format!("00:00:00.0 {most}.{most}.{most}"), None);
    check("00:00:00.1000000000 2018.01.09", None);
    check("00:00:00.0 2018.13.09", None);
    check("00:00:00.0 99999999999.01.09", None);
    check("00:00.0 2018.01.09", None);
}

const HEAD: &str = "7 08RENME 00:00:01.5 2020.01.01 0x1 t=[0x1:0x2:0x0]";

#[test]
fn names_are_taken_as_they_are() {
    let check = |rest: &str, name: &str, old_name: &str| {
        let line = format!("{HEAD} p=[0x9:0x1:0x0] {rest}");
        let record = parse_line(line.as_bytes()).unwrap();
        let names = (name.as_bytes(), old_name.as_bytes());
        assert_eq!((record.name, record.old_name), names, "{rest}");
        assert_eq!(record.source.is_some(), !old_name.is_empty());
    };
    let source = "s=[0x3:0x1:0x0] sp=[0x4:0x1:0x0]";
    check(&format!("new {source} old"), "new", "old");
    check(&format!("a b  c  {source}  d  "), "a b  c ", " d  ");
    check(
        &format!("n s=[x {source} o s=[0x1:0x1:0x0]"),
        "n s=[x",
        "o s=[0x1:0x1:0x0]",
    );
    check(&format!("n\nm {source} o\np"), "n\nm", "o\np");
    check(&format!("n {source} /full/path"), "n", "/full/path");
    check("alone", "alone", "");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let source = "s=[0x3:0x1:0x0] sp=[0x4:0x1:0x0]";
    let line = format!("{HEAD} p=[0x9:0x1:0x0] a {source} b {source} c");
    let fault = LineFault::Ambiguous { index: 7 };
    assert_eq!(parse_line(line.as_bytes()), Err(fault));
    let create = line.replace("08RENME", "01CREAT");
    let name = format!("a {source} b {source} c");
    assert_eq!(parse_line(create.as_bytes()).unwrap().name, name.as_bytes());
}

#[test]
fn fields_with_blanks_and_fields_that_are_none() {
    let read = |rest: &str| {
        let line = format!("3 15XATTR 00:00:01.5 2020.01.01 0x0 t=[0x1:0x2:0x0]{rest}");
        let bytes: &'static [u8] = line.into_bytes().leak();
        parse_line(bytes)
    };
    let record = read(" j=my job.1 ef=0xf u=1:2 nid=?? x=user.a b p=[0x9:0x1:0x0] n").unwrap();
    assert_eq!(
        (record.job, record.xattr),
        (&b"my job.1"[..], &b"user.a b"[..])
    );
    assert_eq!((record.nid, record.name), (None, &b"n"[..]));
    assert_eq!(record.parent, Fid::new(9, 1, 0));
    assert_eq!(read(" m=rwx").unwrap().open, Some(7));
    for rest in [" u=1", " m=rw", " m=wr-", " p=[1:2]", "x"] {
        assert!(read(rest).is_err(), "{rest}");
    }
    let unknown =
        parse_line(b"3 77WHAT 00:00:01.5 2020.01.01 0x0 t=[0x1:0x2:0x0] p=[0x9:0x1:0x0] n");
    assert_eq!(unknown.unwrap().type_number, 77);
    for line in [
        "",
        "x",
        "0 01CREAT 00:00:01.5 2020.01.01 0x0 t=[0x1:0x2:0x0]",
        "1 01MKDIR 00",
    ] {
        assert!(!begins_record(line.as_bytes()), "{line}");
    }
}

proptest! {
    #[test]
    fn any_line_is_read_or_refused(
        start in 0usize..200,
        line in "[ -~]{0,60}",
        kept in any::<prop::sample::Index>(),
    ) {
        let published = published().nth(start % 22).unwrap_or("");
        let mixed = format!("{}{line}", &published[..kept.index(published.len() + 1)]);
        for text in [mixed.as_bytes(), line.as_bytes()] {
            if let Ok(record) = parse_line(text) {
                prop_assert!(record.index > 0 && begins_record(text));
            }
        }
    }
}
