//! `baro archive export`: writes the samples of a time range for other programs.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_archive::{ArchiveExport as Selection, ArchivedSeries, ExportTo};
use barograph_client::SystemClock;
use barograph_model::{Clock as _, Selector, Span, instant_ns};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::place::{ArchiveChoice, ChosenArchives, closed_words};
use crate::cli::{Usage, output};

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A directory: an archive of its own, partitioned like the agent's; streams of applications
    /// are in one archive per scope, in applications/ below it
    Parquet,
    /// Lines of comma-separated values, below a line of column names
    Csv,
    /// One JSON object per line
    Jsonl,
}

/// Arguments of `baro archive export`.
#[derive(Args)]
pub(super) struct Export {
    /// Streams, as a pattern like disk.*{device=vda}; may be repeated [default: all]
    #[arg(long = "match", value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Start of the range: nanoseconds, RFC 3339 or a time ago (-1h) [default: the beginning]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start: Option<String>,
    /// End of the range, exclusive [default: the end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    stop: Option<String>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "parquet")]
    format: Form,
    /// A new directory for parquet, a new file for other forms; `-`: standard output
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    #[command(flatten)]
    place: ArchiveChoice,
}

impl Export {
    /// Runs the command. If nothing matches, it fails before anything is written.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let span = self.span(SystemClock::new().now_ns())?;
        let to_stdout = self.out == Path::new("-");
        if to_stdout && self.format == Form::Parquet {
            return Err(Usage("parquet is a directory: give --out DIR".into()).into());
        }
        let selectors = self
            .patterns
            .iter()
            .map(|text| Selector::parse(text).map_err(|e| Usage(e.to_string()).into()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let archives = self.place.archives()?;
        let export = self.select(&archives, &selectors, span)?;
        let samples = match self.format {
            Form::Parquet => export.write(ExportTo::Parquet(&self.out), &mut |_| {})?,
            form => {
                let mut out = self.open(to_stdout)?;
                let to = match form {
                    Form::Csv => ExportTo::Csv(&mut out),
                    _ => ExportTo::JsonLines(&mut out),
                };
                let samples = export.write(to, &mut |_| {})?;
                out.flush()?;
                samples
            }
        };
        if to_stdout || !self.place.json() {
            archives.tell_closed();
        }
        match (to_stdout, self.place.json()) {
            (true, _) => Ok(()),
            (_, true) => {
                output::print_json(&json!({ "samples": samples, "unreadable": archives.closed }))
            }
            _ => output::print(&format!("{samples} samples in {}\n", self.out.display())),
        }
    }

    /// Selects the samples of each archive; an empty selection is an error.
    fn select(
        &self,
        archives: &ChosenArchives,
        selectors: &[Selector],
        span: Span,
    ) -> anyhow::Result<Selection> {
        let wanted = |series: &ArchivedSeries| {
            let of = &series.descriptor;
            let meant = |s: &Selector| s.matches(of.name.as_str(), &of.labels);
            selectors.is_empty() || selectors.iter().any(meant)
        };
        let mut export = Selection::new(span);
        for kept in &archives.kept {
            export.add(&kept.open(), kept.scope.as_deref(), &wanted)?;
        }
        let what = match (export.series(), &*self.patterns) {
            (0, []) => "the archive is empty".to_owned(),
            (0, patterns) => format!(
                "no stream that is kept matches {}: `baro streams` lists those of now",
                patterns.join(" or ")
            ),
            (series, _) if !export.has_samples()? => format!(
                "{series} streams match, and none has a sample in this time: `baro archive ls` says \
                 from when to when samples are kept, --start and --stop choose"
            ),
            _ => return Ok(export),
        };
        let left_out =
            closed_words(&archives.closed).map_or_else(String::new, |w| format!("; {w}"));
        anyhow::bail!("nothing to export: {what}{left_out}")
    }

    fn open(&self, to_stdout: bool) -> anyhow::Result<BufWriter<Box<dyn Write>>> {
        if to_stdout {
            return Ok(BufWriter::new(output::for_programs()));
        }
        // An existing file is not overwritten.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        Ok(BufWriter::new(Box::new(file)))
    }

    fn span(&self, now_ns: i64) -> anyhow::Result<Span> {
        let at = |text: &Option<String>| -> anyhow::Result<Option<i64>> {
            let text = text.as_deref();
            let read = text.map(|text| instant_ns(text, now_ns)).transpose();
            read.map_err(|e| Usage(e.to_string()).into())
        };
        let from = at(&self.start)?.unwrap_or(i64::MIN);
        let to = at(&self.stop)?.map_or(i64::MAX, |stop| stop.saturating_sub(1));
        if from > to {
            return Err(Usage("--stop is not after --start".into()).into());
        }
        Ok(Span { from, to })
    }
}
