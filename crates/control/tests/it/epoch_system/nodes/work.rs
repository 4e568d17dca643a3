//! What programs do: members begin operations, servers serve them, and both end and come back.

use barograph_control::{ProcessId, ServerAnswer};

use super::super::programs::{Ended, Member, Operation, Running, Server, Serving};
use super::super::{AGAIN_NS, FAULTS_NS, MS, PATIENCE_NS, QUIET_NS};
use super::{NODES, Parcel, System};

impl System {
    pub(super) fn hear_request(&mut self, of: (usize, u64), server: ProcessId, epoch: u64) {
        let (member, operation) = of;
        let took = if self.random.is(10) { 200 } else { 10 };
        let until_ns = self.now_ns + self.random.below(took) as i64 * MS;
        let Some(answer) = self.servers[server as usize].serve(epoch) else {
            return;
        };
        if answer == ServerAnswer::Served {
            let highest = self.highest_served;
            assert!(
                epoch >= highest,
                "an operation of epoch {epoch} is served after one of {highest}"
            );
            let all = self.servers.iter().flat_map(|it| &it.serving);
            let oldest = all.map(|it| it.epoch).min();
            assert!(
                oldest.is_none_or(|oldest| oldest >= epoch),
                "an operation of {epoch} is served while one of {oldest:?} is"
            );
            self.highest_served = epoch;
            return self.servers[server as usize].serving.push(Serving {
                epoch,
                member,
                operation,
                until_ns,
            });
        }
        self.send(Parcel::Answer {
            member,
            operation,
            answer,
        });
    }

    pub(super) fn work_server(&mut self, number: usize) {
        let now_ns = self.now_ns;
        let server = &mut self.servers[number];
        // It looks at what it is told.
        server.fence();
        let over = server.serving.extract_if(.., |it| it.until_ns <= now_ns);
        for serving in over.collect::<Vec<Serving>>() {
            self.send(Parcel::Answer {
                member: serving.member,
                operation: serving.operation,
                answer: ServerAnswer::Served,
            });
        }
        let is_there = self.servers[number].begins_ns <= now_ns;
        if is_there && self.is_faulty && self.random.is(self.faults.servers) {
            let process = self.next_process();
            // The next one is there before the end of this one is seen, or long after.
            let down = [1, 20, 400][self.random.below(3) as usize];
            let begins_ns = now_ns + self.random.below(down) as i64 * MS;
            let node = match self.random.is(self.faults.moves) {
                true => self.random.below(NODES),
                false => self.servers[number].node,
            };
            let server = &mut self.servers[number];
            let next = Server::new(node, server.number, process, begins_ns);
            let old = std::mem::replace(server, next);
            self.ended.push(Ended {
                node: old.node,
                process: old.process,
                counts: old.counts(),
                seen: old.slot.seen,
            });
        }
    }

    pub(super) fn work_member(&mut self, number: usize) {
        let now_ns = self.now_ns;
        if self.is_faulty && self.random.is(self.faults.members) {
            self.restart_member(number);
        }
        let is_new = self.random.is(100) && now_ns < FAULTS_NS + QUIET_NS / 2;
        let member = &mut self.members[number];
        if is_new && member.operations.len() < 4 {
            let operation = Operation {
                runs: None,
                begun_ns: now_ns,
            };
            member.operations.insert(self.operations, operation);
            self.operations += 1;
        }
        let start = member.start(now_ns, PATIENCE_NS);
        let mut requests = Vec::new();
        for (operation, state) in &mut member.operations {
            match (&mut state.runs, &start) {
                (Some(runs), _) if now_ns - runs.sent_ns <= AGAIN_NS => continue,
                (Some(runs), _) => runs.sent_ns = now_ns,
                (None, None) => continue,
                (None, Some((map, is_late))) => {
                    let at = *operation as usize % map.servers.len();
                    state.runs = Some(Running {
                        epoch: map.epoch,
                        server: *map.servers.iter().nth(at).unwrap(),
                        is_late: *is_late,
                        sent_ns: now_ns,
                    });
                }
            }
            requests.extend(state.runs.map(|runs| (*operation, runs)));
        }
        for (operation, runs) in requests {
            self.send(Parcel::Request {
                member: number,
                operation,
                server: runs.server,
                epoch: runs.epoch,
            });
        }
    }

    /// A member dies, and the next process does what it has left.
    fn restart_member(&mut self, number: usize) {
        let process = self.next_process();
        let old = &self.members[number];
        let mut next = Member::new(old.node, process);
        next.operations.clone_from(&old.operations);
        next.operations.values_mut().for_each(|it| it.runs = None);
        let old = std::mem::replace(&mut self.members[number], next);
        self.ended.push(Ended {
            node: old.node,
            process: old.process,
            counts: old.counts(),
            seen: old.slot.seen,
        });
    }
}
