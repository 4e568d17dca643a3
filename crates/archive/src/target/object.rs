//! Copies in an object store: a directory (`file:///path`) or S3 (`s3://bucket/prefix`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_model::{is_http, is_local_http};
use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{
    Certificate, ClientConfigKey, ClientOptions, ObjectStore, ObjectStoreExt as _, RetryConfig,
    WriteMultipart,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::ArchiveError;
use crate::target::CopyTarget;
use crate::target::list::{self, CopyChange};

/// Size of a part in bytes: a larger file is sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Most parts under way at once, each of them in memory.
const PARTS_MAX: usize = 2;
/// Longest time of one request.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Most repetitions of a request before the copy fails.
const RETRIES_MAX: usize = 3;
/// For how long a request is tried again at most.
const RETRY_TIME_MAX: Duration = Duration::from_secs(30);
/// The time between two checks for a stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Longest wait for an unfinished upload to be deleted: otherwise the owner pays for it until the
/// store's own rules delete it.
const ABORT_MAX: Duration = Duration::from_secs(2);
/// Longest text of an error that is passed on, in characters.
const REASON_CHARS_MAX: usize = 300;
/// Largest file of certificates that is read, in bytes.
const CA_BYTES_MAX: u64 = 1 << 20;

/// The keys of `target_options`.
const OPTIONS: [&str; 4] = ["endpoint", "region", "allow_http", "ca_file"];

/// An object store as a target, with the runtime for its requests.
#[derive(Debug)]
pub struct ObjectTarget {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: String,
    runtime: Runtime,
}

impl ObjectTarget {
    /// Opens `file:///path` or `s3://bucket/prefix`, without connecting. Options for S3: `endpoint`
    /// (a URL), `region`, `allow_http` (`true`: unencrypted beyond this machine too) and `ca_file`
    /// (PEM, trusted besides the system's). Credentials come from the environment
    /// (`AWS_ACCESS_KEY_ID`…), the container or the machine's role, never from options.
    pub fn open(url: &str, options: &BTreeMap<String, String>) -> Result<Self, ArchiveError> {
        let refuse = |reason: String| ArchiveError::Target {
            url: without_credentials(url),
            reason,
        };
        let (store, prefix) = match url.split_once("://") {
            Some(("file", path)) => open_directory(path, options),
            Some(("s3", place)) => open_s3(place, options),
            _ => Err("it must be file:///path or s3://bucket/prefix".into()),
        }
        .map_err(refuse)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| ArchiveError::Thread {
                name: "target",
                source,
            })?;
        Ok(Self {
            url: url.into(),
            store,
            prefix,
            runtime,
        })
    }

    fn key(&self, relative: &Path) -> Result<Key, String> {
        let relative = relative.to_str().ok_or("its name is not UTF-8")?;
        let whole = match self.prefix.as_str() {
            "" => relative.to_owned(),
            prefix => format!("{prefix}/{relative}"),
        };
        Key::parse(whole).map_err(|e| e.to_string())
    }

    async fn update_list(
        &self,
        key: &Key,
        relative: &Path,
        change: CopyChange,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let path = relative.to_str().unwrap_or_default();
        let updated = async {
            let updated = list::update(&*self.store, key, path, change).await;
            updated.map_err(explain)
        };
        unless(stop, updated).await
    }
}

impl CopyTarget for ObjectTarget {
    fn copy(&mut self, local: &Path, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        let copied = self.key(relative).and_then(|key| {
            let copied = async {
                let bytes = copy(&*self.store, local, &key, stop).await?;
                let counts = CopyChange::Counts { bytes };
                self.update_list(&key, relative, counts, stop).await
            };
            self.runtime.block_on(copied)
        });
        copied.map_err(|reason| {
            let (url, relative) = (&self.url, relative.display());
            format!("cannot copy {relative} to {url}: {reason}")
        })
    }

    fn remove(&mut self, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        let removed = self.key(relative).and_then(|key| {
            let gone = async {
                match self.store.delete(&key).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(explain(error)),
                }
            };
            let removed = async {
                self.update_list(&key, relative, CopyChange::Goes, stop)
                    .await?;
                unless(stop, gone).await
            };
            self.runtime.block_on(removed)
        });
        removed.map_err(|reason| {
            let (url, relative) = (&self.url, relative.display());
            format!("cannot remove {relative} from {url}: {reason}")
        })
    }
}

