//! All archives of an agent: the node's own, and those of the scopes of applications.
//!
//! It is a module of its own because the intake's thread opens and closes scopes, while control
//! requests on the server's threads work on all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{ArchiveVerb, ControlFault};
use serde_json::{Value as Json, json};

use crate::History;

/// The archives of the open scopes, by scope name; at most as many as there are scopes.
#[derive(Clone, Default)]
pub struct ScopeHistories(Arc<Mutex<BTreeMap<String, Arc<History>>>>);

impl std::fmt::Debug for ScopeHistories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

impl ScopeHistories {
    /// Adds the archive of a scope that was opened.
    pub fn add(&self, scope: &str, history: &Arc<History>) {
        self.lock().insert(scope.to_owned(), Arc::clone(history));
    }

    /// Removes the archive of a scope that was closed.
    pub fn remove(&self, scope: &str) {
        self.lock().remove(scope);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<History>>> {
        // Ignoring poison is sound: no holder of the lock can leave a half-written value behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a control verb on the node's archive and then on that of each scope, one after
    /// the other, and waits for it. A failure does not stop the others; the error names every
    /// archive that failed.
    pub fn command(&self, node: &History, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        let mut done = node.command(verb);
        let scopes = self.lock().clone();
        let mut of_scopes = serde_json::Map::new();
        for (scope, history) in scopes {
            match history.command(verb) {
                Ok(answer) => {
                    of_scopes.insert(scope, answer);
                }
                Err(fault) => done = Err(joined(done.err(), &scope, fault)),
            }
        }
        let mut answer = done?;
        answer["applications"] = json!(of_scopes);
        Ok(answer)
    }
}

/// Joins a fault with those before it: the kind of the first, and the messages of all.
fn joined(before: Option<ControlFault>, scope: &str, fault: ControlFault) -> ControlFault {
    let said = format!("applications of {scope}: {}", fault.message);
    match before {
        Some(before) => ControlFault {
            message: format!("{}; {said}", before.message),
            ..before
        },
        None => ControlFault {
            message: said,
            ..fault
        },
    }
}

#[cfg(test)]
mod tests {
    use barograph_archive::{DiskStorage, Storage};
    use barograph_model::Clock;
    use barograph_stream::SystemClock;

    use super::*;
    use crate::ArchiveConfig;

    #[test]
    fn one_that_fails_keeps_none_of_the_others_and_is_named() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let disk: Arc<dyn Storage> = Arc::new(DiskStorage);
        let dir = tempfile::tempdir().unwrap();
        let started = |name: &str, enabled| {
            let config = ArchiveConfig {
                dir: dir.path().join(name),
                free_bytes_min: 0,
                enabled,
                ..ArchiveConfig::default()
            };
            Arc::new(History::start(&config, "n1", &clock, &disk))
        };
        let (node, scopes) = (started("node", true), ScopeHistories::default());
        let seal = || scopes.command(&node, ArchiveVerb::Seal);
        assert_eq!(
            seal().unwrap(),
            json!({ "sealed": true, "applications": {} })
        );
        scopes.add("all", &started("all", true));
        scopes.add("u7", &started("u7", true));
        let sealed = json!({ "sealed": true });
        assert_eq!(
            seal().unwrap(),
            json!({ "sealed": true, "applications": { "all": sealed, "u7": sealed } })
        );
        scopes.add("all", &started("all", false));
        let message = seal().unwrap_err().message;
        assert!(message.starts_with("applications of all: "), "{message}");
        assert!(!message.contains("u7"), "{message}");
        scopes.remove("all");
        assert!(seal().is_ok());
    }
}
