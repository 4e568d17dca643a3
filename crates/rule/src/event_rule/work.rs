//! What a rule has done: `RUN` of a program, `POST` to an address, `COPY`, `MOVE` or `DELETE` of a
//! file, a `MARK` on it, `MAIL`, or a `CALL` into programs.

use barograph_statement::{StatementError, StatementWords};

use super::limits::{
    ARGUMENTS_MAX, BODY_BYTES_MAX, MARK_BYTES_MAX, MOUNTS_MAX, NAME_BYTES_MAX, PLACE_BYTES_MAX,
    PROGRAM_BYTES_MAX, SUBJECT_BYTES_MAX, URL_BYTES_MAX,
};

/// Checks the braces of a text and counts them, or says what is wrong.
pub(crate) type FieldsOf = dyn Fn(&str) -> Result<usize, String>;

/// What a rule has done for an event. Where it says so, fields stand in braces, like `{path}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleWork {
    /// A program is run, without a shell.
    Run {
        /// The program.
        program: String,
        /// The arguments of the program, with fields.
        arguments: Vec<String>,
        /// The container in which it is run; `None` if it is run on the node itself.
        container: Option<RuleContainer>,
    },
    /// JSON is posted.
    Post {
        /// The address, http or https, with fields in its path and query.
        url: String,
        /// The JSON, with fields in its strings; `None` for an object with all fields.
        body: Option<String>,
    },
    /// A file is copied.
    Copy {
        /// The file, with fields.
        from: String,
        /// The place of the copy, with fields.
        to: String,
    },
    /// A file is moved.
    Move {
        /// The file, with fields.
        from: String,
        /// Its new place, with fields.
        to: String,
    },
    /// A file is deleted.
    Delete {
        /// The file, with fields.
        file: String,
    },
    /// An e-mail is sent.
    Mail {
        /// The address.
        to: String,
        /// The subject, with fields.
        subject: String,
        /// The text, with fields; `None` for one with all fields.
        body: Option<String>,
    },
    /// The file is marked: the catalogue has an event `mark` of it, on which other rules may act.
    Mark {
        /// The mark that the path gets.
        mark: String,
    },
    /// Handlers of running programs are called, or a knob of theirs is set.
    Call {
        /// Name of the handler, or `publication.knob`.
        name: String,
        /// The payload, JSON with fields in its strings, or the value of the knob, with fields;
        /// `None` for an object with all fields.
        payload: Option<String>,
        /// Which of the processes that have it, as `label=value,…`; empty for all.
        target: String,
        /// Whether a knob is set.
        is_knob: bool,
    },
}

/// A container for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleContainer {
    /// Name of the image.
    pub image: String,
    /// Directories of the node that the program sees by the same paths, and whether it writes.
    pub mounts: Vec<(String, bool)>,
}

/// The words that a rule's work begins with.
const VERBS: &str = "RUN, POST, COPY, MOVE, DELETE, MARK, MAIL, CALL or SET";

impl RuleWork {
    /// Reads what a rule has done. `fields_of` knows which names may stand in braces.
    pub(crate) fn parse(
        words: &mut StatementWords,
        fields_of: &FieldsOf,
    ) -> Result<Self, StatementError> {
        if words.keyword("RUN") {
            let container = match words.keyword("IN") {
                true => Some(container(words)?),
                false => None,
            };
            return Ok(Self::Run {
                program: program(words, fields_of)?,
                arguments: arguments(words, fields_of)?,
                container,
            });
        }
        if words.keyword("POST") {
            let url = url(words, fields_of)?;
            let body = optional(words, "BODY", fields_of)?;
            return Ok(Self::Post { url, body });
        }
        for verb in ["COPY", "MOVE"] {
            if words.keyword(verb) {
                let from = filled(words, (verb, PLACE_BYTES_MAX), fields_of)?;
                words.expect("TO")?;
                let to = filled(words, ("TO", PLACE_BYTES_MAX), fields_of)?;
                return Ok(match verb {
                    "COPY" => Self::Copy { from, to },
                    _ => Self::Move { from, to },
                });
            }
        }
        if words.keyword("DELETE") {
            let file = filled(words, ("DELETE", PLACE_BYTES_MAX), fields_of)?;
            return Ok(Self::Delete { file });
        }
        if words.keyword("MARK") {
            return Ok(Self::Mark { mark: mark(words)? });
        }
        if words.keyword("MAIL") {
            let to = literal(words, "MAIL")?;
            words.expect("SUBJECT")?;
            let subject = filled(words, ("SUBJECT", SUBJECT_BYTES_MAX), fields_of)?;
            let body = optional(words, "BODY", fields_of)?;
            return Ok(Self::Mail { to, subject, body });
        }
        call(words, fields_of)
    }

