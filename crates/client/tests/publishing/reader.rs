//! An agent's view of a run directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use barograph_client::RunDir;
use barograph_stream::ingest::{IngestDeclaration, IngestFile, RecordPayload};

/// A put, with names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Put {
    pub ring: u32,
    pub name: String,
    pub time: u64,
    pub value: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Json(String),
    Floats(Vec<f64>),
    Frame(u64),
}

/// A file, followed as an agent follows it.
pub(super) struct Follower {
    pub file: IngestFile,
    pub declared: Vec<IngestDeclaration>,
    /// Answers to calls: id and status.
    pub answers: Vec<(u64, u32)>,
    pub missed: u64,
    pub damaged: u64,
}

/// All files of a run directory, in the order in which they were made.
pub(super) fn files(run_dir: &Path) -> Vec<Follower> {
    let ingest = RunDir::new(run_dir).ingest_dir();
    let Ok(found) = std::fs::read_dir(ingest) else {
        return Vec::new();
    };
    let paths: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    let mut files: Vec<_> = paths.iter().map(|path| Follower::open(path)).collect();
    files.sort_by_key(|f| f.file.created_ns());
    files
}

/// The only file of a run directory.
pub(super) fn only(run_dir: &Path) -> Follower {
    let mut files = files(run_dir);
    assert_eq!(files.len(), 1);
    files.remove(0)
}

/// The only file of a run directory, if it is complete yet.
pub(super) fn ready(run_dir: &Path) -> Option<Follower> {
    let mut found = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).ok()?;
    Follower::try_open(&found.next()?.ok()?.path())
}

impl Follower {
    pub(super) fn open(path: &Path) -> Self {
        Self::try_open(path).unwrap()
    }

    fn try_open(path: &Path) -> Option<Self> {
        let file = IngestFile::open(path).ok()?;
        let (declared, answers, missed, damaged) = (Vec::new(), Vec::new(), 0, 0);
        Some(Self {
            file,
            declared,
            answers,
            missed,
            damaged,
        })
    }

    /// Reads all new puts.
    pub(super) fn read(&mut self) -> Vec<Put> {
        self.file.look().unwrap();
        let declared = &mut self.declared;
        self.file.declarations(&mut |d| declared.push(d)).unwrap();
        let names = names(declared);
        let mut puts = Vec::new();
        let answers = &mut self.answers;
        let drained = self.file.drain(u64::MAX, &mut |record| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let value = match record.payload {
                RecordPayload::Int(v) => Content::Int(v),
                RecordPayload::Float(v) => Content::Float(v),
                RecordPayload::Bool(v) => Content::Bool(v),
                RecordPayload::Text(v) => Content::Text(text(v)),
                RecordPayload::Json(v) => Content::Json(text(v)),
                RecordPayload::Bytes(v) => Content::Bytes(v.to_vec()),
                RecordPayload::Floats(v) => {
                    let eight = v.chunks_exact(8).map(|c| c.try_into().unwrap());
                    Content::Floats(eight.map(f64::from_le_bytes).collect())
                }
                RecordPayload::Frame(v) => Content::Frame(v),
                RecordPayload::Ack { id, status } => return answers.push((id, status)),
                RecordPayload::Missed(_) | RecordPayload::Damaged => return,
            };
            let is_frame = matches!(value, Content::Frame(_));
            puts.push(Put {
                ring: record.ring,
                name: names[&(is_frame, record.series)].clone(),
                time: record.time,
                value,
            });
        });
        let drained = drained.unwrap();
        self.missed += drained.missed;
        self.damaged += drained.damaged;
        puts
    }

    /// Reads all new puts and tells the writer that they have been read.
    pub(super) fn take(&mut self) -> Vec<Put> {
        let puts = self.read();
        let positions: Vec<u64> = self.file.positions().collect();
        for (ring, position) in (0..).zip(positions) {
            self.file.set_tail(ring, position).unwrap();
        }
        puts
    }

    /// Application and labels of the process.
    pub(super) fn process(&self) -> (String, BTreeMap<String, String>) {
        let mut processes = self.declared.iter().filter_map(|d| match d {
            IngestDeclaration::Process {
                application,
                labels,
            } => Some((application.clone(), labels.iter().cloned().collect())),
            _ => None,
        });
        processes.next_back().unwrap()
    }
}

/// The names of values (false) and publications (true), by index.
fn names(declared: &[IngestDeclaration]) -> BTreeMap<(bool, u32), String> {
    let mut publications = Vec::new();
    let mut names = BTreeMap::new();
    let mut values = 0;
    for declaration in declared {
        match declaration {
            IngestDeclaration::Process { .. }
            | IngestDeclaration::Trigger { .. }
            | IngestDeclaration::Knob { .. }
            | IngestDeclaration::Cell { .. } => {}
            IngestDeclaration::Publication { name, .. } => {
                names.insert((true, publications.len() as u32), name.clone());
                publications.push(name.clone());
            }
            IngestDeclaration::Value {
                publication, name, ..
            } => {
                let full = format!("{}.{name}", publications[*publication as usize]);
                names.insert((false, values), full);
                values += 1;
            }
        }
    }
    names
}

/// The floats of a value, in order.
pub(super) fn floats(puts: &[Put], name: &str) -> Vec<f64> {
    let of_name = puts.iter().filter(|put| put.name == name);
    of_name
        .filter_map(|put| match put.value {
            Content::Float(v) => Some(v),
            _ => None,
        })
        .collect()
}

/// The frames of a publication, in order.
pub(super) fn frames(puts: &[Put], name: &str) -> Vec<u64> {
    let of_name = puts.iter().filter(|put| put.name == name);
    of_name
        .filter_map(|put| match put.value {
            Content::Frame(n) => Some(n),
            _ => None,
        })
        .collect()
}
