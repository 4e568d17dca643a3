//! Traces, which are columns of values at the same moments, and the formats that they are read
//! from.
//!
//! The format of this project is written by `scripts/record_traces.py`: lines `# trace NAME` and `#
//! interval_ns N`, a header `time_ns,NAME[UNIT],…` (or `time,…` with ISO 8601), then values; an
//! empty field is unknown. The output of `sadf -d` is read too, and the traces that Apollo replays,
//! which look the same: a header `# a;b;…` with a `timestamp`, and fields separated by semicolons.
//! Each may be gzipped.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::TraceError;

/// Most bytes of a trace, unpacked.
pub const BYTES_MAX: usize = 256 << 20;
/// Most moments in one trace.
pub const ROWS_MAX: usize = 4_000_000;
/// Most columns in one trace.
pub const COLUMNS_MAX: usize = 512;
/// Longest interval between two moments: a leap year.
pub(crate) const INTERVAL_NS_MAX: i64 = 366 * 86_400 * 1_000_000_000;
/// Most values in one trace: rows times columns.
const VALUES_MAX: usize = 32_000_000;

/// One quantity at all moments of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name in the file; `DEVICE.NAME` for one of many devices.
    pub name: String,
    /// Unit in the file; empty if it has none.
    pub unit: String,
    /// One value for each moment; NaN if unknown.
    pub values: Vec<f64>,
}

/// The true values of streams of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Name of the trace: its origin.
    pub name: String,
    /// Interval between moments in ns, as given in the file or as the median.
    pub interval_ns: i64,
    /// Times of the moments in ns, ascending.
    pub ts_ns: Vec<i64>,
    /// The values at these moments.
    pub columns: Vec<Column>,
}

impl Trace {
    /// Parses any of the formats.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let text = unpack(bytes)?;
        let first = text.lines().find(|line| !line.trim().is_empty());
        let first = first.ok_or(TraceError::Empty)?;
        let foreign = first.starts_with('#') && first.contains(';');
        let trace = if foreign {
            Foreign::default().parse(name, &text)?
        } else {
            parse_own(name, &text)?
        };
        if trace.ts_ns.is_empty() || trace.columns.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(trace)
    }

    /// Writes the trace in the format of this project, not packed. Characters of a name that would
    /// end its field are written as `_`.
    pub fn write(&self) -> String {
        use std::fmt::Write;
        let plain = |name: &str| name.replace([',', '[', ']', '\r', '\n'], "_");
        let mut text = format!(
            "# trace {}\n# interval_ns {}\ntime_ns",
            plain(&self.name),
            self.interval_ns
        );
        for column in &self.columns {
            let _ = write!(text, ",{}[{}]", plain(&column.name), plain(&column.unit));
        }
        for (row, ts_ns) in self.ts_ns.iter().enumerate() {
            let _ = write!(text, "\n{ts_ns}");
            for column in &self.columns {
                match column.values[row] {
                    value if value.is_nan() => text.push(','),
                    value => {
                        let _ = write!(text, ",{value}");
                    }
                }
            }
        }
        text.push('\n');
        text
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Creates a trace with one column.
    pub fn of(name: &str, unit: &str, interval_ns: i64, values: Vec<f64>) -> Self {
        Self {
            name: name.to_owned(),
            interval_ns,
            ts_ns: (0..values.len() as i64)
                .map(|tick| tick * interval_ns)
                .collect(),
            columns: vec![Column {
                name: name.to_owned(),
                unit: unit.to_owned(),
                values,
            }],
        }
    }
}

fn unpack(bytes: &[u8]) -> Result<String, TraceError> {
    let mut text = String::new();
    let packed = bytes.starts_with(&[0x1f, 0x8b]);
    let mut reader: Box<dyn Read> = if packed {
        Box::new(MultiGzDecoder::new(bytes))
    } else {
        Box::new(bytes)
    };
    let read = reader
        .by_ref()
        .take(BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    if read > BYTES_MAX {
        return Err(TraceError::TooMuch {
            of: "bytes",
            max: BYTES_MAX,
        });
    }
    Ok(text)
}

fn bounded(rows: usize, columns: usize) -> Result<(), TraceError> {
    let checks = [
        ("rows", rows, ROWS_MAX),
        ("columns", columns, COLUMNS_MAX),
        ("values", rows.saturating_mul(columns), VALUES_MAX),
    ];
    match checks.into_iter().find(|(_, is, max)| is > max) {
        Some((of, _, max)) => Err(TraceError::TooMuch { of, max }),
        None => Ok(()),
    }
}

fn number(text: &str, line: usize) -> Result<f64, TraceError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(f64::NAN);
    }
    text.parse()
        .map_err(|_| TraceError::line(line, format!("{text:?} is no number")))
}

