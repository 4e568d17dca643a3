//! File events: a feed that gives each event once, and tells what nobody has any more.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

use barograph_client::{
    EventFeed, EventFilter, EventFlags, EventKind, EventStart, FeedItem, FileEvent, Observer,
};
use barograph_model::Pattern;

use crate::guard::{E_ARGUMENT, E_NO_AGENT, Failure, NOTHING, OK, guarded, set, text_or_empty};
use crate::handles::{HandleObject, give, take_back, thing, thing_mut};

/// Numbers of events that are unknown, as in `baro.h`.
const UNKNOWN: i64 = -1;

/// The C type `baro_event_feed_t`.
pub(crate) struct Feed {
    feed: EventFeed,
    /// Memory that `given` points into.
    texts: Texts,
    position: CString,
    given: BaroEvent,
}

impl HandleObject for Feed {
    const KIND: u8 = 6;
    const NAME: &'static str = "the feed of events";
    const IS_EXCLUSIVE: bool = true;
}

/// The texts of an event, each with a zero byte at its end.
#[derive(Default)]
struct Texts {
    kind: CString,
    source: CString,
    path: Vec<u8>,
    old_path: Vec<u8>,
    job: CString,
    gap: CString,
}

/// The C struct `baro_event_filter_t`, whose pointers are numbers here, so that all bit patterns
/// are valid.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BaroEventFilter {
    size: usize,
    kinds: usize,
    path: usize,
    glob: usize,
    source: usize,
    since_ns: i64,
    after: usize,
}

/// The C struct `baro_event_t`.
#[repr(C)]
pub(crate) struct BaroEvent {
    kind: *const c_char,
    source: *const c_char,
    index: u64,
    ts: i64,
    path: *const c_char,
    path_bytes: usize,
    old_path: *const c_char,
    old_path_bytes: usize,
    size: i64,
    uid: i64,
    gid: i64,
    job: *const c_char,
    is_directory: c_int,
    is_complete: c_int,
    is_reconciled: c_int,
    gap: *const c_char,
    before: u64,
    missing: u64,
}

fn c_text(text: impl Into<String>) -> CString {
    CString::new(text.into().replace('\0', " ")).unwrap_or_default()
}

/// Puts a path with a zero byte at its end into `to`; paths have none within.
fn ended(path: &[u8], to: &mut Vec<u8>) -> (*const c_char, usize) {
    to.clear();
    to.extend_from_slice(path);
    to.push(0);
    (to.as_ptr().cast(), path.len())
}

impl Feed {
    fn next(&mut self, timeout: Duration) -> Option<&BaroEvent> {
        self.given = match self.feed.next(timeout)? {
            FeedItem::Event(event, source) => self.texts.event(&event, &source),
            FeedItem::Gap(gap) => {
                self.texts.source = c_text(gap.source);
                self.texts.gap = c_text(gap.reason);
                let empty = FileEvent::new(EventKind::Gap, gap.after, 0);
                BaroEvent {
                    source: self.texts.source.as_ptr(),
                    gap: self.texts.gap.as_ptr(),
                    before: gap.before.unwrap_or(0),
                    missing: gap.missing.unwrap_or(0),
                    ..self.texts.fields(&empty)
                }
            }
        };
        self.position = c_text(self.feed.position().to_string());
        Some(&self.given)
    }
}

impl Texts {
    fn event(&mut self, event: &FileEvent, source: &str) -> BaroEvent {
        if self.source.as_bytes() != source.as_bytes() {
            self.source = c_text(source);
        }
        self.fields(event)
    }

    /// The fields of an event of the source in `source`, without a gap.
    fn fields(&mut self, event: &FileEvent) -> BaroEvent {
        self.kind = c_text(event.kind.as_str());
        self.job = c_text(&*event.job);
        let (path, path_bytes) = ended(&event.path, &mut self.path);
        let (old_path, old_path_bytes) = ended(&event.old_path, &mut self.old_path);
        let has = |flag| c_int::from(event.flags.has(flag));
        BaroEvent {
            kind: self.kind.as_ptr(),
            source: self.source.as_ptr(),
            index: event.index,
            ts: event.ts,
            path,
            path_bytes,
            old_path,
            old_path_bytes,
            size: event
                .size
                .map_or(UNKNOWN, |size| i64::try_from(size).unwrap_or(i64::MAX)),
            uid: event.uid.map_or(UNKNOWN, i64::from),
            gid: event.gid.map_or(UNKNOWN, i64::from),
            job: self.job.as_ptr(),
            is_directory: has(EventFlags::DIRECTORY),
            is_complete: 1 - has(EventFlags::PATH_INCOMPLETE),
            is_reconciled: has(EventFlags::RECONCILED),
            gap: ptr::null(),
            before: 0,
            missing: 0,
        }
    }
}

