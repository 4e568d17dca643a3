//! The open scopes: each is opened when it is first needed, and tried again after a failure.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{Incarnation, SCOPES_MAX};
use tracing::warn;

use super::{Places, Scope};
use crate::shares::Shares;
use crate::taken::Taken;
use barograph_recorder::Reader;

/// Time until a scope is tried again after its first failure; it doubles with each failure.
const RETRY_NS_MIN: i64 = NS_PER_S / 2;
/// Longest time between two attempts.
const RETRY_NS_MAX: i64 = 30 * NS_PER_S;
/// Most scopes that are remembered as failed. If there are more, one is forgotten and tried again
/// when it is next needed.
const REFUSED_MAX: usize = 1_024;

/// When a scope that could not be opened is tried again.
#[derive(Clone, Copy, Default)]
struct RefusedScope {
    next_ns: i64,
    backoff_ns: i64,
}

impl RefusedScope {
    /// Notes one more failure.
    fn again(&mut self, monotonic_ns: i64) {
        let doubled_ns = self.backoff_ns.saturating_mul(2);
        self.backoff_ns = doubled_ns.clamp(RETRY_NS_MIN, RETRY_NS_MAX);
        self.next_ns = monotonic_ns.saturating_add(self.backoff_ns);
    }
}

/// The open scopes.
pub struct Scopes<'c> {
    places: Places,
    clock: &'c Arc<dyn Clock>,
    open: BTreeMap<Reader, Scope<'c>>,
    /// Bytes of the rings of all scopes, by user.
    rings: Rc<RefCell<Shares<Box<str>>>>,
    /// Scopes that could not be opened the last time; a full disk or too many open files may pass.
    refused: BTreeMap<Reader, RefusedScope>,
    /// Number of times that marks of earlier lives of the agent were read.
    marks_read: u64,
}

impl<'c> Scopes<'c> {
    pub fn new(places: Places, clock: &'c Arc<dyn Clock>) -> Self {
        Self {
            rings: Rc::new(RefCell::new(places.shares_of_rings())),
            places,
            clock,
            open: BTreeMap::new(),
            refused: BTreeMap::new(),
            marks_read: 0,
        }
    }

    /// The scope of a reader, which is opened if it is not open.
    pub fn of(&mut self, reader: Reader) -> Option<&mut Scope<'c>> {
        if !self.open.contains_key(&reader) {
            self.open(reader);
        }
        self.open.get_mut(&reader)
    }

    /// Opens a scope, unless it failed a short time ago.
    fn open(&mut self, reader: Reader) {
        let monotonic_ns = self.clock.monotonic_ns();
        let before = self.refused.get(&reader);
        if before.is_some_and(|refused| monotonic_ns < refused.next_ns) {
            return;
        }
        let is_first = before.is_none();
        let opened = has_place(self.open.keys(), reader).and_then(|()| {
            Scope::open(&self.places, reader, self.clock, Rc::clone(&self.rings))
                .map_err(|e| e.to_string())
        });
        match opened {
            Ok(scope) => {
                self.refused.remove(&reader);
                self.marks_read += u64::from(!scope.marks.is_empty());
                self.open.insert(reader, scope);
            }
            Err(error) => {
                if is_first {
                    let scope = reader.scope();
                    warn!(
                        scope,
                        error, "a scope cannot be opened, and will be tried again"
                    );
                }
                if is_first && self.refused.len() >= REFUSED_MAX {
                    self.refused.pop_first();
                }
                self.refused.entry(reader).or_default().again(monotonic_ns);
            }
        }
    }

    /// Goes on with archives whose start is under way or has failed. `is_there` returns whether the
    /// file of a process exists.
    pub fn attend(&mut self, is_there: impl Fn(Incarnation) -> bool) {
        let mut is_new = false;
        for scope in self.open.values_mut() {
            let has_come = scope.attend(&self.places.node, self.clock);
            self.marks_read += u64::from(has_come && !scope.marks.is_empty());
            is_new |= has_come;
        }
        if is_new {
            self.forget_all_but(is_there);
        }
    }

    /// A number that changes whenever there may be room for a stream that found none.
    pub fn rooms(&self) -> u64 {
        let retired = self.open.values().map(|scope| scope.rooms);
        retired.sum::<u64>() + self.open.len() as u64
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Reader, &mut Scope<'c>)> {
        self.open.iter_mut().map(|(reader, scope)| (*reader, scope))
    }

    /// A number that changes whenever [`Self::tell_taken`] may have something new.
    pub fn marks_read(&self) -> u64 {
        self.marks_read
    }

    /// Adds what earlier lives of the agent took in from a process.
    pub fn tell_taken(&self, incarnation: Incarnation, taken: &mut Taken) {
        for (reader, scope) in &self.open {
            let marks = scope.marks.iter();
            for mark in marks.filter(|mark| mark.incarnation == incarnation) {
                taken.add(*reader, mark);
            }
        }
    }

    /// Forgets the marks of a process whose file is gone.
    pub fn forget(&mut self, incarnation: Incarnation) {
        for scope in self.open.values_mut() {
            scope.forget(incarnation);
        }
    }

    /// Forgets the marks of all processes whose files are gone.
    pub fn forget_all_but(&mut self, is_there: impl Fn(Incarnation) -> bool) {
        for scope in self.open.values_mut() {
            let processes = scope.marks.iter().map(|mark| mark.incarnation);
            let gone: HashSet<Incarnation> = processes.filter(|p| !is_there(*p)).collect();
            scope.marks.retain(|mark| !gone.contains(&mark.incarnation));
            for incarnation in gone {
                scope.streams.forget(incarnation);
            }
        }
    }

    /// Opens the scopes that existed in earlier lives of the agent, so that their past can be read.
    pub fn reopen(&mut self) {
        let Ok(names) = fs::read_dir(&self.places.state_dir) else {
            return;
        };
        for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if let Some(reader) = parse(&name) {
                self.of(reader);
            }
        }
    }
}

