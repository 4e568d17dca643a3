//! Fills a document's template: the prose is in the template, and measured figures replace
//! `{{name}}`.

use std::collections::BTreeMap;

/// The reason why a document could not be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The template has a name without a text.
    #[error("the template names {{{{{0}}}}}, which nothing fills")]
    Missing(String),
    /// A text has a name that is not in the template.
    #[error("{{{{{0}}}}} is made, but the template does not name it")]
    Unused(String),
}

/// The names in a template, in order.
pub fn placeholders(template: &str) -> Vec<&str> {
    let parts = template.split("{{").skip(1);
    parts
        .filter_map(|part| part.split_once("}}"))
        .map(|(name, _)| name)
        .collect()
}

/// Returns the template with each name replaced by its text.
///
/// # Errors
///
/// A name without a text, or a text without a name.
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
