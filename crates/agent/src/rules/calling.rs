//! The way from a rule that has fired to a call into programs.

use std::sync::Arc;
use std::time::Duration;

use barograph_rule::Firing;
use barograph_stream::SCOPE_OF_ALL;
use barograph_stream::calls::{CallPayload, CallTarget};
use serde_json::Value as Json;
use tracing::info;

use super::RuleAction;
use barograph_call::{Board, CallError, CallRequest};

/// The action of rules in the product: calls through the board. Values that only some users may
/// read go to the programs of these users alone.
pub(crate) struct ProgramCalls {
    board: Option<Arc<Board>>,
}

impl ProgramCalls {
    /// Without a board (no applications) every call fails, with an error that names the reason.
    pub(crate) fn new(board: Option<Arc<Board>>) -> Self {
        Self { board }
    }
}

impl RuleAction for ProgramCalls {
    fn fire(&self, firing: &Firing, scope: &str) -> Result<(), String> {
        let board = self.board.as_ref();
        let board = board.ok_or("this agent takes in no applications (applications.enabled)")?;
        let request = CallRequest {
            target: CallTarget {
                incarnation: None,
                labels: firing.target.clone(),
            },
            payload: payload(&firing.payload),
            expires: Duration::from_nanos(firing.expires_ns.unsigned_abs()),
            only_user: only_user(scope)?,
            ..CallRequest::trigger(&*firing.call, format!("rule {}", firing.rule))
        };
        let (rule, call, why) = (&firing.rule, &firing.call, &firing.explanation);
        info!(rule, call, scope, why, "a rule has fired");
        let fired: Result<_, CallError> = board.fire(&request);
        fired.map(drop).map_err(|error| error.to_string())
    }
}

/// The user whose programs may get values of a stream of this scope; `None`: all users.
fn only_user(scope: &str) -> Result<Option<u32>, String> {
    if scope.is_empty() || scope == SCOPE_OF_ALL {
        return Ok(None);
    }
    let uid = scope.strip_prefix('u').and_then(|uid| uid.parse().ok());
    // Calls are addressed by user: the group of each program would have to be looked up.
    let refused =
        || format!("what only {scope} may read calls nobody: publish it for all, or for its owner");
    uid.map(Some).ok_or_else(refused)
}

fn payload(payload: &Json) -> CallPayload {
    match payload {
        Json::Null => CallPayload::None,
        Json::Bool(value) => CallPayload::Bool(*value),
        Json::String(text) => CallPayload::Text(text.clone()),
        Json::Number(number) => match number.as_i64() {
            Some(value) => CallPayload::Int(value),
            None => CallPayload::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Array(_) | Json::Object(_) => CallPayload::Json(payload.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_values_are_told_to_their_user_alone() {
        assert_eq!(only_user(""), Ok(None));
        assert_eq!(only_user("all"), Ok(None));
        assert_eq!(only_user("u1000"), Ok(Some(1000)));
        for scope in ["g100", "u", "u-1", "x"] {
            assert!(only_user(scope).is_err(), "{scope}");
        }
    }
}
