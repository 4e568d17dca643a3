//! Objects in S3, by opendal.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use futures_util::TryStreamExt as _;
use opendal::services::S3;
use opendal::{Buffer, ErrorKind, HttpTransporter, OperationContext, Operator, Writer};
use opendal_http_transport_reqwest::ReqwestTransport;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::resp::late;
use super::{ObjectStore, ObjectWriter, RemoteOptions};

/// Bytes of a part of an object that is sent in parts, and of a range that is asked for at a time.
const PART_BYTES: usize = 8 << 20;
/// Threads that speak to the store.
const THREADS: usize = 2;
/// Most bytes of a reason.
const TEXT_BYTES_MAX: usize = 400;
/// The region of a store that has none.
const REGION: &str = "us-east-1";

/// A store of objects by opendal.
pub struct OpendalStore {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    operator: Operator,
    call: Duration,
}

/// An object that is being sent.
struct OpendalWriter {
    shared: Arc<Shared>,
    /// `None` when it is through.
    writer: Option<Writer>,
    /// What makes no whole part yet.
    part: Vec<u8>,
}

impl OpendalStore {
    /// A bucket of S3, without a connection. Credentials are those of the environment
    /// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`), of a profile, or of the machine's role.
    ///
    /// # Errors
    ///
    /// The options are wrong.
    pub fn s3(bucket: &str, prefix: &str, options: &RemoteOptions) -> io::Result<Self> {
        // The first provider that is installed is used; it is ring everywhere in this program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = S3::default().bucket(bucket).root(&format!("/{prefix}"));
        let named = ["AWS_REGION", "AWS_DEFAULT_REGION"];
        let is_named = named.iter().any(|name| std::env::var_os(name).is_some());
        match &*options.region {
            "" if is_named => {}
            "" => builder = builder.region(REGION),
            region => builder = builder.region(region),
        }
        if !options.endpoint.is_empty() {
            builder = builder.endpoint(&options.endpoint);
        }
        let operator = Operator::new(builder).map_err(|error| fault(&error))?;
        let call = Duration::from_nanos(options.call_ns_max.max(1).unsigned_abs());
        let client = reqwest::Client::builder()
            .connect_timeout(call)
            // Credentials go to the store that is named and to no other one.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        let client = client.map_err(|error| io::Error::other(error.to_string()))?;
        let transport = HttpTransporter::new(ReqwestTransport::new(client));
        let context = OperationContext::new().with_http_transport(transport);
        Self::new(operator.with_context(context), call)
    }

    /// A store of any service of opendal that lists. A call may take this long.
    ///
    /// # Errors
    ///
    /// The system has no threads.
    pub fn new(operator: Operator, call: Duration) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("staging-store")
            .enable_all()
            .build()?;
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                operator,
                call,
            }),
        })
    }
}

impl Shared {
    fn ask<T>(&self, request: impl Future<Output = opendal::Result<T>>) -> io::Result<T> {
        let within = async { timeout(self.call, request).await };
        match self.runtime.block_on(within) {
            Ok(answer) => answer.map_err(|error| fault(&error)),
            Err(_) => Err(late()),
        }
    }

    /// Asks again once, if it may help.
    fn ask_twice<T, F>(&self, request: impl Fn() -> F) -> io::Result<T>
    where
        F: Future<Output = opendal::Result<T>>,
    {
        let first = async { timeout(self.call, request()).await };
        match self.runtime.block_on(first) {
            Ok(Err(error)) if error.is_temporary() => self.ask(request()),
            Ok(answer) => answer.map_err(|error| fault(&error)),
            Err(_) => Err(late()),
        }
    }
}

impl ObjectStore for OpendalStore {
    fn create(&self, name: &str, _bytes: u64) -> io::Result<Box<dyn ObjectWriter>> {
        let shared = Arc::clone(&self.shared);
        // Each part is sent as it is handed over, so that each has a time limit of its own.
        let writer = shared.ask(async { shared.operator.writer(name).await })?;
        Ok(Box::new(OpendalWriter {
            shared,
            writer: Some(writer),
            part: Vec::new(),
        }))
    }

    fn read_at(&self, name: &str, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for piece in bytes.chunks_mut(PART_BYTES) {
            let end = at + piece.len() as u64;
            let operator = &self.shared.operator;
            let read = self
                .shared
                .ask_twice(|| async move { operator.read_with(name).range(at..end).await });
            let mut read = read?;
            if read.remaining() != piece.len() {
                let why = "its object ends before";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            read.copy_to_slice(piece);
            at = end;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let operator = &self.shared.operator;
        match self.shared.ask_twice(|| operator.delete(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn list(&self, found: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        let operator = &self.shared.operator;
        let lister = self
            .shared
            .ask_twice(|| async move { operator.lister_with("").recursive(true).await });
        let mut lister = lister?;
        while let Some(entry) = self.shared.ask(lister.try_next())? {
            let meta = entry.metadata();
            if meta.is_file() {
                found(entry.path(), meta.content_length());
            }
        }
        Ok(())
    }
}

impl OpendalWriter {
    fn send(&mut self) -> io::Result<()> {
        let part = Buffer::from(std::mem::take(&mut self.part));
        let writer = self.writer.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        self.shared.ask(writer.write(part))
    }
}

impl ObjectWriter for OpendalWriter {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (taken, rest) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(taken);
            bytes = rest;
            if self.part.len() == PART_BYTES {
                self.send()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if !self.part.is_empty() {
            self.send()?;
        }
        let writer = self.writer.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        self.shared.ask(writer.close())?;
        self.writer = None;
        Ok(())
    }
}

impl Drop for OpendalWriter {
    fn drop(&mut self) {
        if let Some(writer) = &mut self.writer {
            // Parts that were sent stay invisible if this fails.
            let _ = self.shared.ask(writer.abort());
        }
    }
}

/// The error without the details of requests, which may name keys.
fn fault(error: &opendal::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::RangeNotSatisfied => io::ErrorKind::UnexpectedEof,
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let mut text = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    io::Error::new(kind, barograph_model::cut(text, TEXT_BYTES_MAX))
}
