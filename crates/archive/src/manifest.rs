//! The manifest: which Parquet files count, up to which log segment they reach, how far each series
//! is archived in them, and what was lost. It alone decides which files are in charge, so it is
//! always replaced as a whole.
//!
//! This module stands alone because every process that reads history reads the manifest's bytes: a
//! text of one line that begins with its checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use barograph_model::{Descriptor, Kind, Labels, Name, SeriesId, Span, Unit, ValueType};
use serde::{Deserialize, Serialize};

use crate::layout::first_of_several;
use crate::log::LogPart;
use crate::part::{FilePart, PartKey};
use crate::{
    ArchiveError, ArchiveLayout, ArchiveLosses, ArchivedUpTo, FileAccess, Storage, Tier, open,
};

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 3;
/// Largest manifest that is read, in bytes: some millions of series and files.
const BYTES_MAX: u64 = 512 << 20;
/// Most copies that wait to be deleted: beyond it the first ones are forgotten, and stay in the
/// target.
const STALE_COPIES_MAX: usize = 4_096;
/// Approximate bytes of a series without its texts.
const SERIES_BYTES: u64 = 128;
/// The text before the checksum, which covers everything after the comma that follows it.
const HEAD: &str = "{\"checksum\":\"";
/// Offset of the body: after the head, eight digits, a quote and a comma.
const BODY_AT: usize = HEAD.len() + 8 + 2;

/// The sealed part of one node's archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifest {
    pub(crate) node: String,
    /// Log segments up to this one are in Parquet files, or were deleted for lack of space.
    pub(crate) sealed_through: u64,
    pub(crate) parts: BTreeMap<PartKey, FilePart>,
    /// Every series that the Parquet files hold.
    pub(crate) series: BTreeMap<SeriesId, SealedSeries>,
    /// The losses up to `sealed_through`.
    pub(crate) losses: ArchiveLosses,
    /// Copies in the object store of files that do not count any more, since their rows are in a
    /// merged file: these copies are to be deleted.
    pub(crate) stale_copies: BTreeSet<PartKey>,
}

/// A series and how far it is sealed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SealedSeries {
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) span: Span,
    pub(crate) archived: ArchivedUpTo,
}

impl SealedSeries {
    /// Returns the approximate bytes that the series takes in memory and in files.
    pub(crate) fn bytes(&self) -> u64 {
        let of = &self.descriptor;
        let labels = of
            .labels
            .iter()
            .map(|(name, value)| name.len() + value.len());
        let texts = of.name.as_str().len() + of.unit.as_str().len() + of.help.len();
        SERIES_BYTES + (texts + labels.sum::<usize>()) as u64
    }
}

