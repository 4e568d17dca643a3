//! The processes of one user that can be called, found by the names of their offers, so that a call
//! looks only at processes that have its name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use barograph_model::near;
use barograph_stream::Incarnation;
use barograph_stream::calls::{CallKind, CallPayload, CallSubject};

use crate::request::CallRequest;
use crate::value::KnobBounds;

/// Most names of publications that are kept of a call.
pub(crate) const PUBLICATIONS_MAX: usize = 16;
/// Most names in a hint.
const HINT_MAX: usize = 8;
/// Most names of one user among which a hint is searched; others are never proposed.
const HINT_NAMES_MAX: usize = 1_024;

/// A process that can be called.
#[derive(Clone, Debug)]
pub struct CallMember {
    /// The process's incarnation.
    pub incarnation: Incarnation,
    /// The owner of its ingest file.
    pub uid: u32,
    /// Its handlers and knobs.
    pub offers: Vec<Offer>,
}

/// A handler or knob of a process.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Whether it is a handler or a knob.
    pub kind: CallKind,
    /// The handler's name, or `publication.knob`.
    pub name: String,
    /// The publication that it belongs to; none if it belongs to the process, or if the publication
    /// was refused.
    pub publication: Option<String>,
    /// Whether everyone may read that publication, and so read about its calls.
    pub is_public: bool,
    /// The labels that targets are matched with.
    pub subject: CallSubject,
    /// The bounds of a knob; none for a handler.
    pub bounds: Option<KnobBounds>,
    /// Whether its library can apply a setting at the end of a frame.
    pub takes_frames: bool,
}

/// One user's processes that match a call.
#[derive(Clone, Debug)]
pub(crate) struct MatchedProcesses {
    pub who: Vec<Incarnation>,
    /// Publications to which the handler or knob belongs.
    pub publications: BTreeSet<String>,
    /// Whether everyone may read all of these publications, and no offer belongs to a process
    /// itself.
    pub is_public: bool,
}

impl Default for MatchedProcesses {
    fn default() -> Self {
        Self {
            who: Vec::new(),
            publications: BTreeSet::new(),
            is_public: true,
        }
    }
}

impl MatchedProcesses {
    /// Adds a matching offer.
    pub(crate) fn add(&mut self, offer: &Offer) {
        self.is_public &= offer.is_public;
        if self.publications.len() < PUBLICATIONS_MAX {
            self.publications.extend(offer.publication.clone());
        }
    }
}

/// The processes of one user that can be called.
#[derive(Default)]
pub(crate) struct CallMembers {
    all: HashMap<Incarnation, CallMember>,
    /// The processes by name, for handlers and for knobs.
    names: [BTreeMap<String, BTreeSet<Incarnation>>; 2],
}

/// The matching processes of one user, and the payload in the type of their knob.
pub(crate) type MatchedCall = (MatchedProcesses, CallPayload);

impl CallMembers {
    /// Adds a process, or replaces its offers.
    pub(crate) fn join(&mut self, member: CallMember) {
        let who = member.incarnation;
        self.leave(who);
        for offer in &member.offers {
            let names = &mut self.names[index(offer.kind)];
            names.entry(offer.name.clone()).or_default().insert(who);
        }
        self.all.insert(who, member);
    }

    /// Removes a process.
    pub(crate) fn leave(&mut self, who: Incarnation) {
        let Some(member) = self.all.remove(&who) else {
            return;
        };
        for offer in &member.offers {
            let names = &mut self.names[index(offer.kind)];
            if let Some(named) = names.get_mut(&offer.name) {
                named.remove(&who);
                if named.is_empty() {
                    names.remove(&offer.name);
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The matching processes and the payload to write, for a knob in its type. `None` if no
    /// process matches; an error is the reason why a knob cannot be set, and the number of matching
    /// processes.
    pub(crate) fn meant(
        &self,
        request: &CallRequest,
    ) -> Option<Result<MatchedCall, (u64, String)>> {
        let named = self.names[index(request.kind)].get(&request.name)?;
        let mut meant = MatchedProcesses::default();
        let mut payload: Option<CallPayload> = None;
        let mut refusal = None;
        for member in named.iter().filter_map(|who| self.all.get(who)) {
            let is_meant = |offer: &&Offer| {
                let is_it = offer.kind == request.kind && offer.name == request.name;
                is_it && request.target.matches(&offer.subject)
            };
            let mut matching = member.offers.iter().filter(is_meant).peekable();
            if matching.peek().is_none() {
                continue;
            }
            meant.who.push(member.incarnation);
            for offer in matching {
                meant.add(offer);
                match admit(request, offer) {
                    Err(reason) => refusal = Some(reason),
                    Ok(None) => {}
                    Ok(Some(admitted)) => {
                        if *payload.get_or_insert_with(|| admitted.clone()) != admitted {
                            refusal = Some(format!(
                                "{} is of different types in different processes: narrow the target",
                                request.name
                            ));
                        }
                    }
                }
            }
        }
        if meant.who.is_empty() {
            return None;
        }
        Some(match refusal {
            Some(reason) => Err((meant.who.len() as u64, reason)),
            None => Ok((meant, payload.unwrap_or_else(|| request.payload.clone()))),
        })
    }

    /// Names of a kind, at most [`HINT_NAMES_MAX`].
    fn names(&self, kind: CallKind) -> impl Iterator<Item = &str> {
        let names = self.names[index(kind)].keys().take(HINT_NAMES_MAX);
        names.map(String::as_str)
    }

    fn has(&self, request: &CallRequest) -> bool {
        self.names[index(request.kind)].contains_key(&request.name)
    }
}

fn index(kind: CallKind) -> usize {
    match kind {
        CallKind::Trigger => 0,
        CallKind::Knob => 1,
    }
}

/// The payload for a knob in its type; `None` for a handler.
fn admit(request: &CallRequest, offer: &Offer) -> Result<Option<CallPayload>, String> {
    let Some(bounds) = offer.bounds else {
        return Ok(None);
    };
    let refused = |reason| format!("{} is not set: {reason}", request.name);
    if request.at_frame.is_some() && !offer.takes_frames {
        return Err(refused(
            "a process that has it is linked with a library that cannot set it at a frame".into(),
        ));
    }
    bounds.admit(&request.payload).map(Some).map_err(refused)
}

/// The reason why none of these users' processes matches.
pub(crate) fn why_nobody<'m>(
    asked: impl Iterator<Item = &'m CallMembers>,
    request: &CallRequest,
) -> String {
    let asked: Vec<&CallMembers> = asked.collect();
    let name = &request.name;
    let what = match request.kind {
        CallKind::Trigger => "handler",
        CallKind::Knob => "knob",
    };
    if asked.iter().any(|members| members.has(request)) {
        return format!("no process that has the {what} {name:?} is the one that is meant");
    }
    let names = asked.iter().flat_map(|members| members.names(request.kind));
    let mut names: Vec<&str> = names.take(HINT_NAMES_MAX).collect();
    names.sort_unstable();
    names.dedup();
    let mut hint = near(name, names.iter().copied());
    if hint.is_empty() {
        hint = names.into_iter().take(HINT_MAX).collect();
    }
    match hint.is_empty() {
        true => format!("no process of those that can be called from here has a {what}"),
        false => format!(
            "no process has the {what} {name:?}; there is {}",
            hint.join(", ")
        ),
    }
}
