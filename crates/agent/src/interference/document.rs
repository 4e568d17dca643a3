//! The document `interference.json`: what people and the table `interference` learn of each device
//! and its writers.

use barograph_forecast::interference::Candidate;
use barograph_model::NS_PER_S;
use barograph_stream::{InterferenceRow, InterferenceStep};

use super::BandwidthWatch;
use super::engine::DeviceOutlook;
use super::groups::NamedWriter;

impl BandwidthWatch {
    /// The rows: one for each device, and after it one for each of its writers.
    pub(crate) fn document(&self) -> Vec<InterferenceRow> {
        let engine = self.engine.try_lock();
        let left_out = self.lost + engine.map_or(0, |engine| engine.left_out());
        let step_ns = self.config.step_ns();
        let rows = self.outlooks.iter().flat_map(|outlook| {
            let device = device_row(outlook, step_ns, left_out);
            let writers = outlook.writers.iter();
            let writers: Vec<_> = writers.map(|of| writer_row(outlook, of)).collect();
            std::iter::once(device).chain(writers)
        });
        rows.collect()
    }
}

fn device_row(outlook: &DeviceOutlook, step_ns: i64, left_out: u64) -> InterferenceRow {
    let steps: Vec<InterferenceStep> = outlook
        .bounded()
        .into_iter()
        .zip(0_i64..)
        .map(|((bandwidth, error, by), nth)| InterferenceStep {
            ts: outlook.ts_ns.saturating_add(step_ns.saturating_mul(nth)),
            bandwidth,
            error,
            follows: follows(by).to_owned(),
        })
        .collect();
    let first = steps.first();
    let reason = outlook.forecast.reason.clone();
    let trouble = outlook
        .trouble
        .as_ref()
        .map(|trouble| format!("; {trouble}"));
    InterferenceRow {
        device: outlook.device.clone(),
        rate: Some(outlook.writers.iter().map(|of| of.estimate.mean_rate).sum()),
        capacity: outlook.capacity.map(|capacity| capacity.value),
        capacity_source: outlook.capacity.map(|capacity| capacity.origin.to_owned()),
        bandwidth: first.map(|step| step.bandwidth),
        error: first.map(|step| step.error),
        confidence: first.map(|_| outlook.forecast.confidence),
        follows: first.map(|step| step.follows.clone()),
        reason: reason + trouble.as_deref().unwrap_or_default(),
        ts: outlook.ts_ns,
        steps,
        left_out,
        ..InterferenceRow::default()
    }
}

fn writer_row(outlook: &DeviceOutlook, of: &NamedWriter) -> InterferenceRow {
    let schedule = of.estimate.schedule;
    let row = InterferenceRow {
        device: outlook.device.clone(),
        writer: Some(of.name.clone()),
        periodic: Some(schedule.is_ok()),
        rate: Some(of.estimate.mean_rate),
        ts: outlook.ts_ns,
        ..InterferenceRow::default()
    };
    match schedule {
        Ok(schedule) => InterferenceRow {
            period_ns: Some(ns(schedule.period_s)),
            period_error_ns: Some(ns(schedule.period_error_s)),
            next_ts: Some(outlook.base_ns.saturating_add(ns(schedule.next_s))),
            jitter_ns: Some(ns(schedule.start_spread_s)),
            burst_bytes: Some(schedule.bytes),
            burst_bytes_spread: Some(schedule.bytes_spread),
            bursts: Some(schedule.bursts as u64),
            confidence: Some(schedule.confidence),
            reason: format!("{} bursts keep to a period", schedule.bursts),
            ..row
        },
        Err(reason) => InterferenceRow {
            reason: reason.to_string(),
            ..row
        },
    }
}

/// The word for a model.
fn follows(by: Candidate) -> &'static str {
    match by {
        Candidate::Mean => "mean",
        Candidate::Transform => "transform",
        Candidate::HoltWinters => "holt-winters",
        Candidate::Schedules => "schedules",
    }
}

fn ns(seconds: f64) -> i64 {
    (seconds * NS_PER_S as f64) as i64
}
