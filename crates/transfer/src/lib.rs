//! Transfers of single files for the actions of rules: copy, move and delete, on this machine and
//! in stores (S3, WebDAV, SFTP, and directories as stores).
//!
//! The names of files come from strangers, and the directories above them may be theirs. So no
//! symbolic link is followed that the user of the transfer or root has not made, only regular files
//! are taken, and a copy appears under its name only when it is complete.
//!
//! This crate stands alone because the agent does not need it: [`transfer`] runs in a process of
//! its own, with the rights of the rule's owner.

mod copy;
mod local;
mod remote;
mod secret;

use std::fmt;

use barograph_action::{FilePlace, StoreConfig, TransferTask, TransferVerb};
use thiserror::Error;

use local::LocalPlace;
use remote::RemotePlace;

/// What a transfer has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferReport {
    /// What was done, as a sentence.
    pub text: String,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// The reason why a transfer was not done.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransferFault {
    /// It may work at another time.
    #[error("{0}")]
    Passing(String),
    /// It will not work at another time either.
    #[error("{0}")]
    Lasting(String),
}

impl TransferFault {
    /// The fault with words before it.
    fn within(self, words: impl fmt::Display) -> Self {
        match self {
            Self::Passing(reason) => Self::Passing(format!("{words}: {reason}")),
            Self::Lasting(reason) => Self::Lasting(format!("{words}: {reason}")),
        }
    }
}

/// A place with the way to it.
enum OpenPlace {
    Local(LocalPlace),
    Remote(RemotePlace),
}

/// Does a transfer.
///
/// # Errors
///
/// It was not done, or not to its end. It may be tried again: nothing incomplete has the name of
/// the copy, and the source is there until its copy is.
pub fn transfer(task: &TransferTask) -> Result<TransferReport, TransferFault> {
    let (verb, from) = (task.transfer.verb, &task.transfer.from);
    let source = open(from, task)?;
    let Some(to) = &task.transfer.to else {
        if verb != TransferVerb::Delete {
            return Err(TransferFault::Lasting("the target is not named".into()));
        }
        let deleted = source.delete().map_err(|fault| fault.within(from))?;
        return Ok(TransferReport {
            text: match deleted {
                true => format!("{from} is deleted"),
                false => format!("{from} was gone already"),
            },
            bytes: 0,
        });
    };
    let target = open(to, task)?;
    let bytes = match verb {
        TransferVerb::Copy => copy::copy(&source, &target, &task.key),
        TransferVerb::Move => copy::relocate(&source, &target, task),
        TransferVerb::Delete => Err(TransferFault::Lasting("a deletion has no target".into())),
    };
    let bytes = bytes.map_err(|fault| fault.within(format_args!("{from} to {to}")))?;
    let word = match verb {
        TransferVerb::Move => "moved",
        _ => "copied",
    };
    Ok(TransferReport {
        text: match bytes {
            Some(bytes) => format!("{from} is {word} to {to} ({bytes} bytes)"),
            None => format!("{from} was moved to {to} already"),
        },
        bytes: bytes.unwrap_or_default(),
    })
}

/// Checks the address and the credentials of a store, without a connection.
///
/// # Errors
///
/// What is wrong with them.
pub fn check_store(name: &str, store: &StoreConfig) -> Result<(), TransferFault> {
    match store.url.strip_prefix("file://") {
        Some(root) => local::root(root).map(drop),
        None => RemotePlace::open(store, b"x").map(drop),
    }
    .map_err(|fault| fault.within(format_args!("store {name}")))
}

fn open(place: &FilePlace, task: &TransferTask) -> Result<OpenPlace, TransferFault> {
    match place {
        FilePlace::Path { path } => LocalPlace::of_path(path).map(OpenPlace::Local),
        FilePlace::Store { store, name } => {
            let config = task.stores.get(store).ok_or_else(|| {
                TransferFault::Lasting(format!(
                    "there is no store {store}: name it in [action.stores] of the configuration"
                ))
            })?;
            match config.url.strip_prefix("file://") {
                Some(root) => LocalPlace::below(root, name).map(OpenPlace::Local),
                None => RemotePlace::open(config, name).map(OpenPlace::Remote),
            }
        }
    }
    .map_err(|fault| fault.within(place))
}

impl OpenPlace {
    /// Deletes the file; returns whether it was there.
    fn delete(&self) -> Result<bool, TransferFault> {
        match self {
            Self::Local(place) => place.delete(),
            Self::Remote(place) => place.delete(),
        }
    }

    /// When the file here got its name or its contents, in ns since the epoch; `None` if there is
    /// no file, or if its service does not say when.
    fn arrived_ns(&self) -> Result<Option<i64>, TransferFault> {
        match self {
            Self::Local(place) => place.arrived_ns(),
            Self::Remote(place) => place.arrived_ns(),
        }
    }
}
