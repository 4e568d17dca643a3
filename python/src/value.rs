//! The handle of a value: the fast path of publishing, one value or an array of them at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_client::publish::{ValueHandle as Handle, raw};
use barograph_model::{Kind, ValueType};
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyString};

use crate::life::PublicationLife;

/// Number of elements of an array that are copied at once; signals are checked in between.
const CHUNK_ELEMENTS: usize = 4_096;

/// Whether a put of this process may have to wait for room: then it releases the GIL. Otherwise it
/// keeps it, because getting it back can take a thread longer than many puts.
pub(crate) static MAY_WAIT: AtomicBool = AtomicBool::new(false);

/// Runs the work of a put; if it may wait, then without the GIL, and Ctrl-C ends the work after it.
pub(crate) fn unhurried(py: Python<'_>, work: impl FnOnce() + Send) -> PyResult<()> {
    if MAY_WAIT.load(Ordering::Relaxed) {
        py.detach(work);
        return py.check_signals();
    }
    work();
    Ok(())
}

/// A value of a publication, to be put from any thread.
#[pyclass(frozen, module = "barograph")]
pub(crate) struct ValueHandle {
    handle: Handle,
    life: Arc<PublicationLife>,
    meaning: Meaning,
}

/// The declaration of a value.
pub(crate) struct Meaning {
    pub name: String,
    pub value_type: ValueType,
    pub unit: String,
    pub kind: Kind,
}

