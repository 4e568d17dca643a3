//! E-mails of actions, by SMTP.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lettre::address::AddressError;
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Message, SmtpTransport, Transport as _};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::queue::{ActionFailure, ActionOutcome, AttemptReach, RepeatWish};

/// Longest wait for an answer of the server.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Most bytes of the file of credentials and of the one of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An e-mail with all fields filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailMessage {
    /// Address of the receiver.
    pub to: String,
    /// The subject of the mail.
    pub subject: String,
    /// The text of the mail.
    pub body: String,
}

/// How e-mails are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailConfig {
    /// The server: `smtp://host:25` (encrypted if the server offers it), `smtp+starttls://host:587`
    /// or `smtps://host:465` (always encrypted). Empty: no mail is sent.
    pub server: String,
    /// Address of the sender.
    pub from: String,
    /// Addresses to which rules may send.
    pub to: Vec<String>,
    /// File with the two lines `username: …` and `password: …`; empty for no log-in.
    pub secret_file: PathBuf,
    /// File with the certificates by which the server is known (PEM), in place of the usual ones.
    pub ca_file: PathBuf,
}

/// The reason why mails cannot be set up.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("mail: {0}")]
pub struct MailFault(String);

impl MailConfig {
    /// Checks whether rules may send to an address.
    ///
    /// # Errors
    ///
    /// They may not, for this reason.
    pub fn check(&self, to: &str) -> Result<(), String> {
        if self.server.is_empty() {
            return Err("no server for mail is named".into());
        }
        match self.to.iter().any(|it| it.eq_ignore_ascii_case(to)) {
            true => Ok(()),
            false => Err(format!("{to} is not among the allowed receivers")),
        }
    }
}

/// Sends e-mails.
pub struct Mailer {
    config: MailConfig,
    /// The way to the server; `None` if none is named.
    way: Option<(SmtpTransport, Mailbox)>,
}

impl Mailer {
    /// A mailer. No connection is made yet.
    ///
    /// # Errors
    ///
    /// The address of the server or the sender is none, or a file cannot be read.
    pub fn new(config: &MailConfig) -> Result<Self, MailFault> {
        let way = match config.server.is_empty() {
            true => None,
            false => Some((
                transport(config)?,
                config.from.parse().map_err(|error: AddressError| {
                    MailFault(format!("from {:?}: {error}", config.from))
                })?,
            )),
        };
        Ok(Self {
            config: config.clone(),
            way,
        })
    }

    /// Sends a mail. `key` is the idempotency key of the action; it makes the identity of the mail,
    /// by which a repetition is known.
    pub fn send(&self, mail: &MailMessage, key: &str) -> ActionOutcome {
        let not_begun = |reason: String| failed(reason, RepeatWish::Never, AttemptReach::NotBegun);
        if let Err(reason) = self.config.check(&mail.to) {
            return not_begun(reason);
        }
        let Some((transport, from)) = &self.way else {
            return not_begun("no server for mail is named".into());
        };
        let to: Mailbox = match mail.to.parse() {
            Ok(to) => to,
            Err(error) => return not_begun(format!("{}: {error}", mail.to)),
        };
        let message = Message::builder()
            .from(from.clone())
            .to(to)
            .subject(one_line(&mail.subject))
            .message_id(Some(format!("<{key}@{}>", from.email.domain())))
            .header(ContentType::TEXT_PLAIN)
            .body(mail.body.clone());
        let message = match message {
            Ok(message) => message,
            Err(error) => return not_begun(error.to_string()),
        };
        match transport.send(&message) {
            Ok(answer) => ActionOutcome::Done {
                output: answer.message().collect::<Vec<_>>().join("\n").into_bytes(),
            },
            Err(error) => {
                let reason = format!("the mail server: {error}");
                match error.is_permanent() || error.is_client() {
                    true => failed(reason, RepeatWish::Never, AttemptReach::Begun),
                    false => failed(reason, RepeatWish::Later, AttemptReach::Begun),
                }
            }
        }
    }
}

/// A subject without what would end its line.
fn one_line(subject: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    subject.chars().map(shown).collect()
}

