//! Declarations of values and knobs: names and labels, checked before the agent sees them.

use barograph_model::{HELP_BYTES_MAX, Kind, Labels, Name, Unit, ValueType, text_start};
use barograph_stream::ingest::IngestDeclaration;

use super::state::{self, Pairs};
use super::{Knob, KnobConfig, PublishError, ValueHandle, calls, home, knob, thread};

/// Labels that the agent adds itself.
const LABELS_OF_AGENT: &[&str] = &["user", "instance"];
/// Longest values of the labels that the agent may add to a stream: room is left for them.
const USER_EXAMPLE: &str = "4294967295";
const INSTANCE_EXAMPLE: &str = "65535";

/// Like [`Publication::value_of`], for a publication's number ([`Publication::to_raw`]).
pub fn value(
    publication: u64,
    name: &str,
    value_type: ValueType,
    unit: &str,
    kind: Kind,
    help: &str,
    bytes_max: u32,
) -> Result<ValueHandle, PublishError> {
    let named = name_of(publication)?;
    let of = ValueConfig {
        name,
        value_type,
        unit,
        kind,
        help,
        bytes_max,
    };
    declare_value(publication, &named, of)
}

/// The properties of a value to be declared.
pub(super) struct ValueConfig<'a> {
    pub name: &'a str,
    pub value_type: ValueType,
    pub unit: &'a str,
    pub kind: Kind,
    pub help: &'a str,
    pub bytes_max: u32,
}

/// Like [`Publication::knob`], for a publication's number.
pub fn knob(publication: u64, name: &str, config: &KnobConfig) -> Result<Knob, PublishError> {
    declare_knob(publication, &name_of(publication)?, name, config)
}

pub(super) fn name_of(publication: u64) -> Result<String, PublishError> {
    if publication == 0 {
        // The publisher is disabled; the declarations of its values are checked as far as possible.
        return Ok("any".to_owned());
    }
    let (generation, index) = (
        thread::generation_of(publication),
        thread::series_of(publication),
    );
    state::enter()?.publication_name(generation, index)
}

pub(super) fn declare_knob(
    publication: u64,
    named: &str,
    name: &str,
    config: &KnobConfig,
) -> Result<Knob, PublishError> {
    check_value(named, name, &config.unit)?;
    let full = format!("{named}.{name}");
    let wanted = config.checked(&full)?;
    if publication == 0 {
        home::enter()?;
        // Under the lock that forks wait for.
        let _hub = calls::lock();
        return knob::cell_of_nobody(&full, &wanted).map(Knob::new);
    }
    let declaration = IngestDeclaration::Value {
        publication: thread::series_of(publication),
        name: name.to_owned(),
        value_type: wanted.value_type(),
        kind: match wanted.value_type() {
            ValueType::Bool => Kind::State,
            _ => Kind::Gauge,
        },
        unit: config.unit.clone(),
        help: text_start(&config.help, HELP_BYTES_MAX).to_owned(),
        bytes_max: 0,
    };
    let generation = thread::generation_of(publication);
    thread::look_anew();
    calls::knob(generation, declaration, &full, &wanted).map(Knob::new)
}

fn check_value(publication: &str, name: &str, unit: &str) -> Result<(), PublishError> {
    stream_name(publication, name)?;
    Unit::new(unit)?;
    if name == "frame" {
        return Err(PublishError::Taken {
            name: format!("app.{publication}.frame"),
            taken: "the stream of the publication's frames",
        });
    }
    Ok(())
}

pub(super) fn declare_value(
    publication: u64,
    named: &str,
    wanted: ValueConfig<'_>,
) -> Result<ValueHandle, PublishError> {
    let ValueConfig {
        name,
        value_type,
        unit,
        kind,
        help,
        bytes_max,
    } = wanted;
    check_value(named, name, unit)?;
    if publication == 0 {
        return Ok(ValueHandle::default());
    }
    let generation = thread::generation_of(publication);
    let declaration = IngestDeclaration::Value {
        publication: thread::series_of(publication),
        name: name.to_owned(),
        value_type,
        kind,
        unit: unit.to_owned(),
        help: text_start(help, HELP_BYTES_MAX).to_owned(),
        bytes_max: if value_type.is_number() { 0 } else { bytes_max },
    };
    let value = state::enter()?.value(generation, declaration)?;
    let handle = thread::handle(generation, value_type as u8, value);
    Ok(ValueHandle::from_raw(handle))
}

/// The stream that a value becomes.
pub(super) fn stream_name(publication: &str, value: &str) -> Result<Name, PublishError> {
    // Each part is checked by itself first, so that the error shows it as it was given.
    Name::new(publication)?;
    let full = format!("app.{publication}.{value}");
    Name::new(full).map_err(|error| match Name::new(value) {
        Err(of_value) if !value.starts_with(|c: char| c.is_ascii_digit()) => of_value.into(),
        _ => error.into(),
    })
}

/// All labels that a stream will have, with room for those that the agent adds.
pub(super) fn labels_of(
    application: &str,
    labels: &[(String, String)],
    own: &[(String, String)],
) -> Result<Labels, PublishError> {
    let is_given = |name: &str| own.iter().any(|(n, _)| n == name);
    let beside = labels.iter().filter(|(name, _)| !is_given(name));
    let mut all: Pairs = beside.chain(own).cloned().collect();
    if let Some((name, _)) = all
        .iter()
        .find(|(n, _)| LABELS_OF_AGENT.contains(&n.as_str()))
    {
        return Err(PublishError::Taken {
            name: name.clone(),
            taken: "a label that the agent adds",
        });
    }
    if !all.iter().any(|(name, _)| name == "application") {
        all.push(("application".into(), application.into()));
    }
    all.push(("user".into(), USER_EXAMPLE.into()));
    all.push(("instance".into(), INSTANCE_EXAMPLE.into()));
    Ok(Labels::new(all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Pairs {
        pairs
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn labels_are_checked_with_those_of_the_agent() {
        let fits = |labels: &[(&str, &str)], own: &[(&str, &str)]| {
            labels_of("app", &pairs(labels), &pairs(own)).is_ok()
        };
        let long = "x".repeat(240);
        let many: Vec<String> = (0..14).map(|n| format!("l{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|n| (n.as_str(), "")).collect();
        assert!(fits(&[("rank", "1")], &[("phase", "solve")]));
        assert!(fits(&[("rank", "1")], &[("rank", "2")]));
        assert!(fits(&many[..13], &[]));
        assert!(!fits(&many, &[]));
        assert!(!fits(&[("a", &long), ("b", &long)], &[]));
        assert!(!fits(&[("user", "me")], &[]));
        assert!(!fits(&[], &[("instance", "1")]));
        assert!(!fits(&[("no good", "1")], &[]));
        assert!(!fits(&[("rank", "1"), ("rank", "2")], &[]));
    }

    #[test]
    fn names_are_those_of_streams() {
        for (publication, value, expect) in [
            ("lulesh", "residual", true),
            ("lulesh.step", "a.b_2", true),
            ("Lulesh", "residual", false),
            ("lulesh", "", false),
            ("", "residual", false),
            ("lulesh", "Residual", false),
            ("l", &"x".repeat(120), false),
        ] {
            let name = stream_name(publication, value);
            assert_eq!(name.is_ok(), expect, "{publication} {value}");
        }
    }
}
