//! Changes of a map of servers, as a whole system in one thread: members that do operations,
//! servers, controllers that die and are followed by others, and a network that loses, delays,
//! doubles and reorders messages. With node controllers it is in `nodes`.

mod lead;
mod nodes;
mod programs;

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ChangeEnd, ControllerMessage, ControllerOutput, EpochController, EpochMember, EpochRecord,
    EpochServer, EpochTimes, OperationStart, ProcessWord, ServerAnswer, ServerMap,
};

use crate::random::Random;

const MS: i64 = 1_000_000;
const TIMES: EpochTimes = EpochTimes {
    drain_ns: 300 * MS,
    repeat_ns: 40 * MS,
};
const PATIENCE_NS: i64 = 500 * MS;
/// A request or answer that was lost is sent again after this.
const AGAIN_NS: i64 = 100 * MS;
const MEMBERS: u64 = 3;
const SERVERS: u64 = 5;
/// Seeds that are tried, unless told otherwise.
const SEEDS: u64 = 300;
/// Time of faults, and time without, in which all has to come to an end.
const FAULTS_NS: i64 = 20_000 * MS;
const QUIET_NS: i64 = 5_000 * MS;

#[derive(Clone, Debug)]
enum Parcel {
    Told {
        to_server: bool,
        to: u64,
        message: ControllerMessage,
    },
    Said {
        from_server: bool,
        from: u64,
        word: ProcessWord,
    },
    Request {
        member: u64,
        operation: u64,
        server: u64,
        epoch: u64,
    },
    Answer {
        member: u64,
        operation: u64,
        answer: ServerAnswer,
    },
    Saved {
        controller: usize,
        is_taken: bool,
    },
}

/// An operation of a member that has not been done.
struct Operation {
    /// The epoch in which it runs, and the time of its last request; `None` if it waits.
    sent: Option<(u64, u64, i64)>,
    begun_ns: i64,
}

struct System {
    random: Random,
    now_ns: i64,
    network: BTreeMap<(i64, u64), Parcel>,
    parcels: u64,
    members: BTreeMap<u64, (EpochMember, BTreeMap<u64, Operation>)>,
    servers: BTreeMap<u64, EpochServer>,
    /// Controllers by number; those that were lost are gone, those that were deposed may go on.
    controllers: BTreeMap<usize, EpochController>,
    controllers_begun: usize,
    store: EpochRecord,
    is_faulty: bool,
    operations: u64,
    done: u64,
    highest_served: u64,
    ends: Vec<ChangeEnd>,
}

impl System {
    fn new(seed: u64) -> Self {
        let servers: BTreeSet<u64> = (0..3).collect();
        let map = ServerMap { epoch: 1, servers };
        let member = || (EpochMember::new(map.clone(), PATIENCE_NS), BTreeMap::new());
        let mut system = Self {
            random: Random(seed),
            now_ns: 0,
            network: BTreeMap::new(),
            parcels: 0,
            members: (0..MEMBERS).map(|id| (id, member())).collect(),
            servers: (0..SERVERS).map(|id| (id, EpochServer::new(1))).collect(),
            controllers: BTreeMap::new(),
            controllers_begun: 0,
            store: EpochRecord {
                term: 0,
                map: map.clone(),
                last_epoch: 1,
                change: None,
                homes: (0..SERVERS).map(|server| (server, 0)).collect(),
            },
            is_faulty: true,
            operations: 0,
            done: 0,
            highest_served: 0,
            ends: Vec::new(),
        };
        system.begin_controller();
        system
    }

    fn begin_controller(&mut self) {
        let number = self.controllers_begun;
        self.controllers_begun += 1;
        let term = self.store.term + 1;
        self.store.term = term;
        let taken = EpochController::take_over(term, self.store.clone(), 0..MEMBERS, TIMES);
        let (controller, outputs) = taken;
        self.controllers.insert(number, controller);
        self.carry_out(number, outputs);
    }

    fn send(&mut self, parcel: Parcel) {
        // What comes back of the store is lost only with its controller.
        let may_lose = !matches!(parcel, Parcel::Saved { .. });
        if self.is_faulty && may_lose && self.random.is(60) {
            return;
        }
        let copies = 1 + u64::from(self.is_faulty && may_lose && self.random.is(30));
        for _ in 0..copies {
            let slow = if self.is_faulty && self.random.is(50) {
                400
            } else {
                8
            };
            let delay_ns = (1 + self.random.below(slow)) as i64 * MS;
            self.parcels += 1;
            self.network
                .insert((self.now_ns + delay_ns, self.parcels), parcel.clone());
        }
    }