    /// What is done, in the words of the statement, cut to what fits a line.
    pub fn summary(&self) -> String {
        let text = match self {
            Self::Run {
                program,
                arguments,
                container,
            } => {
                let place = container.iter().flat_map(|it| ["in", &it.image]);
                let words = place.chain([&**program]);
                let words: Vec<&str> = words.chain(arguments.iter().map(String::as_str)).collect();
                format!("run {}", words.join(" "))
            }
            Self::Post { url, .. } => format!("post {url}"),
            Self::Copy { from, to } => format!("copy {from} to {to}"),
            Self::Move { from, to } => format!("move {from} to {to}"),
            Self::Delete { file } => format!("delete {file}"),
            Self::Mail { to, .. } => format!("mail {to}"),
            Self::Mark { mark } => format!("mark {mark}"),
            Self::Call { name, is_knob, .. } => match is_knob {
                true => format!("set {name}"),
                false => format!("call {name}"),
            },
        };
        barograph_model::cut(text, SUMMARY_BYTES_MAX)
    }

    /// The texts with fields, in the order of the statement.
    pub(crate) fn texts(&mut self) -> Vec<&mut String> {
        match self {
            Self::Run { arguments, .. } => arguments.iter_mut().collect(),
            Self::Post { url, body } => std::iter::once(url).chain(body).collect(),
            Self::Copy { from, to } | Self::Move { from, to } => vec![from, to],
            Self::Delete { file } => vec![file],
            Self::Mark { .. } => Vec::new(),
            Self::Mail { subject, body, .. } => std::iter::once(subject).chain(body).collect(),
            Self::Call { payload, .. } => payload.iter_mut().collect(),
        }
    }
}

/// Most bytes of a summary.
const SUMMARY_BYTES_MAX: usize = 1_024;

/// `CALL 'handler' [PAYLOAD '…'] [TO 'rank=0']` or `SET 'publication.knob' TO '…'`.
fn call(words: &mut StatementWords, fields_of: &FieldsOf) -> Result<RuleWork, StatementError> {
    let is_knob = words.keyword("SET");
    if !is_knob && !words.keyword("CALL") {
        return Err(words.unexpected(VERBS));
    }
    let name = literal(words, if is_knob { "SET" } else { "CALL" })?;
    let payload = match is_knob {
        true => {
            words.expect("TO")?;
            Some(filled(words, ("TO", BODY_BYTES_MAX), fields_of)?)
        }
        false => optional(words, "PAYLOAD", fields_of)?,
    };
    let target = match words.keyword(if is_knob { "IN" } else { "TO" }) {
        true => words.text("'rank=0'")?,
        false => String::new(),
    };
    Ok(RuleWork::Call {
        name,
        payload,
        target,
        is_knob,
    })
}

/// `'image' [MOUNT '/directory' [WRITABLE]] …`
fn container(words: &mut StatementWords) -> Result<RuleContainer, StatementError> {
    let image = literal(words, "IN")?;
    if image.starts_with('-') {
        return Err(StatementError::new(format!(
            "IN '{image}': the name of an image begins with no -"
        )));
    }
    let mut mounts = Vec::new();
    while words.keyword("MOUNT") {
        let place = words.place();
        let path = words.text("MOUNT '/directory'")?;
        // Runtimes take a colon or a comma for the end of the path.
        if !path.starts_with('/') || path.contains([':', ',', '\0', '\n']) {
            return Err(StatementError::new(format!(
                "MOUNT '{path}'{place}: write an absolute path without colon and comma"
            )));
        }
        if mounts.len() >= MOUNTS_MAX {
            return Err(StatementError::Limit {
                what: "directories of a container".into(),
                max: MOUNTS_MAX,
                limit: "MOUNTS_MAX",
            });
        }
        mounts.push((path, words.keyword("WRITABLE")));
    }
    Ok(RuleContainer { image, mounts })
}

