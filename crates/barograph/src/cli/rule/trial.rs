//! Trying rules on file events without an agent's doing: on the events that are recorded, and on
//! tables of events in Markdown.

use std::path::PathBuf;

use barograph_agent::{Config, action_words, check_work, event_facts, scheduled_words};
use barograph_event::{EVENT_STREAM, FileEvent, SOURCE_LABEL};
use barograph_model::SqlLimits;
use barograph_rule::{
    EventRule, EventRuleLimits, EventRuleStatement, EventRules, RuleLimits, Rules,
    check_rule_markdown, work_of_condition,
};
use clap::Args;
use serde_json::json;

use super::super::event::{event_of, quoted, text};
use super::super::{Target, Usage, output, statement};

/// Most times of a schedule that are shown.
const SCHEDULED_MAX: usize = 5;

/// Which statements and events a rehearsal is of.
#[derive(Args)]
pub(super) struct DryRun {
    /// The statement of the rule, or the name of one that exists
    #[arg(allow_hyphen_values = true, value_parser = statement::text)]
    rule: String,
    /// Start of the events: nanoseconds, RFC 3339 or a time ago
    #[arg(
        long,
        visible_alias = "start",
        value_name = "TIME",
        default_value = "-1h",
        allow_hyphen_values = true
    )]
    since: String,
    /// Most firings that are shown
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    target: Target,
}

/// The document that is tested.
#[derive(Args)]
pub(super) struct Test {
    /// Markdown with rules in blocks of SQL and tables of events below each
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The statement that is checked.
#[derive(Args)]
pub(super) struct Check {
    /// The statement
    #[arg(allow_hyphen_values = true, value_parser = statement::text)]
    statement: String,
    /// Configuration file of the agent that is to have the rule
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Checks the statement, and says what it does. A fault names its place.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let sql = &self.statement;
        let (kind, name, work) = match EventRuleStatement::is_one(sql) {
            true => {
                let (rules, name) = only(sql)?;
                let rule = rules.get(&name);
                let rule = rule.ok_or_else(|| Usage("it makes no rule".into()))?;
                let kind = match rule.schedule {
                    Some(_) => "schedule",
                    None => "event",
                };
                (kind, name, Some(rule.work.clone()))
            }
            false => {
                let mut rules = Rules::new(RuleLimits::default());
                let made = rules.execute(sql, 0);
                made.map_err(|error| Usage(error.to_string()))?;
                let name = rules.reports().into_iter().next().map(|rule| rule.name);
                let name =
                    name.ok_or_else(|| Usage("that drops a rule: give one that makes it".into()))?;
                let work = work_of_condition(sql).map_err(|error| Usage(error.to_string()))?;
                ("condition", name, work.map(|(work, _)| work))
            }
        };
        if let (Some(path), Some(work)) = (&self.config, &work) {
            Config::read(path)?.action.check(work).map_err(Usage)?;
        }
        let what = work.map_or_else(|| "calls programs".into(), |work| work.summary());
        match self.json {
            true => output::print_json(&json!({ "name": name, "on": kind, "what": what })),
            false => output::print(&format!(
                "{name} is a rule on {}: {what}\n",
                match kind {
                    "event" => "events",
                    "schedule" => "a schedule",
                    _ => "a condition",
                }
            )),
        }
    }
}

/// The statement of a rule, by its name or by itself.
fn statement_of(target: &Target, rule: &str) -> anyhow::Result<String> {
    if rule.contains(char::is_whitespace) {
        return Ok(rule.to_owned());
    }
    Ok(super::one(target, rule)?.sql.clone())
}

/// A set of this one rule, and its name.
fn only(sql: &str) -> anyhow::Result<(EventRules, String)> {
    let mut rules = EventRules::new(EventRuleLimits::default());
    rules
        .execute(sql)
        .map_err(|error| Usage(error.to_string()))?;
    let rule = rules.list().next();
    let rule = rule.ok_or_else(|| Usage("that drops a rule: give one that makes it".into()))?;
    check_work(&rule.work).map_err(Usage)?;
    let name = rule.name.clone();
    Ok((rules, name))
}

