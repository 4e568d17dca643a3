//! Addresses of stores of objects: `s3://BUCKET[/PREFIX]` and
//! `redis://[USER@]HOST[:PORT][/DB[/PREFIX]]`.

use barograph_model::NS_PER_S;

/// The time of one call, unless configured: 10 s.
const CALL_NS_DEFAULT: i64 = 10 * NS_PER_S;
const REDIS_PORT: u16 = 6_379;
/// Below what prefix keys of Redis are, unless the address says it.
const REDIS_PREFIX: &str = "baro-stage";
/// Bytes of the longest prefix: a key of S3 has 1,024 at most.
const PREFIX_BYTES_MAX: usize = 512;

/// The address of a store of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAddress {
    /// A bucket of S3, and the prefix of the objects in it.
    S3 {
        /// The bucket.
        bucket: String,
        /// The prefix, which may be empty.
        prefix: String,
    },
    /// A database of Redis or Valkey.
    Redis(RedisPlace),
}

/// A database of Redis or Valkey, and the prefix of the keys in it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisPlace {
    pub(super) host: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) database: u32,
    /// With its `/` at the end.
    pub(super) prefix: String,
}

/// How stores of objects are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// The URL of the server of S3; that of the environment or of AWS if it is empty.
    pub endpoint: String,
    /// The region of S3; that of the environment or `us-east-1` if it is empty.
    pub region: String,
    /// Whether connections to other machines may be unencrypted.
    pub allow_unencrypted: bool,
    /// The longest time of one call, in nanoseconds.
    pub call_ns_max: i64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            region: String::new(),
            allow_unencrypted: false,
            call_ns_max: CALL_NS_DEFAULT,
        }
    }
}

impl std::fmt::Debug for RedisPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            host,
            database,
            prefix,
            ..
        } = self;
        write!(formatter, "redis://{host}/{database}/{prefix}")
    }
}

impl RemoteAddress {
    /// Whether a text is meant as an address, and not as the path of a directory.
    pub fn is_address(text: &str) -> bool {
        text.contains("://")
    }

    /// Reads an address. The password of Redis comes from elsewhere, since others see arguments.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str, redis_password: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some(("s3", place)) => s3(place),
            Some(("redis", place)) => redis(place, redis_password).map(Self::Redis),
            Some(("memcached", _)) => Err(
                "memcached lists nothing and drops what it likes, so that blocks would be lost: \
                 use Redis or Valkey (redis://HOST:PORT/DB)"
                    .into(),
            ),
            Some((scheme, _)) => Err(format!("{scheme}:// is neither s3:// nor redis://")),
            None => Err("write s3://BUCKET/PREFIX or redis://HOST:PORT/DB".into()),
        }
    }
}

fn s3(place: &str) -> Result<RemoteAddress, String> {
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.is_empty() {
        return Err("it names no bucket: s3://BUCKET/PREFIX".into());
    }
    Ok(RemoteAddress::S3 {
        bucket: bucket.to_owned(),
        prefix: checked(prefix)?,
    })
}

fn redis(place: &str, password: &str) -> Result<RedisPlace, String> {
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        return Err("a password in an address is seen by others: give it by REDISCLI_AUTH".into());
    }
    if host.is_empty() {
        return Err("it names no host: redis://HOST:PORT/DB".into());
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(host, _)| !host.ends_with(':'))
        && !host.ends_with(']');
    let (database, prefix) = path.split_once('/').unwrap_or((path, ""));
    let database = match database {
        "" => Ok(0),
        number => number.parse(),
    };
    let prefix = match checked(prefix)? {
        prefix if prefix.is_empty() => REDIS_PREFIX.to_owned(),
        prefix => prefix,
    };
    Ok(RedisPlace {
        host: match has_port {
            true => host.to_owned(),
            false => format!("{host}:{REDIS_PORT}"),
        },
        user: user.to_owned(),
        password: password.to_owned(),
        database: database.map_err(|_| "the database is a number: redis://HOST:PORT/0")?,
        prefix: format!("{prefix}/"),
    })
}

/// A prefix without slashes around it.
fn checked(prefix: &str) -> Result<String, String> {
    let prefix = prefix.trim_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let has_odd_part =
        prefix.split('/').any(|part| matches!(part, "." | "..")) || prefix.contains("//");
    match prefix.chars().all(is_plain) && !has_odd_part && prefix.len() <= PREFIX_BYTES_MAX {
        true => Ok(prefix.to_owned()),
        false => Err(format!(
            "a prefix has at most {PREFIX_BYTES_MAX} letters, digits, dots, dashes, underlines and \
             slashes"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_say_what_is_wrong() {
        let check = |text: &str, expect: &str| {
            let seen = match RemoteAddress::parse(text, "secret") {
                Ok(RemoteAddress::S3 { bucket, prefix }) => format!("{bucket} {prefix}"),
                Ok(RemoteAddress::Redis(place)) => format!("{} {place:?}", place.user),
                Err(why) => why,
            };
            assert!(seen.contains(expect), "{text}: {seen}");
            assert!(!seen.contains("secret"), "{seen}");
        };
        check("s3://bucket/a/b/", "bucket a/b");
        check("s3://bucket", "bucket ");
        check("s3:///a", "names no bucket");
        check("s3://bucket/a//b", "a prefix has");
        check("s3://bucket/../b", "a prefix has");
        check("s3://bucket/a*", "a prefix has");
        check("redis://127.0.0.1", " redis://127.0.0.1:6379/0/baro-stage/");
        check("redis://me@[::1]:7/3/mine", "me redis://[::1]:7/3/mine/");
        check("redis://[::1]", "redis://[::1]:6379/0");
        check("redis://me:secret@h", "REDISCLI_AUTH");
        check("redis://h/x", "a number");
        check("redis:///1", "names no host");
        check("memcached://h", "redis://");
        check("gs://h", "neither s3:// nor redis://");
        check("h", "write s3://");
    }
}
