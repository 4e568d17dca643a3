//! Tests of requests that are larger than a round.

use barograph_bridge::{BridgeProtocol, PointTags, PointValue, SeriesOrigin, SeriesProperties};
use barograph_model::{Clock, Kind, Value, ValueType};
use barograph_recorder::World;
use barograph_stream::{RunDir, SystemClock};

use super::*;
use crate::IntakeConfig;
use crate::ScopeShared;
use crate::identity::Instances;
use crate::process::TakeBuffer;
use crate::scope::{OpenScopes, ScopeSettings};
use crate::shares::Shares;
use crate::timing::TickClock;
use crate::{Board, IngestCounts};

const POINTS: usize = 2 * ROUND_POINTS_MAX + 100;

/// A request of points of one series, newest first, of which the last one is refused.
fn request(uid: u32, now_ns: i64) -> IngestRequest {
    let source = Arc::new(PointSource {
        protocol: BridgeProtocol::LineProtocol,
        name: "m".into(),
        labels: Vec::new(),
    });
    let about = Arc::new(SeriesProperties {
        kind: Kind::Gauge,
        value_type: ValueType::Int,
        unit: String::new(),
        help: String::new(),
        is_delta: false,
    });
    let point = |at: usize| Point {
        place: at as u32,
        origin: SeriesOrigin {
            source: Arc::clone(&source),
            name: "v".into(),
            labels: PointTags::from([]),
        },
        about: Arc::clone(&about),
        ts: Some(now_ns - at as i64),
        measured: PointValue::Value(Value::Int(at as i64)),
    };
    let mut points: Vec<Point> = (0..POINTS).map(point).collect();
    points.push(Point {
        ts: Some(now_ns + 10 * NS_PER_S),
        ..point(POINTS)
    });
    IngestRequest {
        uid,
        readers: PublicationReaders::Owner,
        points,
        refused: BTreeMap::new(),
    }
}

#[test]
fn a_request_is_taken_over_several_rounds_and_answered_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = IntakeConfig {
        node: "n1".into(),
        state_dir: dir.path().join("state"),
        ..IntakeConfig::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let run_dir = RunDir::new(dir.path().join("run"));
    let settings = ScopeSettings::new(
        &config,
        run_dir.clone(),
        ScopeShared {
            forecasts: barograph_recorder::ForecastRoom::new(&config.forecast).unwrap(),
            histories: Default::default(),
            world: World {
                clock: Arc::clone(&clock),
                ..World::real()
            },
            phases: None,
            maps: None,
        },
    );
    let board = Board::new(
        run_dir.clone(),
        settings.state_dir().to_owned(),
        Arc::clone(&clock),
    );
    let mut scopes = OpenScopes::new(settings, &clock);
    let (mut instances, timing) = (Instances::default(), TickClock::new(&*clock));
    let mut rates = RecordRates::new(1e9);
    let counts = IngestCounts::default();
    let mut takes = TakeBuffer::default();
    let (door, mut bridge) = bridge(&dir.path().join("nobody"), true, 16).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let now_ns = clock.now_ns();
    let mut memory = Shares::new(1 << 20, 1 << 20, false);
    let (reply, answer) = sync_channel(1);
    let job = Job {
        request: request(uid, now_ns),
        reply,
    };
    assert!(door.jobs.try_send(job).is_ok());
    while scopes.is_opening(ScopeReader::User(uid)) {
        std::thread::yield_now();
    }
    for expect in [ROUND_POINTS_MAX, 2 * ROUND_POINTS_MAX, POINTS] {
        assert!(answer.try_recv().is_err(), "not before all of it is taken");
        let mut round = IntakeRound {
            board: &board,
            scopes: &mut scopes,
            instances: &mut instances,
            memory: &mut memory,
            timing: &timing,
            counts: &counts,
            takes: &mut takes,
            now_ns: clock.now_ns(),
            monotonic_ns: clock.monotonic_ns(),
        };
        bridge.attend(&mut round, &mut rates);
        let row = bridge.rows(ScopeReader::User(uid)).next().unwrap();
        assert_eq!(row["taken"], expect);
        assert_eq!(bridge.has_more(), expect < POINTS);
    }
    let accepted = answer.try_recv().unwrap().ok().unwrap();
    assert_eq!(accepted.ingested.taken, POINTS as u64);
    assert_eq!(accepted.ingested.refused, 1);
    let (journal, position) = accepted.wait.unwrap();
    assert!(journal.wait_durable(position, DISK_WAIT));
}
