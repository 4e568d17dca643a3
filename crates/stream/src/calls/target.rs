//! The target of a call. Agent and programs evaluate it by the same function, so that they agree.

use std::collections::BTreeMap;

use crate::Incarnation;

/// The processes that are to handle a call: all, unless a field restricts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTarget {
    /// One life of one process; `None`: any.
    pub incarnation: Option<Incarnation>,
    /// Labels that the process must have, all of them.
    pub labels: Vec<(String, String)>,
}

/// A process, or one of its publications, as it is matched with targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSubject {
    incarnation: Incarnation,
    labels: BTreeMap<String, String>,
}

impl CallSubject {
    /// Creates a subject from a process and its declarations. `labels` are those of the process and
    /// then, for a knob or a trigger of a publication, those of that publication; later ones
    /// replace earlier ones. `application`, unless empty, counts as a label that any of these
    /// replaces; `pid` is the number that the process itself declared; `user` is the name of the
    /// ingest file's owner, or the owner's number if it has no name. Nothing replaces these two.
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

    /// Identity of this life of the process.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// All labels with their values, ordered by name.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

impl CallTarget {
    /// Whether a subject that has declared the name of the call is to handle it.
    pub fn matches(&self, subject: &CallSubject) -> bool {
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
        let subject = CallSubject::new(own, "lulesh", 42, "eve", &[&process, &publication]);
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
            let target = CallTarget {
                incarnation: None,
                labels: pairs(labels),
            };
            assert_eq!(target.matches(&subject), expect, "{labels}");
            for (incarnation, is_it) in [(own, true), (Incarnation([8; 16]), false)] {
                let incarnation = Some(incarnation);
                let target = CallTarget {
                    incarnation,
                    ..target.clone()
                };
                assert_eq!(target.matches(&subject), expect && is_it, "{labels}");
            }
        }
        let renamed = CallSubject::new(own, "a", 1, "eve", &[&pairs("application=b")]);
        assert!(renamed.labels().any(|pair| pair == ("application", "b")));
    }
}
