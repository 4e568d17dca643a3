//! Readings of packed arrays that ask the agent how much to read, and report what came of it.
//!
//! This module stands alone because arrays are read without an agent otherwise. Nothing of it stays
//! open between calls: neither a file nor a socket.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barograph_client::{
    FetchedBytes, ReadAnswer, ReadDecision, ReaderConfig, ReaderQuestions, RunDir, SystemClock,
    WantedReading,
};
use barograph_model::Clock as _;
use barograph_progressive::{Element, ElementType, ErrorBound, WantedArray};

use crate::array::{ArrayPlace, BaroArray, Wanted, put};
use crate::guard::{E_ARGUMENT, E_TYPE, Failure, OK, guarded, set, text};
use crate::handles::thing;

const REASON_BYTES: usize = 256;
const PRIORITY_DEFAULT: u8 = 5;
const PRIORITY_MAX: u32 = 10;

/// The C struct `baro_step_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroStep {
    error: *const c_char,
    label: *const c_char,
    run_dir: *const c_char,
    interval_s: f64,
    priority: u32,
    dry_run: c_int,
}

/// The C struct `baro_decision_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroDecision {
    id: u64,
    buckets: u32,
    proposed: u32,
    degree: f64,
    bandwidth: f64,
    bandwidth_error: f64,
    weight: f64,
    nrmse: f64,
    bytes: u64,
    seconds: f64,
    reported: c_int,
    reason: [u8; REASON_BYTES],
}

/// A step as it was asked for.
struct Step {
    bound: Option<ErrorBound>,
    label: Option<String>,
    run_dir: RunDir,
    interval: Option<Duration>,
    priority: u8,
    dry_run: bool,
}

impl Step {
    /// # Safety
    /// `step` is null or valid, and its texts are null or C strings.
    unsafe fn of(step: *const BaroStep) -> Result<Self, Failure> {
        // SAFETY: the caller upholds the requirements of this function.
        let step = unsafe { step.as_ref() };
        let step = step.ok_or_else(|| Failure::new(E_ARGUMENT, "there is no step"))?;
        let said = |place: *const c_char, what: &str| match place.is_null() {
            true => Ok(None),
            // SAFETY: the caller upholds the requirements of this function.
            false => unsafe { text(place, what) }.map(Some),
        };
        let bound = said(step.error, "the error")?.map(ErrorBound::parse);
        let run_dir = said(step.run_dir, "the run directory")?;
        let interval = Duration::try_from_secs_f64(step.interval_s)
            .map_err(|_| Failure::new(E_ARGUMENT, "the interval is no time"))?;
        let priority = match step.priority {
            0 => PRIORITY_DEFAULT,
            1..=PRIORITY_MAX => step.priority as u8,
            other => {
                let text = format!("priority {other}: it is 1 to {PRIORITY_MAX}");
                return Err(Failure::new(E_ARGUMENT, text));
            }
        };
        Ok(Self {
            bound: bound.transpose()?,
            label: said(step.label, "the label")?.map(str::to_owned),
            run_dir: run_dir.map_or_else(RunDir::find, RunDir::new),
            interval: Some(interval).filter(|it| !it.is_zero()),
            priority,
            dry_run: step.dry_run != 0,
        })
    }
}

/// What a step has read, and what was decided.
struct Stepped<T> {
    values: Vec<T>,
    decision: ReadDecision,
    fetched: Option<FetchedBytes>,
    nrmse: f64,
    reported: bool,
}

impl BaroArray {
    /// The time since the step before, which this one follows.
    fn interval(&self) -> Option<Duration> {
        // The clock counts from the epoch; steps that go back in time have no interval.
        let now_ns = SystemClock::new().now_ns();
        let before_ns = self.stepped_ns.swap(now_ns, Ordering::Relaxed);
        let passed_ns = u64::try_from(now_ns.checked_sub(before_ns)?).ok()?;
        (before_ns != 0 && passed_ns > 0).then(|| Duration::from_nanos(passed_ns))
    }

    fn step<T: Element>(&self, step: Step, threads: usize) -> Result<Stepped<T>, Failure> {
        let buckets = self.header.buckets();
        let least = step.bound.map(|bound| self.header.buckets_for(&bound));
        let least = least.transpose()?;
        let measured = self.interval();
        let wanted = WantedReading {
            bound: step.bound,
            alone: least.unwrap_or(buckets.len()),
            least: least.unwrap_or(1),
            interval: step.interval.or(measured),
            share: 1.0,
        };
        match &self.place {
            ArrayPlace::Memory(bytes) => {
                let why = "the array is in memory, which has no device";
                let decision = ReadDecision::without(&wanted, why);
                let source = barograph_progressive::ArraySource::open(&**bytes)?;
                let values = self.whole(decision.buckets, threads).read(&source)?;
                Ok(Stepped {
                    values,
                    nrmse: self.nrmse(decision.buckets),
                    decision,
                    fetched: None,
                    reported: false,
                })
            }
            ArrayPlace::File(path, meant) => self.step_of(&step, &wanted, (path, meant), threads),
        }
    }

