//! Parser of the output of `smartctl --json`, with values in our units.
//!
//! Documents: smartctl(8) and the JSON that smartmontools 7.0 to 7.4 print. The meaning of the
//! numbers is that of the standards: NVM Express base specification, "SMART / Health Information"
//! (02h); ATA ACS-4, "Device Statistics log" (04h), whose counters have fixed units; SCSI SPC and
//! SBC log pages. ATA's SMART attributes have no standard: their meaning is taken from the names
//! that smartctl's database (`drivedb.h`) gives them, and only if the statistics log has no counter
//! for it.
//! database (`drivedb.h`) gives them, and only where the statistics log has no counter for it.

use serde_json::Value;

use crate::util::parse::{decimal, escape, number};

/// Bytes of a block, for all counts of blocks here.
const BLOCK_BYTES: u64 = 512;
/// Valid temperatures of a disk that answers.
const CELSIUS: std::ops::RangeInclusive<f64> = -60.0..=150.0;
/// The bits of smartctl's exit status that mean that it could not query the disk: EXIT STATUS of
/// smartctl(8).
const COULD_NOT_LOOK: u64 = 0b11;
/// Longest message of smartctl that is passed on, in bytes.
const COMPLAINT_BYTES_MAX: usize = 160;

/// The result of asking a disk.
#[derive(Debug, PartialEq)]
pub(super) enum SmartAnswer {
    /// The disk's values.
    Known(Box<Smart>),
    /// The disk sleeps and was not woken.
    Asleep,
    /// The disk has no values, for this reason.
    Nothing(String),
}

/// The values of a disk; `None` for those that it does not have.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Smart {
    pub(super) is_ok: Option<bool>,
    pub(super) celsius: Option<f64>,
    /// Share of the rated endurance that is used; more than 1 if it is exceeded.
    pub(super) wear: Option<f64>,
    pub(super) spare: Option<f64>,
    /// Counts of blocks are in blocks of 512 bytes.
    pub(super) bad_blocks: Option<u64>,
    pub(super) read_blocks: Option<u64>,
    pub(super) write_blocks: Option<u64>,
    pub(super) power_on_s: Option<f64>,
    pub(super) power_cycles: Option<u64>,
    pub(super) media_errors: Option<u64>,
    pub(super) unsafe_shutdowns: Option<u64>,
    pub(super) logged_errors: Option<u64>,
    pub(super) criticals: Option<u64>,
}

/// Parses the output of smartctl; the error states why it cannot be parsed.
pub(super) fn parse(bytes: &[u8]) -> Result<SmartAnswer, String> {
    let all: Value = serde_json::from_slice(bytes).map_err(|e| format!("no JSON: {e}"))?;
    match at(&all, &["json_format_version"]).and_then(|v| v.get(0)?.as_u64()) {
        Some(1) => {}
        Some(other) => return Err(format!("format version {other} is not known here")),
        None => return Err("it has no json_format_version".to_owned()),
    }
    let status = count(&all, &["smartctl", "exit_status"]).unwrap_or(0);
    let complaint = complaint(&all);
    if status & COULD_NOT_LOOK != 0 {
        let is_asleep = |text: &str| {
            text.contains("STANDBY") || text.contains("SLEEP") || text.contains("low-power")
        };
        return Ok(match complaint {
            Some(text) if is_asleep(&text) => SmartAnswer::Asleep,
            Some(text) => SmartAnswer::Nothing(text),
            None => SmartAnswer::Nothing(format!("smartctl ended with status {status}")),
        });
    }
    let smart = read(&all);
    if smart == Smart::default() {
        let why = complaint.unwrap_or("it has no SMART data".to_owned());
        return Ok(SmartAnswer::Nothing(why));
    }
    Ok(SmartAnswer::Known(Box::new(smart)))
}

