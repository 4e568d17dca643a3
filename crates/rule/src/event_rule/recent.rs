//! The recent actions of rules, by which a rule knows the events that its own actions cause.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::columns::EventFacts;
use super::limits::{CAUSES_MAX, RecentActionsLimits};

/// The recent actions of all rules.
///
/// An event is an effect of an action if its path, or the path before a rename, is one of the paths
/// of the action, its time is between the start of the action and a while after its end, and its
/// user is that of the action. An event whose user is unknown is judged by path and time alone. So
/// a write by the same user to the same path while the action runs is taken for an effect too.
///
/// An action that a rule asked for because of another rule's action is an effect of that rule as
/// well, however long the chain is. So rules that set off each other come to an end.
#[derive(Debug)]
pub struct RecentActions {
    limits: RecentActionsLimits,
    actions: VecDeque<RecentAction>,
    /// The numbers of the actions that have a path, in the order in which they began.
    by_path: HashMap<Arc<[u8]>, VecDeque<u64>>,
    /// The number of the first action; the others follow it.
    first: u64,
    bytes: usize,
    forgotten: u64,
    paths_left_out: u64,
}

/// An action that starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartedAction<'a> {
    /// A number of the caller's. An action that is started again is another one, with the same
    /// number.
    pub id: u64,
    /// The rule that asked for it.
    pub rule: &'a str,
    /// The rules of whose actions its event was an effect.
    pub causes: &'a [String],
    /// The user as whom it runs.
    pub uid: Option<u32>,
    /// The paths that it may write to: that of its event and those in its arguments.
    pub paths: &'a [&'a [u8]],
}

#[derive(Debug)]
struct RecentAction {
    id: u64,
    /// Its rule, and the rules of whose actions its event was an effect.
    rules: Vec<Arc<str>>,
    uid: Option<u32>,
    paths: Vec<Arc<[u8]>>,
    started_ns: i64,
    ended_ns: Option<i64>,
}

impl RecentActions {
    /// Makes a set without actions.
    pub fn new(limits: RecentActionsLimits) -> Self {
        Self {
            limits,
            actions: VecDeque::new(),
            by_path: HashMap::new(),
            first: 0,
            bytes: 0,
            forgotten: 0,
            paths_left_out: 0,
        }
    }

    /// Takes an action that starts now, in ns since the epoch.
    pub fn started(&mut self, action: &StartedAction<'_>, now_ns: i64) {
        self.release(now_ns);
        let mut own: Vec<Arc<[u8]>> = Vec::new();
        for path in action.paths.iter().filter(|path| !path.is_empty()) {
            if own.iter().any(|known| **known == **path) {
                continue;
            }
            let bytes = self.bytes.saturating_add(path.len());
            if own.len() >= self.limits.paths_max || path.len() > self.limits.bytes_max {
                self.paths_left_out += 1;
                continue;
            }
            self.bytes = bytes;
            own.push((*path).into());
        }
        let number = self.first + self.actions.len() as u64;
        for path in &own {
            let numbers = self.by_path.entry(Arc::clone(path)).or_default();
            numbers.push_back(number);
        }
        let causes = action.causes.iter().map(String::as_str);
        let rules = std::iter::once(action.rule).chain(causes.take(CAUSES_MAX));
        self.actions.push_back(RecentAction {
            id: action.id,
            rules: rules.map(Arc::from).collect(),
            uid: action.uid,
            paths: own,
            started_ns: now_ns,
            ended_ns: None,
        });
        while self.actions.len() > self.limits.actions_max || self.bytes > self.limits.bytes_max {
            self.forgotten += 1;
            self.forget_first();
        }
    }

    /// Notes the end of the action with this number.
    pub fn ended(&mut self, id: u64, now_ns: i64) {
        let mut newest_first = self.actions.iter_mut().rev();
        let is_it = |action: &&mut RecentAction| action.id == id && action.ended_ns.is_none();
        if let Some(action) = newest_first.find(is_it) {
            action.ended_ns = Some(now_ns.max(action.started_ns));
        }
        self.release(now_ns);
    }

    /// Whether an event is an effect of an action of this rule.
    pub fn is_effect(&self, rule: &str, event: &EventFacts<'_>) -> bool {
        self.rules_that_caused(event).any(|known| known == rule)
    }