    fn step_of<T: Element>(
        &self,
        step: &Step,
        wanted: &WantedReading,
        (path, meant): (&Path, &WantedArray),
        threads: usize,
    ) -> Result<Stepped<T>, Failure> {
        let source = self.opened(path, meant)?;
        let name = || path.file_name().unwrap_or_default().to_string_lossy();
        let config = ReaderConfig {
            run_dir: step.run_dir.clone(),
            label: step.label.clone().unwrap_or_else(|| name().into_owned()),
            priority: step.priority,
            dry_run: step.dry_run,
        };
        let tiers = source.source().tiers();
        let questions = ReaderQuestions::new(&source, path, tiers, config).map_err(|error| {
            Failure::new(crate::guard::E_DATA, format!("{}: {error}", path.display()))
        })?;
        let decision = questions.ask(wanted);
        let fetch =
            |_: &ReadAnswer| questions.fetch(&source, (decision.buckets, decision.probe_bytes()));
        let fetched = decision.answer.as_ref().and_then(fetch);
        let read = self.whole(decision.buckets, threads).read(&source);
        let nrmse = self.nrmse(decision.buckets);
        // A reading that has failed gives its weight back too.
        let measured = fetched.filter(|_| read.is_ok());
        let reported = decision.answer.as_ref().is_some_and(|answer| {
            let reached = read.is_ok().then_some(nrmse);
            questions.report(answer.id, measured, reached)
        });
        Ok(Stepped {
            values: read?,
            decision,
            fetched,
            nrmse,
            reported,
        })
    }

    fn whole(&self, buckets: usize, threads: usize) -> Wanted {
        Wanted {
            buckets,
            region: self.header.shape().whole(),
            threads,
        }
    }

    fn nrmse(&self, buckets: usize) -> f64 {
        let entry = &self.header.buckets()[buckets - 1];
        entry.error.nrmse(self.header.range())
    }
}

impl<T> Stepped<T> {
    fn described(&self) -> BaroDecision {
        let answer = self.decision.answer.clone().unwrap_or_default();
        let known = |number: Option<f64>| number.unwrap_or(f64::NAN);
        let mut reason = [0; REASON_BYTES];
        let mut end = self.decision.reason.len().min(REASON_BYTES - 1);
        while !self.decision.reason.is_char_boundary(end) {
            end -= 1;
        }
        reason[..end].copy_from_slice(&self.decision.reason.as_bytes()[..end]);
        BaroDecision {
            id: answer.id,
            buckets: self.decision.buckets as u32,
            proposed: answer.proposed as u32,
            degree: known(answer.degree),
            bandwidth: known(answer.bandwidth),
            bandwidth_error: known(answer.bandwidth_error),
            weight: known(answer.weight),
            nrmse: self.nrmse,
            bytes: self.fetched.map_or(0, |it| it.bytes),
            seconds: self.fetched.map_or(f64::NAN, |it| it.time.as_secs_f64()),
            reported: self.reported.into(),
            reason,
        }
    }
}

/// Makes a step, and writes its values by `convert` into memory of the caller.
///
/// # Safety
/// `step` is null or valid, and its texts are null or C strings; `values` is null or has room for
/// `count` values; `decision` is null or valid for writes.
unsafe fn stepped<F: Element, T>(
    array: &BaroArray,
    step: *const BaroStep,
    (values, count): (*mut T, usize),
    threads: u32,
    decision: *mut BaroDecision,
    convert: impl Fn(F) -> T,
) -> Result<c_int, Failure> {
    let threads = threads.max(1) as usize;
    array.whole(1, threads).check_room(values, count)?;
    // SAFETY: the caller upholds the requirements of this function, and there is room for the
    // values of the whole array.
    unsafe {
        let done = array.step::<F>(Step::of(step)?, threads)?;
        set(decision, done.described());
        put(done.values, values, convert);
    }
    Ok(OK)
}

/// See `baro.h`.
///
/// # Safety
/// `step` is null or valid, and its texts are null or C strings; `values` is null or has room for
/// `count` values; `decision` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_step_f64(
    array: *const BaroArray,
    step: *const BaroStep,
    values: *mut f64,
    count: usize,
    threads: u32,
    decision: *mut BaroDecision,
) -> c_int {
    guarded(
        |code| code,
        || {
            let (array, to) = (thing(array)?, (values, count));
            // SAFETY: the caller upholds the requirements of this function.
            unsafe {
                match array.header.element() {
                    ElementType::F64 => {
                        stepped(&array, step, to, threads, decision, |value: f64| value)
                    }
                    ElementType::F32 => {
                        stepped::<f32, _>(&array, step, to, threads, decision, f64::from)
                    }
                }
            }
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// As for [`baro_array_step_f64`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_array_step_f32(
    array: *const BaroArray,
    step: *const BaroStep,
    values: *mut f32,
    count: usize,
    threads: u32,
    decision: *mut BaroDecision,
) -> c_int {
    guarded(
        |code| code,
        || {
            let array = thing(array)?;
            if array.header.element() == ElementType::F64 {
                let text = "the values are doubles: read them with baro_array_step_f64";
                return Err(Failure::new(E_TYPE, text));
            }
            let to = (values, count);
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { stepped(&array, step, to, threads, decision, |value: f32| value) }
        },
    )
}
