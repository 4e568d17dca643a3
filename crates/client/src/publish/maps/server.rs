//! A server of a map: it serves requests of its fence's epoch and of later ones.

use barograph_control::{ServerAnswer, ToldEpochs};
use barograph_model::{Clock as _, Kind, NS_PER_S, ValueType};
use barograph_stream::ingest::{
    CountedRequest, MAP_LABEL, SERVER_LABEL, SERVER_LOAD, SERVER_NUMBERS, SERVER_PUBLICATION,
    SERVER_SERVICE, ServerSet,
};

use super::cell::{self, MapCell};
use super::member::slot_of;
use super::{
    Known, MapUse, OPERATION_MASK, RENEW_NS, SLOT_SHIFT, TOLD_NS_MAX, TORN_NS, WORD_MASK,
    epochs_of, known, mark_of, sleep,
};
use crate::publish::process::Process;
use crate::publish::{PublicationConfig, PublishError, Publisher, ValueHandle};

/// A server of a map. Cheap to clone, for use from any thread.
#[derive(Clone, Debug)]
pub struct MapServer {
    pub(super) used: MapUse,
    load: ValueHandle,
    service: ValueHandle,
    running: ValueHandle,
    requests: ValueHandle,
    bytes: ValueHandle,
}

/// A request that is being served. It ends when it is dropped.
#[derive(Debug)]
pub struct MapRequest<'a> {
    server: &'a MapServer,
    raw: RawRequest,
}

/// A request that is being served, for other languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawRequest {
    /// The number of the request; 0 if it is not counted, since nothing is published.
    pub number: u64,
    /// The monotonic time at which it has begun.
    pub begun_ns: i64,
    /// Requests that ran then.
    pub before: u64,
}

/// A request is not served: it is of an epoch that is over. Who has sent it begins again
/// ([`MapOperation::refused`](super::MapOperation::refused)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the epoch of the request is over: epochs from {fence} on are served")]
pub struct MapFenced {
    /// The first epoch that is served. The epoch of the request itself if the server does not know
    /// it yet.
    pub fence: u64,
}

impl Publisher {
    /// Declares that this process is a server of a map, by its number, 0 to 1,023.
    pub fn map_server(&self, name: &str, number: u32) -> Result<MapServer, PublishError> {
        if number >= SERVER_NUMBERS {
            let (name, why) = (name.to_owned(), "the numbers of servers are 0 to 1,023");
            return Err(PublishError::Map { name, why });
        }
        let config = PublicationConfig {
            labels: vec![
                (MAP_LABEL.to_owned(), name.to_owned()),
                (SERVER_LABEL.to_owned(), number.to_string()),
            ],
            ..PublicationConfig::default()
        };
        let publication = self.publication(SERVER_PUBLICATION, config)?;
        let value = |name, value_type, unit, kind, help| {
            publication.value(name, value_type, unit, kind, help)
        };
        let (int, float) = (ValueType::Int, ValueType::Float);
        let (gauge, counter) = (Kind::Gauge, Kind::Counter);
        Ok(MapServer {
            load: value(
                SERVER_LOAD,
                int,
                "bytes",
                gauge,
                "bytes of a request, times one more than the requests before it",
            )?,
            service: value(
                SERVER_SERVICE,
                float,
                "s",
                gauge,
                "time from that request to its answer",
            )?,
            running: value("running", int, "", gauge, "requests that are being served")?,
            requests: value("requests", int, "", counter, "requests that were served")?,
            bytes: value("bytes", int, "bytes", counter, "bytes of these requests")?,
            used: MapUse {
                slot: slot_of(&publication, &ServerSet::EMPTY)?,
                publication,
            },
        })
    }
}

