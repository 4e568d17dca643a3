//! A field of a row that is made in Rust, and the fields that all rows of a series share.

use std::sync::Arc;

use barograph_model::{TEXT_BYTES_MAX, Value, floats_json};

/// A field of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellValue {
    Null,
    Int(i64),
    Real(f64),
    Text(Arc<str>),
    Blob(Arc<[u8]>),
}

impl CellValue {
    /// Bytes of a long value; 0 for a short one, since those are shared or negligible.
    pub(crate) fn long_bytes(&self) -> usize {
        let bytes = match self {
            Self::Text(v) => v.len(),
            Self::Blob(v) => v.len(),
            Self::Null | Self::Int(_) | Self::Real(_) => 0,
        };
        if bytes > TEXT_BYTES_MAX { bytes } else { 0 }
    }
}

impl From<i64> for CellValue {
    fn from(v: i64) -> Self {
        Self::Int(v)
    }
}

impl From<f64> for CellValue {
    fn from(v: f64) -> Self {
        Self::Real(v)
    }
}

impl From<&str> for CellValue {
    fn from(v: &str) -> Self {
        Self::Text(v.into())
    }
}

impl From<String> for CellValue {
    fn from(v: String) -> Self {
        Self::Text(v.into())
    }
}

impl From<Arc<str>> for CellValue {
    fn from(v: Arc<str>) -> Self {
        Self::Text(v)
    }
}

impl<T: Into<Self>> From<Option<T>> for CellValue {
    fn from(v: Option<T>) -> Self {
        v.map_or(Self::Null, Into::into)
    }
}

impl From<&Value> for CellValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::Int(v) => Self::Int(*v),
            Value::Float(v) => Self::Real(*v),
            Value::Bool(v) => Self::Int(i64::from(*v)),
            Value::Text(v) | Value::Json(v) => Self::Text(Arc::clone(v)),
            Value::Bytes(v) => Self::Blob(Arc::clone(v)),
            Value::Floats(v) => Self::Text(floats_json(v).into()),
        }
    }
}

pub(crate) type CellRow = Vec<CellValue>;
/// The cells that all rows of a series share.
pub(crate) struct SeriesCells {
    name: CellValue,
    labels: CellValue,
    node: CellValue,
}

impl SeriesCells {
    pub(crate) fn new(name: &str, labels_json: String, node: &Arc<str>) -> Self {
        Self {
            name: name.into(),
            labels: labels_json.into(),
            node: Arc::clone(node).into(),
        }
    }

    /// The cells of name, labels and node.
    pub(crate) fn cells(&self) -> [CellValue; 3] {
        [self.name.clone(), self.labels.clone(), self.node.clone()]
    }
}