    fn carry_out(&mut self, number: usize, outputs: Vec<ControllerOutput>) {
        for output in outputs {
            match output {
                ControllerOutput::Save(record) => {
                    // A controller dies before or after its record is taken, or its answer.
                    let is_taken = record.term >= self.store.term;
                    if self.is_faulty && self.random.is(20) {
                        self.controllers.remove(&number);
                        if self.random.is(500) && is_taken {
                            self.store = record;
                        }
                        return;
                    }
                    if is_taken {
                        self.store = record;
                    }
                    self.send(Parcel::Saved {
                        controller: number,
                        is_taken,
                    });
                }
                ControllerOutput::ToMember(to, message) => {
                    self.send(Parcel::Told {
                        to_server: false,
                        to,
                        message,
                    });
                }
                ControllerOutput::ToServer(to, message) => {
                    self.send(Parcel::Told {
                        to_server: true,
                        to,
                        message,
                    });
                }
                ControllerOutput::Ended(ChangeEnd::Deposed) => {
                    self.controllers.remove(&number);
                    return;
                }
                ControllerOutput::Ended(end) => self.ends.push(end),
            }
            // It dies between two messages.
            if self.is_faulty && self.random.is(3) {
                self.controllers.remove(&number);
                return;
            }
        }
    }

    /// Controllers hear a word.
    fn hear(&mut self, from_server: bool, from: u64, word: &ProcessWord) {
        let numbers: Vec<usize> = self.controllers.keys().copied().collect();
        for number in numbers {
            let controller = self.controllers.get_mut(&number).unwrap();
            let outputs = match from_server {
                true => controller.hear_server(from, word),
                false => controller.hear_member(from, word),
            };
            self.carry_out(number, outputs);
        }
    }

    fn say(&mut self, from_server: bool, from: u64, word: Option<ProcessWord>) {
        if let Some(word) = word {
            self.send(Parcel::Said {
                from_server,
                from,
                word,
            });
        }
    }

    fn deliver(&mut self, parcel: Parcel) {
        let now_ns = self.now_ns;
        match parcel {
            Parcel::Told {
                to_server: true,
                to,
                message,
            } => {
                let word = self.servers.get_mut(&to).unwrap().hear(&message);
                self.say(true, to, word);
            }
            Parcel::Told { to, message, .. } => {
                let output = self.members.get_mut(&to).unwrap().0.hear(&message, now_ns);
                self.say(false, to, output.says);
            }
            Parcel::Said {
                from_server,
                from,
                word,
            } => {
                self.hear(from_server, from, &word);
            }
            Parcel::Request {
                member,
                operation,
                server,
                epoch,
            } => {
                let answer = self.servers.get_mut(&server).unwrap().serve(epoch);
                if answer == ServerAnswer::Served {
                    assert!(
                        epoch >= self.highest_served,
                        "an operation of epoch {epoch} was served after one of {}",
                        self.highest_served
                    );
                    self.highest_served = epoch;
                }
                self.send(Parcel::Answer {
                    member,
                    operation,
                    answer,
                });
            }
            Parcel::Answer {
                member,
                operation,
                answer,
            } => self.answered(member, operation, answer),
            Parcel::Saved {
                controller: number,
                is_taken,
            } => {
                if let Some(controller) = self.controllers.get_mut(&number) {
                    let outputs = controller.saved(is_taken, now_ns);
                    self.carry_out(number, outputs);
                }
            }
        }
    }

    fn answered(&mut self, member: u64, operation: u64, answer: ServerAnswer) {
        let (machine, operations) = self.members.get_mut(&member).unwrap();
        let Some(known) = operations.get_mut(&operation) else {
            return;
        };
        let Some((epoch, ..)) = known.sent else {
            return;
        };
        let output = match answer {
            ServerAnswer::Served => {
                operations.remove(&operation);
                self.done += 1;
                machine.end(operation)
            }
            // An answer to an earlier attempt.
            ServerAnswer::Fenced { fence } if fence <= epoch => return,
            ServerAnswer::Fenced { fence } => {
                known.sent = None;
                machine.refused(operation, fence)
            }
        };
        self.say(false, member, output.says);
    }

    /// Begins operations, sends again what was lost, and says that members are there.
    fn work(&mut self) {
        for id in 0..MEMBERS {
            let now_ns = self.now_ns;
            let is_new = self.random.is(100) && self.now_ns < FAULTS_NS + QUIET_NS / 2;
            let heartbeat = self.random.is(20);
            let number = self.operations;
            let (machine, operations) = self.members.get_mut(&id).unwrap();
            if is_new && operations.len() < 4 {
                operations.insert(
                    number,
                    Operation {
                        sent: None,
                        begun_ns: now_ns,
                    },
                );
                self.operations += 1;
            }
            let mut requests = Vec::new();
            for (operation, state) in operations.iter_mut() {
                match &mut state.sent {
                    Some((epoch, server, at_ns)) if now_ns - *at_ns > AGAIN_NS => {
                        *at_ns = now_ns;
                        requests.push((*operation, *server, *epoch));
                    }
                    Some(_) => {}
                    None => {
                        if let OperationStart::Now(map) = machine.begin(*operation, now_ns) {
                            let at = *operation as usize % map.servers.len();
                            let server = *map.servers.iter().nth(at).unwrap();
                            state.sent = Some((map.epoch, server, now_ns));
                            requests.push((*operation, server, map.epoch));
                        }
                    }
                }
            }
            let word = heartbeat.then(|| machine.heartbeat());
            for (operation, server, epoch) in requests {
                self.send(Parcel::Request {
                    member: id,
                    operation,
                    server,
                    epoch,
                });
            }
            self.say(false, id, word);
        }
    }

