//! Transfers: copies, moves and deletions of single files, on this machine and in stores.
//!
//! A transfer is done by a program of its own ([`TransferTask`] is its standard input), so that it
//! has the rights of its owner, its bounds of time and output, and can be killed where a file
//! system hangs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes;
use crate::template::{ActionFields, Template, TemplateFault};

/// Most bytes of a task as its program reads it.
pub const TRANSFER_TASK_BYTES_MAX: usize = 48 << 10;
/// Most bytes of the name of a store.
const STORE_NAME_BYTES_MAX: usize = 64;

/// A place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePlace {
    /// A file of this machine, by its path.
    Path {
        /// The path, which is absolute.
        #[serde(with = "bytes")]
        path: Vec<u8>,
    },
    /// A file in a store of the configuration.
    Store {
        /// Name of the store.
        store: String,
        /// Name of the file below the store's address, with slashes.
        #[serde(with = "bytes")]
        name: Vec<u8>,
    },
}

/// The place as rules write it, with what is not UTF-8 replaced.
impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
        match self {
            Self::Path { path } => f.write_str(&shown(path)),
            Self::Store { store, name } => write!(f, "{store}:{}", shown(name)),
        }
    }
}

/// A place with fields of an event in braces: `/archive/{name}`, or `lab:{name}`, which is in the
/// store `lab`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceTemplate {
    store: Option<String>,
    path: Template,
}

impl PlaceTemplate {
    /// Parses a place. What is written out decides whether it is a path or in a store, so that no
    /// name of a file does.
    ///
    /// # Errors
    ///
    /// It is no template, or it is neither an absolute path nor in a store.
    pub fn parse(text: &str) -> Result<Self, TemplateFault> {
        let is_path = ["/", "{path}", "{old_path}", "{dir}"]
            .iter()
            .any(|start| text.starts_with(start));
        if is_path {
            return Ok(Self {
                store: None,
                path: Template::parse(text)?,
            });
        }
        match text.split_once(':') {
            Some((store, name)) if is_store_name(store) => Ok(Self {
                store: Some(store.to_owned()),
                path: Template::parse(name)?,
            }),
            _ => Err(TemplateFault::Place {
                text: barograph_model::cut(text.to_owned(), STORE_NAME_BYTES_MAX),
            }),
        }
    }

    /// Name of the store; `None` for a path of this machine.
    pub fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// The place with the fields of an event.
    pub fn fill(&self, fields: &ActionFields) -> FilePlace {
        let filled = self.path.fill(fields);
        match &self.store {
            None => FilePlace::Path { path: filled },
            Some(store) => FilePlace::Store {
                store: store.clone(),
                name: filled,
            },
        }
    }
}

/// Whether a text can be the name of a store: letters, digits, `-` and `_`.
pub fn is_store_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=STORE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferVerb {
    /// The file is copied.
    Copy,
    /// The file is copied and then deleted; within one file system it is renamed.
    Move,
    /// The file is deleted.
    Delete,
}

/// A transfer of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTransfer {
    /// What is done.
    pub verb: TransferVerb,
    /// The file.
    pub from: FilePlace,
    /// Where it is copied or moved to; `None` if it is deleted.
    #[serde(default)]
    pub to: Option<FilePlace>,
}

impl FileTransfer {
    /// Names of the stores that take part.
    pub fn stores(&self) -> impl Iterator<Item = &str> {
        let places = std::iter::once(&self.from).chain(&self.to);
        places.filter_map(|place| match place {
            FilePlace::Path { .. } => None,
            FilePlace::Store { store, .. } => Some(&**store),
        })
    }
}

/// A store to which rules may copy files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Address: `s3://bucket/prefix`, `https://host/path` for WebDAV, `sftp://user@host:port/path`,
    /// or `file:///path`.
    pub url: String,
    /// Address of the S3 service, such as `https://s3.site.example`.
    pub endpoint: String,
    /// Region of the S3 service.
    pub region: String,
    /// File with the credentials, which only the agent's user may read, in lines `name: value`:
    /// `access_key_id`, `secret_access_key` and `session_token` for S3, `username` and `password`
    /// or `token` for WebDAV. For SFTP it is the private key itself. Empty: the machine's role for
    /// S3, nothing for WebDAV, the keys of the user's ssh for SFTP.
    pub secret_file: PathBuf,
    /// File with the certificates by which the service is known (PEM), in place of the usual ones.
    pub ca_file: PathBuf,
    /// Address of a proxy for S3 and WebDAV. Empty: none.
    pub proxy: String,
    /// Whether the service may be reached without encryption. A service of this machine always may.
    pub allow_http: bool,
}

/// What the program of a transfer reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferTask {
    /// What is copied, moved or deleted.
    pub transfer: FileTransfer,
    /// Idempotency key of the action.
    pub key: String,
    /// The stores that take part, by name.
    pub stores: BTreeMap<String, StoreConfig>,
    /// Time before the beginning of all earlier attempts, in ns since the epoch; `None` if this is
    /// the first one.
    #[serde(default)]
    pub tried_since_ns: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> ActionFields {
        ActionFields {
            path: b"/in/lab:x.tif".to_vec(),
            ..ActionFields::default()
        }
    }

    #[test]
    fn places() {
        let check = |text: &str, expect: Option<&str>| {
            let seen = PlaceTemplate::parse(text).ok();
            let seen = seen.map(|place| place.fill(&fields()).to_string());
            assert_eq!(seen.as_deref(), expect, "{text}");
        };
        check("/out/{name}", Some("/out/lab:x.tif"));
        check("{path}.bak", Some("/in/lab:x.tif.bak"));
        check("{dir}/done/{name}", Some("/in/done/lab:x.tif"));
        check("lab:in/{name}", Some("lab:in/lab:x.tif"));
        check("s3_1-A:{name}", Some("s3_1-A:lab:x.tif"));
        // A name of a file chooses no store.
        check("{name}", None);
        check("{stem}:x", None);
        check("out/{name}", None);
        check("", None);
        check(":x", None);
        check("a b:x", None);
        check("lab:{nam}", None);
    }

    #[test]
    fn stores_of_a_transfer() {
        let place = |text: &str| PlaceTemplate::parse(text).unwrap().fill(&fields());
        let transfer = FileTransfer {
            verb: TransferVerb::Copy,
            from: place("{path}"),
            to: Some(place("lab:{name}")),
        };
        assert_eq!(transfer.stores().collect::<Vec<_>>(), ["lab"]);
        let text = serde_json::to_string(&transfer).unwrap();
        assert_eq!(
            serde_json::from_str::<FileTransfer>(&text).unwrap(),
            transfer
        );
    }
}
