//! The scopes: each is opened when it is first needed, and tried again after a failure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use barograph_model::Clock;
use barograph_stream::{Incarnation, SCOPE_OF_ALL, SCOPES_MAX};
use tracing::warn;

use super::opening::{self, ScopeOpening};
use super::{Scope, ScopeSettings};
use crate::IntakeError;
use crate::shares::Shares;
use crate::taken::TakenMarks;
use barograph_recorder::Backoff;
use barograph_stream::ScopeReader;

/// Most scopes that are remembered as failed. If there are more, one is forgotten and tried again
/// when it is next needed.
const REFUSED_MAX: usize = 1_024;

pub(crate) struct OpenScopes<'c> {
    settings: ScopeSettings,
    clock: &'c Arc<dyn Clock>,
    open: BTreeMap<ScopeReader, Scope<'c>>,
    opening: BTreeMap<ScopeReader, ScopeOpening>,
    /// Whether a scope was opened since the last [`Self::attend`].
    has_opened: bool,
    /// Bytes of the rings of all scopes, by user.
    rings: Rc<RefCell<Shares<Box<str>>>>,
    /// Scopes that could not be opened the last time; a full disk or too many open files may pass.
    refused: BTreeMap<ScopeReader, Backoff>,
    /// Number of times that marks of earlier lives of the agent were read.
    marks_read: u64,
}

impl<'c> OpenScopes<'c> {
    pub(crate) fn new(settings: ScopeSettings, clock: &'c Arc<dyn Clock>) -> Self {
        Self {
            rings: Rc::new(RefCell::new(settings.shares_of_rings())),
            settings,
            clock,
            open: BTreeMap::new(),
            opening: BTreeMap::new(),
            has_opened: false,
            refused: BTreeMap::new(),
            marks_read: 0,
        }
    }

    /// The scope of a reader, if it is open. If it is not, its opening begins, unless it failed a
    /// short time ago.
    pub(crate) fn of(&mut self, reader: ScopeReader) -> Option<&mut Scope<'c>> {
        self.is_opening(reader);
        self.open.get_mut(&reader)
    }

    /// Whether a scope is being opened. If it is needed for the first time, or is to be tried
    /// again, its opening begins.
    pub(crate) fn is_opening(&mut self, reader: ScopeReader) -> bool {
        if self.open.contains_key(&reader) {
            return false;
        }
        if !self.opening.contains_key(&reader) {
            self.begin(reader);
        } else if self
            .opening
            .get(&reader)
            .is_some_and(ScopeOpening::is_finished)
        {
            self.take(reader);
        }
        self.opening.contains_key(&reader)
    }

    /// Whether an opening of this scope is under way. Other than [`Self::is_opening`] this begins
    /// none.
    pub(crate) fn awaits(&self, reader: ScopeReader) -> bool {
        self.opening.contains_key(&reader)
    }

    /// Whether no scope is open, nor being opened.
    pub(crate) fn are_none(&self) -> bool {
        self.open.is_empty() && self.opening.is_empty()
    }

    /// Whether any scope is being opened.
    pub(crate) fn are_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Whether the scope of any group is being opened.
    pub(crate) fn are_groups_opening(&self) -> bool {
        let mut opening = self.opening.keys();
        opening.any(|reader| matches!(reader, ScopeReader::Group(_)))
    }

    /// Begins to open a scope, unless it failed a short time ago.
    fn begin(&mut self, reader: ScopeReader) {
        let monotonic_ns = self.clock.monotonic_ns();
        let before = self.refused.get(&reader);
        if before.is_some_and(|refused| !refused.is_over(monotonic_ns)) {
            return;
        }
        let held = self.open.keys().chain(self.opening.keys());
        let begun = has_place(held, reader).and_then(|()| {
            opening::begin(&self.settings, reader, self.clock).map_err(|e| e.to_string())
        });
        match begun {
            Ok(opening) => drop(self.opening.insert(reader, opening)),
            Err(error) => self.refuse(reader, &error),
        }
    }

    /// Takes the result of an opening that has ended.
    fn take(&mut self, reader: ScopeReader) {
        let Some(opening) = self.opening.remove(&reader) else {
            return;
        };
        let ended = opening.join();
        let ended = ended.unwrap_or_else(|_| Err(IntakeError::Panicked));
        match ended {
            Ok(opened) => {
                let rings = Rc::clone(&self.rings);
                let scope = Scope::new(opened, &self.settings, reader, self.clock, rings);
                self.refused.remove(&reader);
                self.marks_read += u64::from(!scope.marks.is_empty());
                self.open.insert(reader, scope);
                self.has_opened = true;
            }
            Err(error) => self.refuse(reader, &error.to_string()),
        }
    }

    /// Notes that a scope could not be opened.
    fn refuse(&mut self, reader: ScopeReader, error: &str) {
        if !self.refused.contains_key(&reader) {
            let scope = reader.scope();
            warn!(
                scope,
                error, "a scope cannot be opened, and will be tried again"
            );
            if self.refused.len() >= REFUSED_MAX {
                self.refused.pop_first();
            }
        }
        let monotonic_ns = self.clock.monotonic_ns();
        self.refused.entry(reader).or_default().failed(monotonic_ns);
    }

    /// Takes scopes that have been opened, and goes on with archives whose start is under way or
    /// has failed. `is_there` returns whether the file of a process exists. Returns whether a scope
    /// was opened since the last call.
    pub(crate) fn attend(&mut self, is_there: impl Fn(Incarnation) -> bool) -> bool {
        let opening: Vec<ScopeReader> = self.opening.keys().copied().collect();
        for reader in opening {
            self.is_opening(reader);
        }
        let has_opened = std::mem::take(&mut self.has_opened);
        let mut is_new = has_opened;
        for scope in self.open.values_mut() {
            let has_come = scope.attend(&self.settings, self.clock);
            self.marks_read += u64::from(has_come && !scope.marks.is_empty());
            is_new |= has_come;
        }
        if is_new {
            self.forget_all_but(is_there);
        }
        has_opened
    }

    /// Does what is due once a second in each scope: see [`Scope::beat`].
    pub(crate) fn beat(&mut self, now_ns: i64, monotonic_ns: i64) {
        for scope in self.open.values_mut() {
            scope.begin_past(&self.settings, self.clock);
            scope.beat(now_ns, monotonic_ns);
        }
    }

    /// A number that changes whenever there may be room for a stream that found none.
    pub(crate) fn rooms(&self) -> u64 {
        let retired = self.open.values().map(|scope| scope.rooms);
        retired.sum::<u64>() + self.open.len() as u64
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ScopeReader, &mut Scope<'c>)> {
        self.open.iter_mut().map(|(reader, scope)| (*reader, scope))
    }

    /// A number that changes whenever [`Self::tell_taken`] may have something new.
    pub(crate) fn marks_read(&self) -> u64 {
        self.marks_read
    }

    /// Adds what earlier lives of the agent took in from a process.
    pub(crate) fn tell_taken(&self, incarnation: Incarnation, taken: &mut TakenMarks) {
        for (reader, scope) in &self.open {
            let marks = scope.marks.iter();
            for mark in marks.filter(|mark| mark.incarnation == incarnation) {
                taken.add(*reader, mark);
            }
        }
    }

    /// Forgets the marks of a process whose file is gone.
    pub(crate) fn forget(&mut self, incarnation: Incarnation) {
        for scope in self.open.values_mut() {
            scope.forget(incarnation);
        }
    }

    /// Forgets the marks of all processes whose files are gone.
    pub(crate) fn forget_all_but(&mut self, is_there: impl Fn(Incarnation) -> bool) {
        for scope in self.open.values_mut() {
            let processes = scope.marks.iter().map(|mark| mark.incarnation);
            let gone: BTreeSet<Incarnation> = processes.filter(|p| !is_there(*p)).collect();
            scope.marks.retain(|mark| !gone.contains(&mark.incarnation));
            for incarnation in gone {
                scope.streams.forget(incarnation);
            }
        }
    }

    /// Begins to open the scopes that existed in earlier lives of the agent, so that their past can
    /// be read.
    pub(crate) fn reopen(&mut self) {
        let Ok(names) = fs::read_dir(&self.settings.state_dir) else {
            return;
        };
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in names.collect::<BTreeSet<String>>() {
            if let Some(reader) = parse(&name) {
                self.is_opening(reader);
            }
        }
    }

    /// Whether no opening is under way any more.
    pub(crate) fn are_reopened(&self) -> bool {
        self.opening.values().all(ScopeOpening::is_finished)
    }
}

