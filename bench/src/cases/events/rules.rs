//! `rule.eval`: the cost of 1,000 rules on file events, which have paths of their own, sources of
//! their own, or neither.

use barograph_rule::{EventFacts, EventRuleLimits, EventRules};
use serde_json::json;

use crate::measure::{median, thread_cpu_s};
use crate::report::{Fault, Report};

const RULES: usize = 1_000;
const EVENTS: usize = 200_000;
/// Events where each meets all rules.
const EVENTS_OF_ALL: usize = 4_000;
const ROUNDS: usize = 5;

/// Measures the three kinds of rules.
pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    for (what, events, of_rule) in [
        (
            "each with a path of its own",
            EVENTS,
            one_path as fn(usize) -> String,
        ),
        ("100 for each of 10 sources", EVENTS, one_source),
        (
            "none with a beginning of its path",
            EVENTS_OF_ALL,
            all_paths,
        ),
    ] {
        measure(report, what, events, of_rule)?;
    }
    Ok(())
}

fn one_path(at: usize) -> String {
    format!(
        "CREATE RULE r{at} ON EVENT create, close_write, rename WHERE path GLOB \
         '/scratch/group{}/project{at}/*.h5' AND size > 1000 WHEN count_over('1 min') > 0 \
         THEN RUN '/bin/index' '{{path}}'",
        at % 10
    )
}

fn one_source(at: usize) -> String {
    format!(
        "CREATE RULE r{at} ON EVENT create, close_write FROM 's{}' WHERE name GLOB '*.x{at}' \
         THEN RUN '/bin/index' '{{path}}'",
        at % 10
    )
}

fn all_paths(at: usize) -> String {
    format!(
        "CREATE RULE r{at} ON EVENT create, close_write WHERE path GLOB '*/project{at}/*.h5' \
         THEN RUN '/bin/index' '{{path}}'"
    )
}

fn measure(
    report: &mut Report,
    what: &str,
    events: usize,
    of_rule: fn(usize) -> String,
) -> Result<(), Fault> {
    let mut rules = EventRules::new(EventRuleLimits::default());
    for at in 0..RULES {
        rules.execute(&of_rule(at))?;
    }
    let path = |at: usize| format!("/scratch/group{}/project{at}/run17/output.h5", at % 10);
    let paths: Vec<String> = (0..RULES).map(path).collect();
    let sources: Vec<String> = (0..10).map(|at| format!("s{at}")).collect();
    let (mut fired, mut costs) = (0_u64, Vec::new());
    for round in 0..ROUNDS {
        let begin = thread_cpu_s();
        for at in 0..events {
            let event = EventFacts {
                kind: ["create", "close_write", "unlink"][at % 3],
                source: &sources[at % 10],
                node: "n1",
                index: at as u64,
                ts: ((round * events + at) * 1_000_000) as i64,
                path: paths[at * 7 % RULES].as_bytes(),
                size: Some(4_096),
                uid: Some(1_000),
                complete: true,
                ..EventFacts::default()
            };
            rules.evaluate(&event, &mut |_, _| fired += 1);
        }
        costs.push((thread_cpu_s() - begin) * 1e6 / events as f64);
    }
    let (of_events, looked_at) = rules.looks();
    let each = |count: u64| count as f64 / of_events as f64;
    let more = json!({"looked_at": each(looked_at), "fired": each(fired)});
    let case = format!("{RULES} rules, {what}, processor");
    report.row_with("rule.eval", &case, median(&mut costs), "us per event", more);
    Ok(())
}
