//! Applications that are called. Lines that they print for the test begin with `> `.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use barograph_client::publish::{Call, CallPayload, KnobConfig, PublicationConfig, Publisher};

use super::roles::{config, end, fork, open, publication, wait};

/// Sleep between two polls.
const NAP: Duration = Duration::from_millis(1);

pub(super) fn play(role: &str) {
    match role {
        "handles" => handles(),
        "polls_from_threads" => polls_from_threads(),
        "frames_alone" => frames_alone(),
        "frames_that_it_is_told" => frames_that_it_is_told(),
        "listens" => listens(),
        "forks_and_polls" => forks_and_polls(),
        "handlers_that_do_anything" => handlers_that_do_anything(),
        "of_publications" => of_publications(),
        "is_off" => is_off(),
        other => panic!("no role {other}"),
    }
}

fn text(payload: &CallPayload) -> &str {
    match payload {
        CallPayload::Text(text) => text,
        _ => "",
    }
}

/// Loops until the trigger `end` is fired.
fn until_end(publisher: &Publisher, each: impl Fn()) {
    let is_over = ended_by(publisher, "end");
    println!("> ready");
    while !is_over.load(Ordering::Relaxed) {
        each();
        thread::sleep(NAP);
    }
}

fn ended_by(publisher: &Publisher, name: &str) -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let end = publisher.on(name, "ends the test", move |_| {
        over.store(true, Ordering::Relaxed);
        Ok(())
    });
    end.unwrap();
    is_over
}

fn handles() {
    let publisher = open(config());
    let of = publication(&publisher, "calls");
    let tolerance = of.knob("tolerance", &KnobConfig::float(0.5, 0.0, 1.0));
    let tolerance = tolerance.unwrap();
    let steps = of.knob("steps", &KnobConfig::int(5, 0, 9)).unwrap();
    let wrong = of.knob("tolerance", &KnobConfig::float(0.5, 0.0, 9.0));
    assert!(wrong.unwrap_err().to_string().contains("other bounds"));
    assert!(publisher.on("No", "", |_| Ok(())).is_err());
    let greet = publisher.on("greet", "says what it is given", |call| {
        let text = text(&call.payload);
        println!("> greeted {text}");
        match text {
            "fail" => Err("as told".into()),
            "panic" => panic!("as told"),
            _ => Ok(()),
        }
    });
    greet.unwrap();
    until_end(&publisher, || {
        publisher.poll();
    });
    let (tolerance, steps) = (tolerance.get_f64(), steps.get_i64());
    println!("> {tolerance} {steps} {}", publisher.missed_calls());
    println!("> {}", publisher.handler_failure().unwrap());
}

fn polls_from_threads() {
    let publisher = open(config());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (into, running) = (Arc::clone(&seen), AtomicUsize::new(0));
    let count = publisher.on("count", "", move |call| {
        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        into.lock().unwrap().push(call.id);
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    count.unwrap();
    let is_over = ended_by(&publisher, "end");
    println!("> ready");
    let polled = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    polled.fetch_add(publisher.poll(), Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
    });
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted(), "{seen:?}");
    println!("> {} {}", seen.len(), polled.load(Ordering::Relaxed));
}

/// Frames set knobs, and run no handler.
fn frames_alone() {
    let publisher = open(config());
    let of = publication(&publisher, "calls");
    let is_on = of.knob("on", &KnobConfig::bool(false)).unwrap();
    let greeted = ended_by(&publisher, "greet");
    println!("> ready");
    let mut number = 0;
    while !is_on.get_bool() {
        of.frame(number);
        number += 1;
        thread::sleep(NAP);
    }
    assert!(!greeted.load(Ordering::Relaxed));
    assert_eq!((publisher.poll(), is_on.version()), (1, 7));
    assert!(greeted.load(Ordering::Relaxed));
}

/// Ends the frames whose numbers it reads, or polls, and prints the value of its knob after each.
fn frames_that_it_is_told() {
    let publisher = open(config());
    let of = publication(&publisher, "calls");
    let steps = of.knob("steps", &KnobConfig::int(1, 0, 9)).unwrap();
    println!("> ready");
    for line in std::io::stdin().lines() {
        match line.unwrap().parse() {
            Ok(number) => of.frame(number),
            Err(_) => drop(publisher.poll()),
        }
        println!("> {}", steps.get_i64());
    }
}

fn listens() {
    let publisher = open(config());
    let (tell, told) = std::sync::mpsc::sync_channel(2);
    let greet = publisher.on("greet", "", move |call| {
        let name = thread::current().name().map(str::to_owned);
        let said = (name, text(&call.payload).to_owned());
        tell.send(said).map_err(|e| e.to_string())
    });
    greet.unwrap();
    publisher.listen().unwrap();
    publisher.listen().unwrap();
    println!("> ready");
    for expect in ["a", "b"] {
        let (thread, text) = told.recv().unwrap();
        assert_eq!((thread.as_deref(), &*text), (Some("baro-listen"), expect));
    }
    assert_eq!(listeners(), 1);
    drop(publisher);
    assert_eq!(listeners(), 0);
}

/// Number of listener threads of this process.
fn listeners() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.ok()?).ok());
    names.filter(|name| name.trim() == "baro-listen").count()
}

