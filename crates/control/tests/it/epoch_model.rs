//! All that can happen in a small system of controllers, members and servers, tried by a model
//! checker: every order of messages, each delivered never, once or often, every moment at which a
//! controller is followed by another, and every moment at which a patience or a deadline is over.

use std::collections::BTreeSet;

use barograph_control::{
    ChangeEnd, ControllerMessage, ControllerOutput, EpochController, EpochMember, EpochRecord,
    EpochServer, EpochTimes, OperationStart, ProcessWord, ServerAnswer, ServerMap,
};
use stateright::{Checker as _, Model, Property};

/// The time of the steps in which a patience or a deadline is over; that of all others is 0.
const OVER_NS: i64 = 1;
const TIMES: EpochTimes = EpochTimes {
    drain_ns: OVER_NS,
    repeat_ns: i64::MAX,
};
/// Servers of the first map. A change takes the last one out, or adds it again.
const SERVERS: u64 = 2;

/// The size of the system.
#[derive(Clone, Copy, Debug)]
struct Small {
    members: u64,
    operations_of_member: u64,
    changes: u64,
    /// Controllers that take over, whether or not the one before has ended.
    takeovers: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    members: Vec<(EpochMember, Operations)>,
    servers: Vec<EpochServer>,
    controllers: Vec<Lead>,
    store: EpochRecord,
    /// All messages that were sent; each may be delivered again and again.
    network: BTreeSet<Message>,
    changes: u64,
    highest_served: u64,
    seen: Seen,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    served_of_old_epoch: bool,
    switched: bool,
    aborted: bool,
    refused: bool,
}

/// Operations of a member: their number so far, and the epoch of the one that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Operations {
    begun: u64,
    running: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    controller: EpochController,
    /// A record that is on its way to the store.
    saving: Option<EpochRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    ToMember(u64, ControllerMessage),
    ToServer(u64, ControllerMessage),
    OfMember(u64, ProcessWord),
    OfServer(u64, ProcessWord),
    Request {
        member: u64,
        operation: u64,
        server: u64,
        epoch: u64,
    },
    Answer {
        member: u64,
        operation: u64,
        epoch: u64,
        fence: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Deliver(Message),
    /// A member begins an operation, with or without its patience over.
    Begin {
        member: usize,
        at_ns: i64,
    },
    /// The store takes or refuses the record of a controller.
    Save(usize),
    Change(usize),
    Deadline(usize),
    TakeOver,
    /// A server comes back with the fence that is on its disk.
    Restart(usize),
}

impl Small {
    fn lead(self, term: u64, store: &EpochRecord) -> Lead {
        let store = store.clone();
        let (controller, outputs) = EpochController::take_over(term, store, 0..self.members, TIMES);
        let mut lead = Lead {
            controller,
            saving: None,
        };
        lead.saving = outputs.into_iter().find_map(|output| match output {
            ControllerOutput::Save(record) => Some(record),
            _ => None,
        });
        lead
    }
}

impl State {
    fn carry_out(&mut self, number: usize, outputs: Vec<ControllerOutput>) {
        for output in outputs {
            match output {
                ControllerOutput::Save(record) => self.controllers[number].saving = Some(record),
                ControllerOutput::ToMember(to, message) => {
                    self.network.insert(Message::ToMember(to, message));
                }
                ControllerOutput::ToServer(to, message) => {
                    self.network.insert(Message::ToServer(to, message));
                }
                ControllerOutput::Ended(ChangeEnd::Switched(_)) => self.seen.switched = true,
                ControllerOutput::Ended(ChangeEnd::Aborted { .. }) => self.seen.aborted = true,
                ControllerOutput::Ended(ChangeEnd::Deposed) => {}
            }
        }
    }

    fn say(&mut self, member: u64, word: Option<ProcessWord>) {
        self.network
            .extend(word.map(|word| Message::OfMember(member, word)));
    }

    fn deliver(&mut self, message: &Message) {
        match message {
            Message::ToMember(to, message) => {
                let output = self.members[*to as usize].0.hear(message, 0);
                self.say(*to, output.says);
            }
            Message::ToServer(to, message) => {
                let word = self.servers[*to as usize].hear(message);
                self.network
                    .extend(word.map(|word| Message::OfServer(*to, word)));
            }
            Message::OfMember(from, word) => {
                for number in 0..self.controllers.len() {
                    let lead = &mut self.controllers[number];
                    let outputs = lead.controller.hear_member(*from, word);
                    self.carry_out(number, outputs);
                }
            }
            Message::OfServer(from, word) => {
                for number in 0..self.controllers.len() {
                    let outputs = self.controllers[number].controller.hear_server(*from, word);
                    self.carry_out(number, outputs);
                }
            }
            &Message::Request {
                member,
                operation,
                server,
                epoch,
            } => {
                let fence = match self.servers[server as usize].serve(epoch) {
                    ServerAnswer::Fenced { fence } => Some(fence),
                    ServerAnswer::Served => {
                        self.seen.served_of_old_epoch |= epoch < self.highest_served;
                        self.highest_served = self.highest_served.max(epoch);
                        None
                    }
                };
                self.network.insert(Message::Answer {
                    member,
                    operation,
                    epoch,
                    fence,
                });
            }
            &Message::Answer {
                member,
                operation,
                epoch,
                fence,
            } => {
                let (machine, operations) = &mut self.members[member as usize];
                if operations.running != Some(epoch) || operations.begun != operation {
                    return;
                }
                operations.running = None;
                let output = match fence {
                    None => machine.end(operation),
                    Some(fence) => machine.refused(operation, fence),
                };
                self.seen.refused |= fence.is_some();
                self.say(member, output.says);
            }
        }
    }

