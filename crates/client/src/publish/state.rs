//! The publishing state of the whole process: its file, its declarations, and the number of
//! publishers that share it.
//!
//! It is locked by declarations, by the first put of a thread and by knocks, never by a put that
//! finds room.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use barograph_stream::RunDir;
use barograph_stream::ingest::{IngestDeclaration, MAPS_MAX, PublicationReaders, ServerSet};

use super::agent::Agent;
use super::clock::monotonic_ns;
use super::process::Process;
use super::{PublishConfig, PublishError, home, leftovers, place, sizes};

pub(super) type Pairs = Vec<(String, String)>;

/// Number of values that were put while there was no file to count them in.
pub(super) static LOST_WITHOUT_FILE: AtomicU64 = AtomicU64::new(0);

/// Time between two checks whether the file is still where agents look, and between two attempts to
/// make a file that could not be made, in ns.
const LOOK_NS: i64 = 1_000_000_000;

/// Time of the next such check, on the monotonic clock of calls.
static LOOK_DUE_NS: AtomicI64 = AtomicI64::new(0);
/// Whether the file has been replaced since the last [`take_remade`].
static IS_REMADE: AtomicBool = AtomicBool::new(false);

static STATE: Mutex<PublishState> = Mutex::new(PublishState {
    generation: 0,
    opens: 0,
    life: Life::Closed,
    not_replaced: None,
    site: None,
    declared: Vec::new(),
    publications: Vec::new(),
    values: 0,
    streams: BTreeMap::new(),
    maps: Vec::new(),
});

pub(super) struct PublishState {
    /// Number of this opening: 1, 2, …
    generation: u32,
    /// Number of open publishers.
    opens: usize,
    life: Life,
    /// The error with which a retired file could not be replaced, and the time of the next attempt
    /// on the monotonic clock.
    not_replaced: Option<(PublishError, i64)>,
    site: Option<(RunDir, PublishConfig)>,
    /// All declarations, in order: a forked child repeats them.
    declared: Vec<IngestDeclaration>,
    publications: Vec<Publication>,
    values: u32,
    /// Meanings of each stream's name, in the order of the publications that have one of that name.
    streams: BTreeMap<String, Vec<Meaning>>,
    /// The publications of the uses of server maps, and the servers of these, by slot.
    maps: Vec<(u32, ServerSet)>,
}

enum Life {
    /// No publisher is open.
    Closed,
    /// This process has a file.
    Open(Arc<Process>),
    /// This process needs a file of its own at the next use: its parent had one, or the last
    /// attempt failed. Then the error, and the time of the next attempt on the monotonic clock.
    Missing(Option<(PublishError, i64)>),
}

#[derive(PartialEq)]
struct Publication {
    name: String,
    readers: PublicationReaders,
    labels: Pairs,
}

#[derive(Clone)]
struct Meaning {
    publication: u32,
    /// `None` for the stream of frames.
    value: Option<(u32, IngestDeclaration)>,
}

pub(super) fn lock() -> MutexGuard<'static, PublishState> {
    // The state is changed in steps that each leave it valid, so a poisoned lock can be used.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `None` while another thread holds the lock.
pub(super) fn try_lock() -> Option<MutexGuard<'static, PublishState>> {
    match STATE.try_lock() {
        Ok(state) => Some(state),
        Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Like [`lock`], for code that holds no lock of publishing yet: an error in a child that must
/// leave the state alone.
pub(super) fn enter() -> Result<MutexGuard<'static, PublishState>, PublishError> {
    home::enter()?;
    Ok(lock())
}

