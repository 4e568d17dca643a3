//! Threads for work that may wait or compute.
//!
//! Large answers are computed at a low priority, so that sampling goes first. A thread cannot raise
//! its priority again, so small answers are made on other threads.

use tokio::sync::oneshot;

use crate::fault::Fault;

/// Runs `work` on a thread that may wait; it runs to its end even if nobody waits for it any more.
pub(crate) async fn wait<T: Send + 'static, E: From<Fault> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let task = tokio::task::spawn_blocking(work);
    task.await.unwrap_or_else(|lost| Err(ended(lost).into()))
}

/// Runs `work` on a new thread at a low priority, which threads started by it inherit. The caller
/// holds a place, and there are few places.
pub(crate) async fn nicely<T: Send + 'static, E: From<Fault> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let (done, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name("baro-large".into());
    let started = thread.spawn(move || {
        barograph_stream::give_way();
        // The receiver may be gone.
        let _ = done.send(work());
    });
    if let Err(error) = started {
        let fault = format!("no thread can be started for this answer: {error}; try again");
        return Err(Fault::busy(fault).into());
    }
    answer.await.unwrap_or_else(|lost| Err(ended(lost).into()))
}

fn ended(lost: impl std::fmt::Display) -> Fault {
    Fault::internal(format!("the work on this request ended early: {lost}"))
}

#[cfg(test)]
mod tests {
    use barograph_stream::NICE;
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn only_large_answers_give_way() {
        let threads = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let nice = || Ok::<_, Fault>(getpriority_process(None).unwrap());
        let ours = getpriority_process(None).unwrap();
        for _ in 0..2 {
            assert_eq!(threads.block_on(nicely(nice)).unwrap(), NICE);
            assert_eq!(threads.block_on(wait(nice)).unwrap(), ours);
        }
    }

    #[test]
    fn an_answer_that_panics_is_a_fault() {
        let threads = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let work = || -> Result<(), Fault> { panic!("as the test wants it") };
        let fault = threads.block_on(nicely(work)).unwrap_err();
        assert!(fault.message.contains("ended early"), "{}", fault.message);
    }
}
