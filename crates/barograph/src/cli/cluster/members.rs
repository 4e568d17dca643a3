//! `baro cluster init`, `invite`, `join`, `members` and `revoke`: who may be a node of the cluster.

use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use barograph_agent::{CREDENTIALS_DIR, Config};
use barograph_client::SystemClock;
use barograph_membership::{Admission, Authority, DAYS_DEFAULT, InvitationServer, Token, join};
use barograph_model::Clock as _;
use clap::Args;
use serde_json::json;

use crate::cli::documents::state_of_agent;
use crate::cli::{Usage, format, output};

/// Longest time for which an invitation stays open.
const EXPIRES_NS_MAX: i64 = 7 * 86_400_000_000_000;
/// Most nodes that are invited at a time.
const INVITED_MAX: usize = 10_000;
/// Pause between two looks for a node that joins.
const PAUSE: Duration = Duration::from_millis(50);

/// Option for the directory of the certificates.
#[derive(Args)]
struct Place {
    /// State directory of the agent [default: that of this user's running agent, or else
    /// $XDG_STATE_HOME/barograph or /var/lib/barograph]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    fn dir(&self) -> anyhow::Result<PathBuf> {
        let state_dir = match &self.state_dir {
            Some(dir) => dir.clone(),
            None => match state_of_agent(None)? {
                Some(dir) => dir,
                None => Config::default().resolve()?.state_dir,
            },
        };
        Ok(state_dir.join(CREDENTIALS_DIR))
    }
}

/// Arguments of `baro cluster init`.
#[derive(Args)]
pub(super) struct Init {
    /// Name of the cluster
    cluster: String,
    /// Name of this node [default: the host name]
    #[arg(long)]
    node: Option<String>,
    #[command(flatten)]
    place: Place,
}

impl Init {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let dir = self.place.dir()?;
        let node = match self.node {
            Some(node) => node,
            None => Config::default().resolve()?.node,
        };
        let now_ns = SystemClock::new().now_ns();
        Authority::create(&dir, &self.cluster, &node, now_ns)?;
        if self.place.json {
            let dir = dir.display().to_string();
            return output::print_json(&json!({"cluster": self.cluster, "node": node, "dir": dir}));
        }
        output::print(&format!(
            "cluster {cluster} has its authority and the certificate of node {node} in {dir}\n\
             keep {dir}/authority.key secret, and a copy of that directory in a safe place\n\n\
             Next, here:         {up}\n\
             and for each node:  baro cluster invite NODE --address HOST:PORT\n",
            cluster = self.cluster,
            dir = dir.display(),
            up = up_command(&self.cluster, &node),
        ))
    }
}

/// Arguments of `baro cluster invite`.
#[derive(Args)]
pub(super) struct Invite {
    /// Names of the nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Address at which this command answers, as the invited nodes reach it
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// Address at which it listens, if that is another one
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Time for which the tokens hold, up to 7d
    #[arg(long, value_name = "TIME", default_value = "15m")]
    expires: String,
    /// Days for which the certificates hold
    #[arg(long, value_name = "DAYS", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    #[command(flatten)]
    place: Place,
}

