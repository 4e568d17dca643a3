//! The policy of augmentation over many steps: the plot, the bound, hysteresis and probes.

use crate::augment::buckets::{Augmentation, Bucket, Tier};
use crate::augment::thresholds::{BandwidthHistory, BandwidthThresholds};
use crate::bound::ErrorBound;
use crate::decision::{Alternative, Decision};

/// The largest uncertainty of a degree that holds it: a prediction that moves further over the
/// plot is followed however uncertain it is. A degree that was held for more would mostly be
/// the first one.
const UNCERTAINTY_MAX: f64 = 0.15;
/// Fewest bytes of a read that say something about the bandwidth of a device: a shorter one takes
/// the time of a request, whatever the bandwidth is.
pub const MEASURED_BYTES_MIN: u64 = 1 << 20;

/// The settings of one shared tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AugmentationConfig {
    /// The tier whose bandwidth is predicted. Buckets on other tiers are read without regard to it.
    pub tier: Tier,
    /// The thresholds of the plot; `None`: they are learnt from observed bandwidths.
    pub thresholds: Option<BandwidthThresholds>,
    /// The smallest change of the degree that is followed, in `0.0..=1.0`.
    pub band: f64,
    /// The number of steps without a measured bandwidth after which a probe is read.
    pub probe_after_steps: u32,
    /// Most bytes of a probe.
    pub probe_bytes_max: u64,
    /// Fewest bytes of a read that measures the bandwidth. A plan that reads fewer may
    /// have a probe.
    pub measured_bytes_min: u64,
}

impl AugmentationConfig {
    /// Settings with learnt thresholds, a band of a twentieth, and a probe of at most 4 MiB in the
    /// third step without a measurement.
    pub fn learnt(tier: Tier) -> Self {
        Self {
            tier,
            thresholds: None,
            band: 0.05,
            probe_after_steps: 3,
            probe_bytes_max: 4 << 20,
            measured_bytes_min: MEASURED_BYTES_MIN,
        }
    }
}

/// A predicted bandwidth of the shared tier at the next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandwidthPrediction {
    /// The predicted bandwidth, in bytes/s.
    pub bandwidth: f64,
    /// The half width of the interval in which it is expected, in bytes/s. What is not a number of
    /// at least 0 counts as unknown.
    pub half_width: f64,
}

impl BandwidthPrediction {
    fn half_width(&self) -> f64 {
        match self.half_width >= 0.0 {
            true => self.half_width,
            false => f64::INFINITY,
        }
    }
}

/// One step of an analysis: what may be read, and what must be kept.
#[derive(Clone, Copy, Debug)]
pub struct AugmentationRequest<'a> {
    /// The buckets in the order in which they are read.
    pub buckets: &'a [Bucket],
    /// The error of the base representation, without any bucket.
    pub base_error: f64,
    /// The bytes of the base that lie on the shared tier.
    pub base_bytes: u64,
    /// The error bound that was asked for, if any.
    pub bound: Option<ErrorBound>,
    /// The predicted bandwidth, if there is a prediction.
    pub prediction: Option<BandwidthPrediction>,
}

/// A read of what the plan leaves out, by which the bandwidth is measured. Its bytes
/// are not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRead {
    /// The index of the bucket, which is the first one on the shared tier that the plan leaves out.
    pub bucket: usize,
    /// The bytes to be read from its beginning on, of buckets after it too if it has fewer.
    pub bytes: u64,
}

/// What is read in one step, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct AugmentationPlan {
    /// The number of buckets to be read, from the first on.
    pub buckets: usize,
    /// The number that the bound needs; all, if not even all keep it.
    pub needed: usize,
    /// The number that the degree allows.
    pub allowed: usize,
    /// The degree of augmentation that was applied, in `0.0..=1.0`.
    pub degree: f64,
    /// The bytes of these buckets, on all tiers.
    pub bytes: u64,
    /// The error that remains after them.
    pub error: f64,
    /// Whether the bound is kept. It is not only if not even all buckets keep it.
    pub is_bound_kept: bool,
    /// A read that only measures, where too little else is read from the tier.
    pub probe: Option<ProbeRead>,
    /// The reason, as a sentence.
    pub reason: String,
    /// What was considered and not chosen.
    pub alternatives: Vec<Alternative>,
}

/// The degree that the plot gives, before and after hysteresis.
struct SettledDegree {
    /// The degree for the prediction alone, and for the two ends of its interval; `None` without
    /// thresholds or without a prediction.
    fresh: Option<[f64; 3]>,
    applied: f64,
    reason: String,
}

