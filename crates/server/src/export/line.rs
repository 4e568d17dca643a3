//! The export to one receiver: requests are made when they are due, sent, and tried again after a
//! failure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::Clock;
use tracing::{info, warn};

use crate::ServerError;
use crate::export::Batch;
use crate::export::otlp::{self, Otlp};
use crate::export::receiver::ExportReceiver;
use crate::export::remote_write::{self, RemoteWrite};
use crate::export::sender::{Backoff, SendFailure, SendOutcome, Sender, random};
use crate::export::status::ExportCounters;
use crate::view::ServedView;

/// Most requests in one turn, so that other receivers get their turn too.
const REQUESTS_PER_TURN_MAX: usize = 16;

/// Refusals in a row after which the parts of a request are not tried one by one any more: more
/// than are needed to find one bad sample in a full request.
const UNFIT_MAX: u32 = 24;

/// One receiver, the samples that wait for it, and its times.
pub(super) struct ExportLine {
    work: Work,
    sender: Sender,
    counters: Arc<ExportCounters>,
    every_ns: i64,
    /// Requests that are made and not delivered, to be tried again unchanged. Several are the parts
    /// of one that was refused.
    pending: VecDeque<Batch>,
    /// Number of refusals since the last delivery.
    unfit: u32,
    due_ns: i64,
    /// Nothing is sent before this time, because the receiver failed.
    rest_until_ns: i64,
    backoff: Backoff,
    is_failing: bool,
    /// Whether a warning about refused samples was logged since exports last arrived again.
    is_unfit_said: bool,
}

enum Work {
    Otlp(Otlp),
    RemoteWrite(RemoteWrite),
}

impl ExportLine {
    pub(super) fn otlp(receiver: &ExportReceiver) -> Result<Self, ServerError> {
        let sender = Sender::new(receiver, &otlp::PROTOCOL)?;
        let work = Work::Otlp(Otlp::new(receiver.selection.clone()));
        Ok(Self::new(
            work,
            sender,
            Arc::new(ExportCounters::new("otlp")),
            receiver.every_ns,
        ))
    }

    pub(super) fn remote_write(receiver: &ExportReceiver) -> Result<Self, ServerError> {
        let sender = Sender::new(receiver, &remote_write::PROTOCOL)?;
        let counters = Arc::new(ExportCounters::new("remote_write"));
        let work = RemoteWrite::new(receiver.selection.clone(), Arc::clone(&counters));
        Ok(Self::new(
            Work::RemoteWrite(work),
            sender,
            counters,
            receiver.every_ns,
        ))
    }

    fn new(work: Work, sender: Sender, counters: Arc<ExportCounters>, every_ns: i64) -> Self {
        Self {
            work,
            sender,
            counters,
            every_ns,
            pending: VecDeque::new(),
            unfit: 0,
            due_ns: 0,
            rest_until_ns: 0,
            backoff: Backoff::default(),
            is_failing: false,
            is_unfit_said: false,
        }
    }

    pub(super) fn counters(&self) -> Arc<ExportCounters> {
        Arc::clone(&self.counters)
    }

    /// Logs the address of the receiver.
    pub(super) fn announce(&self) {
        info!(
            to = self.counters.to,
            url = self.sender.shown(),
            "exporting"
        );
    }

    /// Does the work that is due now; ends early if `stopped`.
    pub(super) fn turn(
        &mut self,
        view: &Arc<ServedView>,
        clock: &dyn Clock,
        stopped: &dyn Fn() -> bool,
    ) {
        let (now_ns, monotonic_ns) = (clock.now_ns(), clock.monotonic_ns());
        let is_urgent = match &mut self.work {
            Work::Otlp(_) => false,
            Work::RemoteWrite(work) => work.look(view),
        };
        let is_due = monotonic_ns >= self.due_ns;
        if is_due {
            self.due_ns = monotonic_ns + self.every_ns;
            if let Work::Otlp(work) = &mut self.work {
                // Newer values replace those that could not be sent.
                let given_up: u64 = self.pending.drain(..).map(|b| b.known_lost()).sum();
                self.counters.lost(given_up + work.begin(view, now_ns));
            }
        }
        let has_work = match &self.work {
            Work::Otlp(_) => true,
            Work::RemoteWrite(_) => is_due || is_urgent || !self.pending.is_empty(),
        };
        if !has_work || monotonic_ns < self.rest_until_ns {
            return;
        }
        for _ in 0..REQUESTS_PER_TURN_MAX {
            if self.pending.is_empty() {
                self.pending.extend(match &mut self.work {
                    Work::Otlp(work) => work.next(),
                    Work::RemoteWrite(work) => work.next(now_ns),
                });
            }
            if stopped() {
                return;
            }
            let Some(batch) = self.pending.pop_front() else {
                return;
            };
            let outcome = self.sender.post(&batch.body);
            if !self.settle(batch, outcome, clock) {
                return;
            }
        }
        // There is more to send: go on at the next turn.
        self.due_ns = match self.work {
            Work::Otlp(_) => self.due_ns,
            Work::RemoteWrite(_) => 0,
        };
    }