/// The median step, for a trace that has no interval.
fn median_step(ts_ns: &[i64]) -> i64 {
    let steps = ts_ns.windows(2);
    let mut steps: Vec<i64> = steps.map(|pair| pair[1].saturating_sub(pair[0])).collect();
    steps.sort_unstable();
    let median = steps.get(steps.len() / 2).copied().unwrap_or(0);
    median.clamp(1, INTERVAL_NS_MAX)
}

fn parse_own(name: &str, text: &str) -> Result<Trace, TraceError> {
    let mut trace = Trace {
        name: name.to_owned(),
        interval_ns: 0,
        ts_ns: Vec::new(),
        columns: Vec::new(),
    };
    for (line, row) in (1..).zip(text.lines()) {
        if let Some(remark) = row.strip_prefix('#') {
            own_remark(&mut trace, remark.trim(), line)?;
        } else if row.trim().is_empty() {
        } else if trace.columns.is_empty() {
            trace.columns = own_header(row, line)?;
        } else {
            own_row(&mut trace, row, line)?;
        }
    }
    if trace.interval_ns == 0 {
        trace.interval_ns = median_step(&trace.ts_ns);
    }
    Ok(trace)
}

fn own_remark(trace: &mut Trace, remark: &str, line: usize) -> Result<(), TraceError> {
    if let Some(name) = remark.strip_prefix("trace ") {
        name.trim().clone_into(&mut trace.name);
    } else if let Some(interval) = remark.strip_prefix("interval_ns ") {
        let interval_ns = interval.trim().parse().ok();
        trace.interval_ns = interval_ns
            .filter(|ns| (1..=INTERVAL_NS_MAX).contains(ns))
            .ok_or_else(|| {
                let fault = format!("interval_ns is no number from 1 to {INTERVAL_NS_MAX}");
                TraceError::line(line, fault)
            })?;
    }
    Ok(())
}

fn own_header(row: &str, line: usize) -> Result<Vec<Column>, TraceError> {
    let mut fields = row.split(',').map(str::trim);
    if !matches!(fields.next(), Some("time_ns" | "time")) {
        return Err(TraceError::line(
            line,
            "a header begins with time_ns or time",
        ));
    }
    let columns: Vec<Column> = fields
        .map(|field| {
            let (name, unit) = field.split_once('[').unwrap_or((field, ""));
            Column {
                name: name.to_owned(),
                unit: unit.trim_end_matches(']').to_owned(),
                values: Vec::new(),
            }
        })
        .collect();
    bounded(0, columns.len())?;
    if columns.is_empty() || columns.iter().any(|column| column.name.is_empty()) {
        return Err(TraceError::line(
            line,
            "a header names at least one column, and each has a name",
        ));
    }
    Ok(columns)
}

fn own_row(trace: &mut Trace, row: &str, line: usize) -> Result<(), TraceError> {
    let mut fields = row.split(',');
    let ts_ns = own_time(fields.next().unwrap_or_default().trim(), line)?;
    rising(trace.ts_ns.last(), ts_ns, line)?;
    bounded(trace.ts_ns.len() + 1, trace.columns.len())?;
    trace.ts_ns.push(ts_ns);
    for column in &mut trace.columns {
        let field = fields
            .next()
            .ok_or_else(|| TraceError::line(line, format!("no field for {}", column.name)))?;
        column.values.push(number(field, line)?);
    }
    match fields.next() {
        Some(_) => Err(TraceError::line(line, "more fields than the header has")),
        None => Ok(()),
    }
}

fn own_time(field: &str, line: usize) -> Result<i64, TraceError> {
    if let Ok(ns) = field.parse() {
        return Ok(ns);
    }
    let time: Timestamp = field.parse().map_err(|_| {
        TraceError::line(
            line,
            format!("{field:?} is neither nanoseconds nor ISO 8601"),
        )
    })?;
    nanoseconds(time, line)
}

fn nanoseconds(time: Timestamp, line: usize) -> Result<i64, TraceError> {
    i64::try_from(time.as_nanosecond())
        .map_err(|_| TraceError::line(line, "a time beyond the year 2262"))
}

fn rising(last: Option<&i64>, ts_ns: i64, line: usize) -> Result<(), TraceError> {
    match last {
        Some(last) if ts_ns <= *last => {
            Err(TraceError::line(line, "not later than the line before"))
        }
        _ => Ok(()),
    }
}

