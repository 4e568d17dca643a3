//! Lines as `lfs changelog` prints them, of all versions whose lines have been published.
//!
//! The lines are made for people: names are printed as they are, so that a name with a line break
//! or with ` s=[` in it can look like something else. A line that can be read in two ways is
//! refused. Whoever can read the device reads binary records.

use thiserror::Error;

use super::fid::{Fid, hexadecimal};
use super::nid::Nid;
use super::record::{ChangelogRecord, TYPE_FLAGS, record_time};
use super::record_type::RecordType;

/// The reason why a line is no record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LineFault {
    /// The line does not begin as the line of a record does.
    #[error("the line does not begin with index, type, time, date, flags and target")]
    Head,
    /// The line has something after its head that is no known field.
    #[error("the line of record {index} has the unknown field at byte {at}")]
    Field {
        /// Number of the record.
        index: u64,
        /// Where the field begins.
        at: usize,
    },
    /// The names of a rename can be told apart in more than one way.
    #[error("the names in the line of record {index} can be read in two ways")]
    Ambiguous {
        /// Number of the record.
        index: u64,
    },
}

/// Fields that may follow a field with a free text, each with the blank before it.
const AFTER_JOB: &[&[u8]] = &[b" ef=0x", b" u=", b" nid=", b" m=", b" x=", b" p=["];
const AFTER_XATTR: &[&[u8]] = &[b" p=["];

/// Reads a line without its line break.
///
/// # Errors
///
/// The line is no record, or can be read in two ways.
pub fn parse_line(line: &[u8]) -> Result<ChangelogRecord<'_>, LineFault> {
    let (mut record, mut rest) = head(line).ok_or(LineFault::Head)?;
    let index = record.index;
    let fault = |rest: &[u8]| LineFault::Field {
        index,
        at: line.len() - rest.len(),
    };
    if let Some((job, after)) = free_text(rest, b" j=", AFTER_JOB) {
        (record.job, rest) = (job, after);
    }
    if let Some((_, after)) = word(rest, b" ef=") {
        rest = after;
    }
    if let Some((ids, after)) = word(rest, b" u=") {
        record.user = Some(user(ids).ok_or_else(|| fault(rest))?);
        rest = after;
    }
    if let Some((nid, after)) = word(rest, b" nid=") {
        record.nid = std::str::from_utf8(nid).ok().and_then(Nid::parse);
        rest = after;
    }
    if let Some((mode, after)) = word(rest, b" m=") {
        record.open = Some(open_mode(mode).ok_or_else(|| fault(rest))?);
        rest = after;
    }
    if let Some((xattr, after)) = free_text(rest, b" x=", AFTER_XATTR) {
        (record.xattr, rest) = (xattr, after);
    }
    if let Some((parent, after)) = word(rest, b" p=") {
        record.parent = Fid::parse(parent).ok_or_else(|| fault(rest))?;
        rest = after;
    }
    let Some(names) = rest.strip_prefix(b" ") else {
        return match rest {
            [] => Ok(record),
            _ => Err(fault(rest)),
        };
    };
    record.name = names;
    let is_rename = matches!(
        record.record_type(),
        Some(RecordType::Rename | RecordType::Migrate)
    );
    if is_rename {
        split_names(&mut record, names).ok_or(LineFault::Ambiguous { index })?;
    }
    Ok(record)
}

/// Whether a line begins as the line of a record does. A line that does not is the rest of a name
/// with a line break in it.
pub fn begins_record(line: &[u8]) -> bool {
    head(line).is_some()
}

/// Reads index, type, time, date, flags and target.
fn head(line: &[u8]) -> Option<(ChangelogRecord<'_>, &[u8])> {
    let mut rest = line;
    let mut next = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let text = &rest[start..];
        let end = text.iter().position(|byte| *byte == b' ');
        let (word, after) = text.split_at(end.unwrap_or(text.len()));
        rest = after;
        Some(word)
    };
    let index = decimal(next()?)?;
    let name = next()?;
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, name) = name.split_at(digits);
    let type_number = u32::try_from(decimal(number)?).ok()?;
    let known = RecordType::from_number(type_number);
    let is_index = !matches!(index, 0 | u64::MAX);
    if known.is_some_and(|of| of.as_str().as_bytes() != name) || !is_index {
        return None;
    }
    let time = time_of_day(next()?)?;
    let date = days(next()?)?;
    let flags = hexadecimal(next()?.strip_prefix(b"0x")?)?;
    let target = Fid::parse(next()?.strip_prefix(b"t=")?)?;
    let record = ChangelogRecord {
        type_number,
        flags: flags as u16 & TYPE_FLAGS,
        index,
        time: record_time(date.checked_mul(86_400_000_000_000)?.checked_add(time)?),
        target,
        ..ChangelogRecord::default()
    };
    Some((record, rest))
}

