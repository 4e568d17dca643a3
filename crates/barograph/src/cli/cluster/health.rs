//! Faults of this node's part in its cluster, with remedies, for `baro doctor`.

use barograph_agent::{
    CLUSTER_DOCUMENT, CLUSTER_INSIGHTS_DOCUMENT, ClusterInsightsRow, PEERS_DOCUMENT, PeersRow,
    SUBSCRIBERS_DOCUMENT, SubscribersRow,
};
use barograph_client::{RunDir, SystemClock};
use barograph_model::{Clock as _, NS_PER_S};
use serde_json::Value as Json;

use super::addresses::{self, PeerAddress};
use super::given_up::given_up;
use crate::cli::documents::{DocumentRow, document};
use crate::cli::format;
use crate::cli::output::plain;

/// Difference of clocks that makes ages of mirrored values misleading, in ns.
const AHEAD_NS_MAX: u64 = NS_PER_S as u64;
/// Time before the end of a certificate at which it is spoken of, in ns.
const EXPIRES_NS: i64 = 30 * 86_400 * NS_PER_S;
/// Most nodes of each kind of fault that are named.
const NAMED_MAX: usize = 8;

/// The state of the cluster; empty if this node is in none, or without an agent.
pub(in crate::cli) fn state_of_cluster(run_dir: &RunDir) -> String {
    let status: Option<Json> = document(run_dir, CLUSTER_DOCUMENT).ok().flatten();
    let peers: Option<Vec<DocumentRow<PeersRow>>> =
        document(run_dir, PEERS_DOCUMENT).ok().flatten();
    let peers = peers.unwrap_or_default();
    let peers: Vec<&PeersRow> = peers.iter().map(|row| &**row).collect();
    let sent_to: Option<Vec<DocumentRow<SubscribersRow>>> =
        document(run_dir, SUBSCRIBERS_DOCUMENT).ok().flatten();
    let sent_to = sent_to.unwrap_or_default();
    let sent_to: Vec<&SubscribersRow> = sent_to.iter().map(|row| &**row).collect();
    let insights: Option<Vec<DocumentRow<ClusterInsightsRow>>> =
        document(run_dir, CLUSTER_INSIGHTS_DOCUMENT).ok().flatten();
    let insights = insights.unwrap_or_default();
    let insights: Vec<&ClusterInsightsRow> = insights.iter().map(|row| &**row).collect();
    let now_ns = SystemClock::new().now_ns();
    status.map_or_else(String::new, |status| {
        let asked = addresses::ask(&status);
        page(&status, (&peers, &asked, &sent_to), &insights, now_ns)
    })
}

fn page(
    status: &Json,
    (peers, asked, sent_to): (&[&PeersRow], &[PeerAddress], &[&SubscribersRow]),
    insights: &[&ClusterInsightsRow],
    now_ns: i64,
) -> String {
    let Some(cluster) = status["cluster"].as_str() else {
        return String::new();
    };
    let connected = peers.iter().filter(|peer| peer.state == "connected");
    let mut page = format!(
        "\ncluster {}: {} of {} other nodes are connected\n",
        plain(cluster),
        connected.count(),
        peers.len()
    );
    let mut say = |what: &str, why: &str, remedy: &str| {
        page += &format!("\n{what}\n  why     {why}\n  remedy  {remedy}\n");
    };
    if let Some(fault) = status["fault"].as_str() {
        say("this node is shut out", &plain(fault), RENEW);
    }
    if let Some(expires_ns) = status["certificate_expires_ts"].as_i64() {
        let left_ns = expires_ns.saturating_sub(now_ns);
        if (0..EXPIRES_NS).contains(&left_ns) {
            let why = format!("it holds for {} more", format::age(left_ns));
            say("the certificate of this node ends soon", &why, RENEW);
        }
    }
    for refusal in status["refusals"].as_array().into_iter().flatten() {
        let refusal = refusal.as_str().unwrap_or_default();
        say("a node is refused", &plain(refusal), "as the reason says");
    }
    about_addresses(asked, peers.is_empty(), &mut say);
    about_peers(peers, now_ns, &mut say);
    about_insights(status, insights, &mut say);
    for to in sent_to {
        for loss in given_up(to) {
            let what = format!("{} is not sent all", plain(&to.node));
            say(&what, &loss.what, loss.remedy);
        }
    }
    page
}

const RENEW: &str = "`baro cluster invite` on the first node, `baro cluster join` here, and restart the \
                     agent";

