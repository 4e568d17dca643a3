//! A document from a template: what people wrote stays in the template, what is measured is put where `{{name}}` is.

use std::collections::BTreeMap;

/// Why a document could not be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The template wants what nobody made.
    #[error("the template names {{{{{0}}}}}, which nothing fills")]
    Missing(String),
    /// What was made is nowhere.
    #[error("{{{{{0}}}}} is made, but the template does not name it")]
    Unused(String),
}

/// The names in a template, in their order.
pub fn placeholders(template: &str) -> Vec<&str> {
    let parts = template.split("{{").skip(1);
    parts
        .filter_map(|part| part.split_once("}}"))
        .map(|(name, _)| name)
        .collect()
}

/// The template with each name replaced; every name has a text, and every text a name.
pub fn fill(template: &str, texts: &BTreeMap<String, String>) -> Result<String, DocumentError> {
    let names = placeholders(template);
    if let Some(name) = names.iter().find(|name| !texts.contains_key(**name)) {
        return Err(DocumentError::Missing((*name).to_owned()));
    }
    if let Some(name) = texts.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(DocumentError::Unused(name.clone()));
    }
    let mut text = template.to_owned();
    for (name, value) in texts {
        text = text.replace(&format!("{{{{{name}}}}}"), value.trim_end());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_text_and_every_text_a_name() {
        let texts = |names: &[&str]| {
            let pair = |name: &&str| ((*name).to_owned(), format!("<{name}>\n"));
            names.iter().map(pair).collect::<BTreeMap<_, _>>()
        };
        let template = "a {{one}} b\n{{two.table}}\n";
        assert_eq!(placeholders(template), ["one", "two.table"]);
        let both = texts(&["one", "two.table"]);
        assert_eq!(fill(template, &both).unwrap(), "a <one> b\n<two.table>\n");
        assert_eq!(
            fill(template, &texts(&["one"])),
            Err(DocumentError::Missing("two.table".into()))
        );
        assert_eq!(
            fill("", &texts(&["one"])),
            Err(DocumentError::Unused("one".into()))
        );
    }
}
