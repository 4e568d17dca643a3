//! How a process uses server maps, as its file says it.

use barograph_stream::StreamError;
use barograph_stream::ingest::{MapUse, MapWords};
use tracing::debug;

use super::PublishingProcess;
use crate::maps::{MapNews, MapReport, MapRole, NamedMap};

/// Minor version of the ingest format since which files have slots of maps.
const MAPS_SINCE: u32 = 4;
/// A use is reported at least this often, as a sign of life.
const REPORT_NS: i64 = barograph_model::NS_PER_S;
/// Time after which the number of operations that have ended is reported, if it has changed.
const COUNT_NS: i64 = 250 * barograph_model::NS_PER_MS;

impl PublishingProcess {
    /// What was reported of its maps, and told.
    pub(crate) fn maps_mut(&mut self) -> &mut MapNews {
        &mut self.maps
    }

    pub(crate) fn maps(&self) -> &MapNews {
        &self.maps
    }

    /// Whether it has declared that it uses a map.
    pub(crate) fn has_maps(&self) -> bool {
        self.file.version_minor() >= MAPS_SINCE && self.publications.iter().any(|p| p.map.is_some())
    }

    /// The map that a use names, by a publication that is not refused.
    fn map_used(&self, used: &MapUse) -> Option<&NamedMap> {
        self.publications
            .get(used.publication as usize)?
            .map
            .as_ref()
    }

    /// Reads how it uses maps now.
    pub(crate) fn map_uses(&self) -> Result<Vec<(u8, MapUse)>, StreamError> {
        let mut uses = self.file.map_uses()?;
        uses.retain(|(_, used)| self.map_used(used).is_some());
        Ok(uses)
    }

    /// What is to be reported of its uses.
    pub(crate) fn map_reports(&mut self, uses: &[(u8, MapUse)], now_ns: i64) -> Vec<MapReport> {
        let mut reports = Vec::new();
        for (slot, used) in uses {
            let publication = used.publication as usize;
            let has_samples = self.maps.has_samples(publication);
            let news = self.maps.slot(*slot);
            // How many operations have ended is said with whatever else there is to say, or after
            // a while.
            let state = MapUse { ended: 0, ..*used };
            let is_counted = news.ended == used.ended || now_ns < news.count_due_ns;
            let is_same = news.reported == Some(state) && is_counted;
            if is_same && !has_samples && now_ns < news.due_ns {
                continue;
            }
            news.reported = Some(state);
            news.due_ns = now_ns.saturating_add(REPORT_NS);
            (news.ended, news.count_due_ns) = (used.ended, now_ns.saturating_add(COUNT_NS));
            let seen = news.seen;
            let samples = self.maps.take_samples(publication);
            let Some(named) = self.map_used(used) else {
                continue;
            };
            let role = match named.server {
                None => MapRole::Member {
                    running: used.running,
                    waiting: used.waiting,
                    refused: used.refused,
                    ended: used.ended,
                    declared: used.declared,
                },
                Some(number) => MapRole::Server {
                    number,
                    running: used.running,
                    oldest_epoch: used.oldest_epoch,
                    samples,
                },
            };
            reports.push(MapReport {
                slot: *slot,
                map: named.name.clone(),
                role,
                seen,
                told: used.told,
            });
        }
        reports
    }

    /// Writes what is told of a map. Returns whether it was written.
    pub(crate) fn tell_map(&mut self, slot: u8, number: u64, words: &MapWords) -> bool {
        // A file of an earlier version has declarations in this place.
        if self.file.version_minor() < MAPS_SINCE {
            return false;
        }
        if let Err(error) = self.file.tell_map(slot, words) {
            debug!(%error, "a process is not told of a map of servers");
            return false;
        }
        let news = self.maps.slot(slot);
        news.seen = number.max(news.seen);
        // What is counted from now on is worth more than before, though the counts are the same.
        news.due_ns = i64::MIN;
        true
    }
}
