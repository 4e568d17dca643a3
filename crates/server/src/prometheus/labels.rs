//! Label sets: small sorted vectors of shared strings, since evaluation copies them often.

use std::fmt;
use std::sync::Arc;

/// The label that holds the metric's name.
pub const NAME: &str = "__name__";

/// Names and values of labels, sorted by name. An empty value is the same as no label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSet(Vec<(Arc<str>, Arc<str>)>);

impl LabelSet {
    /// A set without labels.
    pub fn none() -> Self {
        Self::default()
    }

    /// The value of a label, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| &**n == name);
        found.map(|(_, value)| &**value)
    }

    /// Sets a label; an empty value removes it.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.0.binary_search_by(|(n, _)| (**n).cmp(name)) {
            Ok(at) if value.is_empty() => {
                self.0.remove(at);
            }
            Ok(at) => self.0[at].1 = value.into(),
            Err(_) if value.is_empty() => {}
            Err(at) => self.0.insert(at, (name.into(), value.into())),
        }
    }

    /// All labels except the metric's name.
    pub fn nameless(&self) -> Self {
        self.without(&[])
    }

    /// Only the labels with these names.
    pub fn only(&self, names: &[String]) -> Self {
        let kept = self.0.iter().filter(|(n, _)| has(names, n));
        Self(kept.cloned().collect())
    }

    /// All labels except these and the metric's name.
    pub fn without(&self, names: &[String]) -> Self {
        let kept = self
            .0
            .iter()
            .filter(|(n, _)| &**n != NAME && !has(names, n));
        Self(kept.cloned().collect())
    }

    /// All labels except these; the metric's name may stay.
    pub fn drop_only(&self, names: &[String]) -> Self {
        let kept = self.0.iter().filter(|(n, _)| !has(names, n));
        Self(kept.cloned().collect())
    }

    /// Its size in bytes, including shared strings.
    pub fn bytes(&self) -> usize {
        let pair = size_of::<(Arc<str>, Arc<str>)>();
        let of = |(name, value): &(Arc<str>, Arc<str>)| pair + name.len() + value.len();
        self.0.iter().map(of).sum()
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (&**n, &**v))
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|n| n == name)
}

impl<'a> FromIterator<(&'a str, &'a str)> for LabelSet {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut set = Self::none();
        for (name, value) in pairs {
            set.set(name, value);
        }
        set
    }
}

/// Formats the set like `{device="vda", node="a"}`.
impl fmt::Display for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{name}={value:?}")?;
        }
        f.write_str("}")
    }
}
