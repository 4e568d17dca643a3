//! The fields of an event that templates name, and that programs get as environment variables.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::bytes;

/// The fields of the event for which an action is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionFields {
    /// Path of the file, as raw bytes.
    #[serde(with = "bytes")]
    pub path: Vec<u8>,
    /// Path before a rename; empty if there was none.
    #[serde(with = "bytes", default)]
    pub old_path: Vec<u8>,
    /// Size of the file, in bytes.
    pub size: Option<u64>,
    /// User that caused the event.
    pub uid: Option<u32>,
    /// Group of that user.
    pub gid: Option<u32>,
    /// Job that caused the event.
    #[serde(default)]
    pub job: String,
    /// Kind of the event, such as `create`.
    pub kind: String,
    /// Name of the source.
    pub source: String,
    /// Node of the source.
    #[serde(default)]
    pub node: String,
    /// Number of the event in its source.
    pub index: u64,
    /// Name of the rule.
    pub rule: String,
    /// Idempotency key of the action.
    pub key: String,
    /// Time of the event, in ns since the epoch.
    pub ts: i64,
}

macro_rules! fields {
    ($($variant:ident $name:literal $variable:literal,)*) => {
        /// A field by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field {
            $($variant,)*
        }

        /// Names of all fields.
        pub const FIELD_NAMES: &[&str] = &[$($name,)*];

        impl Field {
            const ALL: &[(Self, &str)] = &[$((Self::$variant, $variable),)*];

            pub(super) fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

fields! {
    Path "path" "BAROGRAPH_PATH",
    Name "name" "BAROGRAPH_NAME",
    Dir "dir" "BAROGRAPH_DIR",
    Stem "stem" "BAROGRAPH_STEM",
    Ext "ext" "BAROGRAPH_EXT",
    OldPath "old_path" "BAROGRAPH_OLD_PATH",
    Size "size" "BAROGRAPH_SIZE",
    Uid "uid" "BAROGRAPH_UID",
    Gid "gid" "BAROGRAPH_GID",
    Job "job" "BAROGRAPH_JOB",
    Kind "kind" "BAROGRAPH_KIND",
    Source "source" "BAROGRAPH_SOURCE",
    Node "node" "BAROGRAPH_NODE",
    Index "index" "BAROGRAPH_INDEX",
    Rule "rule" "BAROGRAPH_RULE",
    Key "key" "BAROGRAPH_KEY",
    Ts "ts" "BAROGRAPH_TS",
}

impl ActionFields {
    /// The environment variables of a program, one for each field.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, Cow<'_, [u8]>)> {
        let all = Field::ALL.iter();
        all.map(|(field, variable)| (*variable, self.value(*field)))
    }

    /// An object of JSON with all fields: numbers as numbers, and null for what the event has not.
    /// In texts, bytes that are not UTF-8 are replaced.
    pub fn to_json(&self) -> Vec<u8> {
        let mut object = serde_json::Map::new();
        for (field, name) in Field::ALL.iter().zip(FIELD_NAMES) {
            let value = match field.0 {
                Field::Size => self.size.into(),
                Field::Uid => self.uid.into(),
                Field::Gid => self.gid.into(),
                Field::Index => self.index.into(),
                Field::Ts => self.ts.into(),
                field => match &*self.value(field) {
                    [] => serde_json::Value::Null,
                    text => String::from_utf8_lossy(text).into(),
                },
            };
            object.insert((*name).to_owned(), value);
        }
        serde_json::Value::Object(object).to_string().into_bytes()
    }

    /// The bytes of a field; empty if the event has none.
    pub(super) fn value(&self, field: Field) -> Cow<'_, [u8]> {
        let (dir, name) = split(&self.path);
        match field {
            Field::Path => Cow::Borrowed(&self.path),
            Field::Name => Cow::Borrowed(name),
            Field::Dir => Cow::Borrowed(dir),
            Field::Stem => Cow::Borrowed(stem(name).0),
            Field::Ext => Cow::Borrowed(stem(name).1),
            Field::OldPath => Cow::Borrowed(&self.old_path),
            Field::Size => number(self.size),
            Field::Uid => number(self.uid),
            Field::Gid => number(self.gid),
            Field::Job => Cow::Borrowed(self.job.as_bytes()),
            Field::Kind => Cow::Borrowed(self.kind.as_bytes()),
            Field::Source => Cow::Borrowed(self.source.as_bytes()),
            Field::Node => Cow::Borrowed(self.node.as_bytes()),
            Field::Index => number(Some(self.index)),
            Field::Rule => Cow::Borrowed(self.rule.as_bytes()),
            Field::Key => Cow::Borrowed(self.key.as_bytes()),
            Field::Ts => number(Some(self.ts)),
        }
    }
}

fn number(number: Option<impl ToString>) -> Cow<'static, [u8]> {
    let text = number.map(|number| number.to_string());
    Cow::Owned(text.unwrap_or_default().into_bytes())
}

/// Directory and name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (&[], path),
        Some(0) => (&path[..1], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    }
}

/// A name without its extension, and the extension. A dot at the beginning begins none.
fn stem(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => (name, &[]),
        Some(at) => (&name[..at], &name[at + 1..]),
    }
}
