//! Files in services: S3, WebDAV and SFTP, by opendal.

use std::path::Path;
use std::time::Duration;

use barograph_action::StoreConfig;
use barograph_model::{fnv1a, is_http, is_local_http};
use futures_util::TryStreamExt as _;
use opendal::services::{S3, Sftp, Webdav};
use opendal::{
    Buffer, BufferStream, ErrorKind, HttpTransporter, Metadata, OperationContext, Operator, Writer,
};
use opendal_http_transport_reqwest::ReqwestTransport;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::TransferFault;
use crate::secret::{check_private, secrets};

/// Longest time of one request to a service.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// Longest time until a connection is made.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Bytes of a part of an object that is sent in parts.
const PART_BYTES: usize = 16 << 20;
/// Most bytes of a reason.
const TEXT_BYTES_MAX: usize = 800;
/// Most bytes of a name in a service.
const NAME_BYTES_MAX: usize = 1_000;

/// A place in a service.
pub(crate) struct RemotePlace {
    runtime: Runtime,
    operator: Operator,
    name: String,
    /// Whether the service gives a file its name before all of it is there.
    shows_parts: bool,
}

impl RemotePlace {
    /// Sets the way to a file up, without a connection.
    pub(crate) fn open(store: &StoreConfig, name: &[u8]) -> Result<Self, TransferFault> {
        let name = checked(name)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TransferFault::Passing(error.to_string()))?;
        let lasting = TransferFault::Lasting;
        let url = &*store.url;
        let (scheme, place) = url.split_once("://").ok_or_else(|| {
            lasting(format!(
                "url {url:?}: write s3://, https://, sftp:// or file://"
            ))
        })?;
        // The first provider that is installed is used; it is ring everywhere in this program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let operator = match scheme {
            "s3" => s3(store, place)?,
            "https" | "http" => webdav(store)?,
            "sftp" => sftp(store, place)?,
            _ => {
                return Err(lasting(format!(
                    "url {url:?}: {scheme} is none of s3, https (WebDAV), sftp, file"
                )));
            }
        };
        let client = client(store)?;
        let transport = HttpTransporter::new(ReqwestTransport::new(client));
        let context = OperationContext::new().with_http_transport(transport);
        Ok(Self {
            runtime,
            operator: operator.with_context(context),
            name,
            shows_parts: scheme != "s3",
        })
    }

    fn ask<T>(
        &self,
        request: impl Future<Output = opendal::Result<T>>,
    ) -> Result<T, TransferFault> {
        let within = async { timeout(REQUEST_MAX, request).await };
        match self.runtime.block_on(within) {
            Ok(answer) => answer.map_err(|error| fault(&error)),
            Err(_) => Err(TransferFault::Passing(format!(
                "the service did not answer within {} s",
                REQUEST_MAX.as_secs()
            ))),
        }
    }

    /// What the service tells of the file; `None` if there is none.
    fn stat(&self) -> Result<Option<Metadata>, TransferFault> {
        self.ask(async {
            match self.operator.stat(&self.name).await {
                Ok(meta) => Ok(meta.is_file().then_some(meta)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn size(&self) -> Result<Option<u64>, TransferFault> {
        Ok(self.stat()?.map(|meta| meta.content_length()))
    }

    pub(crate) fn exists(&self) -> Result<bool, TransferFault> {
        self.stat().map(|meta| meta.is_some())
    }

    /// When the file got its contents, in ns since the epoch; `None` if there is none, or if the
    /// service does not say when.
    pub(crate) fn arrived_ns(&self) -> Result<Option<i64>, TransferFault> {
        let modified = self.stat()?.and_then(|meta| meta.last_modified());
        Ok(modified.and_then(|time| i64::try_from(time.into_inner().as_nanosecond()).ok()))
    }

    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), TransferFault> {
        match self.size()? {
            Some(size) if size == bytes => Ok(()),
            Some(size) => Err(TransferFault::Passing(format!(
                "the copy has {size} bytes and the file {bytes}"
            ))),
            None => Err(TransferFault::Passing("the copy is not there".into())),
        }
    }

    pub(crate) fn delete(&self) -> Result<bool, TransferFault> {
        let was_there = self.exists()?;
        self.ask(self.operator.delete(&self.name))?;
        Ok(was_there)
    }

    /// Opens the file for reading; `None` if there is none.
    pub(crate) fn reader(&self) -> Result<Option<RemoteReader<'_>>, TransferFault> {
        let Some(size) = self.size()? else {
            return Ok(None);
        };
        let stream = self.ask(async {
            let reader = self.operator.reader(&self.name).await?;
            reader.into_stream(0..size).await
        })?;
        Ok(Some(RemoteReader {
            place: self,
            stream,
            size,
        }))
    }

    /// Begins the file. In services that show parts it has a name of its own until it is complete,
    /// which `key` makes the same each time.
    pub(crate) fn writer(&self, key: &str) -> Result<RemoteWriter<'_>, TransferFault> {
        let part = self.shows_parts.then(|| {
            let dir = self.name.rsplit_once('/').map_or("", |(dir, _)| dir);
            let slash = if dir.is_empty() { "" } else { "/" };
            format!("{dir}{slash}.baro-{:016x}.part", fnv1a(key.as_bytes()))
        });
        let path = part.clone().unwrap_or_else(|| self.name.clone());
        let writer = self.ask(async {
            let can_split = self.operator.info().capability().write_can_multi;
            match can_split {
                true => self.operator.writer_with(&path).chunk(PART_BYTES).await,
                false => self.operator.writer(&path).await,
            }
        })?;
        Ok(RemoteWriter {
            place: self,
            writer,
            part,
        })
    }
}

/// A file of a service that is being read.
pub(crate) struct RemoteReader<'a> {
    place: &'a RemotePlace,
    stream: BufferStream,
    size: u64,
}