impl Manifest {
    /// Returns the manifest of a node that has no files yet.
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            ..Self::default()
        }
    }

    /// Reads the manifest of a node; `None` if there is none.
    pub(crate) fn read(layout: &ArchiveLayout) -> Result<Option<Self>, ArchiveError> {
        let path = &layout.manifest();
        let Some(manifest) = Self::read_file(path)? else {
            return Ok(None);
        };
        // The manifest of another node names none of this node's files, so all of them would be
        // deleted.
        if ArchiveLayout::new(layout.root(), &manifest.node) == *layout {
            return Ok(Some(manifest));
        }
        let reason = format!("it is the manifest of the node {:?}", manifest.node);
        Err(ArchiveError::corrupt(path, reason, 0))
    }

    fn read_file(path: &Path) -> Result<Option<Self>, ArchiveError> {
        let file = match open::regular(path) {
            Err(error) if error.is_gone() => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        let mut limited = file.take(BYTES_MAX + 1);
        limited
            .read_to_end(&mut bytes)
            .map_err(ArchiveError::io("read", path))?;
        if bytes.len() as u64 > BYTES_MAX {
            let reason = format!("a manifest is at most {BYTES_MAX} bytes");
            return Err(ArchiveError::corrupt(path, reason, BYTES_MAX));
        }
        Self::decode(&bytes, path).map(Some)
    }

    /// Writes the file that [`Self::publish`] puts in force, and syncs it. If this fails, nothing
    /// has changed.
    pub(crate) fn prepare(
        &self,
        layout: &ArchiveLayout,
        storage: &dyn Storage,
    ) -> Result<(), ArchiveError> {
        let tmp = tmp_path(layout);
        let write = || {
            storage.unlink(&tmp)?;
            let mut file = storage.create(&tmp, FileAccess::Shared)?;
            file.write_all(&self.encode())?;
            file.sync()
        };
        write().map_err(ArchiveError::io("write", &tmp))
    }

    /// Puts the prepared manifest in force. If this fails, either the old or the new one may be in
    /// force: the next start finds out.
    pub(crate) fn publish(
        layout: &ArchiveLayout,
        storage: &dyn Storage,
    ) -> Result<(), ArchiveError> {
        let path = layout.manifest();
        storage
            .rename(&tmp_path(layout), &path)
            .and_then(|()| storage.sync_dir(&layout.node_dir()))
            .map_err(ArchiveError::io("replace", &path))
    }

    pub(crate) fn add_log(&mut self, log: &LogPart) {
        for of in log.series() {
            let archived = ArchivedUpTo {
                life: of.life,
                number: of.archived,
            };
            let span = (of.rows > 0).then_some(of.span);
            add_series(&mut self.series, of.id, &of.descriptor, span, archived);
        }
    }

    /// Adds copies that are to be deleted.
    pub(crate) fn add_stale_copies(&mut self, keys: impl IntoIterator<Item = PartKey>) {
        self.stale_copies.extend(keys);
        while self.stale_copies.len() > STALE_COPIES_MAX {
            if let Some(key) = self.stale_copies.pop_first() {
                tracing::error!(
                    ?key,
                    "too many copies wait to be removed from the target: this one stays there"
                );
            }
        }
    }

    /// Keeps the copies of files that were merged into `key`, a file that is deleted and has no
    /// known copy: they are all that is left of it in the object store. If a copy of `key` itself
    /// arrives nevertheless, since it was under way, it is redundant and is deleted.
    pub(crate) fn keep_copies_of(&mut self, key: &PartKey) {
        let before = self.stale_copies.len();
        self.stale_copies.retain(|stale| !key.covers(stale));
        if self.stale_copies.len() < before {
            self.add_stale_copies([*key]);
        }
    }

    /// Returns the bytes of all Parquet files.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts
            .values()
            .fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Checks the rules that readers enforce: files are of sealed segments, and within one tier and
    /// hour no log segment is in two files.
    pub(crate) fn check_parts(&self) -> Result<(), String> {
        let mut keys: Vec<_> = self.parts.keys().collect();
        keys.sort_by_key(|key| (key.tier, key.hour, key.first));
        for pair in keys.windows(2) {
            let same = pair[0].tier == pair[1].tier && pair[0].hour == pair[1].hour;
            if same && pair[1].first <= pair[0].last {
                return Err(format!("{:?} and {:?} overlap", pair[0], pair[1]));
            }
        }
        let sensible = |(key, part): &(&PartKey, &FilePart)| {
            let bounds = key.first <= key.last && key.last <= self.sealed_through;
            bounds && part.span.from <= part.span.to
        };
        match self.parts.iter().find(|part| !sensible(part)) {
            Some((key, _)) => Err(format!("{key:?}: bounds make no sense")),
            None => Ok(()),
        }
    }

    /// Returns the lowest format that can express this manifest: 3 if a file holds several hours, 2
    /// if a series is of bytes, JSON or arrays, else 1.
    fn format(&self) -> u32 {
        let mut keys = self.parts.keys().chain(&self.stale_copies);
        if keys.any(|key| first_of_several(key.hour).is_some()) {
            return FORMAT;
        }
        let mut series = self.series.values();
        let is_new = series.any(|known| known.descriptor.value_type as u8 > ValueType::Text as u8);
        if is_new { 2 } else { 1 }
    }

    fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            format: self.format(),
            node: self.node.clone(),
            sealed_through: self.sealed_through,
            losses: self.losses.clone(),
            parts: self.parts.iter().map(WirePart::from).collect(),
            series: self.series.values().map(WireSeries::from).collect(),
            stale_copies: self.stale_copies.iter().map(WireKey::from).collect(),
        };
        let body = serde_json::to_string(&wire).expect("plain structs are JSON");
        // The head replaces the opening brace of the body.
        let body = &body[1..];
        let checksum = crc32fast::hash(body.as_bytes());
        format!("{HEAD}{checksum:08x}\",{body}").into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Self, ArchiveError> {
        let corrupt = |reason: String, at: usize| ArchiveError::corrupt(path, reason, at as u64);
        let body = bytes
            .get(BODY_AT..)
            .filter(|_| bytes.starts_with(HEAD.as_bytes()))
            .ok_or_else(|| corrupt("it does not begin with a checksum".into(), 0))?;
        let digits = &bytes[HEAD.len()..HEAD.len() + 8];
        let checksum = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        if checksum != Some(crc32fast::hash(body)) {
            return Err(corrupt("the checksum does not hold".into(), HEAD.len()));
        }
        let unreadable = |error: serde_json::Error| corrupt(error.to_string(), error.column());
        // The format is read first: a newer one may have other fields.
        let version: WireFormat = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version.format > FORMAT {
            return Err(ArchiveError::Newer {
                path: path.to_owned(),
                found: version.format,
                known: FORMAT,
            });
        }
        let wire: Wire = serde_json::from_slice(bytes).map_err(unreadable)?;
        Self::check(wire).map_err(|reason| corrupt(reason, BODY_AT))
    }

    /// Checks that the manifest as a whole makes sense, which the JSON parser cannot.
    fn check(wire: Wire) -> Result<Self, String> {
        let mut manifest = Self {
            node: wire.node,
            sealed_through: wire.sealed_through,
            losses: wire.losses,
            ..Self::default()
        };
        for part in &wire.parts {
            let (key, part) = part.check()?;
            if manifest.parts.insert(key, part).is_some() {
                return Err(format!("{key:?} is there twice"));
            }
        }
        manifest.check_parts()?;
        let mut seen = BTreeSet::new();
        let stale = wire.stale_copies.iter().map(WireKey::check);
        manifest.add_stale_copies(stale.collect::<Result<Vec<_>, _>>()?);
        manifest
            .stale_copies
            .retain(|key| !manifest.parts.contains_key(key));
        for series in wire.series {
            let known = series.check()?;
            let id = known.descriptor.series_id();
            if !seen.insert(id) {
                return Err(format!("{} is there twice", known.descriptor));
            }
            manifest.series.insert(id, known);
        }
        Ok(manifest)
    }
}

