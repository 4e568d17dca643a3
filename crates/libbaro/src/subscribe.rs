//! Subscriptions: every new sample of a set of streams that may change.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use std::{ptr, vec};

use barograph_client::{Observer, Update, Watch};
use barograph_model::{Descriptor, Selector, Value};

use crate::guard::{E_ARGUMENT, Failure, NOTHING, OK, guarded, set, text};
use crate::handles::{HandleObject, give, take_back, thing, thing_mut};

/// The C type `baro_subscription_t`.
pub(crate) struct Subscription {
    watch: Watch,
    /// Updates that have been read and are not returned yet.
    waiting: vec::IntoIter<Update>,
    /// Memory that `given` points into.
    stream: Option<Stream>,
    value: Option<Value>,
    ended: Vec<u8>,
    given: BaroUpdate,
}

impl HandleObject for Subscription {
    const KIND: u8 = 4;
    const NAME: &'static str = "the subscription";
    const IS_EXCLUSIVE: bool = true;
}

/// The name and labels of a stream as C strings.
struct Stream {
    descriptor: Arc<Descriptor>,
    name: CString,
    labels: CString,
}

impl From<Arc<Descriptor>> for Stream {
    fn from(descriptor: Arc<Descriptor>) -> Self {
        let c_text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let labels = descriptor.labels.to_string();
        let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}'));
        Self {
            name: c_text(descriptor.name.to_string()),
            labels: c_text(inner.unwrap_or_default().to_owned()),
            descriptor,
        }
    }
}

/// The C struct `baro_update_t`.
#[repr(C)]
pub(crate) struct BaroUpdate {
    name: *const c_char,
    labels: *const c_char,
    ts: i64,
    error: f64,
    quality: c_int,
    value_type: c_int,
    bytes: usize,
    content: Content,
    missed: u64,
}

/// The value of `baro_update_t`, by its type.
#[repr(C)]
union Content {
    int: i64,
    float: f64,
    data: *const c_void,
}

impl Subscription {
    fn new(watch: Watch) -> Self {
        Self {
            watch,
            waiting: Vec::new().into_iter(),
            stream: None,
            value: None,
            ended: Vec::new(),
            given: BaroUpdate {
                name: ptr::null(),
                labels: ptr::null(),
                ts: 0,
                error: 0.0,
                quality: 0,
                value_type: 0,
                bytes: 0,
                content: Content { int: 0 },
                missed: 0,
            },
        }
    }

    fn next(&mut self, timeout: Duration) -> Option<&BaroUpdate> {
        let update = match self.waiting.next() {
            Some(update) => update,
            None => {
                self.waiting = self.watch.next(timeout)?.into_iter();
                self.waiting.next()?
            }
        };
        let Update {
            descriptor,
            sample,
            lost,
            ..
        } = update;
        let held = self.stream.take();
        let held = held.filter(|held| Arc::ptr_eq(&held.descriptor, &descriptor));
        let stream = self
            .stream
            .insert(held.unwrap_or_else(|| descriptor.into()));
        let value = self.value.insert(sample.value);
        let (bytes, content) = content(value, &mut self.ended);
        self.given = BaroUpdate {
            name: stream.name.as_ptr(),
            labels: stream.labels.as_ptr(),
            ts: sample.ts,
            error: sample.error.into(),
            quality: sample.quality as c_int,
            value_type: value.value_type() as c_int,
            bytes,
            content,
            missed: lost,
        };
        Some(&self.given)
    }
}

/// Length and address of a value; a text is copied to `ended`, with a zero byte at its end.
fn content(value: &Value, ended: &mut Vec<u8>) -> (usize, Content) {
    match value {
        Value::Int(int) => (8, Content { int: *int }),
        Value::Float(float) => (8, Content { float: *float }),
        Value::Bool(is) => {
            let int = i64::from(*is);
            (8, Content { int })
        }
        Value::Text(text) | Value::Json(text) => {
            ended.clear();
            ended.extend_from_slice(text.as_bytes());
            ended.push(0);
            let data = ended.as_ptr().cast();
            (text.len(), Content { data })
        }
        Value::Bytes(bytes) => {
            let data = bytes.as_ptr().cast();
            (bytes.len(), Content { data })
        }
        Value::Floats(floats) => {
            let data = floats.as_ptr().cast();
            (size_of_val(&**floats), Content { data })
        }
    }
}

/// See `baro.h`.
///
/// # Safety
/// `pattern` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_subscribe(
    node: *const Observer,
    pattern: *const c_char,
) -> *mut Subscription {
    guarded(
        |_| ptr::null_mut(),
        || {
            // SAFETY: the caller upholds the requirements of this function.
            let (node, pattern) = unsafe { (thing(node)?, text(pattern, "the pattern")?) };
            let selector = Selector::parse(pattern).map_err(|e| Failure::new(E_ARGUMENT, e))?;
            give(Subscription::new(node.watch(&selector)))
        },
    )
}

/// See `baro.h`.
///
/// # Safety
/// `update` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn baro_subscription_next(
    subscription: *mut Subscription,
    timeout_ns: i64,
    update: *mut *const BaroUpdate,
) -> c_int {
    // SAFETY: the caller upholds the requirements of this function.
    unsafe { set(update, ptr::null()) };
    guarded(
        |code| code,
        || {
            let mut subscription = thing_mut(subscription)?;
            let timeout = Duration::from_nanos(timeout_ns.max(0).unsigned_abs());
            let Some(next) = subscription.next(timeout) else {
                return Ok(NOTHING);
            };
            // SAFETY: the caller upholds the requirements of this function.
            unsafe { set(update, ptr::from_ref(next)) };
            Ok(OK)
        },
    )
}

/// See `baro.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn baro_subscription_close(subscription: *mut Subscription) {
    guarded(|_| (), || take_back(subscription));
}
