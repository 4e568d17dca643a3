//! Who is meant by a call. Agent and programs ask the same function, so that they agree.

use std::collections::BTreeMap;

use crate::Incarnation;

/// Who is meant: everyone, unless it says more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// One life of one process; `None`: any.
    pub incarnation: Option<Incarnation>,
    /// All of these the process must have.
    pub labels: Vec<(String, String)>,
}

/// A process, or a publication of it, as targets see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    incarnation: Incarnation,
    labels: BTreeMap<String, String>,
}

impl Subject {
    /// A process with what it declared: `labels` are the process's and then, where a publication is meant
    /// (a knob's, a trigger's of one), that publication's, of which the later win. `application`, unless
    /// empty, counts as a label that any of these replaces; `pid` is what the process itself says; `user` is the
    /// name of the ingest file's owner, or the number of one without a name. These two nothing replaces.
    pub fn new(
        incarnation: Incarnation,
        application: &str,
        pid: u32,
        user: &str,
        labels: &[&[(String, String)]],
    ) -> Self {
        let mut all = BTreeMap::new();
        if !application.is_empty() {
            all.insert("application".to_owned(), application.to_owned());
        }
        for (name, value) in labels.iter().copied().flatten() {
            all.insert(name.clone(), value.clone());
        }
        all.insert("pid".to_owned(), pid.to_string());
        all.insert("user".to_owned(), user.to_owned());
        Self {
            incarnation,
            labels: all,
        }
    }

    /// This life of the process.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// All labels, by name.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

impl Target {
    /// Whether a process is meant, provided that it has declared the name.
    pub fn matches(&self, subject: &Subject) -> bool {
        let is_it = |wanted| wanted == subject.incarnation;
        let has = |(name, value): &(String, String)| subject.labels.get(name) == Some(value);
        self.incarnation.is_none_or(is_it) && self.labels.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let pair = |p: &str| p.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        text.split(',').filter_map(pair).collect()
    }

    #[test]
    fn all_that_is_named_must_hold() {
        let own = Incarnation([7; 16]);
        let (process, publication) = (pairs("rank=3,job=9,user=root"), pairs("rank=4,pid=1"));
        let subject = Subject::new(own, "lulesh", 42, "eve", &[&process, &publication]);
        for (labels, expect) in [
            ("", true),
            ("application=lulesh", true),
            ("application=lul", false),
            ("rank=4", true),
            ("rank=3", false),
            ("rank=4,job=9,pid=42,user=eve", true),
            ("rank=4,job=8", false),
            ("pid=1", false),
            ("user=root", false),
            ("phase=", false),
        ] {
            let target = Target {
                incarnation: None,
                labels: pairs(labels),
            };
            assert_eq!(target.matches(&subject), expect, "{labels}");
            for (incarnation, is_it) in [(own, true), (Incarnation([8; 16]), false)] {
                let incarnation = Some(incarnation);
                let target = Target {
                    incarnation,
                    ..target.clone()
                };
                assert_eq!(target.matches(&subject), expect && is_it, "{labels}");
            }
        }
        let renamed = Subject::new(own, "a", 1, "eve", &[&pairs("application=b")]);
        assert!(renamed.labels().any(|pair| pair == ("application", "b")));
    }
}
