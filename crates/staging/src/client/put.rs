//! Puts to all replicas.

use barograph_model::NS_PER_S;

use super::StagingClient;
use super::config::{PutOptions, PutOrder, PutReport, StagingMap};
use super::{is_later, no_servers};
use crate::BLOCK_BYTES_MAX;
use crate::block::{BlockInfo, checksum};
use crate::error::{FaultCode, StagingError};
use crate::key::BlockKey;
use crate::store::PutHead;

impl StagingClient {
    /// Puts a block on its replicas. Returns when all have answered.
    ///
    /// # Errors
    ///
    /// [`FaultCode::TooFew`] if fewer servers than demanded have acknowledged it: it may be on some
    /// of them. If there is one replica, or all refuse for one reason, that is the error.
    pub fn put(
        &self,
        key: &BlockKey,
        version: u64,
        bytes: &[u8],
        options: &PutOptions,
    ) -> Result<PutReport, StagingError> {
        if bytes.len() as u64 > BLOCK_BYTES_MAX {
            let text = format!("{key}: a block has at most {BLOCK_BYTES_MAX} bytes");
            return Err(StagingError::fault(FaultCode::BadRequest, text));
        }
        let mut head = PutHead {
            key: key.clone(),
            version,
            bytes: bytes.len() as u64,
            checksum: checksum(bytes),
            epoch: 0,
            refetch_us: options.refetch_us,
            target: options.target,
            wait_ns: options.wait_ns,
        };
        self.in_epoch(|map| {
            head.epoch = map.epoch;
            let servers = self.replicas(key, map);
            let report = self.put_all(map, &servers, &head, bytes);
            if let Some(later) = later(&report, map.epoch) {
                return Err(later);
            }
            let wanted = options.acks.unwrap_or(self.config.replicas.max(1));
            enough(report, wanted, key)
        })
    }

    fn put_all(
        &self,
        map: &StagingMap,
        servers: &[u64],
        head: &PutHead,
        bytes: &[u8],
    ) -> PutReport {
        let mut report = PutReport {
            acknowledged: Vec::new(),
            failed: Vec::new(),
        };
        let mut take = |server, answer: Result<BlockInfo, StagingError>| match answer {
            Ok(info) => report.acknowledged.push((server, info)),
            Err(error) => report.failed.push((server, error)),
        };
        if servers.len() == 1 || self.config.put_order == PutOrder::InTurn {
            for server in servers {
                take(*server, self.put_one(map, *server, head, bytes));
            }
            return report;
        }
        std::thread::scope(|scope| {
            let started = servers.iter().map(|server| {
                let thread = std::thread::Builder::new().name("staging-put".into());
                let put = move || self.put_one(map, *server, head, bytes);
                (*server, thread.spawn_scoped(scope, put))
            });
            // All are started before the first is waited for.
            for (server, thread) in started.collect::<Vec<_>>() {
                let answer = match thread.map(std::thread::ScopedJoinHandle::join) {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => self.put_one(map, server, head, bytes),
                };
                take(server, answer);
            }
        });
        report
    }

    /// Puts a block on one server.
    pub(super) fn put_one(
        &self,
        map: &StagingMap,
        server: u64,
        head: &PutHead,
        bytes: &[u8],
    ) -> Result<BlockInfo, StagingError> {
        // The server may wait for room within the time of the call.
        let wait_bytes = i128::from(head.wait_ns.max(0)) * i128::from(self.config.rate_min);
        let wait_bytes = u64::try_from(wait_bytes / i128::from(NS_PER_S)).unwrap_or(u64::MAX);
        let time_bytes = head.bytes.saturating_add(wait_bytes);
        self.on_server(map, server, time_bytes, |connection, until_ns| {
            connection.put(head, bytes, until_ns)
        })
    }
}

/// The refusal of a server that is in a later epoch.
fn later(report: &PutReport, epoch: u64) -> Option<StagingError> {
    let mut refusals = report.failed.iter().map(|(_, error)| error);
    let refusal = refusals.find(|error| is_later(error, epoch))?;
    let (fence, text) = (refusal.number(), refusal.to_string());
    Some(StagingError::numbered(FaultCode::Fenced, fence, text))
}

fn enough(mut report: PutReport, wanted: usize, key: &BlockKey) -> Result<PutReport, StagingError> {
    let acknowledged = report.acknowledged.len();
    if acknowledged >= wanted && acknowledged > 0 {
        return Ok(report);
    }
    let codes: Vec<_> = report
        .failed
        .iter()
        .map(|(_, error)| error.code())
        .collect();
    let are_alike = codes.iter().all(|code| *code == codes[0]);
    if acknowledged == 0 && are_alike {
        let first = report.failed.drain(..).next();
        return Err(first.map_or_else(no_servers, |(_, error)| error));
    }
    let reasons = report.failed.iter();
    let reasons: Vec<_> = reasons
        .map(|(server, error)| format!("server {server}: {error}"))
        .collect();
    let text = format!(
        "{key}: {acknowledged} of {wanted} servers have acknowledged it: {}",
        reasons.join("; ")
    );
    Err(StagingError::fault(FaultCode::TooFew, text))
}