/// The first message that is an error, else the first.
fn complaint(all: &Value) -> Option<String> {
    let messages = at(all, &["smartctl", "messages"])?.as_array()?;
    let is_error = |m: &&Value| m.get("severity").and_then(Value::as_str) == Some("error");
    let message = messages.iter().find(is_error).or(messages.first())?;
    let text = message.get("string")?.as_str()?.as_bytes();
    Some(escape(&text[..text.len().min(COMPLAINT_BYTES_MAX)]))
}

fn read(all: &Value) -> Smart {
    let common = Smart {
        is_ok: at(all, &["smart_status", "passed"]).and_then(Value::as_bool),
        celsius: at(all, &["temperature", "current"])
            .and_then(Value::as_f64)
            .filter(|c| CELSIUS.contains(c)),
        power_on_s: power_on_s(all),
        power_cycles: count(all, &["power_cycle_count"]),
        ..Default::default()
    };
    // Number of blocks of 512 bytes in one of the device's own: usually 1 or 8.
    let ratio = match count(all, &["logical_block_size"]) {
        Some(bytes) if bytes >= BLOCK_BYTES && bytes % BLOCK_BYTES == 0 => bytes / BLOCK_BYTES,
        _ => 1,
    };
    if let Some(log) = all.get("nvme_smart_health_information_log") {
        return nvme(log, common);
    }
    if all.get("scsi_grown_defect_list").is_some() || all.get("scsi_error_counter_log").is_some() {
        return scsi(all, ratio, common);
    }
    ata(all, ratio, common)
}

fn power_on_s(all: &Value) -> Option<f64> {
    let hours = count(all, &["power_on_time", "hours"])?;
    let minutes = count(all, &["power_on_time", "minutes"]).unwrap_or(0);
    Some(hours as f64 * 3600.0 + minutes as f64 * 60.0)
}

/// The values of an NVMe drive. It counts no bad blocks, only the share of spare blocks that is
/// left.
fn nvme(log: &Value, common: Smart) -> Smart {
    /// A data unit is 1000 blocks of 512 bytes.
    const UNIT_BLOCKS: u64 = 1000;
    let units = |name: &str| count(log, &[name])?.checked_mul(UNIT_BLOCKS).filter(fits);
    Smart {
        wear: percent(count(log, &["percentage_used"])),
        spare: percent(count(log, &["available_spare"]).filter(|spare| *spare <= 100)),
        read_blocks: units("data_units_read"),
        write_blocks: units("data_units_written"),
        media_errors: count(log, &["media_errors"]),
        unsafe_shutdowns: count(log, &["unsafe_shutdowns"]),
        logged_errors: count(log, &["num_err_log_entries"]),
        criticals: count(log, &["critical_warning"]).map(|bits| u64::from(bits.count_ones())),
        ..common
    }
}

fn scsi(all: &Value, ratio: u64, common: Smart) -> Smart {
    const ERRORS: &str = "scsi_error_counter_log";
    let uncorrected = |way: &str| count(all, &[ERRORS, way, "total_uncorrected_errors"]);
    let ways = ["read", "write", "verify"].map(uncorrected);
    let blocks = |way: &str| gigabytes(at(all, &[ERRORS, way, "gigabytes_processed"])?.as_str()?);
    let bad = match count(all, &["scsi_grown_defect_list"]) {
        Some(grown) => {
            let pending = count(all, &["scsi_pending_defects", "count"]).unwrap_or(0);
            grown.checked_add(pending)
        }
        None => None,
    };
    Smart {
        wear: percent(count(all, &["scsi_percentage_used_endurance_indicator"])),
        bad_blocks: bad.and_then(|bad| bad.checked_mul(ratio)).filter(fits),
        read_blocks: blocks("read"),
        write_blocks: blocks("write"),
        media_errors: ways
            .iter()
            .flatten()
            .copied()
            .reduce(u64::saturating_add)
            .filter(fits),
        ..common
    }
}

/// Number of blocks from an amount in 10^9 bytes with three decimals, as smartctl prints it:
/// `12000.125`.
fn gigabytes(text: &str) -> Option<u64> {
    /// Blocks in 10^9 bytes.
    const BLOCKS: f64 = 1e9 / BLOCK_BYTES as f64;
    let blocks = decimal(text.as_bytes())? * BLOCKS;
    (blocks < 2f64.powi(53)).then_some(blocks as u64)
}

