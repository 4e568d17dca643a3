//! Control events: see `baro.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;
use std::time::Duration;

use barograph_client::publish::{ControlEventContent, PublicationReaders, Publisher};
use barograph_client::{
    CONTROL_EVENT_PROPERTIES_MAX, ControlEvent, ControlFilter, ControlSubscription, Observer,
};
use barograph_model::Pattern;

use crate::guard::{E_ARGUMENT, Failure, NOTHING, OK, guarded, set, text, text_or_empty};
use crate::handles::{HandleObject, give, take_back, thing, thing_mut};
use crate::{publish, put};

/// Labels that have fields of their own in `baro_control_event_t`.
const APPLICATION: &str = "application";
const JOB: &str = "job";
const RANK: &str = "rank";
const USER: &str = "user";

/// The C struct `baro_property_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BaroProperty {
    name: *const c_char,
    text: *const c_char,
}

/// The C struct `baro_control_event_t`.
#[repr(C)]
pub(crate) struct BaroControlEvent {
    kind: *const c_char,
    subject: *const c_char,
    value: f64,
    confidence: f64,
    ts: i64,
    age_ns: i64,
    sequence: u64,
    missed: u64,
    pid: u32,
    thread: u32,
    node: *const c_char,
    application: *const c_char,
    job: *const c_char,
    rank: *const c_char,
    user: *const c_char,
    labels: *const c_char,
    properties: *const BaroProperty,
    properties_count: usize,
    is_own: c_int,
}

/// The C struct `baro_control_filter_t`, whose pointers are numbers here, so that all bit patterns
/// are valid.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BaroControlFilter {
    size: usize,
    kind: usize,
    subject: usize,
    sources: usize,
    properties: usize,
    confidence_min: f64,
    age_ns_max: i64,
    past_ns: i64,
    exclude_own: c_int,
}

/// The C function type `baro_control_handler_t`.
pub(crate) type ControlHandler = extern "C" fn(*const BaroControlEvent, *mut c_void) -> c_int;

/// The C type `baro_control_subscription_t`.
pub(crate) struct Subscription {
    subscription: ControlSubscription,
    given: Given,
    handler: Option<(ControlHandler, *mut c_void)>,
}

impl HandleObject for Subscription {
    const KIND: u8 = 10;
    const NAME: &'static str = "the subscription to control events";
    const IS_EXCLUSIVE: bool = true;
}

/// An event as C has it, and the memory that it points into.
struct Given {
    texts: Vec<CString>,
    properties: Vec<BaroProperty>,
    event: BaroControlEvent,
}

impl Given {
    fn new() -> Self {
        Self {
            texts: Vec::new(),
            properties: Vec::new(),
            event: BaroControlEvent {
                kind: ptr::null(),
                subject: ptr::null(),
                value: f64::NAN,
                confidence: 0.0,
                ts: 0,
                age_ns: 0,
                sequence: 0,
                missed: 0,
                pid: 0,
                thread: 0,
                node: ptr::null(),
                application: ptr::null(),
                job: ptr::null(),
                rank: ptr::null(),
                user: ptr::null(),
                labels: ptr::null(),
                properties: ptr::null(),
                properties_count: 0,
                is_own: 0,
            },
        }
    }

    /// Keeps an event until the next one.
    fn set(&mut self, event: &ControlEvent) -> &BaroControlEvent {
        self.texts.clear();
        let texts = &mut self.texts;
        // The address of a text is that of its own memory, so it stays when the list grows.
        let mut keep = |text: &str| {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            let at = text.as_ptr();
            texts.push(text);
            at
        };
        let labels = event.descriptor.labels.to_string();
        let labels = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}'));
        let label = |name: &str| event.label(name).unwrap_or_default();
        self.properties.clear();
        for (name, text) in &event.properties {
            let (name, text) = (keep(name), keep(text));
            self.properties.push(BaroProperty { name, text });
        }
        self.event = BaroControlEvent {
            kind: keep(&event.kind),
            subject: keep(&event.subject),
            value: event.value.unwrap_or(f64::NAN),
            confidence: event.confidence,
            ts: event.ts,
            age_ns: event.age_ns,
            sequence: event.sequence,
            missed: event.missed,
            pid: event.pid,
            thread: event.thread,
            node: keep(&event.node),
            application: keep(label(APPLICATION)),
            job: keep(label(JOB)),
            rank: keep(label(RANK)),
            user: keep(label(USER)),
            labels: keep(labels.unwrap_or_default()),
            properties: self.properties.as_ptr(),
            properties_count: self.properties.len(),
            is_own: event.is_own.into(),
        };
        &self.event
    }
}

