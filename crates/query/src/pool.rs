//! The query threads of a process that must not wait for its clients: the agent's.
//!
//! Each thread has low priority and its own database, and the queue is bounded: a query beyond the
//! bound fails at once as `Busy`. Sampling never waits for a query.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use barograph_model::{
    ClientNumber, Clock, SqlEngine, SqlFault, SqlFaultKind, SqlRequest, SqlSink,
};
use barograph_stream::{RunDir, ScopeChoice};

use crate::encode::Encoder;
use crate::fair::Fair;
use crate::fault::fault;
use crate::guard::GUEST_TEXT_BYTES_MAX;
use crate::{Database, QueryError};

/// Stack of a query thread: SQLite recurses over nested statements.
const STACK_BYTES: usize = 4 << 20;
/// Threads of one scan over much history: the other cores are left to the agent.
const SCAN_THREADS: usize = 1;

/// The size of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Number of threads, and so of queries that run at once.
    pub threads: usize,
    /// Most queries that may wait.
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
    sink: Box<dyn SqlSink>,
    reply: SyncSender<Result<usize, SqlFault>>,
}

/// Query threads behind [`SqlEngine`]. Dropping the pool waits for running queries.
pub struct QueryPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// The queue of waiting queries.
struct Queue {
    inner: Mutex<(Fair<Job>, State)>,
    news: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (Fair<Job>, State)> {
        // No code panics while it holds this lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next query and its client; `None` if there will be no more.
    fn next(&self) -> Option<(ClientNumber, Job)> {
        let mut inner = self.lock();
        loop {
            if let Some(next) = inner.0.begin() {
                return Some(next);
            }
            if inner.1 == State::Closed {
                return None;
            }
            inner = self
                .news
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl std::fmt::Debug for QueryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryPool")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl QueryPool {
    /// Starts the threads. The segment must exist; scopes are looked for again and again.
    pub fn start(
        run_dir: &RunDir,
        scopes: ScopeChoice,
        clock: &Arc<dyn Clock>,
        config: PoolConfig,
    ) -> Result<Self, QueryError> {
        let threads = config.threads.max(1);
        let fair = Fair::new(threads, config.queue_max);
        let queue = Arc::new(Queue {
            inner: Mutex::new((fair, State::Open)),
            news: Condvar::new(),
        });
        let mut pool = Self {
            queue: Arc::clone(&queue),
            threads: Vec::new(),
        };
        for number in 0..threads {
            let mut database = Database::open(run_dir, scopes, Arc::clone(clock))?;
            database.set_threads(SCAN_THREADS);
            database.set_text_bytes_max(GUEST_TEXT_BYTES_MAX)?;
            database.share_memory(threads);
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

    fn ask(
        &self,
        client: ClientNumber,
        request: &SqlRequest,
        sink: Box<dyn SqlSink>,
    ) -> Result<usize, SqlFault> {
        let (reply, answer) = sync_channel(1);
        let job = Job {
            request: request.clone(),
            sink,
            reply,
        };
        if !self.queue.lock().0.push(client, job) {
            let message = "too many queries at once: ask again in a moment, or ask in a process of \
                           your own (baro sql)";
            return Err(fault(SqlFaultKind::Busy, message));
        }
        self.queue.news.notify_one();
        let ended = |_| fault(SqlFaultKind::Internal, "the query threads have ended");
        answer.recv().map_err(ended)?
    }
}

impl Drop for QueryPool {
    fn drop(&mut self) {
        self.queue.lock().1 = State::Closed;
        self.queue.news.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in a query thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl SqlEngine for QueryPool {
    fn query_into(
        &self,
        client: ClientNumber,
        request: &SqlRequest,
        sink: Box<dyn SqlSink>,
    ) -> Result<usize, SqlFault> {
        self.ask(client, request, sink)
    }
}

fn serve(mut database: Database, queue: &Queue) {
    barograph_stream::give_way();
    while let Some((client, job)) = queue.next() {
        let Job {
            request,
            sink,
            reply,
        } = job;
        // The receiver may be gone.
        let _ = reply.send(answer(&mut database, &request, sink));
        queue.lock().0.end(client);
        // The next query may have waited for this client's share.
        queue.news.notify_one();
    }
}

fn answer(
    database: &mut Database,
    request: &SqlRequest,
    sink: Box<dyn SqlSink>,
) -> Result<usize, SqlFault> {
    if request.cancel.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(fault(
            SqlFaultKind::Cancelled,
            "the query was cancelled by its asker",
        ));
    }
    let mut encoder = Encoder::new(request.format, request.big_integers, sink);
    let limits = &request.limits;
    let elapsed_ns = database.run_into(&request.sql, limits, &request.cancel, &mut encoder)?;
    encoder.end(elapsed_ns, limits)
}
