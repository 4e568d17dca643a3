//! The facts and samples that one read of a source found. A batch is reused between reads: a steady
//! poll allocates nothing.

use barograph_model::{Descriptor, Sample};

/// Most facts that one source may have at a time; further ones are refused and counted.
pub const FACTS_MAX: usize = 65_536;

/// The number of a fact: an index within its source's [`SourceBatch`]. It is free for reuse one
/// read after the fact's retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactId(pub u32);

impl FactId {
    /// The id that a refused declaration gets: samples put to it are dropped.
    const REFUSED: Self = Self(u32::MAX);
}

/// A declaration or retirement of a fact. Changes must be applied in the order in which they were
/// made.
#[derive(Debug)]
pub(crate) enum FactChange {
    /// A new fact; `every_ns` is its own interval if that is not the source's.
    Declare {
        id: FactId,
        descriptor: Box<Descriptor>,
        depth: Option<u32>,
        every_ns: Option<i64>,
    },
    /// The end of a fact.
    Retire(FactId),
}

/// The part of a batch that is handed to the poller: changes and samples.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) changes: Vec<FactChange>,
    pub(crate) samples: Vec<(FactId, Sample)>,
}

impl Outbox {
    /// Empties the outbox and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.samples.clear();
    }
}

/// The facts of one source and the samples of its newest read.
#[derive(Debug, Default)]
pub struct SourceBatch {
    outbox: Outbox,
    monotonic_ns: i64,
    /// One more than the largest id ever given.
    ids_end: u32,
    free: Vec<FactId>,
    /// Ids of the facts that this read retired. They are free after it, so that no sample of one
    /// fact is taken for a sample of another.
    retiring: Vec<FactId>,
    refused: u64,
}

impl SourceBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a read at this monotonic time and drops the samples of the previous one.
    pub fn begin(&mut self, monotonic_ns: i64) {
        self.monotonic_ns = monotonic_ns;
        self.free.append(&mut self.retiring);
        self.outbox.clear();
    }

    /// The monotonic time at which this read began, in ns. Rates use it because wall time may jump.
    pub fn monotonic_ns(&self) -> i64 {
        self.monotonic_ns
    }

    /// Declares a fact that is read at each poll of its source. Beyond [`FACTS_MAX`] the
    /// declaration is refused and counted.
    pub fn declare(&mut self, descriptor: Descriptor, depth: Option<u32>) -> FactId {
        self.declare_as(descriptor, depth, None)
    }

    /// Declares a fact that its source reads only every `every_ns`, such as an attribute.
    pub fn declare_every(
        &mut self,
        descriptor: Descriptor,
        depth: Option<u32>,
        every_ns: i64,
    ) -> FactId {
        self.declare_as(descriptor, depth, Some(every_ns))
    }

    fn declare_as(
        &mut self,
        descriptor: Descriptor,
        depth: Option<u32>,
        every_ns: Option<i64>,
    ) -> FactId {
        let id = match self.free.pop() {
            Some(id) => id,
            None if (self.ids_end as usize) < FACTS_MAX => {
                self.ids_end += 1;
                FactId(self.ids_end - 1)
            }
            None => {
                self.refused += 1;
                return FactId::REFUSED;
            }
        };
        let descriptor = Box::new(descriptor);
        self.outbox.changes.push(FactChange::Declare {
            id,
            descriptor,
            depth,
            every_ns,
        });
        id
    }

    /// Ends a fact. Call it once for each fact.
    pub fn retire(&mut self, id: FactId) {
        if id != FactId::REFUSED {
            self.outbox.changes.push(FactChange::Retire(id));
            self.retiring.push(id);
        }
    }

    /// Appends a sample of a fact. Its value must be of the declared type.
    pub fn put(&mut self, id: FactId, sample: Sample) {
        if id != FactId::REFUSED {
            self.outbox.samples.push((id, sample));
        }
    }

    /// The number of facts that have been declared and not retired.
    pub fn facts(&self) -> usize {
        self.ids_end as usize - self.free.len() - self.retiring.len()
    }

    /// The number of declarations that were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The facts declared in this read.
    pub fn declared(&self) -> impl Iterator<Item = (FactId, &Descriptor)> {
        self.outbox
            .changes
            .iter()
            .filter_map(|change| match change {
                FactChange::Declare { id, descriptor, .. } => Some((*id, &**descriptor)),
                FactChange::Retire(_) => None,
            })
    }

    /// The ids of the facts retired in this read.
    pub fn retired(&self) -> &[FactId] {
        &self.retiring
    }

    /// The samples put in this read.
    pub fn samples(&self) -> &[(FactId, Sample)] {
        &self.outbox.samples
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

#[cfg(test)]
mod tests {
    use barograph_model::{Name, Unit, ValueType};

    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor::gauge(
            Name::new("a.count").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        )
    }

    #[test]
    fn an_id_is_free_only_after_the_read_that_retired_it() {
        let mut batch = SourceBatch::new();
        batch.begin(0);
        let a = batch.declare(descriptor(), None);
        batch.retire(a);
        let b = batch.declare(descriptor(), None);
        assert_ne!(a, b);
        assert_eq!(batch.facts(), 1);
        batch.begin(1);
        assert_eq!(batch.declare(descriptor(), None), a);
        assert_eq!(batch.facts(), 2);
    }

    #[test]
    fn too_many_facts_are_refused_and_counted() {
        let mut batch = SourceBatch::new();
        batch.begin(0);
        for _ in 0..FACTS_MAX {
            batch.declare(descriptor(), None);
        }
        let refused = batch.declare(descriptor(), None);
        batch.put(refused, Sample::measured(0, 1));
        batch.retire(refused);
        assert_eq!((batch.refused(), batch.facts()), (1, FACTS_MAX));
        assert!(batch.samples().is_empty() && batch.retired().is_empty());
    }
}