const OTHER_AUTHORITY: &str = "if a node is refused, see above; a router may know no other node yet; otherwise \
     the certificates do not match, or no agent is there: a link ends, or carries nothing, before two nodes have \
     told each other their names if one of them has no certificate, one of another authority, or one that has \
     ended or was revoked. `baro cluster members` on the node of `baro cluster init` has the certificates that \
     hold, authority.pem below the state directories must be the same file on both nodes, and an agent that is \
     started with BAROGRAPH_LOG=warn logs the links that it does not take, in lines of zenoh_link_tls";

/// Says what is wrong with the addresses of `cluster.peers`. Whoever answers at one may still be no
/// node.
fn about_addresses(asked: &[PeerAddress], is_alone: bool, say: &mut impl FnMut(&str, &str, &str)) {
    let silent = asked.iter().filter_map(|one| {
        let fault = one.fault.as_ref()?;
        Some(format!("{} ({})", plain(&one.address), plain(fault)))
    });
    if let Some(names) = named(&silent.collect::<Vec<_>>()) {
        say(
            "nobody answers at addresses of cluster.peers",
            &names,
            "check the address, that the agent there is up and listens at it (cluster.listen there), and \
             that no firewall is between; it is tried again for ever, so remove an address that is gone",
        );
    }
    let answering = asked.iter().filter(|one| one.fault.is_none());
    let answering: Vec<String> = answering
        .map(|one| plain(&one.address).into_owned())
        .collect();
    match named(&answering) {
        _ if !is_alone => {}
        Some(names) => {
            let why =
                format!("somebody answers at {names}, and is no node that this one works with");
            say("no other node is known", &why, OTHER_AUTHORITY);
        }
        None => say(
            "no other node is known",
            "nobody answers at the addresses of cluster.peers, and nobody has come to this one",
            "check that the address of one other node is in cluster.peers, or the address of this one in \
             that of another",
        ),
    }
}

/// Says what is wrong with the insights of the cluster.
fn about_insights(
    status: &Json,
    insights: &[&ClusterInsightsRow],
    say: &mut impl FnMut(&str, &str, &str),
) {
    for insight in insights.iter().filter(|insight| insight.runs_on.is_empty()) {
        let what = format!("no node computes the insight {}", plain(&insight.name));
        let why = match insight.fault.as_str() {
            "" => "it was made just now, or no node that takes it is connected",
            fault => fault,
        };
        let remedy = "cluster.insights_from says from which nodes a node takes insights; `baro insight \
                      list --on-cluster` names the nodes that could compute it";
        say(&what, &plain(why), remedy);
    }
    let refused = status["insights_refused"].as_u64().unwrap_or_default();
    if refused > 0 {
        let why =
            format!("{refused} times an insight was none, came from a day ahead, or had no room");
        let remedy = "synchronise the clocks, or drop insights of the cluster: at most 64 with 56 KiB in all";
        say("insights of other nodes are refused", &why, remedy);
    }
}

/// Says what is wrong with other nodes, one kind of fault after the other.
fn about_peers(peers: &[&PeersRow], now_ns: i64, say: &mut impl FnMut(&str, &str, &str)) {
    let gone = |peer: &&&PeersRow| peer.state != "connected";
    let gone: Vec<String> = peers
        .iter()
        .filter(gone)
        .map(|peer| {
            let silent_ns = now_ns.saturating_sub(peer.heard_ts);
            format!("{} for {}", plain(&peer.node), format::age(silent_ns))
        })
        .collect();
    if let Some(names) = named(&gone) {
        say(
            "nodes are not heard",
            &names,
            "see whether the node, its agent and the network between are up, and whether its certificate \
             still holds (`baro cluster members` on the node of `baro cluster init`); the mirror goes on by \
             itself, and a node that is gone for good is forgotten after 10 minutes",
        );
    }
    for peer in peers {
        if let Some(fault) = &peer.fault {
            let what = format!("{} is not wholly mirrored", plain(&peer.node));
            say(&what, &plain(fault), "as the reason says");
        }
    }
    let ahead = peers.iter().filter_map(|peer| {
        let ahead_ns = peer
            .ahead_ns
            .filter(|ns| ns.unsigned_abs() > AHEAD_NS_MAX)?;
        Some(format!(
            "{} by {}",
            plain(&peer.node),
            format::difference(ahead_ns)
        ))
    });
    if let Some(names) = named(&ahead.collect::<Vec<_>>()) {
        say(
            "clocks of other nodes are ahead of this one (behind, if negative)",
            &names,
            "synchronise the clocks (chrony, ntpd): ages of mirrored values are wrong by as much, and a value \
             counts as stale if they differ by more than 3 s, or than three of its intervals if these are \
             longer than a second",
        );
    }
    let missed = peers.iter().filter(|peer| peer.missed > 0);
    let missed = missed.map(|peer| format!("{}: {}", plain(&peer.node), peer.missed));
    if let Some(names) = named(&missed.collect::<Vec<_>>()) {
        say(
            "samples of other nodes are missing here",
            &names,
            "their rings had overwritten them before they could be sent, or there was no room: longer \
             rings there, a larger cluster.ring_bytes_max or fewer streams in cluster.mirror here",
        );
    }
}

