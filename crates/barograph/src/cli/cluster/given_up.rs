//! Samples and streams that this node has given up to send to others, with remedies, in `baro
//! cluster status` and `doctor`.

use barograph_agent::SubscribersRow;

/// Something that was not sent to a node.
pub(super) struct GivenUp {
    /// The amount that was not sent, and of what.
    pub(super) what: String,
    /// The change that helps.
    pub(super) remedy: &'static str,
}

const ROOM: &str = "raise cluster.streams_max on that node, or name fewer streams in its cluster.mirror or \
                    cluster.aggregator.streams";
const ENDED_ROOM: &str = "raise cluster.streams_max on that node, or name fewer streams there; of more than \
                          4,096 ended streams at a time, `baro archive merge` of both archives has the rest";
const ARCHIVE: &str = "see in the log of this agent why its archive cannot be read; `baro archive merge` of \
                       both archives has what is lacking there";

/// Kinds of what was not sent to this node since the agent started.
pub(super) fn given_up(to: &SubscribersRow) -> Vec<GivenUp> {
    let room = match (to.unsent_streams, to.unsent_streams_max) {
        (now, most) if now < most => {
            format!("{now} streams for which it has no room at present, {most} at most at a time")
        }
        (now, _) => format!("{now} streams for which it has no room"),
    };
    let losses = [
        (to.unsent_streams_max, room, ROOM),
        (
            to.ended_unsent,
            format!(
                "{} ended streams for which there was no room",
                to.ended_unsent
            ),
            ENDED_ROOM,
        ),
        (
            to.ended_unread,
            format!(
                "{} ended streams that could not be read for a minute",
                to.ended_unread
            ),
            ARCHIVE,
        ),
        (
            to.searches_failed,
            format!(
                "{} searches for ended streams that failed for a minute",
                to.searches_failed
            ),
            ARCHIVE,
        ),
    ];
    let losses = losses.into_iter().filter(|(count, ..)| *count > 0);
    losses
        .map(|(_, what, remedy)| GivenUp { what, remedy })
        .collect()
}