/// Adds what a file holds of a series. A series that has no samples and is not known yet is not
/// added.
pub(crate) fn add_series(
    series: &mut BTreeMap<SeriesId, SealedSeries>,
    id: SeriesId,
    descriptor: &Arc<Descriptor>,
    span: Option<Span>,
    archived: ArchivedUpTo,
) {
    match (series.get_mut(&id), span) {
        (Some(known), span) => {
            known.archived = known.archived.max(archived);
            known.span = span.map_or(known.span, |span| union(known.span, span));
        }
        (None, Some(span)) => {
            let descriptor = Arc::clone(descriptor);
            let known = SealedSeries {
                descriptor,
                span,
                archived,
            };
            series.insert(id, known);
        }
        (None, None) => {}
    }
}

/// Returns the smallest span that contains both.
pub(crate) fn union(a: Span, b: Span) -> Span {
    Span {
        from: a.from.min(b.from),
        to: a.to.max(b.to),
    }
}

fn tmp_path(layout: &ArchiveLayout) -> PathBuf {
    layout.tmp_dir().join("manifest.json")
}

#[derive(Deserialize)]
struct WireFormat {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    format: u32,
    node: String,
    sealed_through: u64,
    losses: ArchiveLosses,
    parts: Vec<WirePart>,
    series: Vec<WireSeries>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stale_copies: Vec<WireKey>,
}

