//! Processes with several files of their own: a library that is preloaded into a program has one,
//! and the library that the program calls has another. To the scheduler each file is a process.
//! Their phases never wait for each other, and what they say to have done is the same I/O.

use std::collections::BTreeSet;

use super::{Group, MemberId, MemberReport, VolumeScheduler};

impl VolumeScheduler {
    /// The phase that a process has begun by another one of its files. It is joined even where one
    /// process of it has ended, and others would belong to the next phase: the process would wait
    /// for itself.
    pub(super) fn phase_of_host(&mut self, id: MemberId, report: &MemberReport) -> Option<u64> {
        let host = report.host?;
        let mut members = self.members.iter();
        let (other, member) = members.find(|(other, member)| {
            let is_same = member.host == Some(host) || other.process == host;
            is_same && other.process != id.process && member.user == report.user
        })?;
        let group = self.groups.get_mut(&member.phase)?;
        let done = group.done_of_hosts.entry((host, other.process));
        let done = done.or_default();
        *done = (*done).max(member.bytes_done);
        Some(member.phase)
    }

    /// The processes of a phase that have not ended, with all of their files.
    pub(super) fn processes_of(&self, group: &Group) -> usize {
        if group.done_of_hosts.is_empty() {
            return group.members.len();
        }
        let host_of = |id: &MemberId| {
            let host = self.members.get(id).and_then(|member| member.host);
            host.unwrap_or(id.process)
        };
        let processes: BTreeSet<u128> = group.members.iter().map(host_of).collect();
        processes.len()
    }
}

impl Group {
    /// Adds what a process has done since its last word. Of the files of one process, the one that
    /// has seen most counts.
    pub(super) fn add(&mut self, process: u128, host: Option<u128>, more: u64) {
        let Some(host) = host else {
            self.bytes_done = self.bytes_done.saturating_add(more);
            return;
        };
        let before = self.done_of_host(host);
        let done = self.done_of_hosts.entry((host, process)).or_default();
        *done = done.saturating_add(more);
        let more = self.done_of_host(host).saturating_sub(before);
        self.bytes_done = self.bytes_done.saturating_add(more);
    }

    fn done_of_host(&self, host: u128) -> u64 {
        let of_host = self.done_of_hosts.range((host, 0)..=(host, u128::MAX));
        of_host.map(|(_, done)| *done).max().unwrap_or(0)
    }
}
