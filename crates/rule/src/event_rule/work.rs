//! What a rule has done: `RUN` of a program, or `POST` to an address.

use barograph_statement::{StatementError, StatementWords};

use super::limits::{ARGUMENTS_MAX, BODY_BYTES_MAX, PROGRAM_BYTES_MAX, URL_BYTES_MAX};

/// Checks the braces of a text and counts them, or says what is wrong.
pub(crate) type FieldsOf = dyn Fn(&str) -> Result<usize, String>;

/// What a rule has done for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleWork {
    /// A program is run, without a shell.
    Run {
        /// The program.
        program: String,
        /// The arguments of the program, in which fields of the event stand in braces, like
        /// `{path}`.
        arguments: Vec<String>,
    },
    /// JSON is posted.
    Post {
        /// The address, http or https, in whose path and query fields may stand in braces.
        url: String,
        /// The JSON, in whose strings fields may stand in braces; `None` for an object with all
        /// fields.
        body: Option<String>,
    },
}

impl RuleWork {
    /// Reads `RUN …` or `POST …`. `fields_of` knows which names may stand in braces.
    pub(crate) fn parse(
        words: &mut StatementWords,
        fields_of: &FieldsOf,
    ) -> Result<Self, StatementError> {
        if words.keyword("RUN") {
            return Ok(Self::Run {
                program: program(words, fields_of)?,
                arguments: arguments(words, fields_of)?,
            });
        }
        if !words.keyword("POST") {
            return Err(words.unexpected("RUN or POST"));
        }
        let url = url(words, fields_of)?;
        let body = match words.keyword("BODY") {
            true => Some(body(words, fields_of)?),
            false => None,
        };
        Ok(Self::Post { url, body })
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

fn body(words: &mut StatementWords, fields_of: &FieldsOf) -> Result<String, StatementError> {
    let place = words.place();
    let body = words.text("BODY '{{\"path\": \"{path}\"}}'")?;
    let fault = match body.len() > BODY_BYTES_MAX {
        true => Some(format!("a body has at most {BODY_BYTES_MAX} bytes")),
        false => fields_of(&body).err(),
    };
    match fault {
        None => Ok(body),
        Some(fault) => Err(StatementError::new(format!("BODY{place}: {fault}"))),
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