impl MapServer {
    /// Begins to serve a request of an epoch, unless that is over.
    pub fn serve(&self, epoch: u64) -> Result<MapRequest<'_>, MapFenced> {
        let raw = self.serve_raw(epoch)?;
        Ok(MapRequest { server: self, raw })
    }

    /// Like [`Self::serve`], for other languages: the request ends by [`Self::end_raw`].
    ///
    /// A server serves nothing before it was told a fence. So the first requests wait for the
    /// agent, for at most two seconds. Where no agent runs, or none keeps maps, requests of epoch 0
    /// are served, which members send there, and no others.
    pub fn serve_raw(&self, epoch: u64) -> Result<RawRequest, MapFenced> {
        let Some((process, slot, cell)) = self.used.place() else {
            return self.serve_uncounted(epoch);
        };
        let producer = &process.producer;
        let begun_ns = process.clock.monotonic_ns();
        let mut renew_ns = begun_ns;
        loop {
            let moved = producer.answers_moved();
            let before = producer.running_requests(slot);
            let Some(counted) = producer.count_request(slot, epoch) else {
                return Err(MapFenced { fence: epoch });
            };
            let number =
                mark_of(producer) | u64::from(slot) << SLOT_SHIFT | u64::from(counted.to_raw());
            let now_ns = process.clock.monotonic_ns();
            let left_ns = TOLD_NS_MAX.saturating_sub(now_ns.saturating_sub(begun_ns));
            let known = known(producer, slot, cell);
            match answer(&known, cell, epoch) {
                Some(ServerAnswer::Served) => {
                    return Ok(RawRequest {
                        number,
                        begun_ns,
                        before,
                    });
                }
                Some(ServerAnswer::Fenced { fence }) => {
                    if uncount(&process, slot, counted) && cell.take_knock(now_ns) {
                        process.ask_for_phase();
                    }
                    return Err(MapFenced { fence });
                }
                None => {
                    uncount(&process, slot, counted);
                }
            }
            if left_ns <= 0 || producer.is_retired() {
                if known == Known::NotYet {
                    cell.set_alone();
                }
                return Err(MapFenced { fence: epoch });
            }
            if now_ns >= renew_ns {
                renew_ns = now_ns.saturating_add(RENEW_NS);
                if !process.ask_for_phase() && known == Known::NotYet {
                    cell.set_alone();
                    continue;
                }
            }
            let pause_ns = match known {
                Known::Torn => TORN_NS,
                _ => left_ns.min(renew_ns.saturating_sub(now_ns)),
            };
            sleep(producer, moved, pause_ns);
        }
    }

    /// Decides about a request that cannot be counted, since nothing is published.
    fn serve_uncounted(&self, epoch: u64) -> Result<RawRequest, MapFenced> {
        let fence = self.used.slot.map_or(0, |slot| cell::of(slot).fence());
        match (fence, epoch) {
            // As if there were no maps.
            (0, 0) => Ok(RawRequest::default()),
            // The publisher was closed: an agent takes this for the end of all requests.
            _ => Err(MapFenced {
                fence: fence.max(epoch),
            }),
        }
    }

    /// Ends a request of so many bytes, which is a sample of the load and the time of service. A
    /// request of another process changes nothing.
    pub fn end_raw(&self, request: &RawRequest, bytes: u64) {
        let Some((process, slot, cell)) = self.used.existing() else {
            return;
        };
        let producer = &process.producer;
        let expected = mark_of(producer) | u64::from(slot) << SLOT_SHIFT;
        if request.number & !OPERATION_MASK != expected & !OPERATION_MASK {
            return;
        }
        let Some(counted) = CountedRequest::from_raw((request.number & WORD_MASK) as u8) else {
            return;
        };
        if uncount(&process, slot, counted) {
            process.ask_for_phase();
        }
        let now_ns = process.clock.monotonic_ns();
        let totals = cell.count_served(bytes);
        let Some(frame) = cell.take_frame(now_ns) else {
            return;
        };
        let int = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let load = bytes.saturating_mul(request.before.saturating_add(1));
        let took_ns = now_ns.saturating_sub(request.begun_ns).max(0);
        self.load.put_i64(int(load));
        self.service.put_f64(took_ns as f64 / NS_PER_S as f64);
        self.running.put_i64(int(producer.running_requests(slot)));
        self.requests.put_i64(int(totals.requests));
        self.bytes.put_i64(int(totals.bytes));
        self.used.publication.frame(frame);
    }
}

/// Decides about a request of an epoch; `None` if it has to wait until more is known.
fn answer(known: &Known, cell: &MapCell, epoch: u64) -> Option<ServerAnswer> {
    let told = match known {
        // The first epoch that a controller gives is 1: without a fence, it has not said anything.
        Known::Told(words) if words.fence > 0 => ToldEpochs {
            // A fence is never forgotten, whatever the file says.
            fence: cell.raise_fence(words.fence),
            ..epochs_of(words)
        },
        Known::Nobody if cell.fence() == 0 => {
            // Members that nobody tells of epochs send 0. Whoever sends another has been told of
            // it, and this server has not: it could be over.
            return Some(match epoch {
                0 => ServerAnswer::Served,
                _ => ServerAnswer::Fenced { fence: epoch },
            });
        }
        _ if cell.fence() > 0 => ToldEpochs {
            fence: cell.fence(),
            ..ToldEpochs::default()
        },
        _ => return None,
    };
    Some(told.serve(epoch))
}

/// Counts the end of a request. Returns whether the agent may wait for it: it was the last one of
/// those before the fence with which it was counted.
pub(super) fn uncount(process: &Process, slot: u8, counted: CountedRequest) -> bool {
    let producer = &process.producer;
    let ended = producer.uncount_request(slot, counted);
    ended.is_some_and(|(epoch, left)| left == 0 && epoch < producer.told_fence(slot))
}

impl MapRequest<'_> {
    /// Ends the request, of so many bytes.
    pub fn end(mut self, bytes: u64) {
        let raw = std::mem::take(&mut self.raw);
        self.server.end_raw(&raw, bytes);
    }
}

impl Drop for MapRequest<'_> {
    fn drop(&mut self) {
        if self.raw.number != 0 {
            self.server.end_raw(&self.raw, 0);
        }
    }
}