impl RemoteReader<'_> {
    /// Size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The next piece; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, TransferFault> {
        let next = self.stream.try_next();
        Ok(self.place.ask(next)?.map(|piece| piece.to_vec()))
    }
}

/// A file of a service that is being written.
pub(crate) struct RemoteWriter<'a> {
    place: &'a RemotePlace,
    writer: Writer,
    part: Option<String>,
}

impl RemoteWriter<'_> {
    pub(crate) fn write(&mut self, piece: Vec<u8>) -> Result<(), TransferFault> {
        self.place.ask(self.writer.write(Buffer::from(piece)))
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> Result<(), TransferFault> {
        let place = self.place;
        place.ask(self.writer.close())?;
        match &self.part {
            Some(part) => place.ask(place.operator.rename(part, &place.name)),
            None => Ok(()),
        }
    }

    /// Removes what was written, as far as the service can.
    pub(crate) fn abandon(mut self) {
        // The next attempt writes over it otherwise.
        let _ = self.place.ask(self.writer.abort());
        if let Some(part) = &self.part {
            let _ = self.place.ask(self.place.operator.delete(part));
        }
    }
}

/// The name of a file in a service.
fn checked(name: &[u8]) -> Result<String, TransferFault> {
    let refused = |text: &str| Err(TransferFault::Lasting(text.to_owned()));
    let Ok(text) = std::str::from_utf8(name) else {
        return refused("the name is not UTF-8, and services take no other");
    };
    let text = text.trim_start_matches('/');
    if text.is_empty() || text.ends_with('/') || text.len() > NAME_BYTES_MAX {
        return refused("a name in a service has 1 to 1000 bytes, the last of them no slash");
    }
    let is_odd = |part: &str| matches!(part, "" | "." | "..");
    match text.split('/').any(is_odd) || text.chars().any(char::is_control) {
        true => refused(
            "a name in a service has no part that is empty, . or .., and no control character",
        ),
        false => Ok(text.to_owned()),
    }
}

fn s3(store: &StoreConfig, place: &str) -> Result<Operator, TransferFault> {
    const NAMES: [&str; 3] = ["access_key_id", "secret_access_key", "session_token"];
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err(TransferFault::Lasting(
            "its url names no bucket: s3://bucket/prefix".into(),
        ));
    }
    check_encrypted(&store.endpoint, store.allow_http)?;
    let mut builder = S3::default()
        .bucket(bucket)
        .root(&format!("/{prefix}"))
        .region(match &*store.region {
            "" => "us-east-1",
            region => region,
        });
    if !store.endpoint.is_empty() {
        builder = builder.endpoint(&store.endpoint);
    }
    let secrets = secrets(&store.secret_file, &NAMES)?;
    if !secrets.is_empty() {
        builder = builder.disable_config_load().disable_ec2_metadata();
    }
    let of = |name: &str| secrets.get(name).map(String::as_str);
    if let (Some(id), Some(secret)) = (of(NAMES[0]), of(NAMES[1])) {
        builder = builder.access_key_id(id).secret_access_key(secret);
    }
    if let Some(token) = of(NAMES[2]) {
        builder = builder.session_token(token);
    }
    Operator::new(builder).map_err(|error| fault(&error))
}

fn webdav(store: &StoreConfig) -> Result<Operator, TransferFault> {
    check_encrypted(&store.url, store.allow_http)?;
    let authority = store.url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(TransferFault::Lasting(
            "its url has a user: write it into secret_file".into(),
        ));
    }
    let secrets = secrets(&store.secret_file, &["username", "password", "token"])?;
    let mut builder = Webdav::default().endpoint(&store.url);
    for (name, value) in &secrets {
        builder = match &**name {
            "username" => builder.username(value),
            "password" => builder.password(value),
            _ => builder.token(value),
        };
    }
    Operator::new(builder).map_err(|error| fault(&error))
}