/// Returns the URL without the part before an `@`, which may be secret.
fn without_credentials(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://…@{place}"),
        _ => url.to_owned(),
    }
}

type Opened = Result<(Arc<dyn ObjectStore>, String), String>;

fn open_directory(path: &str, options: &BTreeMap<String, String>) -> Opened {
    if let Some(option) = options.keys().next() {
        return Err(format!("a directory has no option {option:?}"));
    }
    if !path.starts_with('/') {
        return Err("its path must be absolute, like file:///backup/barograph".into());
    }
    std::fs::create_dir_all(path).map_err(|e| format!("cannot make the directory: {e}"))?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(explain)?;
    Ok((Arc::new(store.with_fsync(true)), String::new()))
}

fn open_s3(place: &str, options: &BTreeMap<String, String>) -> Opened {
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let is_bucket = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    if bucket.is_empty() || !bucket.bytes().all(is_bucket) {
        return Err("it names no bucket: s3://bucket/prefix".into());
    }
    for option in options.keys() {
        if option.contains("key") || option.contains("token") {
            return Err(
                "credentials come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
                    .into(),
            );
        }
        if !OPTIONS.contains(&option.as_str()) {
            let known = OPTIONS.join(", ");
            return Err(format!("there is no option {option:?}; there is {known}"));
        }
    }
    // The first provider that is installed is used; it is ring everywhere in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    if let Some(region) = options.get("region") {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = options.get("endpoint") {
        builder = builder.with_endpoint(endpoint);
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let endpoint = endpoint.unwrap_or_default();
    let allow_http = match options.get("allow_http").map(String::as_str) {
        Some("true") => true,
        None | Some("false") => {
            let by_environment =
                builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
            by_environment.as_deref() == Some("true") || is_local_http(&endpoint)
        }
        Some(other) => return Err(format!("allow_http = {other:?} must be true or false")),
    };
    if is_http(&endpoint) && !allow_http {
        return Err(
            "its endpoint is unencrypted: use https://, or say allow_http = \"true\"".into(),
        );
    }
    let mut client = ClientOptions::new()
        .with_allow_http(allow_http)
        .with_timeout(REQUEST_MAX)
        .with_connect_timeout(CONNECT_MAX);
    if let Some(path) = options.get("ca_file") {
        for certificate in certificates(Path::new(path))? {
            client = client.with_root_certificate(certificate);
        }
    }
    let retry = RetryConfig {
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_TIME_MAX,
        ..RetryConfig::default()
    };
    let store = builder
        .with_client_options(client)
        .with_retry(retry)
        .build()
        .map_err(explain)?;
    Ok((Arc::new(store), prefix.trim_matches('/').to_owned()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    let fault = |reason: String| format!("ca_file {}: {reason}", path.display());
    let mut pem = Vec::new();
    File::open(path)
        .and_then(|file| file.take(CA_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|e| fault(e.to_string()))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if found.is_empty() => Err(fault("it holds no certificate (PEM)".into())),
        found => found.map_err(|e| fault(e.to_string())),
    }
}

/// Returns the result of `what`, or an error if the stop comes first.
async fn unless<T>(
    stop: &AtomicBool,
    what: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut what = pin!(what);
    loop {
        match timeout(STOP_LOOK, what.as_mut()).await {
            Ok(result) => return result,
            Err(_) if stop.load(Ordering::Relaxed) => {
                return Err("it was given up, since the agent stops".into());
            }
            Err(_) => {}
        }
    }
}

/// Copies a file and checks that all of it arrived; returns its size in bytes.
async fn copy(
    store: &dyn ObjectStore,
    local: &Path,
    key: &Key,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let cannot_read = |e: std::io::Error| format!("cannot read {}: {e}", local.display());
    let mut file = File::open(local).map_err(cannot_read)?;
    let bytes = file.metadata().map_err(cannot_read)?.len();
    if bytes <= PART_BYTES as u64 {
        let mut body = Vec::new();
        file.take(PART_BYTES as u64)
            .read_to_end(&mut body)
            .map_err(cannot_read)?;
        let put = async { store.put(key, body.into()).await.map_err(explain) };
        unless(stop, put).await?;
    } else {
        let begun = async { store.put_multipart(key).await.map_err(explain) };
        let upload = unless(stop, begun).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let sent = unless(stop, send_parts(&mut upload, &mut file)).await;
        if let Err(reason) = sent {
            // The owner would pay for what the store keeps; the first error is the one to return.
            let _ = timeout(ABORT_MAX, upload.abort()).await;
            return Err(reason);
        }
        let finished = async { upload.finish().await.map_err(explain) };
        unless(stop, finished).await?;
    }
    let head = async { store.head(key).await.map_err(explain) };
    let there = unless(stop, head).await?.size;
    if there != bytes {
        return Err(format!("{there} bytes arrived of {bytes}"));
    }
    Ok(bytes)
}

async fn send_parts(upload: &mut WriteMultipart, file: &mut File) -> Result<(), String> {
    loop {
        let mut part = Vec::with_capacity(PART_BYTES);
        file.take(PART_BYTES as u64)
            .read_to_end(&mut part)
            .map_err(|e| format!("cannot read it: {e}"))?;
        if part.is_empty() {
            // All parts have arrived before the last request, after which the upload cannot be
            // cancelled.
            return upload.wait_for_capacity(0).await.map_err(explain);
        }
        upload
            .wait_for_capacity(PARTS_MAX - 1)
            .await
            .map_err(explain)?;
        upload.put(Bytes::from(part));
    }
}

/// Formats an error of the store in one line: what is wrong and what to do about it.
fn explain(error: object_store::Error) -> String {
    use object_store::Error;
    let advice = match &error {
        Error::PermissionDenied { .. } => "permission denied: check the rights on it",
        Error::Unauthenticated { .. } => "credentials refused: check AWS_ACCESS_KEY_ID and its key",
        Error::NotFound { .. } => "not found: check the bucket's name",
        _ => "failed",
    };
    // The innermost cause is the most specific; bodies of answers are cut to their code.
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let whole = format!("{error}: {cause}");
    let code = whole
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"));
    let said = match code {
        Some((code, _)) => code.to_owned(),
        None if whole.contains('<') => whole.split('<').next().unwrap_or_default().to_owned(),
        None => whole,
    };
    let said: String = said
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(REASON_CHARS_MAX)
        .collect();
    format!("{advice} ({})", said.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_directory_gets_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there/is none yet");
        let url = format!("file://{}", there.display());
        let mut target = ObjectTarget::open(&url, &BTreeMap::new()).unwrap();
        let local = dir.path().join("local");
        // Sizes: empty, exactly one part, one byte more, and not a multiple.
        for bytes in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES - 7] {
            let content: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
            std::fs::write(&local, &content).unwrap();
            let relative = Path::new("raw/node=a%20b/date=2026-01-01/hour=07/0-3.parquet");
            target.copy(&local, relative, &GO_ON).unwrap();
            assert!(std::fs::read(there.join(relative)).unwrap() == content);
        }
        let relative = Path::new("raw/node=a%20b/date=2026-01-01/hour=07/0-3.parquet");
        target.remove(relative, &GO_ON).unwrap();
        assert!(!there.join(relative).exists());
        target.remove(relative, &GO_ON).unwrap();
    }

    #[test]
    fn the_list_of_an_hour_names_each_row_once() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/there", dir.path().display());
        let mut target = ObjectTarget::open(&url, &BTreeMap::new()).unwrap();
        let local = dir.path().join("local");
        std::fs::write(&local, b"rows").unwrap();
        let folder = Path::new("raw/node=a%20b/date=2026-01-01/hour=07");
        let there = dir.path().join("there").join(folder);
        let list = there.join("_files.json");
        let file = |first: u64, last: u64, hours: &str| {
            folder.join(format!("{first:016}-{last:016}{hours}.parquet"))
        };
        let listed = || -> Vec<(String, u64)> {
            let entries: Vec<serde_json::Value> =
                serde_json::from_slice(&std::fs::read(&list).unwrap()).unwrap();
            let entry = |entry: &serde_json::Value| {
                let path = entry["path"].as_str()?.to_owned();
                Some((path, entry["bytes"].as_u64()?))
            };
            entries.iter().map(|e| entry(e).unwrap()).collect()
        };
        let expect = |files: &[&std::path::PathBuf]| {
            let path = |path: &&std::path::PathBuf| (path.to_str().unwrap().to_owned(), 4);
            assert_eq!(listed(), files.iter().map(path).collect::<Vec<_>>());
        };
        let files: Vec<_> = (1..=3).map(|n| file(n, n, "")).collect();
        let (merged, others) = (file(1, 3, ""), file(2, 2, "-471234"));
        for path in files.iter().chain([&others]) {
            target.copy(&local, path, &GO_ON).unwrap();
        }
        expect(&[&files[0], &others, &files[1], &files[2]]);
        // The list changes as soon as the merged file is there, while the others still are.
        target.copy(&local, &merged, &GO_ON).unwrap();
        expect(&[&merged, &others]);
        target.remove(&files[0], &GO_ON).unwrap();
        expect(&[&merged, &others]);
        // A damaged or missing list is rebuilt from the existing copies.
        for damage in ["", "[{}]", "no JSON"] {
            std::fs::write(&list, damage).unwrap();
            target.copy(&local, &others, &GO_ON).unwrap();
            expect(&[&merged, &others]);
        }
        std::fs::remove_file(&list).unwrap();
        target.remove(&files[1], &GO_ON).unwrap();
        expect(&[&merged, &others]);
        target.remove(&others, &GO_ON).unwrap();
        target.remove(&merged, &GO_ON).unwrap();
        assert_eq!(listed(), []);
        assert_eq!(std::fs::read_dir(&there).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_copied_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let mut target = ObjectTarget::open(&url, &BTreeMap::new()).unwrap();
        let mut check = |local: &str, relative: &str, expect: &str| {
            let error = target
                .copy(&dir.path().join(local), Path::new(relative), &GO_ON)
                .unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check("none", "a/b", "cannot read");
        std::fs::write(dir.path().join("file"), b"x").unwrap();
        check("file", "../b", "cannot copy ../b to file://");
        check("file", "file/below", "cannot copy file/below to file://");
    }

    /// Starts a server that takes requests and answers none of them.
    #[test]
    fn a_store_that_does_not_answer_is_given_up_at_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let store = AmazonS3Builder::new()
            .with_bucket_name("b")
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_skip_signature(true)
            .build()
            .unwrap();
        let mut target = ObjectTarget {
            url: "s3://b".into(),
            store: Arc::new(store),
            prefix: String::new(),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
        };
        let local = dir.path().join("local");
        let stop = AtomicBool::new(false);
        let mut given_up = |what: &mut dyn FnMut(&mut ObjectTarget) -> Result<(), String>| {
            stop.store(false, Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut connection, _) = server.accept().unwrap();
                    let mut byte = [0];
                    connection.read_exact(&mut byte).unwrap();
                    stop.store(true, Ordering::Relaxed);
                    // It waits until the other side gives up.
                    let _ = std::io::copy(&mut connection, &mut std::io::sink());
                });
                let reason = what(&mut target).unwrap_err();
                assert!(reason.contains("given up"), "{reason}");
                target.runtime = Builder::new_current_thread().enable_all().build().unwrap();
            });
        };
        for bytes in [1, PART_BYTES + 1] {
            std::fs::write(&local, vec![0; bytes]).unwrap();
            given_up(&mut |target| target.copy(&local, Path::new("a"), &stop));
        }
        given_up(&mut |target| target.remove(Path::new("a"), &stop));
    }

    #[test]
    fn bad_targets_are_refused() {
        let check = |url: &str, pairs: &[(&str, &str)], expect: &str| {
            let error = ObjectTarget::open(url, &options(pairs))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expect), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        };
        check("", &[], "file:///path or s3://bucket/prefix");
        check("gs://bucket", &[], "file:///path or s3://bucket/prefix");
        check("file://relative", &[], "must be absolute");
        check("file:///proc/none", &[], "cannot make the directory");
        check("file:///tmp", &[("region", "x")], "has no option");
        check("s3://", &[], "names no bucket");
        check("s3://a:hunter2@b/", &[], "names no bucket");
        check(
            "s3://b",
            &[("regoin", "x")],
            "there is no option \"regoin\"",
        );
        let secret = [("secret_access_key", "hunter2")];
        check("s3://b", &secret, "come from the environment");
        let remote = [("endpoint", "http://s3.example")];
        check("s3://b", &remote, "allow_http");
        check("s3://b", &[("allow_http", "yes")], "must be true or false");
        check("s3://b", &[("ca_file", "/none")], "ca_file /none");
    }
}