/// Recorded events, with their sources and nodes, by time.
fn recorded(target: &Target, wanted: &str) -> anyhow::Result<Vec<(FileEvent, String)>> {
    let sql = format!(
        "SELECT ts, value, {SOURCE_LABEL} FROM {EVENT_STREAM} WHERE {wanted} ORDER BY ts, idx"
    );
    let limits = SqlLimits {
        rows_max: usize::MAX,
        ..SqlLimits::default()
    };
    let rows = target.observer()?.sql(&sql, &limits)?;
    let events = (0..rows.len()).filter_map(|row| event_of(&rows, row));
    Ok(events.collect())
}

/// What a rule would have done for one event.
struct Rehearsed {
    event: FileEvent,
    source: String,
    words: Vec<String>,
}

/// What a rule would have done.
struct Rehearsal {
    events: usize,
    fires: usize,
    suppressed: u64,
    fault: String,
    /// The first firings.
    shown: Vec<Rehearsed>,
}

impl DryRun {
    /// Evaluates the rule on recorded events, and prints what it would run. Nothing is run.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let sql = statement_of(&self.target, &self.rule)?;
        let (rules, _) = only(&sql)?;
        if let Some(rule) = rules.list().find(|rule| rule.schedule.is_some()) {
            return self.run_schedule(rule);
        }
        let rehearsal = self.rehearse(rules)?;
        match self.target.json {
            true => output::print_json(&rehearsal.json()),
            false => rehearsal.print(&self.since),
        }
    }

    /// Prints the last times of a rule on a schedule.
    fn run_schedule(&self, rule: &EventRule) -> anyhow::Result<()> {
        let now_ns = i64::try_from(jiff::Timestamp::now().as_nanosecond())?;
        let times = scheduled_words(rule, (now_ns, self.limit.min(SCHEDULED_MAX)));
        let times = times.into_iter().map(|(time_ns, words)| {
            let words: Vec<String> = words.iter().map(|word| text(word)).collect();
            (time_ns, words)
        });
        if self.target.json {
            let times = times.map(|(time_ns, words)| json!({ "ts": time_ns, "argv": words }));
            return output::print_json(&json!({ "times": times.collect::<Vec<_>>() }));
        }
        for (time_ns, words) in times {
            let time = jiff::Timestamp::from_nanosecond(i128::from(time_ns))?;
            let words = words.join(" ");
            output::print(&format!("{time}\n    {}\n", output::plain(&words)))?;
        }
        output::print("these are the last times of its schedule; nothing was run\n")
    }

    fn rehearse(&self, mut rules: EventRules) -> anyhow::Result<Rehearsal> {
        let wanted = format!("ts >= '{}'", quoted(&self.since));
        let events = recorded(&self.target, &wanted)?;
        let mut shown = Vec::new();
        let mut fires = 0;
        for (event, source) in &events {
            let facts = event_facts(event, source, "");
            rules.evaluate(&facts, &mut |rule, _| {
                fires += 1;
                if shown.len() < self.limit {
                    let words = action_words(rule, &facts);
                    shown.push(Rehearsed {
                        event: event.clone(),
                        source: source.clone(),
                        words: words.iter().map(|word| text(word)).collect(),
                    });
                }
            });
        }
        let reports = rules.reports();
        let report = reports.first();
        Ok(Rehearsal {
            events: events.len(),
            fires,
            suppressed: report.map_or(0, |report| report.suppressed),
            fault: report.map_or_else(String::new, |report| report.fault.clone()),
            shown,
        })
    }
}

impl Rehearsal {
    fn json(&self) -> serde_json::Value {
        let shown = self.shown.iter().map(|one| {
            json!({
                "ts": one.event.ts,
                "kind": one.event.kind.as_str(),
                "path": text(&one.event.path),
                "source": one.source,
                "idx": one.event.index,
                "argv": one.words,
            })
        });
        json!({
            "events": self.events,
            "fires": self.fires,
            "suppressed": self.suppressed,
            "fault": self.fault,
            "shown": shown.collect::<Vec<_>>(),
        })
    }