    /// Counts the outcome of a request and decides what becomes of it; returns whether to go on at
    /// once.
    fn settle(&mut self, batch: Batch, outcome: SendOutcome, clock: &dyn Clock) -> bool {
        let (to, url) = (self.counters.to, self.sender.shown());
        match outcome {
            SendOutcome::Delivered(answer) => {
                self.backoff.reset();
                self.unfit = 0;
                if std::mem::take(&mut self.is_failing) {
                    // Not at each delivery: a receiver that refuses one stream and takes all others
                    // would be logged again and again.
                    self.is_unfit_said = false;
                    // Logged at the level of the failure, so that a reader of the warning also sees
                    // its end.
                    warn!(to, url, "exports arrive again");
                }
                let rejected = match self.work {
                    Work::Otlp(_) => otlp::rejected(&answer).map_or(0, |(points, _)| points),
                    Work::RemoteWrite(_) => 0,
                };
                let rejected = rejected.min(batch.samples);
                self.counters.lost(rejected);
                self.counters.sent(batch.samples - rejected);
                true
            }
            SendOutcome::Unfit(reason) if matches!(self.work, Work::RemoteWrite(_)) => {
                self.counters.failed();
                self.part(&batch, &reason, clock)
            }
            SendOutcome::Refused(reason) | SendOutcome::Unfit(reason) => {
                self.counters.failed();
                self.counters.lost(batch.known_lost());
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(
                        to,
                        url, reason, "an export is refused, its samples are lost"
                    );
                }
                // A receiver that refuses once mostly refuses again, so it is not asked at full
                // speed.
                self.rest(None, clock);
                false
            }
            SendOutcome::Later(SendFailure {
                reason,
                asked,
                may_be_there,
            }) => {
                self.counters.failed();
                if !std::mem::replace(&mut self.is_failing, true) {
                    warn!(to, url, reason, "an export failed and is tried again");
                }
                self.pending.push_front(Batch {
                    may_be_there: batch.may_be_there || may_be_there,
                    ..batch
                });
                self.rest(asked, clock);
                false
            }
        }
    }

    /// Halves a request that was refused because of a part of its content, so that the other part
    /// gets through; returns whether to go on at once.
    fn part(&mut self, batch: &Batch, reason: &str, clock: &dyn Clock) -> bool {
        self.unfit += 1;
        let is_hopeless = self.unfit > UNFIT_MAX;
        if !is_hopeless && let Some(parts) = remote_write::split(batch) {
            for part in parts.into_iter().rev() {
                self.pending.push_front(part);
            }
            return true;
        }
        // A batch that may have arrived before is refused because it is there already.
        if !batch.may_be_there {
            self.counters.lost(batch.samples);
            if !std::mem::replace(&mut self.is_unfit_said, true) {
                let (to, url) = (self.counters.to, self.sender.shown());
                warn!(
                    to,
                    url, reason, "samples are refused, and lost; the others are sent without them"
                );
            }
        }
        if !is_hopeless {
            return true;
        }
        // The receiver takes nothing, so it is not asked at full speed.
        if !std::mem::replace(&mut self.is_failing, true) {
            let (to, url) = (self.counters.to, self.sender.shown());
            warn!(
                to,
                url,
                reason,
                "{} requests in a row are refused: exports are lost until one is accepted",
                self.unfit
            );
        }
        let parts: u64 = self.pending.drain(..).map(|part| part.known_lost()).sum();
        self.counters.lost(parts);
        self.rest(None, clock);
        false
    }

    fn rest(&mut self, asked: Option<Duration>, clock: &dyn Clock) {
        let wait = self.backoff.next(asked, random());
        let wait_ns = i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX);
        self.rest_until_ns = clock.monotonic_ns().saturating_add(wait_ns);
    }
}
