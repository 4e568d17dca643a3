//! What an action does, as the body of a request has it: all of it is filled in when the rule
//! fires, so that an action does what its version of the rule wanted, even if the rule is gone.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bytes;
use crate::container::ContainerRun;
use crate::mail::MailMessage;
use crate::template::ActionFields;
use crate::transfer::FileTransfer;

/// An action with everything that is needed to do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionJob {
    /// What is to be done.
    pub work: ActionWork,
    /// Fields of the event, which programs get as environment variables.
    pub fields: ActionFields,
    /// The rules of whose actions the event was an effect, the nearest one first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// Node on which it is to be done; `None` for the one that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<JobPlace>,
}

/// The node on which an action is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlace {
    /// Name of the node.
    pub node: String,
    /// Most attempts there.
    pub attempts_max: u32,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionWork {
    /// A program is run, without a shell.
    Run {
        /// The program and its words.
        #[serde(with = "bytes::list")]
        argv: Vec<Vec<u8>>,
        /// Longest time that it may take, in ns; 0 for the runner's usual one.
        #[serde(default)]
        time_ns_max: i64,
        /// Which of its exit codes are worth another attempt.
        #[serde(default)]
        retry: ExitRetry,
        /// The container in which it is run; `None` for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<ContainerRun>,
    },
    /// A file is copied, moved or deleted, by a program of its own.
    Transfer {
        /// What is copied, moved or deleted.
        transfer: FileTransfer,
        /// Longest time that it may take, in ns; 0 for the runner's usual one.
        #[serde(default)]
        time_ns_max: i64,
    },
    /// The file of the event is marked.
    Mark {
        /// The mark that the path gets.
        mark: String,
    },
    /// An e-mail is sent.
    Mail(MailMessage),
    /// Handlers of running programs are called, or a knob of theirs is set.
    Call {
        /// The body of `POST /api/v1/fire`, JSON.
        request: String,
    },
    /// A body of JSON is posted.
    Webhook {
        /// Address to which the body is posted, http or https.
        url: String,
        /// Bytes of the body, which are JSON.
        #[serde(with = "bytes")]
        body: Vec<u8>,
    },
}

/// Which exit codes of a program are worth another attempt, beside 75 (`EX_TEMPFAIL`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitRetry {
    /// No further exit code.
    #[default]
    None,
    /// All but 0.
    All,
    /// The exit codes of this list.
    Codes(Vec<i32>),
}

impl ExitRetry {
    pub(crate) fn has(&self, code: i32) -> bool {
        /// `EX_TEMPFAIL` of `sysexits.h`.
        const TEMPORARY: i32 = 75;
        match self {
            _ if code == TEMPORARY => true,
            Self::None => false,
            Self::All => true,
            Self::Codes(codes) => codes.contains(&code),
        }
    }
}

/// The body of a request is no job.
#[derive(Debug, Error)]
#[error("the body of the action cannot be read: {0}")]
pub struct JobFault(#[from] serde_json::Error);

impl ActionJob {
    /// The body of a request.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn encode(&self) -> Result<Vec<u8>, JobFault> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// It is of another version, or no job.
    pub fn decode(body: &[u8]) -> Result<Self, JobFault> {
        Ok(serde_json::from_slice(body)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn jobs_are_texts_where_they_can_be() {
        let job = ActionJob {
            work: ActionWork::Run {
                argv: vec![b"cp".to_vec(), b"/a\xff".to_vec()],
                time_ns_max: 5,
                retry: ExitRetry::Codes(vec![3]),
                container: None,
            },
            fields: ActionFields::default(),
            causes: Vec::new(),
            place: None,
        };
        let body = String::from_utf8(job.encode().unwrap()).unwrap();
        let begin = r#"{"work":{"run":{"argv":["cp",[47,97,255]],"time_ns_max":5,"#;
        assert!(body.starts_with(begin), "{body}");
    }

    #[test]
    fn exit_codes() {
        let check = |retry: ExitRetry, codes: [bool; 3]| {
            assert_eq!([1, 3, 75].map(|code| retry.has(code)), codes, "{retry:?}");
        };
        check(ExitRetry::None, [false, false, true]);
        check(ExitRetry::All, [true, true, true]);
        check(ExitRetry::Codes(vec![3]), [false, true, true]);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..5), is_run: bool) {
            let work = match is_run {
                true => ActionWork::Run { argv: words.clone(), time_ns_max: 0, retry: ExitRetry::All, container: None },
                false => ActionWork::Webhook { url: "http://h".into(), body: words.concat() },
            };
            let fields = ActionFields { path: words.concat(), size: Some(u64::MAX), ..ActionFields::default() };
            let job = ActionJob { work, fields, causes: vec!["r".into()], place: None };
            prop_assert_eq!(ActionJob::decode(&job.encode().unwrap()).unwrap(), job);
        }

        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ActionJob::decode(&body);
        }
    }
}
