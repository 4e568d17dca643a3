//! From an address to its store.

use std::io;
use std::sync::Arc;

use barograph_model::{Clock, is_local_http};

use super::ObjectStore;
use super::address::{RemoteAddress, RemoteOptions};
use super::redis::RedisStore;
#[cfg(feature = "s3")]
use super::s3::OpendalStore;
use crate::error::StagingError;

impl RemoteAddress {
    /// The store. `is_kept` says that what is put there must stay.
    ///
    /// # Errors
    ///
    /// The store cannot be reached, its options are wrong, or it would drop what must stay.
    pub fn open(
        &self,
        options: &RemoteOptions,
        clock: Arc<dyn Clock>,
        is_kept: bool,
    ) -> Result<Arc<dyn ObjectStore>, StagingError> {
        match self {
            Self::S3 { bucket, prefix } => {
                if !options.endpoint.is_empty() {
                    check_encrypted(&options.endpoint, options)?;
                }
                open_s3(bucket, prefix, options)
            }
            Self::Redis(place) => {
                check_encrypted(&format!("http://{}", place.host), options)?;
                let store = RedisStore::new(place.clone(), clock, options.call_ns_max);
                let policy = store.eviction_policy();
                let policy = policy.map_err(|error| unreachable(&place.host, &error))?;
                if let Some(policy) = policy.filter(|_| is_kept) {
                    let text = format!(
                        "it drops blocks when it is full (maxmemory-policy {policy}): set it to \
                         noeviction, or say that blocks there may be lost (,scratch)"
                    );
                    return Err(StagingError::Config(text));
                }
                Ok(Arc::new(store))
            }
        }
    }
}

fn unreachable(host: &str, error: &io::Error) -> StagingError {
    let why = format!("{error}; start it, or leave this tier out");
    StagingError::Path {
        what: "use",
        path: format!("redis://{host}").into(),
        source: io::Error::new(error.kind(), why),
    }
}

fn check_encrypted(url: &str, options: &RemoteOptions) -> Result<(), StagingError> {
    let is_open = barograph_model::is_http(url) && !is_local_http(url);
    match is_open && !options.allow_unencrypted {
        true => Err(StagingError::Config(
            "blocks would go unencrypted to another machine: if nobody else can listen to that \
             network, say --unencrypted"
                .into(),
        )),
        false => Ok(()),
    }
}

#[cfg(feature = "s3")]
fn open_s3(
    bucket: &str,
    prefix: &str,
    options: &RemoteOptions,
) -> Result<Arc<dyn ObjectStore>, StagingError> {
    let store = OpendalStore::s3(bucket, prefix, options);
    Ok(Arc::new(store.map_err(|error| {
        StagingError::Config(error.to_string())
    })?))
}

#[cfg(not(feature = "s3"))]
fn open_s3(_: &str, _: &str, _: &RemoteOptions) -> Result<Arc<dyn ObjectStore>, StagingError> {
    Err(StagingError::Config(
        "this program was built without S3".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_unencrypted_to_another_machine_unasked() {
        let options = RemoteOptions {
            endpoint: "http://s3.example".into(),
            ..RemoteOptions::default()
        };
        for text in ["s3://bucket", "redis://example.org"] {
            let address = RemoteAddress::parse(text, "").expect("an address");
            let clock = Arc::new(barograph_model::ManualClock::default());
            let error = address
                .open(&options, clock, true)
                .err()
                .expect("it is refused");
            assert!(error.to_string().contains("--unencrypted"), "{error}");
        }
    }
}