impl Invite {
    /// Runs the command.
    #[expect(
        clippy::disallowed_methods,
        reason = "a shell: it waits for nodes that join"
    )]
    pub(super) fn run(self) -> anyhow::Result<()> {
        let expires_ns = barograph_model::duration_ns(&self.expires);
        let expires_ns = expires_ns.map_err(|error| Usage(error.to_string()))?;
        if !(1..=EXPIRES_NS_MAX).contains(&expires_ns) || self.nodes.len() > INVITED_MAX {
            let text = format!("tokens hold for up to 7d, and are at most {INVITED_MAX}");
            return Err(Usage(text).into());
        }
        let authority = Authority::open(&self.place.dir()?)?;
        let listen = self.listen.as_ref().unwrap_or(&self.address);
        let addresses = listen.to_socket_addrs();
        let addresses = addresses.map_err(|error| Usage(format!("{listen}: {error}")))?;
        let listener = TcpListener::bind(&*addresses.collect::<Vec<_>>());
        let listener = listener.with_context(|| {
            format!("cannot listen at {listen}: name an address of this node with --listen")
        })?;
        let clock = Arc::new(SystemClock::new());
        let ends_ns = clock.now_ns().saturating_add(expires_ns);
        let address = self.address.clone();
        let server = InvitationServer::new(authority, listener, address, self.days, clock)?;
        for node in &self.nodes {
            let token = server.invite(node, ends_ns)?;
            self.tell(
                &json!({"node": node, "token": token.text(), "expires_ts": ends_ns}),
                &format!("on {node}: baro cluster join {}\n", token.text()),
            )?;
        }
        if !self.place.json {
            let left = format::age(expires_ns);
            output::print(&format!(
                "waiting for {} to join; the tokens end in {left}, or at Ctrl-C\n",
                self.nodes.join(", ")
            ))?;
        }
        let mut outcome = Ok(());
        let mut joined = 0;
        server.run(
            |admission| {
                let told = match &admission {
                    Admission::Admitted { node } => {
                        joined += 1;
                        self.tell(&json!({"joined": node}), &format!("{node} has joined\n"))
                    }
                    Admission::Refused { from, reason } => self.tell(
                        &json!({"refused": from, "reason": reason}),
                        &format!("{from} was refused: {reason}\n"),
                    ),
                };
                if outcome.is_ok() {
                    outcome = told;
                }
            },
            || std::thread::sleep(PAUSE),
        )?;
        outcome?;
        let missing = self.nodes.len() - joined;
        anyhow::ensure!(missing == 0, "{missing} invited nodes have not joined");
        Ok(())
    }

    fn tell(&self, json: &serde_json::Value, text: &str) -> anyhow::Result<()> {
        match self.place.json {
            true => output::print(&format!("{json}\n")),
            false => output::print(text),
        }
    }
}

/// Arguments of `baro cluster join`.
#[derive(Args)]
pub(super) struct Join {
    /// The token, or - to read it from standard input, so that other users do not see it
    token: String,
    #[command(flatten)]
    place: Place,
}

impl Join {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let text = match self.token.as_str() {
            "-" => std::io::read_to_string(std::io::stdin())?,
            token => token.to_owned(),
        };
        let token = Token::read(&text)?;
        let dir = self.place.dir()?;
        let joined = join(&dir, &token, SystemClock::new().now_ns())?;
        if self.place.json {
            let (cluster, node, dir) = (joined.cluster, joined.node, dir.display().to_string());
            return output::print_json(&json!({"cluster": cluster, "node": node, "dir": dir}));
        }
        output::print(&format!(
            "this node is {node} of cluster {cluster}: its certificate is in {dir}\n\n\
             Next: {up} --peer HOST:PORT\n",
            node = joined.node,
            cluster = joined.cluster,
            dir = dir.display(),
            up = up_command(&joined.cluster, &joined.node),
        ))
    }
}

/// Arguments of `baro cluster members`.
#[derive(Args)]
pub(super) struct Members {
    #[command(flatten)]
    place: Place,
}

impl Members {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let members = Authority::open(&self.place.dir()?)?.members()?;
        if self.place.json {
            return output::print_json(&members);
        }
        let now_ns = SystemClock::new().now_ns();
        let rows: Vec<Vec<String>> = members
            .iter()
            .map(|member| {
                let state = match (member.revoked_ts, member.expires_ts <= now_ns) {
                    (Some(_), _) => "revoked".to_owned(),
                    (None, true) => "expired".to_owned(),
                    (None, false) => "holds".to_owned(),
                };
                vec![
                    member.node.clone(),
                    state,
                    format::age(now_ns.saturating_sub(member.issued_ts)),
                    format::age(member.expires_ts.saturating_sub(now_ns)),
                    member.serial.clone(),
                ]
            })
            .collect();
        let head = ["NODE", "STATE", "ISSUED", "LEFT", "CERTIFICATE"];
        output::print_table(&head, &[2, 3], &rows)
    }
}

/// Arguments of `baro cluster revoke`.
#[derive(Args)]
pub(super) struct Revoke {
    /// Name of the node
    node: String,
    #[command(flatten)]
    place: Place,
}

impl Revoke {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let authority = Authority::open(&self.place.dir()?)?;
        let serials = authority.revoke(&self.node, SystemClock::new().now_ns())?;
        if self.place.json {
            return output::print_json(&json!({"node": self.node, "revoked": serials}));
        }
        output::print(&format!(
            "node {} has no certificate any more; the agents that are connected to this node's agent \
             learn it within seconds\n",
            output::plain(&self.node)
        ))
    }
}

/// The command that starts the agent of a member.
fn up_command(cluster: &str, node: &str) -> String {
    format!("baro up --cluster {cluster} --node {node} --listen ADDRESS:PORT")
}
