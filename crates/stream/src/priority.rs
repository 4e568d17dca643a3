//! The priority of threads whose work can wait: large answers, exports, sealing and copies.
//!
//! It is a module of its own because several crates have such threads.

/// Niceness of these threads: the lowest priority.
pub const NICE: i32 = 19;

/// Gives the calling thread the lowest priority; on Linux, threads that it starts inherit it. If
/// this is not allowed, the thread runs at normal priority.
pub fn give_way() {
    let _ = rustix::process::setpriority_process(None, NICE);
}
