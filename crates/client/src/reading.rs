//! The questions of a reader of arrays to the agent: how many buckets to read, and how important it
//! is (Tango's loop, from the side of the analysis).
//!
//! This module stands alone because a reading goes on without it: whatever the agent answers, and
//! if it does not, the bound of the reader decides.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_model::Clock as _;
use barograph_progressive::{ArraySource, BucketEntry, ByteSource, ErrorBound, ValueRange};
use barograph_stream::{RunDir, SystemClock};
use serde_json::{Value as Json, json};

use crate::control_door::ControlDoor;
use crate::tiered::TieredBytes;

/// Most bytes that are read for the agent's measurement alone, whatever it asks for.
const PROBE_BYTES_MAX: u64 = 16 << 20;
/// Most letters of a label.
const LABEL_LETTERS_MAX: usize = 80;

/// Who asks, and as whom.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// The run directory of the agent.
    pub run_dir: RunDir,
    /// The name of the array in the agent's decisions.
    pub label: String,
    /// 1 to 10, 10 for the most important reader.
    pub priority: u8,
    /// Whether the decision is made, and the bound alone is read.
    pub dry_run: bool,
}

/// What is wanted of an array.
#[derive(Clone, Debug)]
pub struct WantedReading {
    /// Largest error.
    pub bound: Option<ErrorBound>,
    /// Number of buckets that are read without an agent.
    pub alone: usize,
    /// Number of buckets that the bound needs.
    pub least: usize,
    /// Time between two readings, if it is known.
    pub interval: Option<Duration>,
    /// The share of the array's bytes that is wanted.
    pub share: f64,
}

/// How many buckets a reading has, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadDecision {
    /// Number of buckets to read, the first one among them.
    pub buckets: usize,
    /// One sentence about it.
    pub reason: String,
    /// What the agent has answered; `None` if it was not asked or has not decided.
    pub answer: Option<ReadAnswer>,
}

impl ReadDecision {
    /// Number of bytes after the buckets that are read for the agent's measurement: only if these
    /// are the buckets that it has proposed.
    pub fn probe_bytes(&self) -> u64 {
        let answer = self.answer.as_ref();
        let answer = answer.filter(|answer| answer.proposed == self.buckets);
        answer.map_or(0, |answer| answer.probe_bytes)
    }

    /// What is read without an agent.
    pub fn without(wanted: &WantedReading, why: &str) -> Self {
        let until = match wanted.bound {
            None => "all of them",
            Some(_) => "as the bound needs",
        };
        Self {
            buckets: wanted.alone,
            reason: format!("{why}: {} buckets are read, {until}", wanted.alone),
            answer: None,
        }
    }
}

/// The decision of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadAnswer {
    /// Its number, as in the table `decisions`.
    pub id: u64,
    /// Number of buckets that the agent has proposed, the first one among them.
    pub proposed: usize,
    /// Number of bytes after these buckets that are to be read as well, and left: a base of some
    /// kilobytes does not measure the device.
    pub probe_bytes: u64,
    /// Share of the augmentation that the bandwidth allows, 0 to 1.
    pub degree: Option<f64>,
    /// Bandwidth of the device that is expected, in bytes a second.
    pub bandwidth: Option<f64>,
    /// Half width of its interval.
    pub bandwidth_error: Option<f64>,
    /// What the expectation comes from: `schedules`, `mean`, `measured`, … or `none`.
    pub bandwidth_basis: Option<String>,
    /// Weight of the I/O scheduler that this process has until the report.
    pub weight: Option<f64>,
    /// Why it has none.
    pub weight_reason: Option<String>,
    /// Longest time in seconds for which it has the weight.
    pub lease_s: Option<f64>,
}

/// Bytes that were read from the device that the agent was asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchedBytes {
    /// Number of bytes.
    pub bytes: u64,
    /// The time that this took.
    pub time: Duration,
}

/// The questions of one reader of one array.
///
/// A file over several tiers is asked about with the device of its last part, which has the finest
/// buckets and is the slowest: what lies on other devices is read anyway, as Tango's base.
#[derive(Debug)]
pub struct ReaderQuestions {
    config: ReaderConfig,
    buckets: Vec<BucketEntry>,
    range: ValueRange,
    header_bytes: u64,
    /// The file on the device that is asked about, and the device.
    slow: PathBuf,
    device: u64,
    /// Number of the first buckets that are read without a question.
    first: usize,
    /// Whether these lie on another device.
    is_base_elsewhere: bool,
    door: ControlDoor,
}

