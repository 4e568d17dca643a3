//! The targets of the evaluation, and what was reached of each.

use crate::table::{median, paragraph, range, wrapped};

/// On which side of its bound a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Wanted {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// A target, and the figure that was reached with each seed; of an exact figure, there is one.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) wanted: Wanted,
    pub(crate) reached: Vec<f64>,
    /// Digits and unit of its figures, as in ` %`.
    pub(crate) digits: usize,
    pub(crate) unit: &'static str,
}

impl Target {
    fn row(&self) -> String {
        let (digits, unit, reached) = (self.digits, self.unit, median(&self.reached));
        let (sign, bound) = match self.wanted {
            Wanted::AtMost(bound) => ("<=", bound),
            Wanted::AtLeast(bound) => (">=", bound),
        };
        let met = self.reached.iter().filter(|it| self.wanted.is_met(**it));
        let (range, seeds) = match self.reached.len() {
            1 => ("exact".to_owned(), String::new()),
            len => (
                format!("{}{unit}", range(&self.reached, digits)),
                format!("{} of {len}", met.count()),
            ),
        };
        let verdict = match self.wanted.is_met(reached) {
            true => "reached",
            false => "**missed**",
        };
        let name = &self.name;
        format!(
            "| {name} | {sign} {bound}{unit} | {reached:.digits$}{unit} | {range} | {seeds} | {verdict} |"
        )
    }
}

pub(crate) fn print(targets: &[Target]) {
    println!("## Targets, and what was reached\n");
    paragraph(
        "Keys, balance and makespan are the target `placement.quality`. The targets of the advisers are the gains over \
        round robin that Apollo's paper (4.4.2) reports, by application: data placement under VPIC-IO, prefetching \
        under Montage, replication under BD-CATS. The paper measured them on a cluster; these are simulated, BD-CATS is \
        prefetched here, and Montage has replicas as well. *Less I/O time* is one minus the time of ours by that of \
        the other policy, for each seed.",
    );
    println!(
        "| target | wanted | median | range | seeds that reach it | |\n| --- | ---: | ---: | ---: | ---: | --- |"
    );
    for target in targets {
        println!("{}", target.row());
    }
    let missed = |it: &&Target| !it.wanted.is_met(median(&it.reached));
    let missed: Vec<&str> = targets.iter().filter(missed).map(|it| &*it.name).collect();
    println!();
    let reached = targets.len() - missed.len();
    let rest = match missed.is_empty() {
        true => String::new(),
        false => format!(" Missed: {}.", missed.join("; ")),
    };
    let text = format!(
        "Reached by the median: {reached} of {}.{rest}",
        targets.len()
    );
    println!("{}", wrapped(&text));
}