fn sftp(store: &StoreConfig, place: &str) -> Result<Operator, TransferFault> {
    let (host, root) = place.split_once('/').unwrap_or((place, ""));
    let has_option = host.starts_with('-') || host.contains("@-");
    if host.is_empty() || has_option {
        return Err(TransferFault::Lasting(
            "its url names no host: sftp://user@host:port/path".into(),
        ));
    }
    let mut builder = Sftp::default()
        .endpoint(&format!("ssh://{host}"))
        .root(&format!("/{root}"));
    if !store.secret_file.as_os_str().is_empty() {
        let path = &store.secret_file;
        let refused = |reason: String| {
            TransferFault::Lasting(format!("secret_file {}: {reason}", path.display()))
        };
        let file = std::fs::File::open(path).map_err(|error| refused(error.to_string()))?;
        check_private(&file).map_err(&refused)?;
        builder = builder.key(&path.to_string_lossy());
    }
    Operator::new(builder).map_err(|error| fault(&error))
}

/// Refuses `http:` to another machine that is not asked for.
fn check_encrypted(url: &str, allow_http: bool) -> Result<(), TransferFault> {
    match !is_http(url) || allow_http || is_local_http(url) {
        true => Ok(()),
        false => Err(TransferFault::Lasting(
            "it is unencrypted: use https://, or say allow_http = true".into(),
        )),
    }
}

fn client(store: &StoreConfig) -> Result<reqwest::Client, TransferFault> {
    let refused = |what: &str, reason: String| TransferFault::Lasting(format!("{what}: {reason}"));
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_MAX)
        // Credentials go to the service that the configuration names and to no other one.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy();
    if !store.proxy.is_empty() {
        let proxy = reqwest::Proxy::all(&store.proxy);
        builder = builder.proxy(proxy.map_err(|error| refused("proxy", error.to_string()))?);
    }
    if !store.ca_file.as_os_str().is_empty() {
        let path: &Path = &store.ca_file;
        let what = format!("ca_file {}", path.display());
        let pem = std::fs::read(path).map_err(|error| refused(&what, error.to_string()))?;
        let found = reqwest::Certificate::from_pem_bundle(&pem);
        let found = found.map_err(|error| refused(&what, error.to_string()))?;
        if found.is_empty() {
            return Err(refused(&what, "it holds no certificate (PEM)".into()));
        }
        builder = builder.tls_certs_only(found);
    }
    let built = builder.build();
    built.map_err(|error| TransferFault::Passing(format!("the client: {error}")))
}

fn fault(error: &opendal::Error) -> TransferFault {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    let text = barograph_model::cut(text, TEXT_BYTES_MAX);
    let lasts = matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::ConfigInvalid
            | ErrorKind::Unsupported
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::IsSameFile
    );
    match lasts && !error.is_temporary() {
        true => TransferFault::Lasting(text),
        false => TransferFault::Passing(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_services() {
        let check = |name: &[u8], expect: Option<&str>| {
            assert_eq!(checked(name).ok().as_deref(), expect, "{name:?}");
        };
        check(b"a/b.tif", Some("a/b.tif"));
        check(b"/a b", Some("a b"));
        for name in [
            &b""[..],
            b"/",
            b"a/",
            b"a//b",
            b"../a",
            b"a/./b",
            b"a\nb",
            b"\xff",
        ] {
            check(name, None);
        }
        check(&[b'a'; 1_001], None);
    }

    #[test]
    fn services_are_set_up_without_a_connection() {
        let check = |url: &str, endpoint: &str, expect: Option<&str>| {
            let store = StoreConfig {
                url: url.to_owned(),
                endpoint: endpoint.to_owned(),
                ..StoreConfig::default()
            };
            let seen = RemotePlace::open(&store, b"x")
                .err()
                .map(|it| it.to_string());
            match (&seen, expect) {
                (None, None) => {}
                (Some(seen), Some(expect)) => assert!(seen.contains(expect), "{url}: {seen}"),
                _ => panic!("{url}: {seen:?}"),
            }
        };
        check("s3://bucket/prefix", "https://s3.example", None);
        check("s3://bucket", "http://127.0.0.1:9000", None);
        check("s3://bucket", "http://s3.example", Some("unencrypted"));
        let disguised = "http://localhost:80@s3.example";
        check("s3://bucket", disguised, Some("unencrypted"));
        check("s3://", "", Some("no bucket"));
        check("https://dav.example/x", "", None);
        check("http://dav.example/x", "", Some("unencrypted"));
        check("http://[::1]:80/x", "", None);
        check("https://me@dav.example/x", "", Some("secret_file"));
        check("sftp://me@lab:2222/data", "", None);
        check("sftp://-oProxyCommand=x/data", "", Some("no host"));
        check("ftp://lab/x", "", Some("ftp is none of"));
        check("lab", "", Some("write s3://"));
    }
}