    fn steer(&mut self) {
        let numbers: Vec<usize> = self.controllers.keys().copied().collect();
        for number in numbers {
            let controller = self.controllers.get_mut(&number).unwrap();
            let outputs = controller.tick(self.now_ns);
            self.carry_out(number, outputs);
        }
        let wants = self.random.is(match self.is_faulty {
            true => 10,
            false => 2,
        });
        if wants && let Some(number) = self.controllers.keys().next_back().copied() {
            let count = 1 + self.random.below(SERVERS);
            let servers = (0..count).map(|_| self.random.below(SERVERS)).collect();
            if self.now_ns < FAULTS_NS + QUIET_NS / 2 {
                let outputs = self.controllers.get_mut(&number).unwrap().change(servers);
                self.carry_out(number, outputs.unwrap_or_default());
            }
        }
        if self.controllers.is_empty() || (self.is_faulty && self.random.is(2)) {
            // Also while another one goes on, which nobody can tell from a lost one.
            if self.random.is(if self.is_faulty { 30 } else { 500 }) {
                self.begin_controller();
            }
        }
        if self.is_faulty && self.random.is(5) {
            // A server dies and comes back with the fence that is on its disk.
            let id = self.random.below(SERVERS);
            let fence = self.servers[&id].fence();
            self.servers.insert(id, EpochServer::new(fence));
        }
    }

    fn run(&mut self) {
        while self.now_ns < FAULTS_NS + QUIET_NS {
            self.now_ns += MS;
            if self.now_ns == FAULTS_NS {
                self.is_faulty = false;
                // A controller of an earlier term hears that it leads no more, as elections tell.
                // Otherwise one that has nothing to save would keep the place of the next one.
                let term = self.store.term;
                self.controllers.retain(|_, it| it.record().term >= term);
            }
            while let Some(entry) = self.network.first_entry() {
                if entry.key().0 > self.now_ns {
                    break;
                }
                let parcel = entry.remove();
                self.deliver(parcel);
            }
            self.work();
            self.steer();
        }
    }
}

/// What came of a system.
#[derive(Debug, Default)]
struct Outcome {
    switched: usize,
    aborted: usize,
    done: u64,
    controllers: usize,
}

fn run(seed: u64) -> Outcome {
    let mut system = System::new(seed);
    system.run();
    for (id, (machine, operations)) in &system.members {
        let oldest = operations.values().map(|it| it.begun_ns).min();
        let store = &system.store;
        assert_eq!(
            oldest, None,
            "seed {seed}: member {id} has operations left; {store:?}"
        );
        assert_eq!(
            machine.map(),
            &store.map,
            "seed {seed}: all use the map that holds"
        );
    }
    let change = &system.store.change;
    assert_eq!(change, &None, "seed {seed}: no change is left under way");
    Outcome::of(&system.ends, system.done, system.controllers_begun)
}

impl Outcome {
    fn of(ends: &[ChangeEnd], done: u64, controllers: usize) -> Self {
        let count = |is_meant: fn(&ChangeEnd) -> bool| {
            let ends = ends.iter().filter(|end| is_meant(end));
            ends.count()
        };
        Self {
            switched: count(|end| matches!(end, ChangeEnd::Switched(_))),
            aborted: count(|end| matches!(end, ChangeEnd::Aborted { .. })),
            done,
            controllers,
        }
    }
}

/// `BAROGRAPH_EPOCH_SEEDS=10000` tries as many. Each of them has so many changes that are done, in
/// the mean.
fn run_seeds(run: impl Fn(u64) -> Outcome, changes: usize) {
    let seeds = std::env::var("BAROGRAPH_EPOCH_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |text| text.parse().unwrap());
    let mut sum = Outcome::default();
    for seed in 0..seeds {
        let outcome = run(seed);
        sum.switched += outcome.switched;
        sum.aborted += outcome.aborted;
        sum.done += outcome.done;
        sum.controllers += outcome.controllers;
    }
    println!("{seeds} seeds: {sum:?}");
    let seeds = seeds as usize;
    assert!(sum.switched > changes * seeds && sum.aborted > seeds && sum.controllers > 3 * seeds);
}

#[test]
fn whatever_is_lost_no_operation_of_an_old_epoch_is_served_and_all_are_done() {
    run_seeds(run, 10);
}

#[test]
fn the_same_holds_with_node_controllers_that_are_lost_and_replaced() {
    run_seeds(nodes::run, 5);
}