/// Fails if no further scope may be opened. Scopes of groups may take at most as many places as
/// stay free for others, since one user may be in many groups and publish for each.
fn has_place<'r>(
    open: impl Iterator<Item = &'r ScopeReader> + Clone,
    wanted: ScopeReader,
) -> Result<(), String> {
    let count = open.clone().count();
    let left = SCOPES_MAX.saturating_sub(count + 1);
    if count >= SCOPES_MAX {
        return Err(format!("there are {SCOPES_MAX} scopes already"));
    }
    let is_group = |reader: &ScopeReader| matches!(reader, ScopeReader::Group(_));
    let groups = open.filter(|reader| is_group(reader)).count();
    if is_group(&wanted) && groups + 1 > left {
        return Err(format!(
            "there are {groups} scopes of groups already, of {SCOPES_MAX} in all"
        ));
    }
    Ok(())
}

fn parse(name: &str) -> Option<ScopeReader> {
    if name == SCOPE_OF_ALL {
        return Some(ScopeReader::All);
    }
    let (kind, id) = name.split_at_checked(1)?;
    let id: u32 = id.parse().ok()?;
    let reader = match kind {
        "u" => ScopeReader::User(id),
        "g" => ScopeReader::Group(id),
        _ => return None,
    };
    (reader.scope() == name).then_some(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_many_groups_leaves_places_for_users() {
        let mut open: BTreeSet<ScopeReader> =
            BTreeSet::from([ScopeReader::All, ScopeReader::User(1)]);
        let fill = |open: &mut BTreeSet<ScopeReader>, of: fn(u32) -> ScopeReader| {
            let more = (1_000..).map(of);
            let more = more.take_while(|reader| {
                let has_place = has_place(open.iter(), *reader).is_ok();
                has_place && open.insert(*reader)
            });
            more.count()
        };
        assert_eq!(fill(&mut open, ScopeReader::Group), 31);
        assert_eq!(fill(&mut open, ScopeReader::User), 31);
        assert_eq!(open.len(), SCOPES_MAX);
        assert_eq!(fill(&mut open, ScopeReader::Group), 0);
    }

    #[test]
    fn names_of_scopes() {
        for reader in [
            ScopeReader::All,
            ScopeReader::User(0),
            ScopeReader::Group(4_711),
        ] {
            assert_eq!(parse(&reader.scope()), Some(reader));
        }
        for name in ["", "u", "u-1", "u01", "x1", "u1.new", "all2", "é"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
