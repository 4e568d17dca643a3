//! The controllers of this agent, as they are listed, explained and switched: those of readers of
//! arrays and of middleware that places blocks, which are here, one for each volume on which
//! programs take turns, and that of server maps.

use std::sync::Arc;

use barograph_control::{AugmentationRequest, WeightFinding};
use barograph_model::{NS_PER_S, RequestSender};
use barograph_stream::ControllersRow;

use super::config::{ControlModeConfig, WeightRights};
use super::placing::PLACEMENT;
use super::{AUGMENTATION, ControlShared, WEIGHT};
use crate::decisions::{
    ConfiguredMode, Controller, ControllerLevel, DecisionTally, HoldOff, controller_row,
};
use crate::io_schedules::volume_controllers;

/// Most readers whose weights are held off that are listed.
const HELD_MAX: usize = 16;

/// How much of an array is read.
struct AugmentationController<'a>(&'a ControlShared);

/// With which I/O weight it is read.
struct WeightController<'a>(&'a ControlShared);

/// Where blocks go.
struct PlacementController<'a>(&'a ControlShared);

impl ControlShared {
    /// All controllers. A new kind of controller is added here.
    pub(super) fn roster(&self) -> Vec<Box<dyn Controller + '_>> {
        let mut all: Vec<Box<dyn Controller + '_>> = vec![
            Box::new(AugmentationController(self)),
            Box::new(WeightController(self)),
            Box::new(PlacementController(self)),
        ];
        for volume in volume_controllers(&self.schedules) {
            all.push(Box::new(volume));
        }
        all.push(Box::new(Arc::clone(self.maps.control())));
        all
    }

    /// The rows of all controllers.
    pub(super) fn controller_rows(&self) -> Vec<ControllersRow> {
        let roster = self.roster();
        roster.iter().map(|it| self.controller_row(&**it)).collect()
    }

    /// The row of a controller.
    pub(super) fn controller_row(&self, controller: &dyn Controller) -> ControllersRow {
        let changes = self.changes().tally(&controller.name());
        controller_row(controller, self.schedules.switches(), &changes)
    }

    fn configured(&self) -> ConfiguredMode {
        match self.config.mode {
            ControlModeConfig::Live => ConfiguredMode::Live,
            ControlModeConfig::DryRun => ConfiguredMode::DryRun,
            ControlModeConfig::Off => ConfiguredMode::Off,
        }
    }
}

impl Controller for AugmentationController<'_> {
    fn name(&self) -> String {
        AUGMENTATION.into()
    }

    fn level(&self) -> ControllerLevel {
        ControllerLevel::Node
    }

    fn about(&self) -> String {
        "how much of an array is read".into()
    }

    fn configured(&self) -> ConfiguredMode {
        self.0.configured()
    }

    fn held_off(&self) -> Vec<HoldOff> {
        Vec::new()
    }

    fn end_hold_off(&self) -> bool {
        false
    }

    fn tally(&self) -> DecisionTally {
        self.0.readers().tally(AUGMENTATION)
    }

    fn explain(&self, asker: &RequestSender) -> Vec<String> {
        let nothing = AugmentationRequest {
            buckets: &[],
            base_error: 0.0,
            base_bytes: 0,
            bound: None,
            prediction: None,
        };
        let readers = self.0.readers();
        let mut told: Vec<String> = Vec::new();
        for (uid, device, reader) in readers.devices() {
            if uid != asker.uid {
                continue;
            }
            let prediction = reader.measured();
            let request = AugmentationRequest {
                prediction,
                ..nothing
            };
            let plan = reader.policy.clone().plan(&request);
            let expected = prediction.map_or_else(
                || "too few own reads to expect a bandwidth".to_owned(),
                |it| {
                    format!(
                        "{:.3} ± {:.3} MB/s by own reads",
                        it.bandwidth / 1e6,
                        it.half_width / 1e6
                    )
                },
            );
            told.push(format!(
                "the next read of this user from {device}: {:.0} % of what is beyond the bound ({}); {expected}",
                plan.degree * 100.0,
                plan.reason
            ));
        }
        if told.is_empty() {
            told.push(
                "this user has read nothing yet: a first read has what its error bound needs"
                    .into(),
            );
        }
        told
    }

    // What was planned is read by its reader, and ends with it.
    fn paused(&self, _: &str) {}
}

