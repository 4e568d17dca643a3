//! Who sends a request that acts on what belongs to users.

use axum::http::HeaderMap;
use barograph_model::RequestSender;

use crate::fault::Fault;
use crate::rights::{AccessWay, PeerPid, Token, check_control};
use crate::share::ClientShare;

/// The sender of a request that acts on what belongs to users. It has the right to control unless
/// it comes by `read.sock`; over TCP it needs the token for that.
pub(crate) fn sender(
    (way, client, pid): (AccessWay, ClientShare, PeerPid),
    token: &Token,
    headers: &HeaderMap,
) -> Result<RequestSender, Fault> {
    let via = match way {
        AccessWay::ReadSocket => "read.sock",
        AccessWay::ControlSocket => "control.sock",
        AccessWay::Tcp | AccessWay::Stranger => "http",
    };
    let may_control = way != AccessWay::ReadSocket;
    if may_control {
        check_control(way, token, headers)?;
    }
    Ok(RequestSender {
        uid: client.0,
        pid: pid.0,
        via: via.into(),
        may_control,
    })
}
