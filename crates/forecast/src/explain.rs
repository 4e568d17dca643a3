//! Why a forecast is what it is, as plain data that prints itself.

use std::fmt;

/// Of a whole forecaster.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// One step, ns.
    pub step_ns: i64,
    /// Steps since the first look.
    pub steps: u64,
    /// At horizons of 1, 4, 16 and 64 steps.
    pub levels: [LevelExplanation; 4],
}

/// Of one horizon.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelExplanation {
    /// The horizon.
    pub steps: u32,
    /// The predictor that is followed.
    pub follows: &'static str,
    /// Why that one.
    pub reason: Reason,
    /// The step since which it is followed; 0 is the first look.
    pub since_step: u64,
    /// How often another was followed.
    pub switches: u64,
    /// How many forecasts were compared with what came.
    pub scores: u64,
    /// How far from the last value a forecast may be, now: what was earned by being better than the last value.
    /// In the stream's unit.
    pub credit: f64,
    /// Of the forecast at this horizon, in the stream's unit; infinite while not calibrated.
    pub half_width: f64,
    /// Which share of what came was within it.
    pub coverage: Option<f64>,
    /// Persistence first.
    pub members: Vec<MemberExplanation>,
}

/// Of one predictor at one horizon.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberExplanation {
    /// Its name.
    pub name: &'static str,
    /// Its recent absolute error as a multiple of persistence's. None where persistence did not err.
    pub relative_loss: Option<f64>,
}

/// Why a predictor is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Too few forecasts were compared with what came.
    Start,
    /// Nobody was better than persistence by more than the margin.
    NoneBetter,
    /// Its error was the least of late.
    Least,
    /// Another's is less, but not by more than the margin.
    NearLeast,
}

impl fmt::Display for Reason {
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