    /// The rules of whose actions an event is an effect, and those that caused these; a rule may
    /// come more than once.
    pub fn rules_that_caused<'a>(
        &'a self,
        event: &'a EventFacts<'a>,
    ) -> impl Iterator<Item = &'a str> {
        let paths = [event.path, event.old_path].into_iter();
        let numbers = paths.filter_map(|path| self.by_path.get(path)).flatten();
        let actions = numbers.filter_map(|number| {
            let at = usize::try_from(number - self.first).ok()?;
            self.actions.get(at)
        });
        let of_event = actions.filter(|action| self.may_cause(action, event));
        of_event.flat_map(|action| action.rules.iter().map(|rule| &**rule))
    }

    fn may_cause(&self, action: &RecentAction, event: &EventFacts<'_>) -> bool {
        let from = action.started_ns.saturating_sub(self.limits.before_ns);
        let until = self.end_of(action).saturating_add(self.limits.after_ns);
        let is_user = match (action.uid, event.uid) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        (from..=until).contains(&event.ts) && is_user
    }

    /// The end of an action, as long as it is not told the latest possible one.
    fn end_of(&self, action: &RecentAction) -> i64 {
        let latest_ns = action.started_ns.saturating_add(self.limits.running_ns_max);
        action.ended_ns.unwrap_or(latest_ns)
    }

    /// The number of actions that are known.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether no action is known.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Actions that were forgotten for lack of room, so that their effects are not known as such.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Paths of actions that were left out because they were too many or too long.
    pub fn paths_left_out(&self) -> u64 {
        self.paths_left_out
    }

    /// Gives up the first actions whose effects have had twice the time to happen, since events
    /// arrive later than they happen.
    fn release(&mut self, now_ns: i64) {
        let keep_ns = self.limits.after_ns.saturating_mul(2);
        while let Some(first) = self.actions.front()
            && self.end_of(first).saturating_add(keep_ns) < now_ns
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some(action) = self.actions.pop_front() else {
            return;
        };
        for path in &action.paths {
            self.bytes -= path.len();
            if let Some(numbers) = self.by_path.get_mut(path) {
                numbers.pop_front();
                if numbers.is_empty() {
                    self.by_path.remove(path);
                }
            }
        }
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::NS_PER_S;

    use super::*;

    fn started<'a>(
        id: u64,
        rule: &'a str,
        uid: Option<u32>,
        paths: &'a [&'a [u8]],
    ) -> StartedAction<'a> {
        StartedAction {
            id,
            rule,
            uid,
            paths,
            ..StartedAction::default()
        }
    }

    fn event(path: &[u8], ts: i64, uid: Option<u32>) -> EventFacts<'_> {
        EventFacts {
            path,
            ts,
            uid,
            ..EventFacts::default()
        }
    }

    #[test]
    fn effects() {
        let mut recent = RecentActions::new(RecentActionsLimits::default());
        let after = RecentActionsLimits::default().after_ns;
        recent.started(&started(1, "r", Some(10), &[b"/a", b"/a.out", b"/a"]), 100);
        let check = |recent: &RecentActions, rule: &str, event: EventFacts<'_>, expect: bool| {
            assert_eq!(recent.is_effect(rule, &event), expect, "{rule} {event:?}");
        };
        check(&recent, "r", event(b"/a", 100, Some(10)), true);
        check(
            &recent,
            "r",
            event(b"/a.out", 86_400 * NS_PER_S, None),
            true,
        );
        check(&recent, "r", event(b"/a", 1 << 60, None), false);
        check(&recent, "r", event(b"/a", 99, Some(10)), false);
        check(&recent, "r", event(b"/a", 100, Some(11)), false);
        check(&recent, "s", event(b"/a", 100, Some(10)), false);
        check(&recent, "r", event(b"/b", 100, Some(10)), false);
        check(&recent, "r", event(b"", 100, Some(10)), false);
        let renamed = EventFacts {
            old_path: b"/a.out",
            ..event(b"/z", 100, Some(10))
        };
        check(&recent, "r", renamed, true);
        recent.ended(1, 200);
        check(&recent, "r", event(b"/a", 200 + after, Some(10)), true);
        check(&recent, "r", event(b"/a", 201 + after, Some(10)), false);
        recent.ended(7, 300);
        recent.started(&started(2, "s", None, &[b"/b"]), 201 + 2 * after);
        assert_eq!((recent.len(), recent.forgotten()), (1, 0));
        check(&recent, "r", event(b"/a", 150, Some(10)), false);
        check(&recent, "s", event(b"/b", 201 + 2 * after, Some(3)), true);
    }

    #[test]
    fn causes() {
        let mut recent = RecentActions::new(RecentActionsLimits::default());
        let causes = ["a".to_owned(), "b".to_owned()];
        let action = StartedAction {
            causes: &causes,
            ..started(1, "c", None, &[b"/x"])
        };
        recent.started(&action, 100);
        let own = event(b"/x", 100, None);
        let rules: Vec<&str> = recent.rules_that_caused(&own).collect();
        assert_eq!(rules, ["c", "a", "b"]);
        assert!(recent.is_effect("b", &own) && !recent.is_effect("d", &own));
        // A chain that is longer than is kept keeps its newest rules.
        let long: Vec<String> = (0..2 * CAUSES_MAX).map(|n| format!("r{n}")).collect();
        let action = StartedAction {
            causes: &long,
            ..started(2, "c", None, &[b"/y"])
        };
        recent.started(&action, 100);
        let other = event(b"/y", 100, None);
        assert_eq!(recent.rules_that_caused(&other).count(), 1 + CAUSES_MAX);
    }

    #[test]
    fn bounds() {
        let limits = RecentActionsLimits {
            actions_max: 3,
            bytes_max: 100,
            paths_max: 2,
            ..RecentActionsLimits::default()
        };
        let mut recent = RecentActions::new(limits);
        for id in 0..10 {
            recent.started(&started(id, "r", None, &[b"/same"]), id as i64);
        }
        assert_eq!((recent.len(), recent.forgotten()), (3, 7));
        assert!(recent.is_effect("r", &event(b"/same", 7, None)));
        assert!(!recent.is_effect("r", &event(b"/same", 6, None)));
        // An end that nobody tells is not waited for without end.
        let mut untold = RecentActions::new(RecentActionsLimits::default());
        untold.started(&started(1, "r", None, &[b"/a"]), 0);
        untold.started(&started(2, "r", None, &[b"/b"]), 1 << 50);
        assert_eq!((untold.len(), untold.forgotten()), (1, 0));
        let long = vec![b'x'; 99];
        recent.started(&started(10, "r", None, &[&long, b"/1", b"/2"]), 20);
        assert_eq!(recent.paths_left_out(), 1);
        assert_eq!((recent.len(), recent.bytes), (0, 0));
        recent.started(&started(11, "r", None, &[&[b'x'; 101], b"/1"]), 20);
        assert_eq!((recent.len(), recent.bytes), (1, 2));
        assert!(recent.is_effect("r", &event(b"/1", 20, None)));
        assert_eq!(recent.by_path.len(), 1);
    }
}