/// A mark: letters, digits, `.`, `-` and `_`.
fn mark(words: &mut StatementWords) -> Result<String, StatementError> {
    let place = words.place();
    let mark = words.text("MARK 'checked'")?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match (1..=MARK_BYTES_MAX).contains(&mark.len()) && mark.chars().all(is_part) {
        true => Ok(mark),
        false => Err(StatementError::new(format!(
            "MARK '{mark}'{place}: a mark has 1 to {MARK_BYTES_MAX} letters, digits, ., - and _"
        ))),
    }
}

/// A name that is written out.
fn literal(words: &mut StatementWords, verb: &str) -> Result<String, StatementError> {
    let place = words.place();
    let text = words.text(&format!("{verb} 'name'"))?;
    let is_odd = text.chars().any(char::is_control) || text.contains(['{', '}']);
    match text.is_empty() || text.len() > NAME_BYTES_MAX || is_odd {
        false => Ok(text),
        true => Err(StatementError::new(format!(
            "{verb} '{text}'{place}: write out a name of 1 to {NAME_BYTES_MAX} bytes, without braces"
        ))),
    }
}

/// A text with fields.
fn filled(
    words: &mut StatementWords,
    (verb, bytes_max): (&str, usize),
    fields_of: &FieldsOf,
) -> Result<String, StatementError> {
    let place = words.place();
    let text = words.text(&format!("{verb} '…'"))?;
    let fault = match text.is_empty() || text.len() > bytes_max || text.contains('\0') {
        true => Some(format!(
            "a text of 1 to {bytes_max} bytes is wanted, none of them 0"
        )),
        false => fields_of(&text).err(),
    };
    match fault {
        None => Ok(text),
        Some(fault) => Err(StatementError::new(format!("{verb}{place}: {fault}"))),
    }
}

fn optional(
    words: &mut StatementWords,
    verb: &str,
    fields_of: &FieldsOf,
) -> Result<Option<String>, StatementError> {
    match words.keyword(verb) {
        true => filled(words, (verb, BODY_BYTES_MAX), fields_of).map(Some),
        false => Ok(None),
    }
}

fn url(words: &mut StatementWords, fields_of: &FieldsOf) -> Result<String, StatementError> {
    let place = words.place();
    let url = words.text("POST 'https://host/path'")?;
    let wrong = |why: &str| Err(StatementError::new(format!("POST '{url}'{place}: {why}")));
    if url.len() > URL_BYTES_MAX {
        return wrong(&format!("an address has at most {URL_BYTES_MAX} bytes"));
    }
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else {
        return wrong("an address begins with https:// or http://");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    if host.is_empty() || host.contains(['{', '}', '@']) {
        return wrong("write out the host, without a user: an event cannot name it");
    }
    match fields_of(&url) {
        Ok(_) => Ok(url),
        Err(fault) => wrong(&fault),
    }
}

fn program(words: &mut StatementWords, fields_of: &FieldsOf) -> Result<String, StatementError> {
    let place = words.place();
    let program = words.text("RUN '/path/of/program'")?;
    let wrong = |why: &str| {
        Err(StatementError::new(format!(
            "RUN '{program}'{place}: {why}"
        )))
    };
    if program.is_empty() || program.len() > PROGRAM_BYTES_MAX || program.contains('\0') {
        return wrong(&format!(
            "a program has 1 to {PROGRAM_BYTES_MAX} bytes, none of them 0"
        ));
    }
    match fields_of(&program) {
        Ok(0) => Ok(program),
        Ok(_) => wrong("an event cannot name the program: write it out, and fields as arguments"),
        Err(fault) => wrong(&fault),
    }
}

fn arguments(
    words: &mut StatementWords,
    fields_of: &FieldsOf,
) -> Result<Vec<String>, StatementError> {
    let mut arguments = Vec::new();
    loop {
        let place = words.place();
        let Some(argument) = words.text_if_next() else {
            return Ok(arguments);
        };
        if arguments.len() >= ARGUMENTS_MAX {
            return Err(StatementError::Limit {
                what: "arguments of a program".into(),
                max: ARGUMENTS_MAX,
                limit: "ARGUMENTS_MAX",
            });
        }
        let fault = match argument.contains('\0') {
            true => Some("a byte 0 cannot be in an argument".to_owned()),
            false => fields_of(&argument).err(),
        };
        if let Some(fault) = fault {
            let number = arguments.len() + 1;
            return Err(StatementError::new(format!(
                "argument {number} of RUN{place}: {fault}"
            )));
        }
        arguments.push(argument);
    }
}
