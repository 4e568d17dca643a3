//! `baro archive ls`: lists the archive, by tier and day or file by file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_archive::{PartInfo, PartKind, Tier, View};
use barograph_model::Span;
use clap::Args;
use serde_json::{Value as Json, json};

use super::place::ArchiveChoice;
use crate::cli::{format, output};

/// Arguments of `baro archive ls`.
#[derive(Args)]
pub(super) struct Ls {
    /// List every file
    #[arg(long)]
    files: bool,
    #[command(flatten)]
    place: ArchiveChoice,
}

/// The sum of several parts, which are listed in one line.
#[derive(Default)]
struct Sum {
    files: u64,
    rows: u64,
    bytes: u64,
    span: Option<Span>,
}

impl Sum {
    fn add(&mut self, part: &PartInfo) {
        self.files += 1;
        self.rows += part.rows;
        self.bytes += part.bytes;
        if part.rows > 0 {
            let before = self.span.unwrap_or(part.span);
            self.span = Some(Span {
                from: before.from.min(part.span.from),
                to: before.to.max(part.span.to),
            });
        }
    }

    fn of<'a>(parts: impl Iterator<Item = &'a PartInfo>) -> Self {
        let mut sum = Self::default();
        parts.for_each(|part| sum.add(part));
        sum
    }

    fn json(&self) -> Json {
        json!({
            "files": self.files, "rows": self.rows, "bytes": self.bytes,
            "from_ts": self.span.map(|s| s.from), "to_ts": self.span.map(|s| s.to),
            "bytes_per_row": ratio(self.bytes, self.rows),
        })
    }

    fn cells(&self) -> Vec<String> {
        let time = |ts: Option<i64>| ts.map_or_else(String::new, moment);
        let per_row = ratio(self.bytes, self.rows);
        vec![
            self.files.to_string(),
            self.rows.to_string(),
            format::number(self.bytes as f64, "bytes"),
            per_row.map_or_else(String::new, |bytes| format!("{bytes:.2} B")),
            time(self.span.map(|s| s.from)),
            time(self.span.map(|s| s.to)),
        ]
    }
}

fn ratio(bytes: u64, rows: u64) -> Option<f64> {
    (rows > 0).then(|| bytes as f64 / rows as f64)
}

/// An archive and its present content.
struct Shown {
    /// Scope of applications; `node` for the node's own archive.
    scope: String,
    dir: PathBuf,
    view: Arc<View>,
    parts: Vec<PartInfo>,
}

impl Shown {
    fn samples(&self) -> Sum {
        Sum::of(self.parts.iter().filter(|part| rank(part) <= 1))
    }
}

impl Ls {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let archives = self.place.archives()?;
        let mut all = Vec::new();
        for kept in &archives.kept {
            let view = kept.open().view()?;
            all.push(Shown {
                scope: kept.name().to_owned(),
                dir: kept.dir.clone(),
                parts: view.parts(),
                view,
            });
        }
        if self.place.json() {
            return output::print_json(&listing(&all, &archives.closed));
        }
        if self.files {
            output::print(&files(&all))?;
        } else {
            output::print(&days(&all))?;
        }
        for shown in &all {
            output::print(&summary(shown))?;
        }
        archives.tell_closed();
        Ok(())
    }
}

/// Name of the kind in listings: `log` or the tier.
fn kind(part: &PartInfo) -> &'static str {
    match part.kind {
        PartKind::Log => "log",
        PartKind::Parquet(tier) => tier.as_str(),
    }
}

/// Sort key of a kind in listings: the log, then the tiers, finest first.
fn rank(part: &PartInfo) -> u8 {
    match part.kind {
        PartKind::Log => 0,
        PartKind::Parquet(Tier::Raw) => 1,
        PartKind::Parquet(Tier::Second) => 2,
        PartKind::Parquet(Tier::Minute) => 3,
        PartKind::Parquet(Tier::Hour) => 4,
    }
}

/// The UTC day of a part's first row.
fn day(part: &PartInfo) -> String {
    at(part.span.from).map_or_else(String::new, |t| t.strftime("%Y-%m-%d").to_string())
}

