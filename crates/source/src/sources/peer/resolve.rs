//! Look-ups of host names, on a thread that may hang for as long as the name service does.
//!
//! The newest address of a name is kept while it is looked up again, and when that fails. The
//! thread runs only while there is a name to look up, and looks up one name after another.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{RESOLVE_AGAIN_NS, RESOLVE_NS};

/// A function that looks a name up; it may hang.
pub(super) type LookUp = Arc<dyn Fn(&str) -> Result<IpAddr, String> + Send + Sync>;

/// A look-up by `getaddrinfo`, which gives the first address in the order in which they should be
/// tried.
pub(super) fn system() -> LookUp {
    Arc::new(|name| {
        let mut found = (name, 0).to_socket_addrs().map_err(|e| e.to_string())?;
        let first = found.next().ok_or("the name has no address")?;
        Ok(first.ip())
    })
}

struct Entry {
    name: Arc<str>,
    newest: Option<Result<IpAddr, String>>,
    /// Time at which the name is looked up again.
    due_ns: i64,
    /// Whether the name waits for the thread or is being looked up.
    open: bool,
}

#[derive(Default)]
struct Board {
    entries: Vec<Entry>,
    now_ns: i64,
    running: bool,
    stop: bool,
}

/// The names and their addresses.
pub(super) struct Resolver {
    board: Arc<Mutex<Board>>,
    look_up: LookUp,
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resolver {
    pub(super) fn new(look_up: LookUp) -> Self {
        Self {
            board: Arc::default(),
            look_up,
        }
    }

    /// Adds a name and returns its index.
    pub(super) fn add(&mut self, name: &str) -> usize {
        let entries = &mut lock(&self.board).entries;
        entries.push(Entry {
            name: name.into(),
            newest: None,
            due_ns: i64::MIN,
            open: false,
        });
        entries.len() - 1
    }

    /// Starts the look-ups that are due. Does not wait.
    pub(super) fn refresh(&self, now_ns: i64) {
        let mut board = lock(&self.board);
        board.now_ns = now_ns;
        for entry in &mut board.entries {
            entry.open |= entry.due_ns <= now_ns;
        }
        if board.running || !board.entries.iter().any(|entry| entry.open) {
            return;
        }
        let (shared, look_up) = (self.board.clone(), self.look_up.clone());
        let started = std::thread::Builder::new()
            .name("baro-resolve".to_owned())
            .spawn(move || run(&shared, &look_up));
        match started {
            Ok(_) => board.running = true,
            Err(e) => {
                let why = format!("no thread to look it up: {e}");
                let unknown = board.entries.iter_mut().filter(|entry| entry.open);
                for entry in unknown.filter(|entry| entry.newest.is_none()) {
                    entry.newest = Some(Err(why.clone()));
                }
            }
        }
    }

    /// The newest result for a name; nothing while it is looked up for the first time.
    pub(super) fn address(&self, place: usize) -> Option<Result<IpAddr, String>> {
        lock(&self.board).entries.get(place)?.newest.clone()
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        lock(&self.board).stop = true;
    }
}

fn run(shared: &Mutex<Board>, look_up: &LookUp) {
    let mut board = lock(shared);
    loop {
        let next = board.entries.iter().position(|entry| entry.open);
        let Some(place) = next.filter(|_| !board.stop) else {
            board.running = false;
            return;
        };
        let name = board.entries[place].name.clone();
        drop(board);
        let found = look_up(&name);
        board = lock(shared);
        let now_ns = board.now_ns;
        let entry = &mut board.entries[place];
        entry.open = false;
        let wait_ns = match found {
            Ok(_) => RESOLVE_NS,
            Err(_) => RESOLVE_AGAIN_NS,
        };
        entry.due_ns = now_ns.saturating_add(wait_ns);
        if found.is_ok() || !matches!(entry.newest, Some(Ok(_))) {
            entry.newest = Some(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use barograph_model::NS_PER_S;

    use super::*;

    fn settled(resolver: &Resolver) {
        barograph_testing::wait_until("the end of the thread", || !lock(&resolver.board).running);
    }

    #[test]
    fn what_was_found_is_kept_and_looked_up_again_in_time() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let look_up: LookUp = Arc::new(move |name| {
            let nth = count.fetch_add(1, Ordering::SeqCst);
            match name {
                "good" if nth == 0 => Ok(IpAddr::from([127, 0, 0, 1])),
                _ => Err("no such name".to_owned()),
            }
        });
        let mut resolver = Resolver::new(look_up);
        let good = resolver.add("good");
        assert_eq!(resolver.address(good), None);
        // Time in seconds, and the number of look-ups until then.
        for (s, times) in [(0, 1), (59, 1), (60, 2), (69, 2), (70, 3)] {
            resolver.refresh(s * NS_PER_S);
            settled(&resolver);
            assert_eq!(asked.load(Ordering::SeqCst), times, "after {s} s");
            let expect = Some(Ok(IpAddr::from([127, 0, 0, 1])));
            assert_eq!(resolver.address(good), expect);
        }
        let bad = resolver.add("bad");
        resolver.refresh(71 * NS_PER_S);
        settled(&resolver);
        assert_eq!(resolver.address(bad), Some(Err("no such name".to_owned())));
        assert_eq!(resolver.address(99), None);
    }
}