impl ReaderQuestions {
    /// The questions about an array of a file, with the parts of the file if it has some.
    ///
    /// # Errors
    ///
    /// The file is not there any more.
    pub fn new<S: ByteSource>(
        array: &ArraySource<S>,
        path: &Path,
        tiers: Option<&TieredBytes>,
        config: ReaderConfig,
    ) -> io::Result<Self> {
        let header = array.header();
        let mut questions = Self {
            door: ControlDoor::new(config.run_dir.clone()),
            config,
            buckets: header.buckets().to_vec(),
            range: *header.range(),
            header_bytes: array.header_bytes(),
            slow: path.to_owned(),
            device: std::fs::metadata(path)?.dev(),
            first: 1,
            is_base_elsewhere: false,
        };
        if let Some(tiers) = tiers {
            questions.find_slow(array, tiers);
        }
        Ok(questions)
    }

    fn find_slow<S: ByteSource>(&mut self, array: &ArraySource<S>, tiers: &TieredBytes) {
        let parts = tiers.parts();
        let device = |path: &Path| std::fs::metadata(path).ok().map(|seen| seen.dev());
        let devices: Vec<_> = parts.iter().map(|part| device(&part.path)).collect();
        // A tier that is gone cannot be asked about.
        let Some(slow) = devices.iter().rposition(Option::is_some) else {
            return;
        };
        self.slow.clone_from(&parts[slow].path);
        self.device = devices[slow].unwrap_or_default();
        let part = |bucket: usize| {
            let place = array.place(bucket).ok()?;
            tiers.part_of(place.end.saturating_sub(1))
        };
        let lies_there =
            |&bucket: &usize| part(bucket).is_some_and(|it| devices[it] == devices[slow]);
        if let Some(first) = (0..self.buckets.len())
            .find(lies_there)
            .filter(|it| *it > 0)
        {
            (self.first, self.is_base_elsewhere) = (first, true);
        }
    }

    /// Asks the agent. It never fails: without a decision, what the bound needs is read.
    pub fn ask(&self, wanted: &WantedReading) -> ReadDecision {
        let answer = match self.door.post("plan", &self.question(wanted)) {
            Ok(answer) => answer,
            Err(why) => return ReadDecision::without(wanted, &why),
        };
        let Some((decided, reason)) = self.answer(&answer) else {
            let text = answer.to_string();
            let text: String = text.chars().take(LABEL_LETTERS_MAX).collect();
            let why = format!("the agent's answer is not understood ({text})");
            return ReadDecision::without(wanted, &why);
        };
        // Whatever the agent knows and decides, the bound holds.
        let (buckets, reason) = match self.config.dry_run {
            true => {
                let text = format!(
                    "dry run: {} buckets are read, as the bound needs; {reason}",
                    wanted.alone
                );
                (wanted.alone, text)
            }
            false if wanted.least > decided.proposed => {
                let text = format!("{reason}; the bound needs {} buckets", wanted.least);
                (wanted.least, text)
            }
            false => (decided.proposed, reason),
        };
        ReadDecision {
            buckets,
            reason,
            answer: Some(decided),
        }
    }

    /// Reads the bytes of the first buckets from the device that was asked about into memory of the
    /// system, and those of the probe after them, and tells how long this took: what it says about
    /// the device would be wrong if decoding were part of it. `None` if they cannot be read.
    pub fn fetch<S: ByteSource>(
        &self,
        array: &ArraySource<S>,
        (buckets, probe_bytes): (usize, u64),
    ) -> Option<FetchedBytes> {
        let first = if self.is_base_elsewhere {
            self.first
        } else {
            0
        };
        let clock = SystemClock::new();
        let end = buckets.max(first);
        let mut bytes = array.skim(first..end).ok()?;
        bytes += array.skim_from(end, probe_bytes).ok()?;
        Some(FetchedBytes {
            bytes,
            time: Duration::from_nanos(clock.monotonic_ns().unsigned_abs()),
        })
    }

    /// Tells the agent what came of its decision, which gives the weight back; returns whether it
    /// has heard it. Without the time of the bytes alone it is no measurement of the device. If it
    /// has not heard it, the lease ends by itself.
    pub fn report(&self, id: u64, fetched: Option<FetchedBytes>, nrmse: Option<f64>) -> bool {
        let none = FetchedBytes {
            bytes: 0,
            time: Duration::ZERO,
        };
        let fetched = fetched.unwrap_or(none);
        let body = json!({
            "decision": id,
            "bytes": fetched.bytes,
            "seconds": fetched.time.as_secs_f64(),
            "nrmse": nrmse.map(finite),
        });
        self.door.post("report", &body).is_ok()
    }