fn moment(ts: i64) -> String {
    at(ts).map_or_else(String::new, |t| t.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

fn at(ts: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(ts.into()).ok()
}

type Groups<'a> = BTreeMap<(&'a str, u8, &'static str, String), Sum>;

/// Sums the parts by node, kind and day.
fn grouped(parts: &[PartInfo]) -> Groups<'_> {
    let mut groups = Groups::new();
    for part in parts {
        let key = (&*part.node, rank(part), kind(part), day(part));
        groups.entry(key).or_default().add(part);
    }
    groups
}

fn days(all: &[Shown]) -> String {
    let of = |shown: &Shown| -> Vec<Vec<String>> {
        let row = |((node, _, kind, day), sum): ((&str, u8, &str, String), Sum)| {
            let head = [shown.scope.clone(), node.to_owned(), kind.to_owned(), day];
            head.into_iter().chain(sum.cells()).collect()
        };
        grouped(&shown.parts).into_iter().map(row).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().flat_map(of).collect();
    let headings = [
        "SCOPE", "NODE", "KIND", "DAY", "FILES", "ROWS", "BYTES", "PER ROW", "FROM", "TO",
    ];
    output::table(&headings, &[4, 5, 6, 7], &rows)
}

fn files(all: &[Shown]) -> String {
    let rows: Vec<Vec<String>> = all.iter().flat_map(file_rows).collect();
    let headings = [
        "SCOPE", "NODE", "KIND", "COPY", "ROWS", "BYTES", "PER ROW", "FROM", "TO", "FILE",
    ];
    output::table(&headings, &[4, 5, 6], &rows)
}

fn file_rows(shown: &Shown) -> Vec<Vec<String>> {
    let mut parts: Vec<&PartInfo> = shown.parts.iter().collect();
    parts.sort_by(|a, b| (&a.node, rank(a), &a.path).cmp(&(&b.node, rank(b), &b.path)));
    let row = |part: &PartInfo| {
        let mut cells = Sum::of(std::iter::once(part)).cells();
        cells[0] = if part.copied { "copied" } else { "" }.into();
        let head = [
            shown.scope.clone(),
            part.node.to_string(),
            kind(part).to_owned(),
        ];
        let path = part.path.strip_prefix(&shown.dir).unwrap_or(&part.path);
        let tail = [path.display().to_string()];
        head.into_iter().chain(cells).chain(tail).collect()
    };
    parts.into_iter().map(row).collect()
}

/// The last lines of an archive's listing: totals, bytes per sample, and losses.
fn summary(shown: &Shown) -> String {
    let (all, samples) = (Sum::of(shown.parts.iter()), shown.samples());
    let mut text = format!(
        "\n{}: {} samples of {} series in {}, {} files, {}",
        shown.scope,
        samples.rows,
        shown.view.series().len(),
        format::number(all.bytes as f64, "bytes"),
        all.files,
        shown.dir.display()
    );
    if let Some(bytes) = ratio(all.bytes, samples.rows) {
        text += &format!("\n{bytes:.2} bytes per sample, tiers included");
    }
    for (node, losses) in shown.view.losses() {
        for line in super::lost(&losses) {
            text += &format!("\nlost on {node}: {line}");
        }
    }
    text + "\n"
}

fn listing(all: &[Shown], closed: &[String]) -> Json {
    let (mut groups, mut files) = (Vec::new(), Vec::new());
    for shown in all {
        for ((node, _, kind, day), sum) in grouped(&shown.parts) {
            let mut json = sum.json();
            json["scope"] = shown.scope.as_str().into();
            json["node"] = node.into();
            json["kind"] = kind.into();
            json["day"] = day.into();
            groups.push(json);
        }
        for part in &shown.parts {
            let mut json = Sum::of(std::iter::once(part)).json();
            json["scope"] = shown.scope.as_str().into();
            json["node"] = (*part.node).into();
            json["kind"] = kind(part).into();
            json["path"] = part.path.display().to_string().into();
            json["sequences"] = json!([part.sequences.0, part.sequences.1]);
            json["copied"] = part.copied.into();
            files.push(json);
        }
    }
    let archives: Vec<Json> = all.iter().map(archive).collect();
    let sum = |key: &str| -> u64 { archives.iter().filter_map(|of| of[key].as_u64()).sum() };
    let (samples, bytes) = (sum("samples"), sum("bytes"));
    json!({
        "series": sum("series"),
        "samples": samples,
        "bytes": bytes,
        "bytes_per_sample": ratio(bytes, samples),
        "archives": archives,
        "groups": groups,
        "files": files,
        "unreadable": closed,
    })
}

/// The sums of one archive as JSON.
fn archive(shown: &Shown) -> Json {
    let (samples, bytes) = (shown.samples().rows, Sum::of(shown.parts.iter()).bytes);
    let losses: serde_json::Map<String, Json> = shown
        .view
        .losses()
        .into_iter()
        .map(|(node, losses)| (node.to_string(), json!(losses)))
        .collect();
    json!({
        "scope": shown.scope,
        "dir": shown.dir.display().to_string(),
        "series": shown.view.series().len(),
        "samples": samples,
        "bytes": bytes,
        "bytes_per_sample": ratio(bytes, samples),
        "losses": losses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: PartKind, path: &str, rows: u64, from: i64) -> PartInfo {
        PartInfo {
            node: "n".into(),
            kind,
            path: path.into(),
            rows,
            bytes: 3 * rows,
            span: Span {
                from: from * 1_000_000_000,
                to: (from + 5) * 1_000_000_000,
            },
            sequences: (1, 2),
            copied: path.contains('2'),
        }
    }

    #[test]
    fn listings() {
        let parts = [
            part(PartKind::Parquet(Tier::Minute), "/a/1min/1.parquet", 2, 60),
            part(PartKind::Parquet(Tier::Raw), "/a/raw/1.parquet", 100, 60),
            part(PartKind::Parquet(Tier::Raw), "/a/raw/2.parquet", 50, 70),
            part(PartKind::Parquet(Tier::Raw), "/a/raw/3.parquet", 7, 86_400),
            part(PartKind::Log, "/a/nodes/n/log/4.log", 0, 0),
        ];
        let shown = |parts: &[PartInfo]| {
            [Shown {
                scope: "u7".into(),
                dir: "/a".into(),
                view: Arc::new(View::default()),
                parts: parts.to_vec(),
            }]
        };
        let days = days(&shown(&parts));
        assert_eq!(
            format!("\n{days}"),
            "
SCOPE  NODE  KIND  DAY         FILES  ROWS  BYTES  PER ROW  FROM                 TO
u7     n     log   1970-01-01      1     0    0 B
u7     n     raw   1970-01-01      2   150  450 B   3.00 B  1970-01-01 00:01:00  1970-01-01 00:01:15
u7     n     raw   1970-01-02      1     7   21 B   3.00 B  1970-01-02 00:00:00  1970-01-02 00:00:05
u7     n     1min  1970-01-01      1     2    6 B   3.00 B  1970-01-01 00:01:00  1970-01-01 00:01:05
"
        );
        let files = files(&shown(&parts[..3]));
        assert_eq!(
            format!("\n{files}"),
            "
SCOPE  NODE  KIND  COPY    ROWS  BYTES  PER ROW  FROM                 TO                   FILE
u7     n     raw            100  300 B   3.00 B  1970-01-01 00:01:00  1970-01-01 00:01:05  raw/1.parquet
u7     n     raw   copied    50  150 B   3.00 B  1970-01-01 00:01:10  1970-01-01 00:01:15  raw/2.parquet
u7     n     1min             2    6 B   3.00 B  1970-01-01 00:01:00  1970-01-01 00:01:05  1min/1.parquet
"
        );
        let listed = listing(&shown(&parts), &["u8".into()]);
        let is = |key: &str| listed[key].to_string();
        assert_eq!((is("samples"), is("bytes")), ("157".into(), "477".into()));
        assert_eq!(is("unreadable"), r#"["u8"]"#);
        assert_eq!(listed["archives"][0]["scope"], "u7");
    }
}
