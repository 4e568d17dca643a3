//! Bytes in JSON: a string where they are UTF-8, which people can read, and a list of numbers where
//! they are not.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};

/// Bytes that are taken on trust of a list's length.
const RESERVED_MAX: usize = 4_096;

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => to.serialize_str(text),
        Err(_) => to.collect_seq(bytes),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    struct Bytes;
    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string or a list of bytes")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u8>, E> {
            Ok(text.as_bytes().to_vec())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
            let reserved = list.size_hint().unwrap_or_default().min(RESERVED_MAX);
            let mut bytes = Vec::with_capacity(reserved);
            while let Some(byte) = list.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
    from.deserialize_any(Bytes)
}

/// A list of byte strings.
pub(crate) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Given<'a>(#[serde(serialize_with = "super::serialize")] &'a [u8]);

    #[derive(Deserialize)]
    struct Taken(#[serde(deserialize_with = "super::deserialize")] Vec<u8>);

    pub(crate) fn serialize<S: Serializer>(words: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(words.iter().map(|word| Given(word)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Vec<u8>>, D::Error> {
        let words = Vec::<Taken>::deserialize(from)?;
        Ok(words.into_iter().map(|word| word.0).collect())
    }
}