/// A checked value, ready to be put.
pub(crate) enum Checked<'py> {
    Word(u64),
    Text(Bound<'py, PyString>),
    Bytes(Bound<'py, PyBytes>),
    Json(Bound<'py, PyString>),
    Floats(Vec<f64>),
}

impl ValueHandle {
    pub(crate) fn new(handle: Handle, life: Arc<PublicationLife>, meaning: Meaning) -> Self {
        Self {
            handle,
            life,
            meaning,
        }
    }

    /// Checks a value and converts it for the put.
    pub(crate) fn check<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Checked<'py>> {
        match self.meaning.value_type {
            ValueType::Text => self.check_text(value),
            ValueType::Bytes | ValueType::Json | ValueType::Floats => self.check_long(value),
            _ => self.word(value).map(Checked::Word),
        }
    }

    fn check_long<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Checked<'py>> {
        let py = value.py();
        match self.meaning.value_type {
            ValueType::Bytes => {
                let bytes = value.cast::<PyBytes>();
                let bytes = bytes.map_err(|_| PyTypeError::new_err("not bytes"));
                bytes
                    .cloned()
                    .map(Checked::Bytes)
                    .map_err(|error| self.refusal(value, error))
            }
            ValueType::Json => {
                if let Ok(text) = value.cast::<PyString>() {
                    text.to_str()?;
                    return Ok(Checked::Json(text.clone()));
                }
                let text = py.import("json")?.call_method1("dumps", (value,))?;
                Ok(Checked::Json(text.cast_into::<PyString>()?))
            }
            _ => {
                let floats = match PyBuffer::<f64>::get(value) {
                    Ok(buffer) => buffer.to_vec(py),
                    Err(_) => value.extract::<Vec<f64>>(),
                };
                floats
                    .map(Checked::Floats)
                    .map_err(|error| self.refusal(value, error))
            }
        }
    }

    /// Converts a value that is eight bytes long.
    #[inline]
    fn word(&self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        let word = match self.meaning.value_type {
            ValueType::Float => value.extract::<f64>().map(f64::to_bits),
            ValueType::Int => value.extract::<i64>().map(i64::cast_unsigned),
            ValueType::Bool => value.extract::<bool>().map(u64::from),
            ValueType::Text | ValueType::Bytes | ValueType::Json | ValueType::Floats => {
                Err(PyTypeError::new_err("not eight bytes"))
            }
        };
        word.map_err(|error| self.refusal(value, error))
    }

    fn check_text<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Checked<'py>> {
        if let Ok(text) = value.cast::<PyString>() {
            text.to_str()?;
            return Ok(Checked::Text(text.clone()));
        }
        match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(Checked::Bytes(bytes.clone())),
            Err(_) => Err(self.refusal(value, PyTypeError::new_err("not a text"))),
        }
    }

    pub(crate) fn put_checked(&self, py: Python<'_>, checked: &Checked<'_>) -> PyResult<()> {
        let handle = self.handle;
        match checked {
            Checked::Word(word) => self.put_word(py, *word),
            _ if !self.life.is_open() => Ok(()),
            Checked::Text(text) => {
                let text = text.to_str()?;
                unhurried(py, || handle.put_text(text))
            }
            Checked::Bytes(bytes) => {
                let bytes = bytes.as_bytes();
                unhurried(py, || handle.put_bytes(bytes))
            }
            Checked::Json(text) => {
                let text = text.to_str()?;
                unhurried(py, || handle.put_json(text))
            }
            Checked::Floats(floats) => unhurried(py, || handle.put_floats(floats)),
        }
    }

    #[inline]
    fn put_word(&self, py: Python<'_>, word: u64) -> PyResult<()> {
        // The numbers of types are the same as those of kinds of records.
        let kind = self.meaning.value_type as u8;
        if self.life.is_open() && !raw::try_put(self.handle.to_raw(), kind, word) {
            return self.put_slowly(py, word);
        }
        Ok(())
    }

    #[cold]
    fn put_slowly(&self, py: Python<'_>, word: u64) -> PyResult<()> {
        let handle = self.handle;
        match self.meaning.value_type {
            ValueType::Float => unhurried(py, || handle.put_f64(f64::from_bits(word))),
            ValueType::Int => unhurried(py, || handle.put_i64(word.cast_signed())),
            ValueType::Bool => unhurried(py, || handle.put_bool(word != 0)),
            ValueType::Text | ValueType::Bytes | ValueType::Json | ValueType::Floats => Ok(()),
        }
    }

    #[cold]
    fn refusal(&self, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        let py = value.py();
        let stream = self.stream();
        let wants = match self.meaning.value_type {
            ValueType::Int => "an int",
            ValueType::Float => "a float",
            ValueType::Bool => "a bool",
            ValueType::Text => "a str or bytes",
            ValueType::Bytes => "bytes",
            ValueType::Json => "a str of JSON, or what json.dumps() takes",
            ValueType::Floats => "a list or an array of floats",
        };
        let refusal = if error.is_instance_of::<PyOverflowError>(py) {
            PyValueError::new_err(format!(
                "{stream} takes {wants} of 64 bits, and this is larger"
            ))
        } else if error.is_instance_of::<PyTypeError>(py) {
            let given = value.get_type();
            let given = given.name().map(|name| name.to_string());
            PyTypeError::new_err(format!(
                "{stream} takes {wants}, not {}: convert it, or declare the value with another type",
                given.as_deref().unwrap_or("this"),
            ))
        } else {
            return error;
        };
        refusal.set_cause(py, Some(error));
        refusal
    }

    fn stream(&self) -> String {
        format!("app.{}.{}", self.life.name(), self.meaning.name)
    }

    /// Puts the elements of an array, if there is a fast path for its element type and this type of
    /// value.
    fn put_buffer(&self, py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(buffer) = PyUntypedBuffer::get(given) else {
            return Ok(false);
        };
        if buffer.dimensions() != 1 {
            return Err(PyValueError::new_err(format!(
                "{} takes an array of one dimension, and this has {}: use its ravel(), or put() for a single value",
                self.stream(),
                buffer.dimensions(),
            )));
        }
        // PyO3 accepts a type of the other byte order as one of ours.
        let order = buffer.format().to_bytes().first();
        if cfg!(target_endian = "little") && matches!(order, Some(b'>' | b'!')) {
            return Ok(false);
        }
        let is = |value_type| self.meaning.value_type == value_type;
        if is(ValueType::Float) && buffer.as_typed::<f64>().is_ok() {
            self.put_chunks(py, given, f64::to_bits)?;
        } else if is(ValueType::Float) && buffer.as_typed::<f32>().is_ok() {
            self.put_chunks(py, given, |x: f32| f64::from(x).to_bits())?;
        } else if is(ValueType::Float) && buffer.as_typed::<i64>().is_ok() {
            self.put_chunks(py, given, |x: i64| (x as f64).to_bits())?;
        } else if is(ValueType::Int) && buffer.as_typed::<i64>().is_ok() {
            self.put_chunks(py, given, i64::cast_unsigned)?;
        } else if is(ValueType::Int) && buffer.as_typed::<i32>().is_ok() {
            self.put_chunks(py, given, |x: i32| i64::from(x).cast_unsigned())?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Puts an array in chunks. Each chunk is copied as a whole (whatever the array's stride), so
    /// that nobody changes it meanwhile and a large array takes little memory here.
    fn put_chunks<T: Element + Default>(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        word: impl Fn(T) -> u64,
    ) -> PyResult<()> {
        let view = PyMemoryView::from(given)?;
        let count = view.len()?;
        let mut chunk = vec![T::default(); CHUNK_ELEMENTS.min(count)];
        for start in (0..count).step_by(CHUNK_ELEMENTS) {
            let stop = count.min(start + CHUNK_ELEMENTS);
            let part = view.get_item(PySlice::new(py, start as isize, stop as isize, 1))?;
            let chunk = &mut chunk[..stop - start];
            PyBuffer::<T>::get(&part)?.copy_to_slice(py, chunk)?;
            for element in chunk.iter() {
                self.put_word(py, word(*element))?;
            }
            py.check_signals()?;
        }
        Ok(())
    }
}

#[pymethods]
impl ValueHandle {
    /// Puts a value with the time of the call.
    #[pyo3(signature = (value, /))]
    fn put(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.meaning.value_type.is_number() {
            let checked = self.check(value)?;
            return self.put_checked(py, &checked);
        }
        let word = self.word(value)?;
        self.put_word(py, word)
    }

    /// Puts each element of an array or of any other iterable.
    #[pyo3(signature = (values, /))]
    fn put_many(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        if values.is_instance_of::<PyString>() || values.is_instance_of::<PyBytes>() {
            let stream = self.stream();
            let text = format!("{stream}: put_many() takes a sequence, use put() for one value");
            return Err(PyTypeError::new_err(text));
        }
        if self.put_buffer(py, values)? {
            return Ok(());
        }
        for (count, value) in (1_usize..).zip(values.try_iter()?) {
            let checked = self.check(&value?)?;
            self.put_checked(py, &checked)?;
            if count.is_multiple_of(CHUNK_ELEMENTS) {
                py.check_signals()?;
            }
        }
        Ok(())
    }

    /// Name within the publication.
    #[getter]
    fn name(&self) -> &str {
        &self.meaning.name
    }

    /// Unit of the values.
    #[getter]
    fn unit(&self) -> &str {
        &self.meaning.unit
    }

    /// Type of the values: int64, float64, bool, string, bytes, json or floats.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.meaning.value_type.as_str()
    }

    /// Kind of the values: gauge, counter or state.
    #[getter]
    fn kind(&self) -> &'static str {
        self.meaning.kind.as_str()
    }

    fn __repr__(&self) -> String {
        let value_type = self.meaning.value_type.as_str();
        format!(
            "<ValueHandle {}, {value_type} {}>",
            self.stream(),
            self.kind()
        )
    }
}
