//! Statements to the agent's control socket: HTTP/1.1 over a unix socket.

use std::time::Duration;

use anyhow::Context as _;
use barograph_client::{AgentSocket, RunDir};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;

/// Longest wait for the answer to a statement.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Largest answer that is accepted.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Posts JSON to `path` on a socket of the agent; an error answer becomes an error with its
/// message.
pub(super) fn post(
    run_dir: &RunDir,
    door: AgentSocket,
    path: &str,
    body: &Json,
    wait: Duration,
) -> anyhow::Result<Json> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(wait, exchange(run_dir, door, path, body))
            .await
            .with_context(|| format!("the agent did not answer in {} s", wait.as_secs()))?
    })
}

async fn exchange(
    run_dir: &RunDir,
    door: AgentSocket,
    path: &str,
    body: &Json,
) -> anyhow::Result<Json> {
    let what = match door {
        AgentSocket::Read => "read",
        AgentSocket::Control => "control",
    };
    let stream = run_dir.connect(door).with_context(|| {
        format!(
            "cannot reach the {what} socket in {}: is the agent running, and yours?",
            run_dir.path().display()
        )
    })?;
    stream.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = hyper::Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let bytes = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|e| anyhow::anyhow!("the answer was cut: {e}"))?
        .to_bytes();
    drop(sender);
    let _ = driver.await;
    let answer: Json = serde_json::from_slice(&bytes).unwrap_or(Json::Null);
    if status.is_success() {
        return Ok(answer);
    }
    match answer["error"]["message"].as_str() {
        Some(message) => anyhow::bail!("{message}"),
        None => anyhow::bail!("the agent answered {status}"),
    }
}
