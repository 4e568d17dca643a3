//! `baro cluster`: this node's part in its cluster, its members, and clusters on one machine.

mod addresses;
mod given_up;
mod health;
mod members;
#[expect(
    clippy::disallowed_methods,
    reason = "the command waits for the agents that it has started"
)]
mod run;

use barograph_agent::{CLUSTER_DOCUMENT, SUBSCRIBERS_DOCUMENT, SubscribersRow};
use barograph_client::SystemClock;
use barograph_model::Clock as _;
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::documents::{DocumentRow, document, document_of_agent};
use super::{Target, format, output};
use given_up::given_up;
pub(super) use health::state_of_cluster;
use members::{Init, Invite, Join, Members, Revoke};
use run::Run;

/// Arguments of `baro cluster`.
#[derive(Args)]
pub(super) struct Cluster {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the cluster of this node, what is sent to other nodes, and which nodes are refused
    Status {
        #[command(flatten)]
        target: Target,
    },
    /// Make the authority of a new cluster, and the certificate of this node, its first one
    Init(Init),
    /// Invite nodes: print a token for each, and wait until they have joined
    ///
    /// A token admits one node, once. The command answers the nodes that join, and ends when all
    /// tokens are used or have ended. Ctrl-C ends it, and all tokens with it.
    Invite(Invite),
    /// Join a cluster by a token of `baro cluster invite`
    ///
    /// The private key of this node is made here and never leaves it. A node that is a member
    /// already gets a new certificate.
    Join(Join),
    /// List the certificates that were issued; on the node of `baro cluster init`
    Members(Members),
    /// Revoke the certificates of a node, also while it is connected; on the node of `baro cluster
    /// init`
    Revoke(Revoke),
    /// Start agents on this machine that form a cluster, and stop them in order at Ctrl-C
    ///
    /// Each agent observes this machine, as a node of its own. The first has the usual run
    /// directory, so that `baro node list` and `baro sql` need no option; the others' are named as
    /// they start. What they write is deleted when they stop.
    Run(Run),
}

impl Cluster {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Status { target } => status(&target),
            Verb::Init(init) => init.run(),
            Verb::Invite(invite) => invite.run(),
            Verb::Join(join) => join.run(),
            Verb::Members(members) => members.run(),
            Verb::Revoke(revoke) => revoke.run(),
            Verb::Run(run) => run.run(),
        }
    }
}

/// Who leads the controllers of the cluster, in a line; empty if no node may.
fn leadership(status: &Json) -> String {
    let mut text = String::new();
    if let Some(leader) = status["leader"].as_str() {
        text += &format!(
            "leader       {} of the controllers, in term {}\n",
            output::plain(leader),
            status["leader_term"].as_u64().unwrap_or_default()
        );
    }
    if let Some(fault) = status["leader_fault"].as_str() {
        text += &format!("no leader    {}\n", output::plain(fault));
    }
    text
}

fn status(target: &Target) -> anyhow::Result<()> {
    let run_dir = target.run_dir();
    let mut status: Json = document_of_agent(&run_dir, CLUSTER_DOCUMENT)?;
    // An agent of an earlier version has no such document.
    let sent_to: Option<Vec<DocumentRow<SubscribersRow>>> =
        document(&run_dir, SUBSCRIBERS_DOCUMENT)?;
    let sent_to = sent_to.unwrap_or_default();
    if target.json {
        if let Some(status) = status.as_object_mut() {
            status.insert("sent_to".into(), serde_json::to_value(&sent_to)?);
        }
        return output::print_json(&status);
    }
    let Some(cluster) = status["cluster"].as_str() else {
        return output::print(
            "this node is in no cluster: `baro up --cluster NAME --listen ADDRESS --peer ADDRESS`\n",
        );
    };
    let number = |name: &str| status[name].as_u64().unwrap_or_default();
    let mut text = format!(
        "cluster      {cluster}\nnode         {}\nencrypted    {}\nsent         {} samples in {} bytes to {}, \
         {} of them from the archive, {} lost before they were sent\nnot sent     {}\nnot taken    {}, {}\n",
        output::plain(status["node"].as_str().unwrap_or_default()),
        encryption(&status),
        number("samples"),
        number("bytes"),
        counted(number("subscribers"), "node"),
        number("past"),
        number("lost"),
        counted(number("unsent"), "message"),
        counted(number("unreceived"), "message"),
        counted(number("refused_hellos"), "hello"),
    );
    text += &leadership(&status);
    if number("kept") > 0 {
        text += &format!(
            "keeps        the history of {}\n",
            counted(number("kept"), "node")
        );
    }
    if number("unkept_scopes") > 0 {
        text += &format!(
            "not kept     the history of {} of publications: the table peers has the reasons\n",
            counted(number("unkept_scopes"), "scope")
        );
    }
    if number("catching_up") > 0 {
        text += &format!(
            "catching up  {}; waiting for their turn: {}\n",
            counted(number("catching_up"), "node"),
            number("waiting")
        );
    }
    text += &not_demanded(&status);
    for subscriber in &sent_to {
        let node = output::plain(&subscriber.node);
        for loss in given_up(subscriber) {
            text += &format!("given up     {node}: {}: {}\n", loss.what, loss.remedy);
        }
    }
    if let Some(fault) = status["fault"].as_str() {
        text += &format!("fault        {}\n", output::plain(fault));
    }
    for refusal in status["refusals"].as_array().into_iter().flatten() {
        let refusal = refusal.as_str().unwrap_or_default();
        text += &format!("refused      {}\n", output::plain(refusal));
    }
    output::print(&text)
}

/// A number of things, such as "1 node" and "2 nodes".
fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// The streams of other nodes that are not mirrored although somebody needs them.
fn not_demanded(status: &Json) -> String {
    let number = |name: &str| status[name].as_u64().unwrap_or_default();
    let mut text = String::new();
    if number("selectors_left_out") > 0 {
        text += &format!(
            "left out     {} of streams of a node, beyond the first 256\n",
            counted(number("selectors_left_out"), "selector")
        );
    }
    if number("watches_refused") > 0 {
        text += &format!(
            "refused      the demand of {} watches of other nodes (8 patterns of one user, 64 in all)\n",
            number("watches_refused")
        );
    }
    text
}

/// Whether messages are encrypted, and for how long the certificate holds.
fn encryption(status: &Json) -> String {
    let Some(expires_ns) = status["certificate_expires_ts"].as_i64() else {
        return "no: this node has no certificate, so only this machine is reached".into();
    };
    let left_ns = expires_ns.saturating_sub(SystemClock::new().now_ns());
    match left_ns {
        ..=0 => "yes, by a certificate that has expired".into(),
        _ => format!(
            "yes, by a certificate that holds for {}",
            format::age(left_ns)
        ),
    }
}