fn forks_and_polls() {
    let publisher = open(config());
    let of = publication(&publisher, "calls");
    let knob = of.knob("knob", &KnobConfig::int(0, 0, 9)).unwrap();
    let name = |_: &_| {
        println!("> named {}", std::process::id());
        Ok(())
    };
    publisher.on("name", "", name).unwrap();
    let is_over = ended_by(&publisher, "end");
    println!("> ready");
    while knob.get_i64() == 0 {
        publisher.poll();
        thread::sleep(NAP);
    }
    let child = fork();
    while !is_over.load(Ordering::Relaxed) {
        publisher.poll();
        thread::sleep(NAP);
    }
    println!(
        "> {} {}",
        if child == 0 { "child" } else { "parent" },
        knob.get_i64()
    );
    if child == 0 {
        end();
    }
    wait(child);
}

fn handlers_that_do_anything() {
    let publisher = open(config());
    let of = publication(&publisher, "calls");
    let knob = of.knob("knob", &KnobConfig::int(0, 0, 9)).unwrap();
    let held = publisher.clone();
    let nest = publisher.on("nest", "", move |_| {
        // Handlers run one at a time; knobs are set in them, too.
        assert_eq!((held.poll(), knob.get_i64()), (1, 4));
        of.frame(1);
        let again = held.on("nest", "", |_| {
            println!("> another");
            Ok(())
        });
        again.map_err(|e| e.to_string())
    });
    nest.unwrap();
    let is_over = ended_by(&publisher, "end");
    println!("> ready");
    // Until all calls that the test fires are there.
    let ready = thread::spawn(|| std::io::stdin().lines().next());
    ready.join().unwrap();
    while !is_over.load(Ordering::Relaxed) {
        publisher.poll();
        thread::sleep(NAP);
    }
    // The name stays, its handler does not.
    let other = open(config());
    let left = ended_by(&other, "left");
    drop(other);
    let end = ended_by(&publisher, "last");
    println!("> left");
    while !end.load(Ordering::Relaxed) {
        publisher.poll();
        thread::sleep(NAP);
    }
    assert!(!left.load(Ordering::Relaxed));
}

/// The process of `crates/stream/tests/meant.txt`. Prints at its end which handlers ran for each
/// call.
fn of_publications() {
    let pairs = |of: &[(&str, &str)]| of.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let mut config = config();
    config.labels = pairs(&[("job", "9"), ("rank", "3")]);
    let publisher = open(config);
    let declare = |name, labels: &[(&str, &str)]| {
        let labels = pairs(labels);
        let config = PublicationConfig {
            labels,
            ..PublicationConfig::default()
        };
        publisher.publication(name, config).unwrap()
    };
    let a = declare("a", &[("phase", "solve"), ("rank", "4")]);
    let b = declare("b", &[("phase", "io")]);
    let knobs = [&a, &b].map(|of| of.knob("dt", &KnobConfig::float(0.5, 0.0, 1.0)).unwrap());
    let handled = Arc::new(Mutex::new(BTreeMap::<u64, String>::new()));
    let handler = |who: &'static str| {
        let handled = Arc::clone(&handled);
        move |call: &Call| {
            *handled.lock().unwrap().entry(call.id).or_default() += who;
            match text(&call.payload) == who {
                true => Err(format!("{who} as told")),
                false => Ok(()),
            }
        }
    };
    publisher.on("checkpoint", "", handler("p")).unwrap();
    a.on("step", "", handler("a")).unwrap();
    a.on("flush", "", |_| panic!("its place is taken")).unwrap();
    a.on("flush", "", handler("a")).unwrap();
    b.on("flush", "", handler("b")).unwrap();
    publisher.on("all", "", handler("p")).unwrap();
    a.on("all", "", handler("a")).unwrap();
    b.on("all", "", handler("b")).unwrap();
    assert!(a.on("No", "", |_| Ok(())).is_err());
    let again = publisher.publication_of(b.to_raw()).unwrap();
    assert_eq!((again.name(), again.to_raw()), ("b", b.to_raw()));
    assert!(publisher.publication_of(b.to_raw() + 1).is_err());
    until_end(&publisher, || {
        publisher.poll();
    });
    for (id, who) in &*handled.lock().unwrap() {
        println!("> {id} {who}");
    }
    println!("> {}", publisher.handler_failure().unwrap());
    let set = knobs.map(|knob| knob.get_f64());
    println!("> {} {}", set[0], set[1]);
}

fn is_off() {
    let publisher = Publisher::open(config());
    let of = publication(&publisher, "calls");
    let knob = of.knob("knob", &KnobConfig::float(0.5, 0.0, 1.0)).unwrap();
    assert!(of.knob("knob", &KnobConfig::float(2.0, 0.0, 1.0)).is_err());
    assert!(publisher.on("No", "", |_| Ok(())).is_err());
    publisher.on("yes", "", |_| Ok(())).unwrap();
    assert!(of.on("No", "", |_| Ok(())).is_err());
    of.on("yes", "", |_| Ok(())).unwrap();
    let of_nothing = publisher.publication_of(0).unwrap();
    of_nothing.on("yes", "", |_| Ok(())).unwrap();
    publisher.listen().unwrap();
    of.frame(1);
    let nothing = (
        publisher.poll(),
        publisher.missed_calls(),
        publisher.handler_failure(),
    );
    assert_eq!(nothing, (0, 0, None));
    assert_eq!((knob.get_f64(), knob.version()), (0.5, 0));
}