    fn question(&self, wanted: &WantedReading) -> Json {
        let measure = |entry: &BucketEntry| {
            let (error, range) = (&entry.error, &self.range);
            finite(match wanted.bound {
                None | Some(ErrorBound::Nrmse(_)) => error.nrmse(range),
                Some(ErrorBound::Psnr(_)) => error.psnr(range),
                Some(ErrorBound::PsnrMax(_)) => error.psnr_max(range),
                Some(ErrorBound::Linf(_)) => error.linf,
            })
        };
        let nrmse = |entry: &BucketEntry| finite(entry.error.nrmse(&self.range));
        let share = |bytes: u64| (bytes as f64 * wanted.share).round() as u64;
        let (base, others) = (&self.buckets[self.first - 1], &self.buckets[self.first..]);
        let base_bytes = match self.is_base_elsewhere {
            true => 0,
            false => share(self.header_bytes + base.bytes),
        };
        let others = others.iter().map(|entry| {
            let (nrmse, error) = (nrmse(entry), measure(entry));
            json!({ "bytes": share(entry.bytes), "nrmse": nrmse, "error": error })
        });
        let (major, minor) = (
            rustix::fs::major(self.device),
            rustix::fs::minor(self.device),
        );
        json!({
            "path": self.slow.to_str(),
            // The number says more than the path: links in it were followed.
            "device": format!("{major}:{minor}"),
            "label": self.config.label.chars().take(LABEL_LETTERS_MAX).collect::<String>(),
            "base_bytes": base_bytes,
            "base_nrmse": nrmse(base),
            "base_error": measure(base),
            "buckets": others.collect::<Vec<_>>(),
            "error": wanted.bound.as_ref().map(bound_json),
            "priority": self.config.priority,
            "interval_s": wanted.interval.map(|interval| interval.as_secs_f64()),
            "dry_run": self.config.dry_run,
        })
    }

    /// The answer of an agent and its reason; `None` if it makes no sense.
    fn answer(&self, answer: &Json) -> Option<(ReadAnswer, String)> {
        let more = usize::try_from(answer["buckets"].as_u64()?).ok()?;
        let proposed = self.first.checked_add(more)?;
        let (bandwidth, probe) = (&answer["bandwidth"], &answer["probe"]);
        // One that begins elsewhere is another agent's idea of a probe.
        let is_next = probe["bucket"].as_u64() == Some(more as u64);
        let is_read = is_next && !self.config.dry_run;
        let probe_bytes = probe["bytes"].as_u64().filter(|_| is_read);
        let is_sound =
            proposed <= self.buckets.len() && (bandwidth.is_object() || bandwidth.is_null());
        let text = |value: &Json| value.as_str().map(str::to_owned);
        let answer = is_sound.then(|| {
            Some(ReadAnswer {
                id: answer["decision"].as_u64()?,
                proposed,
                probe_bytes: probe_bytes.unwrap_or(0).min(PROBE_BYTES_MAX),
                degree: answer["degree"].as_f64(),
                bandwidth: bandwidth["value"].as_f64(),
                bandwidth_error: bandwidth["error"].as_f64(),
                bandwidth_basis: text(&bandwidth["basis"]),
                weight: answer["weight"].as_f64(),
                weight_reason: text(&answer["weight_reason"]),
                lease_s: answer["lease_s"].as_f64(),
            })
            .zip(text(&answer["reason"]))
        });
        answer.flatten()
    }
}

/// The value as JSON has it, which knows no infinity.
fn finite(value: f64) -> f64 {
    match value.is_nan() {
        true => f64::MAX,
        false => value.clamp(-f64::MAX, f64::MAX),
    }
}

fn bound_json(bound: &ErrorBound) -> Json {
    match *bound {
        ErrorBound::Nrmse(value) => json!({ "nrmse": finite(value) }),
        ErrorBound::Psnr(value) => json!({ "psnr": finite(value) }),
        ErrorBound::PsnrMax(value) => json!({ "psnr_max": finite(value) }),
        ErrorBound::Linf(value) => json!({ "linf": finite(value) }),
    }
}