/// Tells the new name from the old one, and reads the FIDs between them.
fn split_names<'a>(record: &mut ChangelogRecord<'a>, names: &'a [u8]) -> Option<()> {
    let mut found = None;
    for at in 0..names.len() {
        let Some(split) = source_at(names, at) else {
            continue;
        };
        if found.replace(split).is_some() {
            return None;
        }
    }
    if let Some((name, source, old_name)) = found {
        record.name = name;
        record.source = Some(source);
        record.old_name = old_name;
    }
    Some(())
}

type Split<'a> = (&'a [u8], (Fid, Fid), &'a [u8]);

/// Reads ` s=FID sp=FID OLD` at this place of the names.
fn source_at(names: &[u8], at: usize) -> Option<Split<'_>> {
    let (source, rest) = word(&names[at..], b" s=")?;
    let (parent, rest) = word(rest, b" sp=")?;
    let is_fid = |text: &[u8]| text.first() == Some(&b'[');
    let fids = (Fid::parse(source)?, Fid::parse(parent)?);
    let old_name = rest.strip_prefix(b" ").unwrap_or_default();
    (is_fid(source) && is_fid(parent)).then_some((&names[..at], fids, old_name))
}

/// The text after this key up to the next blank, and what follows.
fn word<'a>(rest: &'a [u8], key: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let value = rest.strip_prefix(key)?;
    let end = value.iter().position(|byte| *byte == b' ');
    Some(value.split_at(end.unwrap_or(value.len())))
}

/// The text after this key up to one of the fields that may follow, and what follows. The text may
/// have blanks.
fn free_text<'a>(rest: &'a [u8], key: &[u8], next: &[&[u8]]) -> Option<(&'a [u8], &'a [u8])> {
    let value = rest.strip_prefix(key)?;
    let is_next = |at: &usize| next.iter().any(|key| value[*at..].starts_with(key));
    let end = (0..value.len()).find(is_next);
    Some(value.split_at(end.unwrap_or(value.len())))
}

fn user(ids: &[u8]) -> Option<(u64, u64)> {
    let colon = ids.iter().position(|byte| *byte == b':')?;
    Some((decimal(&ids[..colon])?, decimal(&ids[colon + 1..])?))
}

fn open_mode(mode: &[u8]) -> Option<u32> {
    let bits = mode.iter().zip(*b"rwx").enumerate();
    let bit = |(at, (byte, letter)): (usize, (&u8, u8))| match *byte {
        b'-' => Some(0),
        byte if byte == letter => Some(1 << at),
        _ => None,
    };
    let bits: Option<u32> = bits.map(bit).sum();
    bits.filter(|_| mode.len() == 3)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    digits.parse().ok()
}

/// Numbers between these separators.
fn numbers<const N: usize>(text: &[u8], separators: &[u8]) -> Option<[u64; N]> {
    let mut parts = text.split(|byte| separators.contains(byte));
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = decimal(parts.next()?)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The ns of the day of `15:15:21.977666834`. Old versions do not fill up the nanoseconds.
fn time_of_day(text: &[u8]) -> Option<i64> {
    let [hours, minutes, seconds, ns] = numbers(text, b":.")?;
    let is_time = hours < 24 && minutes < 60 && seconds < 61 && ns < 1_000_000_000;
    if !is_time {
        return None;
    }
    let seconds = (hours * 60 + minutes) * 60 + seconds;
    i64::try_from(seconds * 1_000_000_000 + ns).ok()
}

/// Days since the epoch of `2018.01.09`, by Gauss's count of days from March on.
fn days(text: &[u8]) -> Option<i64> {
    let [year, month, day] = numbers(text, b".")?;
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    if !is_date || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    let days = before + (month * 306 + 5) / 10 + day - 1;
    // Days from 1 March of the year 0 to the epoch.
    i64::try_from(days).ok().map(|days| days - 719_468)
}