/// Reads the caller's filter.
///
/// # Safety
/// `filter` is null, or begins with its size and has that many bytes; its pointers are null or C
/// strings.
unsafe fn wanted(filter: *const BaroEventFilter) -> Result<(EventFilter, EventStart), Failure> {
    let mut known = BaroEventFilter::default();
    if filter.is_null() {
        return Ok((EventFilter::default(), EventStart::Now));
    }
    // SAFETY: the size is the first field in every version.
    let size = unsafe { filter.cast::<usize>().read() };
    if size < size_of::<usize>() {
        let text = "the filter has no size: begin with BARO_EVENT_FILTER_INIT";
        return Err(Failure::new(E_ARGUMENT, text));
    }
    let bytes = size.min(size_of::<BaroEventFilter>());
    // SAFETY: both have that many bytes; all bit patterns of `BaroEventFilter` are valid.
    unsafe {
        ptr::copy_nonoverlapping(filter.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes);
    }
    // SAFETY: the texts are null or C strings, as the caller guarantees.
    let texts = unsafe {
        (
            text_or_empty(known.kinds as *const c_char, "kinds")?,
            text_or_empty(known.glob as *const c_char, "glob")?,
            text_or_empty(known.source as *const c_char, "source")?,
            text_or_empty(known.after as *const c_char, "after")?,
        )
    };
    let (kinds, glob, source, after) = texts;
    let path = match known.path {
        0 => None,
        // SAFETY: a C string of the caller's.
        path => Some(unsafe { CStr::from_ptr(path as *const c_char) }),
    };
    let kind = |word: &str| {
        EventKind::parse(word)
            .ok_or_else(|| Failure::new(E_ARGUMENT, format!("there is no kind of events {word:?}")))
    };
    let kinds = kinds.split(',').filter(|word| !word.is_empty()).map(kind);
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let filter = EventFilter {
        kinds: kinds.collect::<Result<_, _>>()?,
        path: path.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes()))),
        glob: some(glob).map(Pattern::new),
        source: some(source),
    };
    let since_ns = (known.since_ns != 0).then_some(known.since_ns);
    let start = match (after, since_ns) {
        ("", None) => EventStart::Now,
        ("", Some(since_ns)) => EventStart::Since(since_ns),
        (after, since_ns) => {
            let position = after.parse();
            let position = position.map_err(|fault| Failure::new(E_ARGUMENT, fault))?;
            EventStart::After(position, since_ns)
        }
    };
    Ok((filter, start))
}

/// See `baro.h`.
///
/// # Safety
/// As [`wanted`] says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_event_open(
    node: *const Observer,
    filter: *const BaroEventFilter,
) -> *mut Feed {
    guarded(
        |_| ptr::null_mut(),
        || {
            let node = thing(node)?;
            // SAFETY: the caller upholds the requirements of this function.
            let (filter, start) = unsafe { wanted(filter) }?;
            let feed = node.events(filter, start);
            let feed = feed.map_err(|fault| Failure::new(E_NO_AGENT, fault))?;
            let mut texts = Texts::default();
            let nothing = FileEvent::new(EventKind::Mark, 0, 0);
            give(Feed {
                position: c_text(feed.position().to_string()),
                feed,
                given: texts.fields(&nothing),
                texts,
            })
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `event` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_event_next(
    feed: *mut Feed,
    timeout_ns: i64,
    event: *mut *const BaroEvent,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(event, ptr::null()) };
    guarded(
        |code| code,
        || {
            let mut feed = thing_mut(feed)?;
            let timeout = Duration::from_nanos(timeout_ns.max(0).unsigned_abs());
            let Some(next) = feed.next(timeout) else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(event, ptr::from_ref(next)) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_event_position(feed: *const Feed) -> *const c_char {
    guarded(|_| ptr::null(), || Ok(thing(feed)?.position.as_ptr()))
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_event_close(feed: *mut Feed) {
    guarded(|_| (), || take_back(feed));
}