impl Subscription {
    fn next(&mut self, timeout: Duration) -> Option<&BaroControlEvent> {
        let event = self.subscription.wait(timeout)?;
        Some(self.given.set(&event))
    }
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_control_readers(baro: *const Publisher, readers: c_int) -> c_int {
    guarded(
        |code| code,
        || {
            let readers: PublicationReaders = publish::readers_of(readers)?;
            thing(baro)?.control_event_readers(readers)?;
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `kind` and `subject` are null or C strings; `properties` is null or has `count` pairs of C
/// strings.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_event(
    baro: *const Publisher,
    kind: *const c_char,
    subject: *const c_char,
    value: f64,
    confidence: f64,
    properties: *const BaroProperty,
    count: usize,
) -> c_int {
    guarded(
        |code| code,
        || {
            let baro = thing(baro)?;
            let mut known = [("", ""); CONTROL_EVENT_PROPERTIES_MAX];
            let count = if properties.is_null() { 0 } else { count };
            let Some(known) = known.get_mut(..count) else {
                let most =
                    format!("an event has {CONTROL_EVENT_PROPERTIES_MAX} properties at most");
                return Err(Failure::new(E_ARGUMENT, most));
            };
            for (at, (name, content)) in known.iter_mut().enumerate() {
                // SAFETY: the caller says that there are so many pairs, of C strings.
                unsafe {
                    let property = properties.add(at).read();
                    *name = text(property.name, "the name of a property")?;
                    *content = text_or_empty(property.text, "the text of a property")?;
                }
            }
            // SAFETY: the caller upholds the requirements of this function.
            let (kind, subject) = unsafe {
                (
                    text(kind, "the kind")?,
                    text_or_empty(subject, "the subject")?,
                )
            };
            let done = baro.control_event(&ControlEventContent {
                kind,
                subject,
                value: (!value.is_nan()).then_some(value),
                confidence,
                properties: known,
            });
            // The end of a frame may have applied settings of knobs.
            put::note_calls();
            done?;
            Ok(OK)
        },
    )
}

/// Reads the caller's filter.
///
/// # Safety
/// `filter` is null, or begins with its size and has that many bytes; its pointers are null or C
/// strings.
unsafe fn wanted(filter: *const BaroControlFilter) -> Result<ControlFilter, Failure> {
    let mut known = BaroControlFilter::default();
    if filter.is_null() {
        return Ok(ControlFilter::default());
    }
    // SAFETY: the size is the first field in every version.
    let size = unsafe { filter.cast::<usize>().read() };
    if size < size_of::<usize>() {
        let text = "the filter has no size: begin with BARO_CONTROL_FILTER_INIT";
        return Err(Failure::new(E_ARGUMENT, text));
    }
    let bytes = size.min(size_of::<BaroControlFilter>());
    // SAFETY: both have that many bytes; all bit patterns of `BaroControlFilter` are valid.
    unsafe {
        ptr::copy_nonoverlapping(filter.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes);
    }
    // SAFETY: the texts are null or C strings, as the caller guarantees.
    let (kind, subject, sources, properties) = unsafe {
        (
            text_or_empty(known.kind as *const c_char, "kind")?,
            text_or_empty(known.subject as *const c_char, "subject")?,
            text_or_empty(known.sources as *const c_char, "sources")?,
            text_or_empty(known.properties as *const c_char, "properties")?,
        )
    };
    let pattern = |text: &str| (!text.is_empty()).then(|| Pattern::new(text));
    let duration = |ns: i64| Duration::from_nanos(ns.max(0).unsigned_abs());
    let filter = ControlFilter {
        kind: pattern(kind),
        subject: pattern(subject),
        age_max: (known.age_ns_max > 0).then(|| duration(known.age_ns_max)),
        past: duration(known.past_ns),
        excludes_own: known.exclude_own != 0,
        ..ControlFilter::default()
    };
    let filter = filter
        .with_sources(sources)
        .and_then(|filter| filter.with_properties(properties))
        .and_then(|filter| filter.with_confidence_min(known.confidence_min));
    filter.map_err(|fault| Failure::new(E_ARGUMENT, fault))
}

/// See `baro.h`.
///
/// # Safety
/// As [`wanted`] says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_subscribe(
    node: *const Observer,
    filter: *const BaroControlFilter,
) -> *mut Subscription {
    guarded(
        |_| ptr::null_mut(),
        || {
            let node = thing(node)?;
            // SAFETY: the caller upholds the requirements of this function.
            let filter = unsafe { wanted(filter) }?;
            give(Subscription {
                subscription: node.control_events(filter)?,
                given: Given::new(),
                handler: None,
            })
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `event` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_check(
    subscription: *mut Subscription,
    event: *mut *const BaroControlEvent,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { baro_control_wait(subscription, 0, event) }
}

/// See `baro.h`.
///
/// # Safety
/// `event` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_wait(
    subscription: *mut Subscription,
    timeout_ns: i64,
    event: *mut *const BaroControlEvent,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(event, ptr::null()) };
    guarded(
        |code| code,
        || {
            let mut subscription = thing_mut(subscription)?;
            let timeout = Duration::from_nanos(timeout_ns.max(0).unsigned_abs());
            let Some(next) = subscription.next(timeout) else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(event, ptr::from_ref(next)) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `handler` may be called with `data` by any thread that dispatches.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_on(
    subscription: *mut Subscription,
    handler: Option<ControlHandler>,
    data: *mut c_void,
) -> c_int {
    guarded(
        |code| code,
        || {
            thing_mut(subscription)?.handler = handler.map(|handler| (handler, data));
            Ok(OK)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_control_dispatch(
    subscription: *mut Subscription,
    timeout_ns: i64,
) -> c_int {
    guarded(
        |code| code,
        || {
            let mut held = thing_mut(subscription)?;
            let Subscription {
                subscription,
                given,
                handler,
            } = &mut *held;
            let Some((handler, data)) = *handler else {
                let text = "the subscription has no handler: set one with baro_control_on";
                return Err(Failure::new(E_ARGUMENT, text));
            };
            let timeout = Duration::from_nanos(timeout_ns.max(0).unsigned_abs());
            let handled = subscription.dispatch(timeout, |event| {
                match handler(ptr::from_ref(given.set(event)), data) {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            });
            Ok(c_int::try_from(handled).unwrap_or(c_int::MAX))
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_control_missed(subscription: *const Subscription) -> u64 {
    guarded(
        |_| 0,
        || Ok(thing(subscription)?.subscription.counts().missed),
    )
}

/// See `baro.h`.
///
/// # Safety
/// `event` is null or an event that is still valid; `name` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_control_property(
    event: *const BaroControlEvent,
    name: *const c_char,
) -> *const c_char {
    if event.is_null() || name.is_null() {
        return ptr::null();
    }
    // SAFETY: the caller upholds the requirements of this function; an event that is valid has so
    // many properties, of C strings.
    unsafe {
        let (event, name) = (&*event, CStr::from_ptr(name));
        let properties = match event.properties_count {
            0 => &[][..],
            count => std::slice::from_raw_parts(event.properties, count),
        };
        let mut properties = properties.iter();
        let found = properties.find(|property| CStr::from_ptr(property.name) == name);
        found.map_or(ptr::null(), |property| property.text)
    }
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_control_close(subscription: *mut Subscription) {
    guarded(|_| (), || take_back(subscription));
}