/// The state of one shared tier between steps.
#[derive(Clone, Debug)]
pub struct AugmentationPolicy {
    config: AugmentationConfig,
    history: BandwidthHistory,
    held: Option<f64>,
    steps_unmeasured: u32,
}

impl AugmentationPolicy {
    /// The policy of a tier of which nothing was observed yet.
    pub fn new(config: AugmentationConfig) -> Self {
        Self {
            config,
            history: BandwidthHistory::default(),
            held: None,
            steps_unmeasured: 0,
        }
    }

    /// Takes in a bandwidth that was measured on the tier, in bytes/s. What is not a positive
    /// number is no measurement. The caller has corrected it for the weight that the reader had.
    pub fn observe(&mut self, bandwidth: f64) {
        if bandwidth.is_finite() && bandwidth > 0.0 {
            self.history.observe(bandwidth);
            self.steps_unmeasured = 0;
        }
    }

    /// The thresholds in use: those configured, or those learnt, if enough was observed.
    pub fn thresholds(&self) -> Option<BandwidthThresholds> {
        self.config.thresholds.or_else(|| self.history.thresholds())
    }

    /// Plans one step. It is called once a step, since steps without a measurement are counted.
    ///
    /// The plan reads the larger of what the bound needs and what the degree allows (Tango,
    /// Algorithm 1, line 7), and the degree allows as many whole buckets as fit into its share of
    /// the bytes on the tier; the paper leaves open what a percentage of an augmentation is.
    pub fn plan(&mut self, request: &AugmentationRequest<'_>) -> AugmentationPlan {
        self.steps_unmeasured = self.steps_unmeasured.saturating_add(1);
        let augmentation = Augmentation::new(request.buckets, request.base_error, self.config.tier);
        let degree = self.settle(request.prediction);
        let all = augmentation.len();
        let met = request.bound.map_or(Some(0), |it| augmentation.needed(&it));
        let needed = met.unwrap_or(all);
        let allowed = augmentation.within(degree.applied);
        let mut buckets = needed.max(allowed);
        if let (Some(bound), Some(_)) = (&request.bound, met) {
            buckets = augmentation.kept(buckets, bound);
        }
        let probe = self.probe(request, &augmentation, buckets);
        AugmentationPlan {
            buckets,
            needed,
            allowed,
            degree: degree.applied,
            bytes: augmentation.bytes(buckets),
            error: augmentation.error(buckets),
            is_bound_kept: met.is_some(),
            probe,
            reason: reason(request, &augmentation, &degree, (buckets, met), probe),
            alternatives: alternatives(&augmentation, &degree, buckets, needed),
        }
    }

    /// A probe, if the plan reads too little of the tier for a measurement and one is wanted: at
    /// every step while the thresholds are learnt, else after the configured number of steps.
    fn probe(
        &self,
        request: &AugmentationRequest<'_>,
        augmentation: &Augmentation<'_>,
        buckets: usize,
    ) -> Option<ProbeRead> {
        let is_due = self.thresholds().is_none()
            || self.steps_unmeasured >= self.config.probe_after_steps.max(1);
        let least = self.config.measured_bytes_min.max(1);
        let shared = augmentation.shared_bytes(buckets);
        let planned = request.base_bytes.saturating_add(shared);
        if !is_due || planned >= least {
            return None;
        }
        let bucket = augmentation.next_shared(buckets)?;
        let left = augmentation.shared_bytes(augmentation.len()) - shared;
        let bytes = left.min(self.config.probe_bytes_max.max(1));
        // A small array measures nothing, even as a whole.
        let is_enough = planned.saturating_add(bytes) >= least;
        is_enough.then_some(ProbeRead { bucket, bytes })
    }

