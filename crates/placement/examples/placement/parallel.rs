//! Runs that depend on nothing but their arguments, each in a thread of its own.

/// The results of a function, in the order of its arguments.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads = items.iter().map(|item| scope.spawn(move || run(item)));
        let threads: Vec<_> = threads.collect();
        let results = threads.into_iter().map(|it| it.join());
        results.map(|it| it.expect("no run panics")).collect()
    })
}