impl Controller for WeightController<'_> {
    fn name(&self) -> String {
        WEIGHT.into()
    }

    fn level(&self) -> ControllerLevel {
        ControllerLevel::Node
    }

    fn about(&self) -> String {
        "with which I/O weight an array is read".into()
    }

    fn configured(&self) -> ConfiguredMode {
        match self.0.config.weights {
            WeightRights::Off => ConfiguredMode::Off,
            _ => self.0.configured(),
        }
    }

    fn held_off(&self) -> Vec<HoldOff> {
        let (now_ns, wall_ns) = (self.0.clock.monotonic_ns(), self.0.clock.now_ns());
        let readers = self.0.readers();
        let held = readers.devices().filter_map(|(_, device, reader)| {
            let until_ns = reader.weights.held_until(now_ns)?;
            Some(HoldOff {
                what: format!("raised weights of a reader on {device}"),
                until_ns: until_ns.saturating_sub(now_ns).saturating_add(wall_ns),
                reason: "they have shown no effect".into(),
                is_whole: false,
            })
        });
        held.take(HELD_MAX).collect()
    }

    fn end_hold_off(&self) -> bool {
        self.0.readers().end_hold_off(self.0.clock.monotonic_ns())
    }

    fn tally(&self) -> DecisionTally {
        self.0.readers().tally(WEIGHT)
    }

    fn explain(&self, asker: &RequestSender) -> Vec<String> {
        let mut told = vec![match (self.0.config.weights, asker.may_control) {
            (WeightRights::Off, _) => "nobody gets a weight: control.weights is off".to_owned(),
            (WeightRights::Controllers, false) => {
                "this user gets no weight: it takes the right to control, or control.weights = \"everyone\""
                    .into()
            }
            _ => "a read gets a weight if its control group was given to the agent (`baro weights setup`)".into(),
        }];
        told.push(format!(
            "{} weights are set at present",
            self.0.weights().count()
        ));
        let now_ns = self.0.clock.monotonic_ns();
        let readers = self.0.readers();
        for (uid, device, reader) in readers.devices() {
            if uid != asker.uid {
                continue;
            }
            let found = reader.weights.last().map(WeightFinding::sentence);
            if let Some(until_ns) = reader.weights.held_until(now_ns) {
                let left_s = until_ns.saturating_sub(now_ns) / NS_PER_S;
                told.push(format!(
                    "raised weights of this user on {device} are held off for {left_s} s more: {}",
                    found.unwrap_or_default()
                ));
            } else if let Some(found) = found {
                told.push(format!(
                    "raised weights of this user on {device} were compared: {found}"
                ));
            }
        }
        told
    }

    fn paused(&self, why: &str) {
        let ended = self.0.weights().end_all(why);
        self.0.mark(ended);
    }
}

impl Controller for PlacementController<'_> {
    fn name(&self) -> String {
        PLACEMENT.into()
    }

    fn level(&self) -> ControllerLevel {
        ControllerLevel::Node
    }

    fn about(&self) -> String {
        "where middleware that asks puts blocks".into()
    }

    fn configured(&self) -> ConfiguredMode {
        self.0.configured()
    }

    fn held_off(&self) -> Vec<HoldOff> {
        Vec::new()
    }

    fn end_hold_off(&self) -> bool {
        false
    }

    fn tally(&self) -> DecisionTally {
        self.0.placements().book.tally(PLACEMENT)
    }

    fn explain(&self, asker: &RequestSender) -> Vec<String> {
        self.0.explain_placement(asker)
    }

    // What was advised is done by who has asked, and ends with it.
    fn paused(&self, _: &str) {}
}