fn ata(all: &Value, ratio: u64, common: Smart) -> Smart {
    let statistics = Statistics::of(all);
    let attributes = Attributes::of(all);
    let sectors = |of: Option<u64>| of?.checked_mul(ratio).filter(fits);
    let reallocated = statistics
        .get(REALLOCATED)
        .or_else(|| attributes.raw(5, &["Realloc"]));
    // Sectors that wait for reallocation, and sectors that the device's own scan could not read,
    // are mostly the same, so the greater of the two counts.
    let pending = attributes
        .raw(197, &["Pending"])
        .max(attributes.raw(198, &["Uncorrect"]))
        .or_else(|| statistics.get(CANDIDATES));
    let bad = reallocated.and_then(|bad| bad.checked_add(pending.unwrap_or(0)));
    Smart {
        wear: percent(statistics.get(ENDURANCE_USED)).or_else(|| attributes.wear()),
        bad_blocks: sectors(bad),
        read_blocks: sectors(statistics.get(SECTORS_READ))
            .or_else(|| attributes.transferred(242, ratio)),
        write_blocks: sectors(statistics.get(SECTORS_WRITTEN))
            .or_else(|| attributes.transferred(241, ratio)),
        media_errors: statistics
            .get(UNCORRECTABLE)
            .or_else(|| attributes.raw(187, &["Reported_Uncorrect", "Uncorrectable_Error"])),
        unsafe_shutdowns: attributes
            .raw(174, UNSAFE)
            .or_else(|| attributes.raw(192, UNSAFE)),
        logged_errors: count(all, &["ata_smart_error_log", "summary", "count"]),
        criticals: attributes.failing(),
        ..common
    }
}

/// A place in the statistics log: page and byte offset. ACS-4, 9.5.
type Statistic = (u64, u64);
const SECTORS_WRITTEN: Statistic = (1, 0x18);
const SECTORS_READ: Statistic = (1, 0x28);
const REALLOCATED: Statistic = (3, 0x20);
const CANDIDATES: Statistic = (3, 0x38);
const UNCORRECTABLE: Statistic = (4, 0x08);
const ENDURANCE_USED: Statistic = (7, 0x08);

/// The statistics log of an ATA device.
struct Statistics<'a>(&'a [Value]);

impl<'a> Statistics<'a> {
    fn of(all: &'a Value) -> Self {
        Self(list(all, &["ata_device_statistics", "pages"]))
    }

    fn get(&self, (page, offset): Statistic) -> Option<u64> {
        let is = |of: &Value, key: &str, number: u64| count(of, &[key]) == Some(number);
        let page = self.0.iter().find(|p| is(p, "number", page))?;
        let row = list(page, &["table"])
            .iter()
            .find(|r| is(r, "offset", offset))?;
        let flag = |name: &str| at(row, &["flags", name]).and_then(Value::as_bool);
        // A normalized statistic is a percentage of what the vendor finds acceptable, not a count;
        // the endurance indicator is a percentage by itself.
        let is_count = flag("normalized") != Some(true) || is(page, "number", ENDURANCE_USED.0);
        let is_usable = is_count && flag("valid") == Some(true);
        count(row, &["value"]).filter(|_| is_usable)
    }
}

/// Names of attributes whose normalized value is the remaining share of the rated endurance, in
/// percent.
const LEFT: &[(u64, &str)] = &[
    (231, "SSD_Life_Left"),
    (231, "Lifetime_Left"),
    (233, "Media_Wearout_Indicator"),
    (202, "Percent_Lifetime_Remain"),
    (169, "Remaining_Lifetime_Perc"),
    (177, "Wear_Leveling_Count"),
];
const UNSAFE: &[&str] = &[
    "Unsafe_Shutdown",
    "Unexpect_Power_Loss",
    "Unexpected_Power_Loss",
];
/// Suffixes of the names of attributes 241 and 242, with the number of blocks in the unit that they
/// name.
const UNITS: &[(&str, u64)] = &[
    ("_32MiB", 65_536),
    ("_GiB", 2_097_152),
    ("_MiB", 2048),
    ("_GB", 1_953_125),
];

