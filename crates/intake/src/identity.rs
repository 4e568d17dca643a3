//! The names of a process's streams: name and labels, made from what the process declared and the
//! kernel reports, plus the smallest free instance number if a living process has the same name and
//! labels.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use barograph_model::{Descriptor, Kind, Labels, ModelError, Name, Unit, ValueType};
use barograph_stream::ingest::{APPLICATIONS_PREFIX, FRAME_VALUE};

/// The publication of the values that the agent itself measures about a process.
pub(crate) const PROCESS: &str = "process";
const INSTANCE: &str = "instance";
const USER: &str = "user";
const APPLICATION: &str = "application";

/// The names and labels of all living publications, with the instance numbers that are taken.
#[derive(Debug, Default)]
pub(crate) struct Instances(HashMap<(String, Labels), Numbers>);

/// Numbers from 1, of which the smallest free one is given. Finding it needs no search: a process
/// may have thousands of publications of one name.
#[derive(Debug, Default)]
struct Numbers {
    /// All numbers above this one are free.
    reached: u32,
    /// The free numbers up to `reached`.
    free: BTreeSet<u32>,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.reached += 1;
            self.reached
        })
    }

    fn give_back(&mut self, number: u32) {
        if (1..=self.reached).contains(&number) {
            self.free.insert(number);
        }
        while self.reached > 0 && self.free.last() == Some(&self.reached) {
            self.free.pop_last();
            self.reached -= 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.reached == 0
    }
}

/// Name and labels of a publication's streams. It must be given to [`Instances::give_back`] when
/// the publication ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicationIdentity {
    name: String,
    /// The labels without the instance.
    plain: Labels,
    labels: Labels,
    instance: u32,
}

impl Instances {
    /// Names a publication; `labels` are first the process's and then its own, which win. Fails if
    /// a name or label is invalid.
    pub(crate) fn take(
        &mut self,
        name: &str,
        user: &str,
        application: &str,
        labels: &[&[(String, String)]],
    ) -> Result<PublicationIdentity, ModelError> {
        // The name is checked first, so that a wrong one is refused before labels are made.
        Name::new(format!("{APPLICATIONS_PREFIX}.{name}.{FRAME_VALUE}"))?;
        let mut pairs: HashMap<&str, &str> = HashMap::new();
        if !application.is_empty() {
            pairs.insert(APPLICATION, application);
        }
        for (label, value) in labels.iter().copied().flatten() {
            pairs.insert(label, value);
        }
        // The user is that of the kernel, and the instance that of the agent, whatever was
        // declared.
        pairs.insert(USER, user);
        pairs.remove(INSTANCE);
        let plain = Labels::new(pairs.clone())?;
        let numbers = self.0.entry((name.to_owned(), plain.clone())).or_default();
        let instance = numbers.take();
        let text = instance.to_string();
        if instance > 1 {
            pairs.insert(INSTANCE, &text);
        }
        let mut identity = PublicationIdentity {
            name: name.to_owned(),
            labels: plain.clone(),
            plain,
            instance,
        };
        match Labels::new(pairs) {
            Ok(labels) => identity.labels = labels,
            // With the instance there may be one label too many.
            Err(error) => {
                self.give_back(&identity);
                return Err(error);
            }
        }
        Ok(identity)
    }

    /// Frees the instance number of a publication that has ended.
    pub(crate) fn give_back(&mut self, identity: &PublicationIdentity) {
        let key = (identity.name.clone(), identity.plain.clone());
        if let Some(numbers) = self.0.get_mut(&key) {
            numbers.give_back(identity.instance);
            if numbers.is_empty() {
                self.0.remove(&key);
            }
        }
    }
}

impl PublicationIdentity {
    /// The publication's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The publication's labels, with the instance if it is not the first.
    pub(crate) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The labels as documents have them.
    pub(crate) fn label_map(&self) -> BTreeMap<String, String> {
        let labels = self.labels.iter();
        let owned = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        owned.collect()
    }

