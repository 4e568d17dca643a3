//! The load of a map: what its servers do, and how many operations its members end. Both are
//! measured in windows of a second.

use std::collections::{BTreeMap, VecDeque};

use barograph_control::{ScaleEffect, ScaleFinding};
use barograph_model::NS_PER_S;

use crate::controller_words::{MapWord, SERVERS_MAX, ServerLoad};

/// The length of a window, and the longest one. While operations run and no end of one is heard of,
/// a window goes on: ends that are heard of late would count as those of a second otherwise.
const WINDOW_NS: i64 = NS_PER_S;
const WINDOW_NS_MAX: i64 = 30 * NS_PER_S;
/// Windows of a server that are told, and most servers of a map of which they are.
const RECENT_MAX: usize = 30;
const SERVERS_TOLD_MAX: usize = 64;
/// Most requests of a server in a window whose times are kept; those beyond are counted.
const TIMES_MAX: usize = 512;

/// The load of a map in its present window, and in those before.
#[derive(Debug, Default)]
pub(super) struct MapLoad {
    begun_ns: Option<i64>,
    /// Operations that have ended in the present window.
    operations: u64,
    /// What each node has counted so far, and the operations that run there.
    counted: BTreeMap<String, (u64, u64)>,
    servers: BTreeMap<u32, ServerWindows>,
    /// Whether it helps to take servers out.
    pub(super) effect: ScaleEffect,
}

#[derive(Debug, Default)]
struct ServerWindows {
    /// Requests in the present window, and what the server has counted so far.
    requests: u64,
    counted: u64,
    times: Vec<f64>,
    requests_s: f64,
    /// The median of each window that is over, newest last; `None` for one without a request.
    recent: VecDeque<Option<f64>>,
}

impl MapLoad {
    /// Takes in what a node says.
    pub(super) fn hear(&mut self, node: &str, word: &MapWord) {
        let now = (word.operations, word.running);
        let counted = self.counted.insert(node.to_owned(), now);
        // Of a node that is new here it is not known when its operations were.
        let (before, _) = counted.unwrap_or(now);
        self.operations += word.operations.saturating_sub(before);
        let sound = |(server, _, service_s, _): &&(u32, u64, f64, u64)| {
            *server < SERVERS_MAX && service_s.is_finite() && *service_s >= 0.0
        };
        for (server, _, service_s, requests) in word.samples.iter().filter(sound) {
            let server = self.servers.entry(*server).or_default();
            // One that counts anew, or not at all, has served this request.
            let more = requests.saturating_sub(server.counted);
            let is_known = server.counted > 0 && more > 0;
            server.requests += if is_known { more } else { 1 };
            server.counted = *requests;
            if server.times.len() < TIMES_MAX {
                server.times.push(*service_s);
            }
        }
    }

    /// Forgets a node, whose count may begin anew.
    pub(super) fn forget(&mut self, node: &str) {
        self.counted.remove(node);
    }

    /// Ends the present window if it is over. Returns what was found of the effect of a server that
    /// was taken out, if that is known now.
    pub(super) fn advance(&mut self, now_ns: i64) -> Option<ScaleFinding> {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let took_ns = now_ns.saturating_sub(begun_ns);
        let runs = self.counted.values().any(|(_, running)| *running > 0);
        let goes_on = self.operations == 0 && runs && took_ns < WINDOW_NS_MAX;
        if took_ns < WINDOW_NS || goes_on {
            return None;
        }
        self.begun_ns = Some(now_ns);
        let took_s = took_ns as f64 / NS_PER_S as f64;
        for server in self.servers.values_mut() {
            server.end_window(took_s);
        }
        self.servers
            .retain(|_, server| server.recent.iter().any(Option::is_some));
        let operations_s = std::mem::take(&mut self.operations) as f64 / took_s;
        self.effect.observe(operations_s, now_ns)
    }

    /// The time of the end of the present window.
    pub(super) fn next_ns(&self) -> i64 {
        let begun_ns = self.begun_ns.unwrap_or(i64::MIN);
        begun_ns.saturating_add(WINDOW_NS)
    }

    /// The load of the servers of which something is known.
    pub(super) fn rows(&self) -> Vec<ServerLoad> {
        let are_few = self.servers.len() <= SERVERS_TOLD_MAX;
        let row = |(server, windows): (&u32, &ServerWindows)| ServerLoad {
            server: *server,
            requests_s: windows.requests_s,
            service_s: windows.recent.iter().rev().find_map(|it| *it),
            recent: match are_few {
                true => windows.recent.iter().copied().collect(),
                false => Vec::new(),
            },
        };
        self.servers.iter().map(row).collect()
    }
}

impl ServerWindows {
    fn end_window(&mut self, took_s: f64) {
        let mut times = std::mem::take(&mut self.times);
        times.sort_by(f64::total_cmp);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(times.get(times.len() / 2).copied());
        self.requests_s = std::mem::take(&mut self.requests) as f64 / took_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_rates_and_medians_and_servers_that_do_nothing_are_forgotten() {
        let mut load = MapLoad::default();
        assert_eq!(load.advance(0), None);
        let mut word = MapWord {
            operations: 1_000,
            samples: vec![
                (0, 1, 0.5, 90),
                (0, 1, 0.25, 93),
                (0, 1, 0.75, 95),
                (3, 1, f64::NAN, 1),
            ],
            ..MapWord::default()
        };
        load.hear("a", &word);
        assert_eq!(load.operations, 0, "it is not known when these were");
        word.operations = 1_040;
        word.samples.clear();
        load.hear("a", &word);
        assert_eq!(load.operations, 40);
        load.advance(WINDOW_NS);
        let rows = load.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].requests_s, rows[0].service_s), (6.0, Some(0.5)));
        load.advance(2 * WINDOW_NS);
        assert_eq!(load.rows()[0].recent, [Some(0.5), None]);
        assert_eq!(load.rows()[0].requests_s, 0.0);
        // While something runs, what is heard late is that of the time since the last window.
        word.running = 1;
        load.hear("a", &word);
        for n in 3..7 {
            load.advance(n * WINDOW_NS);
        }
        assert_eq!(load.rows()[0].recent.len(), 2);
        word.operations += 8;
        word.running = 0;
        load.hear("a", &word);
        load.advance(7 * WINDOW_NS);
        assert_eq!(load.rows()[0].recent.len(), 3);
        // A count that begins anew adds nothing.
        load.forget("a");
        word.operations = 5;
        load.hear("a", &word);
        assert_eq!(load.operations, 0);
        for n in 8..45 {
            load.advance(n * WINDOW_NS);
        }
        assert_eq!(load.rows(), []);
    }
}
