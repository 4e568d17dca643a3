//! The list of revoked certificates, signed by the cluster's authority (an X.509 CRL).

use std::sync::Arc;

use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};

use super::REVOCATION_LIST_BYTES_MAX;

/// A list of revoked certificates. Whether its signature is the authority's is checked when it is
/// used.
#[derive(Debug)]
pub(super) struct RevocationList {
    /// Its number: each list of an authority has a greater one than the list before.
    pub(super) number: u64,
    /// Serial numbers of the revoked certificates, in lower-case hexadecimal.
    pub(super) serials: Vec<String>,
    /// The list as it came.
    pub(super) bytes: Arc<[u8]>,
    pub(super) list: CertRevocationList<'static>,
}

impl RevocationList {
    /// Reads a list; `None` if the bytes are none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > REVOCATION_LIST_BYTES_MAX {
            return None;
        }
        let (rest, parsed) = CertificateRevocationList::from_der(bytes).ok()?;
        let number = u64::try_from(parsed.crl_number()?).ok()?;
        let revoked = parsed.iter_revoked_certificates();
        let serials = revoked.map(|entry| hex(entry.raw_serial())).collect();
        let list = OwnedCertRevocationList::from_der(bytes).ok()?;
        rest.is_empty().then(|| Self {
            number,
            serials,
            bytes: bytes.into(),
            list: list.into(),
        })
    }
}

/// Bytes in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(RevocationList::read(&bytes).is_none());
            // A sequence in DER, of as many bytes.
            let head = [0x30, 0x81, bytes.len() as u8];
            bytes.splice(..0, head);
            prop_assert!(RevocationList::read(&bytes).is_none());
        }
    }
}
