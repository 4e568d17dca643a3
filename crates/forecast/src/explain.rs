//! Explanations of forecasts, as plain data that can be printed.

use std::fmt;

/// The explanation of a whole forecaster.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Length of one step, in ns.
    pub step_ns: i64,
    /// Number of steps since the first look.
    pub steps: u64,
    /// The explanations of the horizons of 1, 4, 16 and 64 steps.
    pub levels: [LevelExplanation; 4],
}

/// The explanation of one horizon.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelExplanation {
    /// The horizon, in steps.
    pub steps: u32,
    /// Name of the predictor that is followed.
    pub follows: &'static str,
    /// The reason why that predictor is followed.
    pub reason: FollowReason,
    /// The step since which it is followed; 0 is the first look.
    pub since_step: u64,
    /// Number of switches to another predictor.
    pub switches: u64,
    /// Number of forecasts that were compared with the later value.
    pub scores: u64,
    /// The greatest distance of a forecast from the last value, at present: it was earned by being
    /// better than the last value. In the stream's unit.
    pub credit: f64,
    /// Half width of the forecast at this horizon, in the stream's unit; infinite while not
    /// calibrated.
    pub half_width: f64,
    /// Share of later values that lay within it.
    pub coverage: Option<f64>,
    /// The predictors, persistence first.
    pub members: Vec<MemberExplanation>,
}

/// The explanation of one predictor at one horizon.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberExplanation {
    /// Name of the predictor.
    pub name: &'static str,
    /// Its recent absolute error as a multiple of that of persistence. `None` if persistence made
    /// no error.
    pub relative_loss: Option<f64>,
}

/// The reason why a predictor is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowReason {
    /// Too few forecasts were compared with later values.
    Start,
    /// No predictor was better than persistence by more than the margin.
    NoneBetter,
    /// Its recent error was the least.
    Least,
    /// Another predictor's error is less, but not by more than the margin.
    NearLeast,
}

impl fmt::Display for FollowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "too few forecasts compared yet",
            Self::NoneBetter => "no other was clearly better of late",
            Self::Least => "least error of late",
            Self::NearLeast => "no other has clearly less error",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {} ns, {} steps", self.step_ns, self.steps)?;
        self.levels
            .iter()
            .try_for_each(|level| write!(f, "{level}"))
    }
}

impl fmt::Display for LevelExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = if self.steps == 1 { "step" } else { "steps" };
        writeln!(
            f,
            "{} {steps}: follows {} since step {}: {}",
            self.steps, self.follows, self.since_step, self.reason
        )?;
        write!(
            f,
            "  {} forecasts compared, {} switches, at most {:.6} from the last value",
            self.scores, self.switches, self.credit
        )?;
        match self.coverage {
            Some(coverage) => writeln!(
                f,
                ", half width {:.6} ({:.1} % within)",
                self.half_width,
                coverage * 100.0
            )?,
            None if self.half_width.is_finite() => {
                writeln!(f, ", half width {:.6}", self.half_width)?;
            }
            None => writeln!(f, ", not calibrated yet")?,
        }
        for member in &self.members {
            match member.relative_loss {
                Some(loss) => writeln!(f, "  {:<24} {loss:.3}", member.name)?,
                None => writeln!(f, "  {:<24} -", member.name)?,
            }
        }
        Ok(())
    }
}
