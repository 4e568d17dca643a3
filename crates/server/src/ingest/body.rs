//! Bodies of writes, plain or gzipped, with one bound on the packed and the unpacked size.

use std::io::Read as _;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;

use crate::fault::Fault;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

impl Packing {
    /// Reads the `content-encoding` header.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Fault> {
        let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
            return Ok(Self::Plain);
        };
        match encoding.as_bytes() {
            b"" | b"identity" => Ok(Self::Plain),
            b"gzip" => Ok(Self::Gzip),
            _ => Err(
                Fault::usage("content-encoding is not gzip or identity: send the body so")
                    .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ),
        }
    }
}

/// The error for a body that is too large, packed or unpacked.
pub(super) fn too_large(bytes_max: usize) -> Fault {
    Fault::limit(format!(
        "the body is larger than {bytes_max} bytes: send smaller batches"
    ))
    .with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// Unpacks a body.
pub(super) fn unpacked(body: Bytes, packing: Packing, bytes_max: usize) -> Result<Bytes, Fault> {
    if packing == Packing::Plain {
        return Ok(body);
    }
    let mut plain = Vec::new();
    // One byte more than is allowed is read, so that too much can be noticed.
    let mut decoder = MultiGzDecoder::new(&*body).take(bytes_max as u64 + 1);
    decoder
        .read_to_end(&mut plain)
        .map_err(|e| Fault::usage(format!("the body is not gzip: {e}")))?;
    if plain.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_bomb_is_refused() {
        let packed = |bytes: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&vec![b'a'; bytes]).unwrap();
            Bytes::from(encoder.finish().unwrap())
        };
        let plain = |body| unpacked(body, Packing::Gzip, 1_000);
        assert_eq!(plain(packed(1_000)).unwrap().len(), 1_000);
        for bytes in [1_001, 1 << 20] {
            let fault = plain(packed(bytes)).unwrap_err();
            assert_eq!(fault.status, StatusCode::PAYLOAD_TOO_LARGE);
        }
        let fault = plain(Bytes::from_static(b"plain text")).unwrap_err();
        assert_eq!(fault.status, StatusCode::BAD_REQUEST);
        let whole = packed(100);
        assert!(plain(whole.slice(..whole.len() - 1)).is_err());
        let as_it_is = unpacked(Bytes::from_static(b"a"), Packing::Plain, 0);
        assert_eq!(as_it_is.unwrap(), "a");
    }
}
