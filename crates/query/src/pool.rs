//! The query threads of a process that must not wait for its askers: the agent's.
//!
//! The threads have low priority and a database each, and the queue is bounded: one question more is
//! a `Busy` fault at once. Sampling never meets a query.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use barograph_model::{
    Clock, ResultFormat, SqlEngine, SqlFault, SqlFaultKind, SqlReply, SqlRequest,
};
use barograph_stream::RunDir;

use crate::fault::fault;
use crate::rows::within;
use crate::{Database, QueryError};

/// How much nicer than the rest of the process the query threads are.
const NICE: i32 = 19;
/// Deeply nested statements recurse in SQLite.
const STACK_BYTES: usize = 4 << 20;

/// Size of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Threads, and so queries at once.
    pub threads: usize,
    /// Questions that may wait.
    pub queue_max: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            queue_max: 32,
        }
    }
}

struct Job {
    request: SqlRequest,
    reply: SyncSender<Result<SqlReply, SqlFault>>,
}

/// Query threads behind [`SqlEngine`]. Dropping it waits for the queries that run.
pub struct QueryPool {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for QueryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryPool")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl QueryPool {
    /// Starts the threads. The segment must be there.
    pub fn start(
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        config: PoolConfig,
    ) -> Result<Self, QueryError> {
        let (jobs, queue) = sync_channel(config.queue_max);
        let queue = Arc::new(Mutex::new(queue));
        let mut pool = Self {
            jobs: Some(jobs),
            threads: Vec::new(),
        };
        for number in 0..config.threads.max(1) {
            let database = Database::open(run_dir, Arc::clone(clock))?;
            let queue = Arc::clone(&queue);
            let name = format!("baro-query-{number}");
            let thread = thread::Builder::new()
                .name(name.clone())
                .stack_size(STACK_BYTES)
                .spawn(move || serve(database, &queue))
                .map_err(|source| QueryError::Thread { name, source })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic in a query thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl SqlEngine for QueryPool {
    fn query(&self, request: &SqlRequest) -> Result<SqlReply, SqlFault> {
        let ended = || fault(SqlFaultKind::Internal, "the query threads have ended");
        let (reply, answer) = sync_channel(1);
        let job = Job {
            request: request.clone(),
            reply,
        };
        match self.jobs.as_ref().ok_or_else(ended)?.try_send(job) {
            Ok(()) => answer.recv().map_err(|_| ended())?,
            Err(TrySendError::Disconnected(_)) => Err(ended()),
            Err(TrySendError::Full(_)) => {
                let message = "too many queries at once: ask again in a moment, or ask in a \
                               process of your own (baro sql)";
                Err(fault(SqlFaultKind::Busy, message))
            }
        }
    }
}

fn serve(mut database: Database, queue: &Mutex<Receiver<Job>>) {
    // On Linux this is the priority of this thread alone. Where it is not allowed we go on as we are.
    let _ = rustix::process::setpriority_process(None, NICE);
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { request, reply }) = next else {
            return;
        };
        // Whoever asked may have gone: there is nobody to tell then.
        let _ = reply.send(answer(&mut database, &request));
    }
}

fn answer(database: &mut Database, request: &SqlRequest) -> Result<SqlReply, SqlFault> {
    if request.cancel.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(fault(
            SqlFaultKind::Cancelled,
            "the query was cancelled by its asker",
        ));
    }
    let rows = database.run(&request.sql, &request.limits, &request.cancel)?;
    let body = match request.format {
        ResultFormat::JsonRows => rows.to_json_rows(),
        ResultFormat::JsonTable => rows.to_json_table(),
        ResultFormat::Arrow => rows.to_arrow_ipc()?,
    };
    within(body.len(), &request.limits)?;
    Ok(SqlReply {
        body,
        rows: rows.len(),
    })
}
