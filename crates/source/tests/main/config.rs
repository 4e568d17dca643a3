//! Tests of the configuration: refused values with their messages, and the defaults.

use barograph_source::SourcesConfig;
use barograph_source::policy::IntervalPolicy;

fn parse(text: &str) -> Result<SourcesConfig, String> {
    let config: SourcesConfig = toml::from_str(text).map_err(|e| e.message().to_owned())?;
    config.validate().map_err(|e| e.to_string())?;
    Ok(config)
}

#[test]
fn defaults_are_whole_and_come_back_from_their_own_text() {
    let default = SourcesConfig::default();
    assert_eq!(parse("").unwrap(), default);
    assert_eq!(parse(&toml::to_string(&default).unwrap()).unwrap(), default);
}

#[test]
fn part_of_a_source_leaves_its_rest_as_usual() {
    let config =
        parse("[poll.filesystem]\npolicy = 'aimd_complex'\n[poll.cpu]\nenabled = false").unwrap();
    let policy = config.poll_of("filesystem").interval_policy();
    let IntervalPolicy::AimdComplex(aimd) = policy else {
        panic!("{policy:?}")
    };
    assert_eq!((aimd.start_ns, aimd.threshold), (10_000_000_000, 1.1));
    let names: Vec<_> = barograph_source::all_sources(&config)
        .iter()
        .map(|s| s.name())
        .collect();
    assert!(
        !names.contains(&"cpu") && names.contains(&"disk"),
        "{names:?}"
    );
}

#[test]
fn what_is_refused() {
    let check = |text: &str, word: &str| {
        let fault = parse(text).unwrap_err();
        assert!(fault.contains(word), "{text}: {fault}");
    };
    check("unheard = 1", "unheard");
    check("[poll.dsik]", "disk, device");
    check("[poll.disk]\nunheard = 1", "unheard");
    check("[poll.disk]\ninterval_ms = 0", "poll.disk.interval_ms");
    check(
        "[poll.disk]\ninterval_min_ms = 5000\ninterval_max_ms = 1000",
        "interval_max_ms",
    );
    check("[poll.disk]\nmultiply = 1.0", "multiply");
    check("[poll.disk]\nthreshold = -1.0", "threshold");
    check("[[tiers.rules]]\ndevice = 'vd*'\ntier = ''", "tier");
    check("[[tiers.rules]]\ntier = 'nvme'", "pattern");
    check("[filesystem]\ntimeout_ms = 0", "timeout_ms");
}