/// Reader for the output of `sadf -d` and the traces of Apollo: sections, each with a header of its
/// own, and rows of many devices.
#[derive(Default)]
struct Foreign<'a> {
    header: Vec<&'a str>,
    /// Values by name, then by moment.
    values: BTreeMap<String, BTreeMap<i64, f64>>,
    count: usize,
}

impl<'a> Foreign<'a> {
    fn parse(mut self, name: &str, text: &'a str) -> Result<Trace, TraceError> {
        for (line, row) in (1..).zip(text.lines()) {
            if let Some(header) = row.strip_prefix('#') {
                self.header = header.split(';').map(str::trim).collect();
                if !self.header.contains(&"timestamp") {
                    return Err(TraceError::line(line, "a header without timestamp"));
                }
                if self.header.contains(&"") {
                    return Err(TraceError::line(line, "a column without a name"));
                }
            } else if row.contains("LINUX-RESTART") || row.trim().is_empty() {
                // Rows before and after a restart stay one trace, since counters are rates here.
            } else {
                self.row(row, line)?;
            }
        }
        self.align(name)
    }

    fn row(&mut self, row: &str, line: usize) -> Result<(), TraceError> {
        let fields: Vec<&str> = row.split(';').map(str::trim).collect();
        if fields.len() != self.header.len() {
            let (is, should) = (fields.len(), self.header.len());
            return Err(TraceError::line(
                line,
                format!("{is} fields under a header of {should}"),
            ));
        }
        let mut ts_ns = None;
        let mut item = None;
        for (name, field) in self.header.iter().zip(&fields) {
            match *name {
                "timestamp" => ts_ns = Some(foreign_time(field, line)?),
                // sar's column names for the device of a row are in capitals: DEV, CPU, IFACE.
                _ if is_item(name) => item = Some(*field),
                _ => {}
            }
        }
        let ts_ns = ts_ns.ok_or_else(|| TraceError::line(line, "a row before any header"))?;
        for (name, field) in self.header.iter().zip(&fields) {
            if matches!(*name, "timestamp" | "hostname" | "interval") || is_item(name) {
                continue;
            }
            let full = item.map_or_else(|| (*name).to_owned(), |item| format!("{item}.{name}"));
            self.count += 1;
            bounded(self.count.div_ceil(COLUMNS_MAX), self.values.len())?;
            self.values
                .entry(full)
                .or_default()
                .insert(ts_ns, number(field, line)?);
        }
        Ok(())
    }

    fn align(self, name: &str) -> Result<Trace, TraceError> {
        let mut ts_ns: Vec<i64> = self
            .values
            .values()
            .flat_map(|values| values.keys().copied())
            .collect();
        ts_ns.sort_unstable();
        ts_ns.dedup();
        bounded(ts_ns.len(), self.values.len())?;
        let columns = self.values.into_iter().map(|(name, values)| Column {
            values: ts_ns
                .iter()
                .map(|ts_ns| values.get(ts_ns).copied().unwrap_or(f64::NAN))
                .collect(),
            unit: foreign_unit(&name).to_owned(),
            name,
        });
        Ok(Trace {
            name: name.to_owned(),
            interval_ns: median_step(&ts_ns),
            columns: columns.collect(),
            ts_ns,
        })
    }
}

fn is_item(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn foreign_unit(name: &str) -> &'static str {
    let name = name.rsplit('.').next().unwrap_or(name);
    match name {
        _ if name.starts_with('%') => "%",
        _ if name.starts_with("kb") => "KiB",
        "rkB/s" | "wkB/s" | "dkB/s" => "KiB/s",
        "rd_sec/s" | "wr_sec/s" | "rd_sec/s_" | "wr_sec/s_" => "sectors/s",
        "await" | "await_" | "svctm" | "svctm_" => "ms",
        _ if name.ends_with("/s") || name.starts_with("tps") => "1/s",
        _ => "",
    }
}

/// Parses `2026-11-22 11:25:16 UTC`, with or without the zone; Apollo's times have colons around
/// them.
fn foreign_time(field: &str, line: usize) -> Result<i64, TraceError> {
    let text = field
        .trim_matches(':')
        .trim_end_matches("UTC")
        .trim()
        .replace("::", ":");
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds
            .checked_mul(1_000_000_000)
            .ok_or_else(|| TraceError::line(line, "a time beyond the year 2262"));
    }
    let time: DateTime = text.parse().map_err(|_| {
        TraceError::line(
            line,
            format!("{field:?} is no time like 2026-11-22 11:25:16 UTC"),
        )
    })?;
    let time = time
        .to_zoned(TimeZone::UTC)
        .map_err(|_| TraceError::line(line, "no such time"))?;
    nanoseconds(time.timestamp(), line)
}
