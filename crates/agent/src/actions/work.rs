//! What is done for an event, from the words of its rule: checked when the rule is made, and filled
//! in when it fires.

use std::collections::BTreeMap;

use barograph_action::{
    ActionFields, ActionWork, ContainerRun, ExitRetry, FilePlace, FileTransfer, MailMessage,
    PlaceTemplate, Template, TemplateFault, TransferVerb,
};
use barograph_rule::{ActionLimits, RuleWork};
use serde_json::{Value as Json, json};

/// Checks the templates of what a rule does.
///
/// # Errors
///
/// One cannot be filled in, for this reason.
pub fn check_work(work: &RuleWork) -> Result<(), String> {
    let told = |fault: TemplateFault| fault.to_string();
    let text = |text: &String| Template::parse(text).map(drop).map_err(told);
    let place = |text: &String| PlaceTemplate::parse(text).map(drop).map_err(told);
    match work {
        RuleWork::Run { arguments, .. } => arguments.iter().try_for_each(text),
        RuleWork::Post { url, body } => {
            Template::parse_url(url).map_err(told)?;
            let body = body.as_ref().map(|text| Template::parse_json(text));
            body.transpose().map(drop).map_err(told)
        }
        RuleWork::Copy { from, to } | RuleWork::Move { from, to } => {
            place(from).and_then(|()| place(to))
        }
        RuleWork::Delete { file } => place(file),
        RuleWork::Mark { .. } => Ok(()),
        RuleWork::Mail { subject, body, .. } => {
            text(subject).and_then(|()| body.iter().try_for_each(text))
        }
        RuleWork::Call {
            payload,
            target,
            is_knob,
            ..
        } => {
            target_of(target)?;
            match (payload, is_knob) {
                (Some(payload), false) => Template::parse_json(payload).map(drop).map_err(told),
                (payload, _) => payload.iter().try_for_each(text),
            }
        }
    }
}

/// The words of what is done: the program and its arguments, or the verb and what follows it.
pub(super) fn words(work: &ActionWork) -> Vec<Vec<u8>> {
    let of = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match work {
        ActionWork::Run { argv, .. } => argv.clone(),
        ActionWork::Webhook { url, body } => {
            vec![b"POST".to_vec(), url.clone().into_bytes(), body.clone()]
        }
        ActionWork::Transfer { transfer, .. } => {
            let verb = match transfer.verb {
                TransferVerb::Copy => "COPY",
                TransferVerb::Move => "MOVE",
                TransferVerb::Delete => "DELETE",
            };
            let places = std::iter::once(&transfer.from).chain(&transfer.to);
            let places = places.map(|place| place.to_string().into_bytes());
            std::iter::once(verb.into()).chain(places).collect()
        }
        ActionWork::Mail(mail) => of(&["MAIL", &mail.to, &mail.subject, &mail.body]),
        ActionWork::Mark { mark } => of(&["MARK", mark]),
        ActionWork::Call { request } => of(&["CALL", request]),
    }
}

/// The address to which a rule posts, without what fields have in it.
pub(super) fn address(work: &RuleWork) -> Option<String> {
    match work {
        RuleWork::Post { url, .. } => {
            let template = Template::parse_url(url).ok()?;
            Some(template.fill_url(&ActionFields::default()))
        }
        _ => None,
    }
}