/// The SMART attributes of an ATA device.
struct Attributes<'a>(&'a [Value]);

impl<'a> Attributes<'a> {
    fn of(all: &'a Value) -> Self {
        Self(list(all, &["ata_smart_attributes", "table"]))
    }

    fn find(&self, id: u64) -> Option<(&'a Value, &'a str)> {
        let row = self.0.iter().find(|row| count(row, &["id"]) == Some(id))?;
        Some((row, row.get("name")?.as_str()?))
    }

    /// The raw value of an attribute, if its name contains one of these words: vendors give the
    /// same number different meanings.
    fn raw(&self, id: u64, words: &[&str]) -> Option<u64> {
        let (row, name) = self.find(id)?;
        words.iter().any(|word| name.contains(word)).then_some(())?;
        // The raw bytes may hold more than one value, and the text then begins with the number: `12
        // (0 3)`.
        let text = at(row, &["raw", "string"])?.as_str()?;
        number(text.split(' ').next()?.as_bytes())
    }

    /// Blocks that the host read or wrote since the device was made.
    fn transferred(&self, id: u64, ratio: u64) -> Option<u64> {
        let (_, name) = self.find(id)?;
        let is_of_host = ["Host_", "Lifetime_", "Total_"]
            .iter()
            .any(|p| name.starts_with(p));
        let unit = match UNITS.iter().find(|(end, _)| name.ends_with(end)) {
            Some((_, blocks)) => *blocks,
            None if matches!(name, "Total_LBAs_Written" | "Total_LBAs_Read") => ratio,
            None => return None,
        };
        let raw = self.raw(id, &[""]).filter(|_| is_of_host)?;
        raw.checked_mul(unit).filter(fits)
    }

    fn wear(&self) -> Option<f64> {
        LEFT.iter().find_map(|(id, expect)| {
            let (row, name) = self.find(*id)?;
            let left = count(row, &["value"]).filter(|left| *left <= 100)?;
            name.starts_with(expect)
                .then_some((100 - left) as f64 / 100.0)
        })
    }