    /// The descriptor of a value's stream.
    pub(crate) fn stream(
        &self,
        value: &str,
        value_type: ValueType,
        kind: Kind,
        unit: &str,
        help: &str,
    ) -> Result<Descriptor, ModelError> {
        Ok(Descriptor {
            name: Name::new(format!("{APPLICATIONS_PREFIX}.{}.{value}", self.name))?,
            labels: self.labels.clone(),
            value_type,
            unit: Unit::new(unit)?,
            kind,
            help: help.to_owned(),
        })
    }

    /// The descriptor of the stream of frames.
    pub(crate) fn frames(&self) -> Result<Descriptor, ModelError> {
        let help = "Number of the newest committed frame.";
        self.stream(FRAME_VALUE, ValueType::Int, Kind::Counter, "frames", help)
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
    fn streams_are_named_by_what_is_known() {
        let mut instances = Instances::default();
        let (of_process, own) = (
            pairs("rank=3,phase=x,instance=9,user=root"),
            pairs("phase=solve"),
        );
        let identity = instances.take("lulesh", "eve", "lulesh2", &[&of_process, &own]);
        let identity = identity.unwrap();
        let stream = identity.stream("residual", ValueType::Float, Kind::Gauge, "1", "");
        assert_eq!(
            stream.unwrap().to_string(),
            "app.lulesh.residual{application=lulesh2,phase=solve,rank=3,user=eve}"
        );
        assert_eq!(identity.frames().unwrap().name.as_str(), "app.lulesh.frame");
    }

    #[test]
    fn living_namesakes_are_numbered_and_numbers_come_again() {
        let mut instances = Instances::default();
        let take =
            |instances: &mut Instances, user: &str| instances.take("a", user, "", &[]).unwrap();
        let first = take(&mut instances, "eve");
        let second = take(&mut instances, "eve");
        let third = take(&mut instances, "eve");
        assert_eq!(first.labels().to_string(), "{user=eve}");
        assert_eq!(second.labels().to_string(), "{instance=2,user=eve}");
        assert_eq!(third.labels().get("instance"), Some("3"));
        assert_eq!(take(&mut instances, "bob").labels().get("instance"), None);
        instances.give_back(&second);
        assert_eq!(take(&mut instances, "eve"), second);
        for identity in [first, second, third] {
            instances.give_back(&identity);
        }
        assert_eq!(instances.0.len(), 1, "bob's");
    }

    #[test]
    fn the_smallest_free_number_is_given_however_many_are_taken() {
        let mut numbers = Numbers::default();
        assert!((1..=100_000).all(|n| numbers.take() == n));
        for n in [7, 99_999, 5, 0, 200_000] {
            numbers.give_back(n);
        }
        assert_eq!([(); 4].map(|()| numbers.take()), [5, 7, 99_999, 100_001]);
        (1..=100_001).for_each(|n| numbers.give_back(n));
        assert!(numbers.is_empty() && numbers.free.is_empty());
    }

    #[test]
    fn wrong_names_are_refused() {
        let mut instances = Instances::default();
        for name in ["", "Big", "a b", "a..b"] {
            assert!(instances.take(name, "eve", "", &[]).is_err(), "{name}");
        }
        let wrong = pairs("no label=1");
        assert!(instances.take("a", "eve", "", &[&wrong]).is_err());
        assert!(instances.0.is_empty());
        // With the greatest number of labels there is no room for the second one's instance.
        let full: Vec<(String, String)> = (0..15).map(|n| (format!("l{n}"), "x".into())).collect();
        let first = instances.take("b", "eve", "", &[&full]).unwrap();
        assert!(instances.take("b", "eve", "", &[&full]).is_err());
        instances.give_back(&first);
        assert!(instances.0.is_empty());
        let identity = instances.take("a", "eve", "", &[]).unwrap();
        let value = identity.stream("X", ValueType::Int, Kind::Gauge, "", "");
        assert!(value.is_err());
    }
}