/// The first of the names, and how many more there are; `None` if there are none.
fn named(names: &[String]) -> Option<String> {
    let shown = names.get(..NAMED_MAX.min(names.len()))?.join(", ");
    let more = names.len().saturating_sub(NAMED_MAX);
    match (names.len(), more) {
        (0, _) => None,
        (_, 0) => Some(shown),
        (_, more) => Some(format!("{shown}, and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_NS: i64 = 1_000 * NS_PER_S;

    fn peer(node: &str) -> PeersRow {
        PeersRow {
            node: node.into(),
            state: "connected".into(),
            heard_ts: NOW_NS,
            ..PeersRow::default()
        }
    }

    fn refused(address: &str) -> PeerAddress {
        PeerAddress {
            address: address.into(),
            fault: Some("connection refused".into()),
        }
    }

    #[test]
    fn a_healthy_cluster_takes_one_line() {
        let status = json!({"cluster": "rack", "refusals": []});
        let whole = SubscribersRow {
            node: "b".into(),
            lost: 3,
            ..SubscribersRow::default()
        };
        let answers = PeerAddress {
            address: "login1:7447".into(),
            fault: None,
        };
        let page = page(&status, (&[&peer("b")], &[answers], &[&whole]), &[], NOW_NS);
        assert_eq!(page, "\ncluster rack: 1 of 1 other nodes are connected\n");
        assert_eq!(super::page(&json!({}), (&[], &[], &[]), &[], NOW_NS), "");
    }

    #[test]
    fn each_fault_is_said_with_its_remedy() {
        let status = json!({
            "cluster": "rack",
            "fault": "its certificate was revoked",
            "certificate_expires_ts": NOW_NS + 60 * NS_PER_S,
            "refusals": ["node \u{1b}x of cluster other"],
            "insights_refused": 3,
        });
        let silent = PeersRow {
            state: "gone".into(),
            heard_ts: NOW_NS - 120 * NS_PER_S,
            ..peer("b")
        };
        let skewed = PeersRow {
            ahead_ns: Some(-180 * NS_PER_S),
            missed: 7,
            fault: Some("its history is not kept: no space".into()),
            ..peer("c")
        };
        let small = SubscribersRow {
            node: "d\u{1b}".into(),
            unsent_streams: 2,
            unsent_streams_max: 5,
            ended_unsent: 6,
            ended_unread: 8,
            searches_failed: 9,
            ..SubscribersRow::default()
        };
        let orphan = ClusterInsightsRow {
            name: "all.free".into(),
            fault: "no\u{1b} table".into(),
            ..ClusterInsightsRow::default()
        };
        let page = page(
            &status,
            (
                &[&silent, &skewed],
                &[refused("login9\u{1b}:7447")],
                &[&small],
            ),
            &[&orphan],
            NOW_NS,
        );
        for text in [
            "1 of 2 other nodes",
            "was revoked",
            "ends soon",
            "of cluster other",
            "nobody answers at addresses",
            "login9",
            "connection refused",
            "b for 2",
            "c is not wholly mirrored",
            "no space",
            "c by -3 min",
            "c: 7",
            "is not sent all",
            "2 streams for which it has no room at present, 5 at most",
            "raise cluster.streams_max on that node",
            "6 ended streams for",
            "8 ended streams that could not be read",
            "9 searches",
            "baro archive merge",
            "no node computes the insight all.free",
            "3 times an insight",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn who_is_alone_is_told_what_may_be_the_reason() {
        let status = json!({"cluster": "rack"});
        let alone = page(&status, (&[], &[], &[]), &[], NOW_NS);
        assert!(alone.contains("nobody has come"), "{alone}");
        let silent = page(&status, (&[], &[refused("login9:7447")], &[]), &[], NOW_NS);
        assert!(
            silent.contains("login9:7447 (connection refused)"),
            "{silent}"
        );
        assert!(!silent.contains("authority"), "{silent}");
        let answers = PeerAddress {
            address: "login1:7447".into(),
            fault: None,
        };
        let asked = [answers, refused("login9:7447")];
        let foreign = page(&status, (&[], &asked, &[]), &[], NOW_NS);
        for text in [
            "login9:7447 (",
            "answers at login1:7447,",
            "another authority",
        ] {
            assert!(foreign.contains(text), "{text}: {foreign}");
        }
    }
}