    /// Number of attributes that are at or below their vendor's threshold now.
    fn failing(&self) -> Option<u64> {
        let fails = |row: &&Value| row.get("when_failed").and_then(Value::as_str) == Some("now");
        (!self.0.is_empty()).then(|| self.0.iter().filter(fails).count() as u64)
    }
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A count that a stream can hold. A number with a fraction, or a larger one, is none.
fn count(value: &Value, path: &[&str]) -> Option<u64> {
    at(value, path)?.as_u64().filter(fits)
}

fn fits(value: &u64) -> bool {
    i64::try_from(*value).is_ok()
}

/// A byte of percent as a share; the standards allow a used endurance of up to 255.
fn percent(value: Option<u64>) -> Option<f64> {
    value.filter(|v| *v <= 255).map(|v| v as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(json: &str) -> Smart {
        let text = format!("{{\"json_format_version\":[1,0],{json}}}");
        match parse(text.as_bytes()) {
            Ok(SmartAnswer::Known(smart)) => *smart,
            other => panic!("{json}: {other:?}"),
        }
    }

    fn attribute(id: u64, name: &str, value: u64, raw: &str) -> String {
        format!(
            r#"{{"id":{id},"name":"{name}","value":{value},"when_failed":"","raw":{{"value":0,"string":"{raw}"}}}}"#
        )
    }

    fn with_attributes(rows: &[String]) -> Smart {
        let rows = rows.join(",");
        known(&format!(
            r#""logical_block_size":512,"ata_smart_attributes":{{"table":[{rows}]}}"#
        ))
    }

    #[test]
    fn what_could_not_be_asked_says_why() {
        let of = |status: u64, messages: &str| {
            let text = format!(
                r#"{{"json_format_version":[1,0],"smartctl":{{"exit_status":{status},"messages":[{messages}]}}}}"#
            );
            parse(text.as_bytes()).unwrap()
        };
        let message = |text: &str, severity: &str| {
            format!(r#"{{"string":"{text}","severity":"{severity}"}}"#)
        };
        let standby = message("Device is in STANDBY mode, exit(2)", "information");
        assert_eq!(of(2, &standby), SmartAnswer::Asleep);
        let unknown = message("/dev/vda: Unable to detect device type", "error");
        let why = "/dev/vda: Unable to detect device type".to_owned();
        assert_eq!(of(1, &unknown), SmartAnswer::Nothing(why.clone()));
        let both = format!("{},{unknown}", message("a hint", "information"));
        assert_eq!(of(1, &both), SmartAnswer::Nothing(why));
        let bare = "smartctl ended with status 2".to_owned();
        assert_eq!(of(2, ""), SmartAnswer::Nothing(bare));
        assert_eq!(
            of(0, ""),
            SmartAnswer::Nothing("it has no SMART data".to_owned())
        );
        // A disk that fails has bits set in its exit status, and still has its values.
        let text = r#"{"json_format_version":[1,0],"smartctl":{"exit_status":216},"smart_status":{"passed":false}}"#;
        let failing = Smart {
            is_ok: Some(false),
            ..Default::default()
        };
        assert_eq!(
            parse(text.as_bytes()),
            Ok(SmartAnswer::Known(Box::new(failing)))
        );
    }

    #[test]
    fn recordings_cut_at_every_byte_are_refused() {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let of_disk = |machine: &str, disk: &str| {
            let path = format!("{machine}/first/commands/smartctl.{disk}");
            std::fs::read(fixtures.join(path)).unwrap()
        };
        for (machine, disk) in [
            ("nvme-four", "nvme2n1"),
            ("hdd-raid", "sdd"),
            ("hdd-raid", "sdf"),
            ("hdd-raid", "sdg"),
        ] {
            let whole = of_disk(machine, disk);
            assert!(parse(&whole).is_ok(), "{disk}");
            for end in 0..whole.len() - 1 {
                assert!(parse(&whole[..end]).is_err(), "{disk} cut at {end}");
            }
        }
    }

    #[test]
    fn what_is_not_smartctls_json_is_refused() {
        for bad in [
            "",
            "{",
            "[]",
            "{}",
            "null",
            "smartctl 7.3",
            r#"{"json_format_version":[2,0]}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn numbers_that_are_none_are_absent() {
        for bad in [
            "-1",
            "1.5",
            "1e300",
            "18446744073709551616",
            "9223372036854775808",
            "\"7\"",
            "null",
            "[]",
        ] {
            let smart = known(&format!(
                r#""smart_status":{{"passed":true}},"temperature":{{"current":-274}},"power_cycle_count":{bad},
                "nvme_smart_health_information_log":{{"media_errors":{bad},"percentage_used":{bad},"data_units_read":{bad}}}"#
            ));
            let expect = Smart {
                is_ok: Some(true),
                ..Default::default()
            };
            assert_eq!(smart, expect, "{bad}");
        }
        // A value that overflows in our unit, and values that no standard allows.
        let smart = known(
            r#""power_cycle_count":1,"nvme_smart_health_information_log":{"data_units_read":9223372036854775807,"available_spare":101,"percentage_used":256}"#,
        );
        assert_eq!(
            smart,
            Smart {
                power_cycles: Some(1),
                ..Default::default()
            }
        );
    }

    #[test]
    fn attributes_count_in_the_unit_that_their_name_has() {
        let check = |id: u64, name: &str, raw: &str, expect: Option<u64>| {
            let smart = with_attributes(&[attribute(id, name, 100, raw)]);
            let got = if id == 241 {
                smart.write_blocks
            } else {
                smart.read_blocks
            };
            assert_eq!(got, expect, "{name}");
        };
        check(241, "Host_Writes_32MiB", "3", Some(3 * 65_536));
        check(242, "Lifetime_Reads_GiB", "2", Some(2 * 2_097_152));
        check(241, "Total_LBAs_Written", "77", Some(77));
        check(242, "Total_LBAs_Read", "78", Some(78));
        check(241, "Lifetime_Wts_Frm_Hst_GB", "1", Some(1_953_125));
        check(241, "Nand_Writes_GiB", "1", None);
        check(241, "Host_Writes", "1", None);
        check(241, "Unknown_Attribute", "1", None);
        check(241, "Host_Writes_GiB", "9223372036854775807", None);
        check(241, "Host_Writes_GiB", "1,5", None);
    }

    #[test]
    fn wear_by_name_not_by_number() {
        let check = |id: u64, name: &str, value: u64, expect: Option<f64>| {
            let smart = with_attributes(&[attribute(id, name, value, "0")]);
            assert_eq!(smart.wear, expect, "{name}");
        };
        check(233, "Media_Wearout_Indicator", 97, Some(0.03));
        check(177, "Wear_Leveling_Count", 100, Some(0.0));
        check(233, "Total_LBAs_Written", 100, None);
        check(231, "Temperature_Celsius", 60, None);
        check(231, "SSD_Life_Left", 200, None);
    }

    #[test]
    fn bad_sectors_of_attributes_and_of_the_log() {
        let rows = [
            attribute(5, "Reallocated_Sector_Ct", 100, "12 (0 3)"),
            attribute(197, "Current_Pending_Sector", 100, "3"),
            attribute(198, "Offline_Uncorrectable", 100, "5"),
        ];
        assert_eq!(with_attributes(&rows).bad_blocks, Some(17));
        // Without the first attribute, the others are only a part of the sum.
        assert_eq!(with_attributes(&rows[1..]).bad_blocks, None);
        let log = |flags: &str| {
            known(&format!(
                r#""power_cycle_count":1,"logical_block_size":4096,"ata_device_statistics":{{"pages":[{{"number":3,"table":[{{"offset":32,"value":2,"flags":{{{flags}}}}}]}}]}}"#
            ))
        };
        assert_eq!(
            log(r#""valid":true,"normalized":false"#).bad_blocks,
            Some(16)
        );
        assert_eq!(log(r#""valid":true,"normalized":true"#).bad_blocks, None);
        assert_eq!(log(r#""valid":false,"normalized":false"#).bad_blocks, None);
    }

    #[test]
    fn a_sas_disk() {
        let smart = known(
            r#""smart_status":{"passed":true},"temperature":{"current":35,"drive_trip":65},
            "logical_block_size":4096,"power_on_time":{"hours":2,"minutes":30},
            "scsi_percentage_used_endurance_indicator":7,"scsi_grown_defect_list":14,"scsi_pending_defects":{"count":1},
            "scsi_error_counter_log":{"read":{"gigabytes_processed":"512.000","total_uncorrected_errors":2},
            "write":{"gigabytes_processed":"1024.000","total_uncorrected_errors":3},"verify":{"gigabytes_processed":"0.001"}}"#,
        );
        let expect = Smart {
            is_ok: Some(true),
            celsius: Some(35.0),
            wear: Some(0.07),
            bad_blocks: Some(15 * 8),
            read_blocks: Some(1_000_000_000),
            write_blocks: Some(2_000_000_000),
            power_on_s: Some(9000.0),
            media_errors: Some(5),
            ..Default::default()
        };
        assert_eq!(smart, expect);
    }

    #[test]
    fn scsi_gigabytes() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(gigabytes(text), expect, "{text}");
        check("0.000", Some(0));
        check("512.000", Some(1_000_000_000));
        check("0.001", Some(1953));
        check("1,5", None);
        check("-1.0", None);
        check("", None);
        check(&"9".repeat(300), None);
    }
}