    fn print(&self, since: &str) -> anyhow::Result<()> {
        for one in &self.shown {
            let time = jiff::Timestamp::from_nanosecond(i128::from(one.event.ts))?;
            let (kind, path) = (one.event.kind.as_str(), text(&one.event.path));
            let event = format!("{time:.3}  {kind:<11}  {path}");
            let words = one.words.join(" ");
            let (event, words) = (output::plain(&event), output::plain(&words));
            output::print(&format!("{event}\n    {words}\n"))?;
        }
        let more = match self.fires - self.shown.len() {
            0 => String::new(),
            more => format!(", {more} of them not shown"),
        };
        let (events, fires, suppressed) = (self.events, self.fires, self.suppressed);
        output::print(&format!(
            "{events} events since {since}: it would have run {fires} times{more}; {suppressed} were \
             within its cooldown\n"
        ))?;
        if !self.fault.is_empty() {
            let fault = &self.fault;
            output::tell(&format!(
                "baro: a condition could not be computed: {fault}\n"
            ));
        }
        Ok(())
    }
}

/// Prints each clause of a rule for one recorded event, named as `SOURCE:IDX`.
pub(super) fn explain_event(target: &Target, rule: &str, event: &str) -> anyhow::Result<()> {
    let wrong = || {
        Usage(format!(
            "--event {event}: write SOURCE:IDX, as the table events has them"
        ))
    };
    let (source, index) = event.rsplit_once(':').ok_or_else(wrong)?;
    let index: u64 = index.parse().map_err(|_| wrong())?;
    let (rules, name) = only(&statement_of(target, rule)?)?;
    let wanted = format!("{SOURCE_LABEL} = '{}' AND idx = {index}", quoted(source));
    let events = recorded(target, &wanted)?;
    let Some((event, source)) = events.first() else {
        anyhow::bail!("no event {index} of {source} is recorded");
    };
    let facts = event_facts(event, source, "");
    let clauses = rules.explain(&name, &facts).unwrap_or_default();
    let fires = clauses.iter().all(|clause| clause.holds());
    if target.json {
        let clauses: Vec<_> = clauses
            .iter()
            .map(|clause| json!({ "clause": clause.clause, "holds": clause.holds(), "text": clause.to_string() }))
            .collect();
        return output::print_json(&json!({ "rule": name, "fires": fires, "clauses": clauses }));
    }
    for clause in &clauses {
        output::print(&format!("{}\n", output::plain(&clause.to_string())))?;
    }
    let fires = if fires { "fires" } else { "does not fire" };
    output::print(&format!(
        "{name} {fires} for it, as the first event that it sees\n"
    ))
}

impl Test {
    /// Tests the rules of a document on its tables of events.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let path = self.file.display();
        let document = std::fs::read_to_string(&self.file)
            .map_err(|error| Usage(format!("{path}: {error}")))?;
        let tested = check_rule_markdown(&document)
            .map_err(|fault| Usage(format!("{path}:{}: {}", fault.line, fault.reason)))?;
        let wrong: usize = tested.iter().map(|rule| rule.differences.len()).sum();
        if self.json {
            let rules: Vec<_> = tested
                .iter()
                .map(|rule| {
                    let lines = rule.differences.iter();
                    let lines: Vec<_> = lines
                        .map(|row| json!({ "line": row.line, "fired": row.fired }))
                        .collect();
                    json!({ "rule": rule.name, "rows": rule.rows, "differences": lines })
                })
                .collect();
            output::print_json(&rules)?;
        } else {
            for rule in &tested {
                let state = if rule.differences.is_empty() {
                    "ok"
                } else {
                    "FAILED"
                };
                output::print(&format!(
                    "{state:<6} {} ({} events)\n",
                    output::plain(&rule.name),
                    rule.rows
                ))?;
                for row in &rule.differences {
                    let seen = if row.fired {
                        "it fires"
                    } else {
                        "it does not fire"
                    };
                    output::print(&format!(
                        "  line {}: {seen}, and the table says otherwise\n",
                        row.line
                    ))?;
                    for clause in &row.explanations {
                        output::print(&format!("    {}\n", output::plain(&clause.to_string())))?;
                    }
                }
            }
        }
        match wrong {
            0 => Ok(()),
            wrong => anyhow::bail!("{wrong} rows of {path} are not as the table says"),
        }
    }
}
