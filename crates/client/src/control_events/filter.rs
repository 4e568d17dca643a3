//! The choice of control events that a subscriber wants.

use std::time::Duration;

use barograph_model::{Pattern, Selector};
use barograph_stream::ControlEventRecord;
use thiserror::Error;

/// The word among labels that means the node of an event, and no label of its stream.
const NODE: &str = "node";

/// Which control events a subscriber wants; by default all that it may read.
#[derive(Clone, Debug, Default)]
pub struct ControlFilter {
    /// Pattern of the kind.
    pub kind: Option<Pattern>,
    /// Pattern of the subject.
    pub subject: Option<Pattern>,
    /// Pattern of the node on which it was published.
    pub node: Option<Pattern>,
    /// Labels of the source, such as `application`, `job` and `rank`: it has each, and its value
    /// matches.
    pub labels: Vec<(String, Pattern)>,
    /// Properties of the event: it has each, and its text matches.
    pub properties: Vec<(String, Pattern)>,
    /// Least confidence, 0 to 1.
    pub confidence_min: f64,
    /// Greatest age when it is looked at.
    pub age_max: Option<Duration>,
    /// Past events that are given first: those of the rings that are not older than this.
    pub past: Duration,
    /// Whether the events of this process are left out.
    pub excludes_own: bool,
}

/// The reason why a filter is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ControlFilterFault {
    /// Pairs are not written as `name=pattern,…`.
    #[error("{what} are not name=pattern,…: {why}")]
    Pairs {
        /// Which pairs.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The confidence is no share.
    #[error("the least confidence is 0 to 1")]
    Confidence,
}

impl ControlFilter {
    /// The filter with these sources: `job=7,rank=0,node=n*`.
    ///
    /// # Errors
    ///
    /// They are not written like this.
    pub fn with_sources(mut self, text: &str) -> Result<Self, ControlFilterFault> {
        for (name, pattern) in pairs("sources", text)? {
            match name == NODE {
                true => self.node = Some(pattern),
                false => self.labels.push((name, pattern)),
            }
        }
        Ok(self)
    }

    /// The filter with these properties: `policy=set10*,volume=scratch`.
    ///
    /// # Errors
    ///
    /// They are not written like this.
    pub fn with_properties(mut self, text: &str) -> Result<Self, ControlFilterFault> {
        self.properties.extend(pairs("properties", text)?);
        Ok(self)
    }

    /// The filter with this least confidence.
    ///
    /// # Errors
    ///
    /// It is not 0 to 1.
    pub fn with_confidence_min(mut self, least: f64) -> Result<Self, ControlFilterFault> {
        if !(0.0..=1.0).contains(&least) {
            return Err(ControlFilterFault::Confidence);
        }
        self.confidence_min = least;
        Ok(self)
    }

    /// Whether an event of this node and age is wanted. The labels of its stream are not looked at.
    pub(super) fn wants(&self, node: &str, event: &ControlEventRecord<'_>, age_ns: i64) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
        };
        let is_young = self.age_max.is_none_or(|age_max| {
            let age = Duration::from_nanos(age_ns.max(0).unsigned_abs());
            age <= age_max
        });
        let has = |(name, pattern): &(String, Pattern)| {
            let text = event.properties.get(name);
            text.is_some_and(|text| pattern.matches(text))
        };
        fits(&self.kind, event.kind)
            && fits(&self.subject, event.subject)
            && fits(&self.node, node)
            && event.confidence >= self.confidence_min
            && is_young
            && self.properties.iter().all(has)
    }
}

fn pairs(what: &'static str, text: &str) -> Result<Vec<(String, Pattern)>, ControlFilterFault> {
    let fault = |why: String| ControlFilterFault::Pairs { what, why };
    if text.contains(['{', '}']) {
        return Err(fault("leave out braces".to_owned()));
    }
    let parsed = Selector::parse(&format!("*{{{text}}}"));
    parsed
        .map(|selector| selector.labels)
        .map_err(|error| fault(error.to_string()))
}

#[cfg(test)]
mod tests {
    use barograph_stream::{CONTROL_EVENT_BYTES_MAX, ControlEventContent, ControlEventSource};

    use super::*;

    #[test]
    fn what_is_wanted() {
        let content = ControlEventContent {
            kind: "io.starved",
            subject: "/scratch",
            value: None,
            confidence: 0.5,
            properties: &[("policy", "set10"), ("user", "ada")],
        };
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let source = ControlEventSource::default();
        let length = content.write(source, &mut bytes).unwrap();
        let event = ControlEventRecord::read(&bytes[..length]).unwrap();
        let all = ControlFilter::default;
        let glob = |text: &str| Some(Pattern::new(text));
        let second = Duration::from_secs(1);
        let of_kind = |kind| ControlFilter {
            kind: glob(kind),
            ..all()
        };
        let of_subject = |subject| ControlFilter {
            subject: glob(subject),
            ..all()
        };
        let at_least = |confidence_min| ControlFilter {
            confidence_min,
            ..all()
        };
        let no_older = |age_max| ControlFilter {
            age_max: Some(age_max),
            ..all()
        };
        let with = |properties: &str| all().with_properties(properties).unwrap();
        let from = |sources: &str| all().with_sources(sources).unwrap();
        for (filter, expect) in [
            (all(), true),
            (of_kind("io.*"), true),
            (of_kind("io"), false),
            (of_subject("/scr*"), true),
            (of_subject("/home"), false),
            (at_least(0.5), true),
            (at_least(0.51), false),
            (no_older(second), true),
            (no_older(second / 3), false),
            (with("policy=set*, user=ada"), true),
            (with("policy=set10,user=bob"), false),
            (with("volume=*"), false),
            (from("node=n?,job=7"), true),
            (from("node=m*"), false),
        ] {
            let found = filter.wants("n1", &event, 500_000_000);
            assert_eq!(found, expect, "{filter:?}");
        }
    }

    #[test]
    fn filters_that_make_no_sense_are_refused() {
        let all = ControlFilter::default;
        assert!(all().with_sources("job").is_err());
        assert!(all().with_sources("job=7}").is_err());
        assert!(all().with_properties("x").is_err());
        for least in [-0.1, 1.1, f64::NAN] {
            assert!(all().with_confidence_min(least).is_err());
        }
        let filter = all().with_sources("job=7,node=a,rank=0").unwrap();
        assert_eq!(filter.labels.len(), 2);
        assert_eq!(filter.node, Some(Pattern::new("a")));
    }
}