#[derive(Serialize, Deserialize)]
struct WireKey {
    tier: String,
    hour: i64,
    first: u64,
    last: u64,
}

impl From<&PartKey> for WireKey {
    fn from(key: &PartKey) -> Self {
        Self {
            tier: key.tier.as_str().into(),
            hour: key.hour,
            first: key.first,
            last: key.last,
        }
    }
}

impl WireKey {
    fn check(&self) -> Result<PartKey, String> {
        let tier = Tier::from_name(&self.tier)
            .ok_or_else(|| format!("the tier {:?} is not known", self.tier))?;
        Ok(PartKey {
            first: self.first,
            hour: self.hour,
            last: self.last,
            tier,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WirePart {
    tier: String,
    hour: i64,
    first: u64,
    last: u64,
    rows: u64,
    bytes: u64,
    from: i64,
    to: i64,
    copied: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32: Option<u32>,
}

impl From<(&PartKey, &FilePart)> for WirePart {
    fn from((key, part): (&PartKey, &FilePart)) -> Self {
        Self {
            tier: key.tier.as_str().into(),
            hour: key.hour,
            first: key.first,
            last: key.last,
            rows: part.rows,
            bytes: part.bytes,
            from: part.span.from,
            to: part.span.to,
            copied: part.copied,
            crc32: part.crc32,
        }
    }
}

impl WirePart {
    fn check(&self) -> Result<(PartKey, FilePart), String> {
        let tier = Tier::from_name(&self.tier)
            .ok_or_else(|| format!("the tier {:?} is not known", self.tier))?;
        let key = PartKey {
            first: self.first,
            hour: self.hour,
            last: self.last,
            tier,
        };
        let span = Span {
            from: self.from,
            to: self.to,
        };
        let part = FilePart {
            rows: self.rows,
            bytes: self.bytes,
            span,
            copied: self.copied,
            crc32: self.crc32,
        };
        Ok((key, part))
    }
}

#[derive(Serialize, Deserialize)]
struct WireSeries {
    name: String,
    labels: BTreeMap<String, String>,
    #[serde(rename = "type")]
    value_type: String,
    unit: String,
    kind: String,
    help: String,
    from: i64,
    to: i64,
    life: i64,
    number: u64,
}

impl From<&SealedSeries> for WireSeries {
    fn from(known: &SealedSeries) -> Self {
        let descriptor = &*known.descriptor;
        let pairs = descriptor.labels.iter();
        Self {
            name: descriptor.name.as_str().into(),
            labels: pairs.map(|(n, v)| (n.into(), v.into())).collect(),
            value_type: descriptor.value_type.as_str().into(),
            unit: descriptor.unit.as_str().into(),
            kind: descriptor.kind.as_str().into(),
            help: descriptor.help.clone(),
            from: known.span.from,
            to: known.span.to,
            life: known.archived.life,
            number: known.archived.number,
        }
    }
}

impl WireSeries {
    fn check(self) -> Result<SealedSeries, String> {
        let (types, kinds) = (1..=8, 1..=3);
        let value_type = types
            .filter_map(ValueType::from_u8)
            .find(|t| t.as_str() == self.value_type)
            .ok_or_else(|| format!("{}: no type {:?}", self.name, self.value_type))?;
        let kind = kinds
            .filter_map(Kind::from_u8)
            .find(|kind| kind.as_str() == self.kind)
            .ok_or_else(|| format!("{}: no kind {:?}", self.name, self.kind))?;
        if self.from > self.to {
            return Err(format!("{}: it ends before it begins", self.name));
        }
        let descriptor = Descriptor {
            name: Name::new(self.name).map_err(|e| e.to_string())?,
            labels: Labels::new(self.labels).map_err(|e| e.to_string())?,
            value_type,
            unit: Unit::new(self.unit).map_err(|e| e.to_string())?,
            kind,
            help: self.help,
        };
        Ok(SealedSeries {
            descriptor: Arc::new(descriptor),
            span: Span {
                from: self.from,
                to: self.to,
            },
            archived: ArchivedUpTo {
                life: self.life,
                number: self.number,
            },
        })
    }
}