/// Fails if no further scope may be opened. Scopes of groups may take at most as many places as
/// stay free for others, since one user may be in many groups and publish for each.
fn has_place<'r>(
    open: impl ExactSizeIterator<Item = &'r Reader>,
    wanted: Reader,
) -> Result<(), String> {
    let left = SCOPES_MAX.saturating_sub(open.len() + 1);
    if open.len() >= SCOPES_MAX {
        return Err(format!("there are {SCOPES_MAX} scopes already"));
    }
    let is_group = |reader: &Reader| matches!(reader, Reader::Group(_));
    let groups = open.filter(|reader| is_group(reader)).count();
    if is_group(&wanted) && groups + 1 > left {
        return Err(format!(
            "there are {groups} scopes of groups already, of {SCOPES_MAX} in all"
        ));
    }
    Ok(())
}

fn parse(name: &str) -> Option<Reader> {
    if name == "all" {
        return Some(Reader::All);
    }
    let (kind, id) = name.split_at_checked(1)?;
    let id: u32 = id.parse().ok()?;
    let reader = match kind {
        "u" => Reader::User(id),
        "g" => Reader::Group(id),
        _ => return None,
    };
    (reader.scope() == name).then_some(reader)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn who_is_in_many_groups_leaves_places_for_users() {
        let mut open: BTreeSet<Reader> = BTreeSet::from([Reader::All, Reader::User(1)]);
        let fill = |open: &mut BTreeSet<Reader>, of: fn(u32) -> Reader| {
            let more = (1_000..).map(of);
            let more = more.take_while(|reader| {
                let has_place = has_place(open.iter(), *reader).is_ok();
                has_place && open.insert(*reader)
            });
            more.count()
        };
        assert_eq!(fill(&mut open, Reader::Group), 31);
        assert_eq!(fill(&mut open, Reader::User), 31);
        assert_eq!(open.len(), SCOPES_MAX);
        assert_eq!(fill(&mut open, Reader::Group), 0);
    }

    #[test]
    fn names_of_scopes() {
        for reader in [Reader::All, Reader::User(0), Reader::Group(4_711)] {
            assert_eq!(parse(&reader.scope()), Some(reader));
        }
        for name in ["", "u", "u-1", "u01", "x1", "u1.new", "all2", "é"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
