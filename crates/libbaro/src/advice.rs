//! Advice where blocks go: see `baro.h`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use barograph_client::{Advice, AdviceQuestion, AdviceTarget, PlacementAdviser, RunDir};

use crate::guard::{
    E_ARGUMENT, E_NO_AGENT, Failure, OK, guarded, remember, set, text, text_or_empty,
};

/// Most targets that an agent takes.
const TARGETS_MAX: usize = 32;
/// Most keys that an agent takes.
const KEYS_MAX: usize = 256;

/// `baro_advice_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CAdvice {
    decision: u64,
    expected_s: f64,
}

/// See `baro.h`.
///
/// # Safety
/// `targets`, `weights` and `keys` are null or have as many elements as is said; texts are null or
/// C strings; `places` is null or has room for one number for each key, or for one; `advice` is
/// null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_advise(
    run_dir: *const c_char,
    targets: *const *const c_char,
    weights: *const f64,
    targets_count: usize,
    keys: *const *const c_char,
    keys_count: usize,
    bytes: u64,
    direction: c_int,
    label: *const c_char,
    places: *mut c_int,
    advice: *mut CAdvice,
) -> c_int {
    guarded(
        |code| code,
        || {
            if places.is_null() {
                return Err(Failure::new(E_ARGUMENT, "places is null"));
            }
            // SAFETY: the caller upholds the requirements of this function.
            let (paths, keys) = unsafe {
                (
                    texts(targets, targets_count, TARGETS_MAX, "targets")?,
                    texts(keys, keys_count, KEYS_MAX, "keys")?,
                )
            };
            let weights = match weights.is_null() {
                true => vec![1.0; paths.len()],
                // SAFETY: not null, and the caller says that there are as many as targets.
                false => unsafe { std::slice::from_raw_parts(weights, paths.len()) }.to_vec(),
            };
            let targets = paths.into_iter().zip(weights);
            let question = AdviceQuestion {
                keys,
                bytes,
                is_read: is_read(direction)?,
                split_bytes_min: None,
                targets: targets
                    .map(|(path, weight)| AdviceTarget { path, weight })
                    .collect(),
                // SAFETY: the caller upholds the requirements of this function.
                label: unsafe { text_or_empty(label, "the label")? }.to_owned(),
                dry_run: false,
            };
            // SAFETY: the caller upholds the requirements of this function.
            let adviser = unsafe { adviser(run_dir)? };
            let answer = adviser.advise(&question);
            let answer = answer.map_err(|error| Failure::new(E_ARGUMENT, error))?;
            if answer.decision.is_none() {
                remember(&answer.reason);
            }
            for (at, place) in places_of(&answer, &question).enumerate() {
                // SAFETY: there is a place for each block, of which there are as many as keys, or
                // one.
                unsafe { places.add(at).write(place) };
            }
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(advice, CAdvice::of(&answer)) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `run_dir` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_advise_report(
    run_dir: *const c_char,
    decision: u64,
    bytes: u64,
    seconds: f64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let time = Duration::try_from_secs_f64(seconds);
            let time = time
                .map_err(|_| Failure::new(E_ARGUMENT, format!("{seconds} seconds are no time")))?;
            // SAFETY: the caller upholds the requirements of this function.
            match unsafe { adviser(run_dir)? }.report(decision, bytes, time) {
                true => Ok(OK),
                false => Err(Failure::new(
                    E_NO_AGENT,
                    format!("no agent has heard what came of decision {decision}"),
                )),
            }
        },
    )
}

impl CAdvice {
    fn of(answer: &Advice) -> Self {
        let seconds = answer.blocks.iter().filter_map(|it| it.expected_s);
        Self {
            decision: answer.decision.unwrap_or(0),
            expected_s: seconds.max_by(f64::total_cmp).unwrap_or(-1.0),
        }
    }
}

fn is_read(direction: c_int) -> Result<bool, Failure> {
    match direction {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Failure::new(
            E_ARGUMENT,
            format!("direction {other}: it is BARO_WRITE or BARO_READ"),
        )),
    }
}

/// The index of the target of each block; -1 if it goes nowhere.
fn places_of<'a>(
    answer: &'a Advice,
    question: &'a AdviceQuestion,
) -> impl Iterator<Item = c_int> + 'a {
    answer.blocks.iter().map(|block| {
        let path = block.pieces.first().map(|piece| &*piece.path);
        let mut targets = question.targets.iter();
        let at = targets.position(|it| path == Some(&*it.path));
        at.and_then(|at| c_int::try_from(at).ok()).unwrap_or(-1)
    })
}

/// # Safety
/// `run_dir` is null or a C string.
unsafe fn adviser(run_dir: *const c_char) -> Result<PlacementAdviser, Failure> {
    let run_dir = match run_dir.is_null() {
        true => RunDir::find(),
        // SAFETY: the caller upholds the requirements of this function.
        false => RunDir::new(unsafe { text(run_dir, "the run directory")? }),
    };
    Ok(PlacementAdviser::new(run_dir))
}

/// # Safety
/// `list` is null or has `count` elements, each null or a C string.
unsafe fn texts(
    list: *const *const c_char,
    count: usize,
    most: usize,
    what: &str,
) -> Result<Vec<String>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if list.is_null() || count > most {
        let wrong = format!("{what} is null, or has more than {most} elements");
        return Err(Failure::new(E_ARGUMENT, wrong));
    }
    // SAFETY: not null, and the caller says how many there are.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    // SAFETY: the caller upholds the requirements of this function.
    let texts = list.iter().map(|it| unsafe { text(*it, what) });
    texts.map(|it| it.map(str::to_owned)).collect()
}