/// Opens the process's file, or joins the publishers that have it open. Returns the generation.
pub(super) fn open(config: &PublishConfig) -> Result<u32, PublishError> {
    let mut state = enter()?;
    if state.opens == 0 {
        let run_dir = place::find(config.run_dir.as_ref())?;
        let generation = state
            .generation
            .checked_add(1)
            .ok_or(PublishError::Closed)?;
        let process = Process::make(&run_dir, config, generation, &[])?;
        // The agent is looked at once and dropped: keeping its segment mapped would keep its
        // memory.
        if !Agent::of(&run_dir).is_alive(&process.clock) {
            // Without an agent, nobody else removes the files of dead processes.
            leftovers::clear(&run_dir.ingest_dir());
        }
        sizes::forget();
        *state = PublishState {
            generation,
            opens: 0,
            life: Life::Open(Arc::new(process)),
            not_replaced: None,
            site: Some((run_dir, config.clone())),
            declared: Vec::new(),
            publications: Vec::new(),
            values: 0,
            streams: BTreeMap::new(),
            maps: Vec::new(),
        };
    } else {
        state.check_place(config)?;
        let generation = state.generation;
        state.process(generation)?;
    }
    state.opens += 1;
    Ok(state.generation)
}

/// Closes one publisher; the last one closes the file. `finish` runs before that, without the lock,
/// and learns whether it was the last one.
pub(super) fn close(generation: u32, finish: impl FnOnce(bool)) {
    let Ok(mut state) = enter() else { return };
    if state.generation != generation || state.opens == 0 {
        return;
    }
    state.opens -= 1;
    let ended = (state.opens == 0).then(|| std::mem::replace(&mut state.life, Life::Closed));
    drop(state);
    finish(ended.is_some());
}

/// The file of a generation, for a thread that has no ring in it yet.
pub(super) fn process(generation: u32) -> Result<Arc<Process>, PublishError> {
    enter()?.process(generation)
}

/// The file of a generation if it exists already: a forked child is not made to have one.
pub(super) fn existing(generation: u32) -> Option<Arc<Process>> {
    let state = enter().ok()?;
    match &state.life {
        Life::Open(process) if generation == state.generation => Some(Arc::clone(process)),
        _ => None,
    }
}

/// Checks once a second whether the file is still where agents look. If its run directory was
/// removed and made again, a new file is made there.
pub(super) fn look_after() {
    let now_ns = monotonic_ns();
    if now_ns < LOOK_DUE_NS.load(Ordering::Relaxed) {
        return;
    }
    LOOK_DUE_NS.store(now_ns.saturating_add(LOOK_NS), Ordering::Relaxed);
    if let Ok(mut state) = enter() {
        state.come_back();
    }
}

/// Whether the file has been replaced since the last call: code that identifies the process by its
/// file must look again.
pub(super) fn take_remade() -> bool {
    IS_REMADE.load(Ordering::Relaxed) && IS_REMADE.swap(false, Ordering::Relaxed)
}

impl PublishState {
    /// Makes a new file if there is a directory for it in which the old one is no longer found.
    fn come_back(&mut self) {
        let Life::Open(process) = &self.life else {
            return;
        };
        if process.producer.is_in_place() {
            return;
        }
        let (process, generation) = (Arc::clone(process), self.generation);
        if let Ok(made) = self.make(generation) {
            // No agent will read what is left in the old file.
            let lost = process.producer.unread();
            process.producer.retire();
            self.take_up(made, lost);
        }
    }

    /// Makes this process's file with all declarations.
    fn make(&self, generation: u32) -> Result<Process, PublishError> {
        let (before, config) = self.site.as_ref().ok_or(PublishError::Closed)?;
        // The directory is searched again; a directory that was named stays.
        let run_dir = match place::find(config.run_dir.as_ref()) {
            Ok(run_dir) => run_dir,
            Err(_) => before.clone(),
        };
        let made = Process::make(&run_dir, config, generation, &self.declared)?;
        for (slot, (publication, declared)) in (0..).zip(&self.maps) {
            made.producer.use_map(slot, *publication, declared);
        }
        Ok(made)
    }