    fn begin(&mut self, member: usize, at_ns: i64) {
        let (machine, operations) = &mut self.members[member];
        let operation = operations.begun + 1;
        let OperationStart::Now(map) = machine.begin(operation, at_ns) else {
            return;
        };
        *operations = Operations {
            begun: operation,
            running: Some(map.epoch),
        };
        // Members use different servers where there are several.
        let at = member % map.servers.len();
        let server = map.servers.into_iter().nth(at).unwrap();
        self.network.insert(Message::Request {
            member: member as u64,
            operation,
            server,
            epoch: map.epoch,
        });
    }
}

impl Model for Small {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let map = ServerMap {
            epoch: 1,
            servers: (0..SERVERS).collect(),
        };
        let store = EpochRecord {
            term: 1,
            map: map.clone(),
            last_epoch: 1,
            change: None,
            homes: (0..SERVERS).map(|server| (server, 0)).collect(),
        };
        let member = (EpochMember::new(map, OVER_NS), Operations::default());
        vec![State {
            members: vec![member; self.members as usize],
            servers: vec![EpochServer::new(1); SERVERS as usize],
            controllers: vec![self.lead(1, &store)],
            store,
            network: BTreeSet::new(),
            changes: 0,
            highest_served: 0,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend(state.network.iter().cloned().map(Step::Deliver));
        for (member, (_, operations)) in state.members.iter().enumerate() {
            if operations.running.is_none() && operations.begun < self.operations_of_member {
                let times = [0, OVER_NS].into_iter();
                steps.extend(times.map(|at_ns| Step::Begin { member, at_ns }));
            }
        }
        for (number, lead) in state.controllers.iter().enumerate() {
            match &lead.saving {
                Some(_) => steps.push(Step::Save(number)),
                None => steps.push(Step::Deadline(number)),
            }
            if lead.controller.is_idle() && state.changes < self.changes {
                steps.push(Step::Change(number));
            }
        }
        if state.controllers.len() <= self.takeovers {
            steps.push(Step::TakeOver);
        }
        steps.extend((0..state.servers.len()).map(Step::Restart));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::Deliver(message) => state.deliver(&message),
            Step::Begin { member, at_ns } => state.begin(member, at_ns),
            Step::Save(number) => {
                let record = state.controllers[number].saving.take()?;
                let is_taken = record.term >= state.store.term;
                if is_taken {
                    state.store = record;
                }
                let outputs = state.controllers[number].controller.saved(is_taken, 0);
                state.carry_out(number, outputs);
            }
            Step::Change(number) => {
                let controller = &mut state.controllers[number].controller;
                let mut servers = controller.record().map.servers.clone();
                let last = SERVERS - 1;
                if !servers.remove(&last) {
                    servers.insert(last);
                }
                let outputs = controller.change(servers).ok()?;
                state.changes += 1;
                state.carry_out(number, outputs);
            }
            Step::Deadline(number) => {
                let outputs = state.controllers[number].controller.tick(OVER_NS);
                state.carry_out(number, outputs);
            }
            Step::TakeOver => {
                let term = state.controllers.len() as u64 + 1;
                state.store.term = term;
                let lead = self.lead(term, &state.store);
                state.controllers.push(lead);
            }
            Step::Restart(server) => {
                let fence = state.servers[server].fence();
                state.servers[server] = EpochServer::new(fence);
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no operation of an old epoch is served",
                |_, state: &State| !state.seen.served_of_old_epoch,
            ),
            Property::always(
                "a map that was switched to is that of the store",
                |_, state: &State| {
                    let maps = state.members.iter().map(|(member, _)| member.map());
                    let mut maps = maps.filter(|map| map.epoch == state.store.map.epoch);
                    maps.all(|map| *map == state.store.map)
                },
            ),
            Property::always("nobody is ahead of the store", |_, state: &State| {
                let mut members = state.members.iter();
                members.all(|(member, _)| member.map().epoch <= state.store.map.epoch)
            }),
            Property::sometimes("a change is done", |_, state: &State| state.seen.switched),
            Property::sometimes("a change is aborted", |_, state: &State| state.seen.aborted),
            Property::sometimes("a late operation is refused", |_, state: &State| {
                state.seen.refused
            }),
        ]
    }
}

#[test]
fn nothing_that_can_happen_has_an_old_operation_served() {
    let sizes = [
        Small {
            members: 1,
            operations_of_member: 2,
            changes: 1,
            takeovers: 1,
        },
        Small {
            members: 2,
            operations_of_member: 1,
            changes: 1,
            takeovers: 0,
        },
    ];
    for size in sizes {
        let checker = size.checker().spawn_bfs().join();
        println!("{size:?}: {} states", checker.unique_state_count());
        checker.assert_properties();
    }
}