/// What is done, with all fields filled in, unless the texts have been filled already. Each text
/// was checked as a template with the rule.
pub(super) fn work(
    work: &RuleWork,
    limits: &ActionLimits,
    (fields, is_filled): (&ActionFields, bool),
) -> ActionWork {
    let fill = |text: &String| match Template::parse(text) {
        Ok(template) if !is_filled => template.fill(fields),
        _ => text.clone().into_bytes(),
    };
    let text = |text: &String| String::from_utf8_lossy(&fill(text)).into_owned();
    match work {
        RuleWork::Post { url, body } => post(url, body.as_deref(), fields),
        RuleWork::Copy { from, to } => {
            transfer(TransferVerb::Copy, (from, Some(to)), limits, fields)
        }
        RuleWork::Move { from, to } => {
            transfer(TransferVerb::Move, (from, Some(to)), limits, fields)
        }
        RuleWork::Delete { file } => transfer(TransferVerb::Delete, (file, None), limits, fields),
        RuleWork::Mark { mark } => ActionWork::Mark { mark: mark.clone() },
        RuleWork::Mail { to, subject, body } => ActionWork::Mail(MailMessage {
            to: to.clone(),
            subject: text(subject),
            body: text(body.as_ref().unwrap_or(&ALL_FIELDS.to_owned())),
        }),
        RuleWork::Call {
            name,
            payload,
            target,
            is_knob,
        } => {
            let value = match (payload, is_knob) {
                (Some(payload), true) => value_of(text(payload)),
                (payload, _) => payload_of(payload.as_deref(), fields),
            };
            call(name, value, target, *is_knob)
        }
        RuleWork::Run {
            program,
            arguments,
            container,
        } => {
            let words = std::iter::once(program).chain(arguments);
            ActionWork::Run {
                argv: words.map(fill).collect(),
                time_ns_max: limits.timeout_ns,
                retry: match limits.retries_max {
                    Some(retries) if retries > 0 => ExitRetry::All,
                    _ => ExitRetry::None,
                },
                container: container.as_ref().map(|it| ContainerRun {
                    image: it.image.clone(),
                    mounts: it.mounts.clone(),
                }),
            }
        }
    }
}

fn post(url: &str, body: Option<&str>, fields: &ActionFields) -> ActionWork {
    let body = body.and_then(|text| Template::parse_json(text).ok());
    ActionWork::Webhook {
        url: match Template::parse_url(url) {
            Ok(template) => template.fill_url(fields),
            Err(_) => url.to_owned(),
        },
        body: match body {
            Some(template) => template.fill_json(fields),
            None => fields.to_json(),
        },
    }
}

/// The value of a knob: a number or a truth, or else a text.
fn value_of(text: String) -> Json {
    match serde_json::from_str(&text) {
        Ok(value @ (Json::Number(_) | Json::Bool(_))) => value,
        _ => Json::String(text),
    }
}

/// The payload of a call.
fn payload_of(text: Option<&str>, fields: &ActionFields) -> Json {
    let template = text.and_then(|text| Template::parse_json(text).ok());
    let payload = match template {
        Some(template) => template.fill_json(fields),
        None => fields.to_json(),
    };
    serde_json::from_slice(&payload).unwrap_or_default()
}

/// The text of a mail whose rule has none.
const ALL_FIELDS: &str = "{kind} of {path}\n\nold path: {old_path}\nsize: {size}\nuser: {uid}\n\
job: {job}\nnode: {node}\nsource: {source}, {index}\nrule: {rule}\nkey: {key}\n";

fn transfer(
    verb: TransferVerb,
    (from, to): (&str, Option<&String>),
    limits: &ActionLimits,
    fields: &ActionFields,
) -> ActionWork {
    let fill = |text: &str| match PlaceTemplate::parse(text) {
        Ok(place) => place.fill(fields),
        Err(_) => FilePlace::Path {
            path: text.as_bytes().to_vec(),
        },
    };
    ActionWork::Transfer {
        transfer: FileTransfer {
            verb,
            from: fill(from),
            to: to.map(|text| fill(text)),
        },
        time_ns_max: limits.timeout_ns,
    }
}

fn call(name: &str, payload: Json, target: &str, is_knob: bool) -> ActionWork {
    let target = target_of(target).unwrap_or_default();
    let request = json!({"name": name, "payload": payload, "target": target, "knob": is_knob});
    ActionWork::Call {
        request: request.to_string(),
    }
}

/// The labels of `label=value,…`.
fn target_of(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pairs = pairs.map(|pair| {
        let (label, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("'{text}': write label=value,… like 'rank=0'"))?;
        Ok((label.trim(), value.trim()))
    });
    pairs.collect()
}