    /// The degree of this step. One that was applied before is kept until the new one is further
    /// away than its uncertainty and the band. A prediction whose whole interval is beyond an end
    /// of the plot is followed, so that a quiet device is not left a little short of everything.
    fn settle(&mut self, prediction: Option<BandwidthPrediction>) -> SettledDegree {
        let nothing = |reason: String| SettledDegree {
            fresh: None,
            applied: 0.0,
            reason,
        };
        let Some(plot) = self.thresholds() else {
            self.held = None;
            let seen = self.history.len();
            return nothing(format!(
                "the thresholds of the tier are still being learnt ({seen} bandwidths observed)"
            ));
        };
        let Some(prediction) = prediction.filter(|it| !it.bandwidth.is_nan()) else {
            self.held = None;
            return nothing("no bandwidth is predicted".to_owned());
        };
        let (bandwidth, half) = (prediction.bandwidth, prediction.half_width());
        let fresh = plot.degree(bandwidth);
        let ends = [plot.degree(bandwidth - half), plot.degree(bandwidth + half)];
        let uncertainty = (half / plot.span()).min(UNCERTAINTY_MAX);
        let band = self.config.band.clamp(0.0, 1.0);
        let threshold = uncertainty.max(band);
        let is_beyond = ends[0] >= 1.0 || ends[1] <= 0.0;
        let held = self.held.filter(|held| {
            let moved = (fresh - held).abs();
            moved > 0.0 && moved <= threshold && !is_beyond
        });
        let applied = held.unwrap_or(fresh);
        self.held = Some(applied);
        let mut reason = format!(
            "{bandwidth:.4e} ± {half:.2e} bytes/s are predicted, between thresholds of {:.4e} and {:.4e}: degree {fresh:.3}",
            plot.low(),
            plot.high()
        );
        if let Some(held) = held {
            reason += &format!("; {held:.3} is kept, since the change is not above {threshold:.3}");
        }
        SettledDegree {
            fresh: Some([fresh, ends[0], ends[1]]),
            applied,
            reason,
        }
    }
}

fn reason(
    request: &AugmentationRequest<'_>,
    augmentation: &Augmentation<'_>,
    degree: &SettledDegree,
    (buckets, met): (usize, Option<usize>),
    probe: Option<ProbeRead>,
) -> String {
    let all = augmentation.len();
    let mut text = format!("{buckets} of {all} buckets: {}", degree.reason);
    match (&request.bound, met) {
        (None, _) => text += "; no error bound was asked for",
        (Some(bound), Some(needed)) => text += &format!("; {bound} needs {needed}"),
        (Some(bound), None) => text += &format!("; not even all of them keep {bound}"),
    }
    if let Some(ProbeRead { bucket, bytes }) = probe {
        text += &format!(
            "; {bytes} bytes from bucket {bucket} on are read as a probe, since nothing was measured"
        );
    }
    text
}

/// The other numbers of buckets that the bound, the prediction and its interval speak for.
fn alternatives(
    augmentation: &Augmentation<'_>,
    degree: &SettledDegree,
    chosen: usize,
    needed: usize,
) -> Vec<Alternative> {
    let mut all = vec![(needed, "what the bound needs", "the degree allows more")];
    if let Some([fresh, low, high]) = degree.fresh {
        let of = |degree: f64| augmentation.within(degree).max(needed);
        all.extend([
            (
                of(fresh),
                "the degree of this prediction",
                "an earlier degree is kept",
            ),
            (
                of(low),
                "the low end of the prediction",
                "the middle is used",
            ),
            (
                of(high),
                "the high end of the prediction",
                "the middle is used",
            ),
        ]);
    }
    let everything = augmentation.len();
    all.push((everything, "everything", "the degree allows less"));
    let other = all.iter().filter(|(count, ..)| *count != chosen);
    other
        .map(|(count, what, why_not)| Alternative {
            what: format!(
                "{what}: {count} buckets, {} bytes, error {}",
                augmentation.bytes(*count),
                augmentation.error(*count)
            ),
            why_not: (*why_not).to_owned(),
        })
        .collect()
}

impl AugmentationPlan {
    /// The record of this plan as a decision about `subject`, such as the name of a dataset.
    pub fn decision(
        &self,
        id: u64,
        made_ns: i64,
        subject: &str,
        request: &AugmentationRequest<'_>,
    ) -> Decision {
        let mut decision = Decision::new(id, made_ns, "augmentation", subject, self.buckets as f64)
            .because(&self.reason)
            .input("needed_buckets", self.needed as f64)
            .input("allowed_buckets", self.allowed as f64)
            .input("degree", self.degree)
            .input("bytes", self.bytes as f64)
            .input("error", self.error);
        if let Some(bound) = &request.bound {
            decision = decision.input("bound", &*bound.to_string());
        }
        if let Some(prediction) = &request.prediction {
            decision = decision
                .input("predicted_bytes_per_s", prediction.bandwidth)
                .input("predicted_half_width_bytes_per_s", prediction.half_width);
        }
        if let Some(probe) = &self.probe {
            decision = decision.input("probe_bytes", probe.bytes as f64);
        }
        let all = self.alternatives.iter();
        all.fold(decision, |decision, it| decision.alternative(it))
    }
}
