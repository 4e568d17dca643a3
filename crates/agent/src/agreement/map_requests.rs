//! Requests of clients about maps of servers: a list, or a change of one.

use barograph_model::{ControlFault, ControlFaultKind, RequestSender};
use barograph_stream::user_name;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::LeaderQuestions;
use crate::controller_words::MapChange;
use crate::node_questions::fault;

/// Most servers that one request adds, takes out, or says to be gone.
const SERVERS_MAX: usize = 1_024;

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapRequest {
    /// The map that is changed; without it, maps are listed.
    name: Option<String>,
    /// The number of its user [default: the asker].
    user: Option<u32>,
    #[serde(default)]
    add: Vec<u32>,
    #[serde(default)]
    remove: Vec<u32>,
    #[serde(default)]
    gone: Vec<u32>,
    /// Whether the map is removed, which no program uses.
    #[serde(default)]
    forget: bool,
}

/// Answers a request. Maps of other users take the right to control.
pub(crate) fn answer(
    leader: &LeaderQuestions,
    request: &Json,
    asker: &RequestSender,
) -> Result<Json, ControlFault> {
    let request: MapRequest = serde_json::from_value(request.clone()).map_err(|error| {
        let text = format!("the request makes no sense: {error}");
        fault(ControlFaultKind::Statement, &text)
    })?;
    let Some(name) = request.name else {
        return list(leader, request.user, asker);
    };
    let user = request.user.or(asker.uid).ok_or_else(|| {
        let text = "say which user's map is meant (user)";
        fault(ControlFaultKind::Statement, text)
    })?;
    if !asker.may_control && asker.uid != Some(user) {
        let text = "maps of other users take the right to control";
        return Err(fault(ControlFaultKind::Refused, text));
    }
    let servers = [&request.add, &request.remove, &request.gone];
    let are_servers = |list: &&Vec<u32>| {
        list.len() <= SERVERS_MAX && list.iter().all(|server| (*server as usize) < SERVERS_MAX)
    };
    if !servers.iter().all(are_servers) {
        let text = format!("servers have numbers below {SERVERS_MAX}");
        return Err(fault(ControlFaultKind::Statement, &text));
    }
    match (servers.iter().all(|list| list.is_empty()), request.forget) {
        (true, true) | (false, false) => {}
        (true, false) => {
            let text = "say which servers are added, taken out, or gone (add, remove, gone), or that the map is removed (forget)";
            return Err(fault(ControlFaultKind::Statement, text));
        }
        (false, true) => {
            let text = "a map is changed, or removed (forget), and not both";
            return Err(fault(ControlFaultKind::Statement, text));
        }
    }
    let change = MapChange {
        add: request.add,
        remove: request.remove,
        gone: request.gone,
        forget: request.forget,
    };
    let epoch = leader.change((user, name), change)?;
    Ok(json!({ "epoch": epoch }))
}

fn list(
    leader: &LeaderQuestions,
    user: Option<u32>,
    asker: &RequestSender,
) -> Result<Json, ControlFault> {
    let user = match asker.may_control {
        true => user,
        // Nobody has no maps.
        false => Some(asker.uid.unwrap_or(u32::MAX)),
    };
    let rows = leader.maps(user)?.into_iter().map(|row| {
        let user = user_name(row.user);
        let mut row = json!(row);
        row["uid"] = row["user"].take();
        row["user"] = json!(user);
        row
    });
    Ok(json!({ "maps": rows.collect::<Vec<Json>>() }))
}