    fn take_up(&mut self, made: Process, lost: u64) {
        if let Some((run_dir, _)) = &mut self.site {
            *run_dir = made.run_dir.clone();
        }
        if let Life::Open(before) = &self.life {
            let given_up = before.producer.dropped() + before.producer.homeless();
            LOST_WITHOUT_FILE.fetch_add(given_up.saturating_add(lost), Ordering::Relaxed);
        }
        // The calls of a child begin anew by themselves.
        let is_another = matches!(self.life, Life::Open(_));
        self.life = Life::Open(Arc::new(made));
        self.not_replaced = None;
        IS_REMADE.fetch_or(is_another, Ordering::Relaxed);
    }

    fn check_place(&self, config: &PublishConfig) -> Result<(), PublishError> {
        match (&self.site, &config.run_dir) {
            (Some((ours, _)), Some(wanted)) if ours != wanted => Err(PublishError::Elsewhere {
                path: ours.path().to_owned(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn process(&mut self, generation: u32) -> Result<Arc<Process>, PublishError> {
        if generation != self.generation {
            return Err(PublishError::Closed);
        }
        let is_due = match &self.life {
            Life::Closed => return Err(PublishError::Closed),
            // Its owner has cut the file short. Each put comes here until there is another file.
            Life::Open(process) if process.producer.is_retired() => match &self.not_replaced {
                Some((error, due_ns)) if monotonic_ns() < *due_ns => {
                    return Err(error.clone());
                }
                _ => true,
            },
            Life::Open(_) => false,
            Life::Missing(None) => true,
            Life::Missing(Some((_, due_ns))) => monotonic_ns() >= *due_ns,
        };
        let is_retired = is_due && matches!(self.life, Life::Open(_));
        if is_due {
            match self.make(generation) {
                // The number of values lost with the old file is not known; at least the put that
                // noticed is one.
                Ok(process) => self.take_up(process, u64::from(is_retired)),
                // Code that handles calls learns of another file only if there was one before,
                // so this one stays until then.
                Err(error) if is_retired => {
                    let due_ns = monotonic_ns().saturating_add(LOOK_NS);
                    self.not_replaced = Some((error.clone(), due_ns));
                    return Err(error);
                }
                Err(error) => {
                    let due_ns = monotonic_ns().saturating_add(LOOK_NS);
                    self.life = Life::Missing(Some((error, due_ns)));
                }
            }
        }
        match &self.life {
            Life::Open(process) => Ok(Arc::clone(process)),
            Life::Missing(Some((error, _))) => Err(error.clone()),
            Life::Missing(None) | Life::Closed => Err(PublishError::Closed),
        }
    }

    /// Lets go of the file in a child, right after the fork: it is the parent's.
    pub(super) fn disown(&mut self) {
        if let Life::Open(process) = std::mem::replace(&mut self.life, Life::Closed) {
            process.producer.abandon();
            // The parent's threads, which do not exist here, hold references to it that are never
            // dropped.
            std::mem::forget(process);
            self.life = Life::Missing(None);
        }
        LOST_WITHOUT_FILE.store(0, Ordering::Relaxed);
    }

    /// Declares a publication, or finds it. `application` and `labels` are the publisher's: those
    /// of the first publisher are the whole process's, others apply to their own publications.
    pub(super) fn publication(
        &mut self,
        generation: u32,
        application: &str,
        labels: &[(String, String)],
        name: &str,
        readers: PublicationReaders,
        own: &[(String, String)],
    ) -> Result<u32, PublishError> {
        let process = self.process(generation)?;
        let full = |name: &str| PublishError::Full { name: name.into() };
        self.declare_process(&process, application, labels)?;
        let labels = self.beside_process(application, labels, own);
        let wanted = Publication {
            name: name.to_owned(),
            readers,
            labels: labels.clone(),
        };
        let same = |p: &Publication| p.name == wanted.name && p.labels == wanted.labels;
        if let Some(found) = self.publications.iter().position(same) {
            if self.publications[found] != wanted {
                let taken = "a publication with other readers already";
                let name = name.to_owned();
                return Err(PublishError::Taken { name, taken });
            }
            return Ok(found as u32);
        }
        let publication = self.publications.len() as u32;
        let frames = format!("app.{name}.frame");
        self.check_free(&frames, publication, &wanted)?;
        let declaration = IngestDeclaration::Publication {
            name: name.to_owned(),
            readers,
            labels,
        };
        self.declare(&process, declaration)
            .ok_or_else(|| full(name))?;
        self.publications.push(wanted);
        let value = None;
        let meanings = self.streams.entry(frames).or_default();
        meanings.push(Meaning { publication, value });
        Ok(publication)
    }

    pub(super) fn publication_name(
        &self,
        generation: u32,
        publication: u32,
    ) -> Result<String, PublishError> {
        let found = self.publications.get(publication as usize);
        let ours = found.filter(|_| generation == self.generation && self.opens > 0);
        ours.map(|p| p.name.clone()).ok_or(PublishError::Closed)
    }

    /// Declares a value, or finds it: the same name with another meaning is refused.
    pub(super) fn value(
        &mut self,
        generation: u32,
        declaration: IngestDeclaration,
    ) -> Result<u32, PublishError> {
        let process = self.process(generation)?;
        let IngestDeclaration::Value {
            publication, name, ..
        } = &declaration
        else {
            return Err(PublishError::Closed);
        };
        let Some(of) = self.publications.get(*publication as usize) else {
            return Err(PublishError::Closed);
        };
        let stream = format!("app.{}.{name}", of.name);
        let publication = *publication;
        let meanings = self.streams.get(&stream).map_or(&[][..], Vec::as_slice);
        let here = meanings.iter().find(|m| m.publication == publication);
        match here.map(|meaning| &meaning.value) {
            Some(Some((value, before))) if is_same_value(before, &declaration) => {
                return Ok(*value);
            }
            Some(_) => {
                let taken = "declared with another type, unit or kind already";
                return Err(PublishError::Taken {
                    name: stream,
                    taken,
                });
            }
            None => self.check_free(&stream, publication, of)?,
        }
        self.declare(&process, declaration.clone())
            .ok_or_else(|| PublishError::Full {
                name: stream.clone(),
            })?;
        let value = self.values;
        if let IngestDeclaration::Value {
            value_type,
            bytes_max,
            ..
        } = &declaration
        {
            sizes::note(value, *value_type, *bytes_max);
        }
        self.values += 1;
        self.streams.entry(stream).or_default().push(Meaning {
            publication,
            value: Some((value, declaration)),
        });
        Ok(value)
    }

    /// Whether exactly one publisher of this generation is open.
    pub(super) fn is_last(&self, generation: u32) -> bool {
        generation == self.generation && self.opens == 1
    }

    /// The slot of the use of a map that a publication names, and whether it is taken by this.
    pub(super) fn use_map(
        &mut self,
        generation: u32,
        publication: u32,
        declared: &ServerSet,
    ) -> Result<(u8, bool), PublishError> {
        let process = self.process(generation)?;
        let refused = |why| {
            let of = self.publications.get(publication as usize);
            let name = of.and_then(|of| of.labels.iter().find(|(name, _)| name == "map"));
            let name = name.map_or_else(String::new, |(_, name)| name.clone());
            PublishError::Map { name, why }
        };
        let known = self.maps.iter().position(|(of, _)| *of == publication);
        if let Some(slot) = known {
            return match self.maps[slot].1 == *declared {
                true => Ok((slot as u8, false)),
                false => Err(refused("this process has declared other servers of it")),
            };
        }
        let slot = self.maps.len();
        if slot >= MAPS_MAX {
            return Err(refused("this process uses as many maps as it can"));
        }
        if !process.producer.use_map(slot as u8, publication, declared) {
            return Err(refused("there is no memory for it"));
        }
        self.maps.push((publication, *declared));
        Ok((slot as u8, true))
    }

    /// Declares a handler, of a publication or of the process.
    pub(super) fn handler(
        &mut self,
        generation: u32,
        application: &str,
        labels: &[(String, String)],
        publication: Option<u32>,
        name: &str,
        help: &str,
    ) -> Result<(), PublishError> {
        let process = self.process(generation)?;
        if publication.is_some_and(|at| self.publications.get(at as usize).is_none()) {
            return Err(PublishError::Closed);
        }
        self.declare_process(&process, application, labels)?;
        let declaration = IngestDeclaration::Trigger {
            publication: publication.unwrap_or(u32::MAX),
            name: name.to_owned(),
            help: help.to_owned(),
        };
        let full = || PublishError::Full { name: name.into() };
        self.declare(&process, declaration).ok_or_else(full)
    }

    /// Declares a knob.
    pub(super) fn knob(
        &mut self,
        generation: u32,
        name: &str,
        declaration: IngestDeclaration,
    ) -> Result<(), PublishError> {
        let process = self.process(generation)?;
        let full = || PublishError::Full { name: name.into() };
        self.declare(&process, declaration).ok_or_else(full)
    }

    /// The process's application and labels, as they were declared.
    pub(super) fn process_labels(&self) -> (String, Pairs) {
        match self.declared.first() {
            Some(IngestDeclaration::Process {
                application,
                labels,
            }) => (application.clone(), labels.clone()),
            _ => Default::default(),
        }
    }

    /// The labels of a publication, in addition to those of the process.
    pub(super) fn labels_of(&self, publication: u32) -> Pairs {
        let publication = self.publications.get(publication as usize);
        publication.map_or_else(Pairs::new, |p| p.labels.clone())
    }

    /// Checks a stream's name: two publications may have streams of the same name only if they have
    /// the same name themselves and differ by their labels.
    fn check_free(&self, stream: &str, us: u32, of: &Publication) -> Result<(), PublishError> {
        let meanings = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
        let is_other = |m: &Meaning| {
            let other = &self.publications[m.publication as usize];
            m.publication != us && (other.name != of.name || other.labels == of.labels)
        };
        if meanings.iter().any(is_other) {
            return Err(PublishError::Taken {
                name: stream.to_owned(),
                taken: "a stream of another publication already",
            });
        }
        Ok(())
    }

    /// The labels that a publication's streams need in addition to those of the process.
    fn beside_process(
        &self,
        application: &str,
        labels: &[(String, String)],
        own: &[(String, String)],
    ) -> Pairs {
        let Some(IngestDeclaration::Process {
            application: said,
            labels: known,
        }) = self.declared.first()
        else {
            return own.to_vec();
        };
        let mut beside: Pairs = own.to_vec();
        let is_own = |name: &str| own.iter().any(|(n, _)| n == name);
        let mut wanted: Pairs = labels.to_vec();
        if said != application {
            wanted.push(("application".into(), application.into()));
        }
        let is_new = |pair: &(String, String)| !known.contains(pair) && !is_own(&pair.0);
        beside.extend(wanted.into_iter().filter(is_new));
        beside.sort();
        beside
    }

    /// Declares the process, once.
    fn declare_process(
        &mut self,
        process: &Process,
        application: &str,
        labels: &[(String, String)],
    ) -> Result<(), PublishError> {
        if !self.declared.is_empty() {
            return Ok(());
        }
        let declaration = IngestDeclaration::Process {
            application: application.to_owned(),
            labels: labels.to_vec(),
        };
        let name = application.to_owned();
        let full = || PublishError::Full { name };
        self.declare(process, declaration).ok_or_else(full)
    }

    fn declare(&mut self, process: &Process, declaration: IngestDeclaration) -> Option<()> {
        let is_declared = process.producer.declare(&declaration);
        is_declared.then(|| self.declared.push(declaration))
    }
}

/// Whether two declarations are the same, except for the help, which may differ.
fn is_same_value(one: &IngestDeclaration, other: &IngestDeclaration) -> bool {
    let essence = |declaration: &IngestDeclaration| match declaration {
        IngestDeclaration::Value {
            value_type,
            kind,
            unit,
            bytes_max,
            ..
        } => Some((*value_type, *kind, unit.clone(), *bytes_max)),
        _ => None,
    };
    essence(one) == essence(other)
}