fn transport(config: &MailConfig) -> Result<SmtpTransport, MailFault> {
    let server = &config.server;
    let wrong = || {
        MailFault(format!(
            "server {server:?}: write smtp://host:25, smtp+starttls://host:587 or smtps://host:465"
        ))
    };
    let (scheme, place) = server.split_once("://").ok_or_else(wrong)?;
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| wrong())?)),
        None => (place, None),
    };
    if host.is_empty() || host.contains(['/', '@']) {
        return Err(wrong());
    }
    let mut parameters = TlsParameters::builder(host.to_owned());
    if !config.ca_file.as_os_str().is_empty() {
        let pem = read(&config.ca_file, false)?;
        let certificate = Certificate::from_pem(pem.as_bytes());
        let certificate = certificate.map_err(|error| MailFault(error.to_string()))?;
        parameters = parameters.add_root_certificate(certificate);
    }
    let parameters = parameters.build();
    let parameters = parameters.map_err(|error| MailFault(error.to_string()))?;
    let has_secret = !config.secret_file.as_os_str().is_empty();
    let (tls, usual_port) = match scheme {
        // A password is never sent without encryption.
        "smtp" if has_secret => (Tls::Required(parameters), 25),
        "smtp" => (Tls::Opportunistic(parameters), 25),
        "smtp+starttls" => (Tls::Required(parameters), 587),
        "smtps" => (Tls::Wrapper(parameters), 465),
        _ => return Err(wrong()),
    };
    let mut builder = SmtpTransport::builder_dangerous(host)
        .port(port.unwrap_or(usual_port))
        .timeout(Some(ANSWER_MAX))
        .tls(tls);
    if has_secret {
        builder = builder.credentials(credentials(&config.secret_file)?);
    }
    Ok(builder.build())
}

fn credentials(path: &Path) -> Result<Credentials, MailFault> {
    let text = read(path, true)?;
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    match (of("username"), of("password")) {
        (Some(username), Some(password)) => Ok(Credentials::new(username, password)),
        _ => Err(MailFault(format!(
            "secret_file {}: write the lines `username: …` and `password: …`",
            path.display()
        ))),
    }
}

/// Reads a file of the configuration. One that holds a secret is refused if others may read it.
fn read(path: &Path, is_secret: bool) -> Result<String, MailFault> {
    let fault = |reason: String| MailFault(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let meta = file.metadata().map_err(|error| fault(error.to_string()))?;
    if is_secret && meta.permissions().mode() & 0o077 != 0 {
        return Err(fault("others may read it: chmod 600 it".into()));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| fault(error.to_string()))?;
    Ok(text)
}

fn failed(reason: String, repeat: RepeatWish, reach: AttemptReach) -> ActionOutcome {
    ActionOutcome::Failed(ActionFailure {
        reason,
        output: Vec::new(),
        repeat,
        reach,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        let check = |server: &str, expect: bool| {
            let config = MailConfig {
                server: server.into(),
                from: "baro@site.example".into(),
                ..MailConfig::default()
            };
            assert_eq!(Mailer::new(&config).is_ok(), expect, "{server}");
        };
        for server in [
            "",
            "smtp://localhost",
            "smtp://h:2525",
            "smtps://h",
            "smtp+starttls://h:1",
        ] {
            check(server, true);
        }
        for server in [
            "h",
            "smtp://",
            "smtp://h:x",
            "smtp://u@h",
            "http://h",
            "smtp://h/x",
        ] {
            check(server, false);
        }
        let no_sender = MailConfig {
            server: "smtp://h".into(),
            from: "nobody".into(),
            ..MailConfig::default()
        };
        assert!(Mailer::new(&no_sender).is_err());
    }

    #[test]
    fn receivers() {
        let config = MailConfig {
            server: "smtp://h".into(),
            to: vec!["ops@site.example".into()],
            ..MailConfig::default()
        };
        assert!(config.check("OPS@site.example").is_ok());
        assert!(config.check("x@site.example").is_err());
        assert_eq!(one_line("a\r\nBcc: x"), "a  Bcc: x");
    }
}
