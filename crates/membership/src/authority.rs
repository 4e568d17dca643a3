//! The authority of a cluster: it certifies nodes, and revokes their certificates.

use std::path::{Path, PathBuf};

use barograph_fabric::security::{
    AUTHORITY_CERTIFICATE, NODE_CERTIFICATE, REVOCATION_LIST, identity_uri,
};
use barograph_fabric::transport::check_name;
use barograph_model::NS_PER_S;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, RevokedCertParams,
    SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use time::OffsetDateTime;

use crate::fault::MembershipFault;
use crate::files;
use crate::ledger::{self, Member};

/// File of the authority's private key, which only its owner may read.
const AUTHORITY_KEY: &str = "authority.key";
/// File with the name of the authority's cluster.
const AUTHORITY_CLUSTER: &str = "authority.cluster";
/// Days for which a node's certificate holds, unless others are asked for.
pub const DAYS_DEFAULT: u32 = 365;
/// Days for which an authority's certificate holds.
const AUTHORITY_DAYS: u32 = 7_300;
const NS_PER_DAY: i64 = 86_400 * NS_PER_S;
/// Certificates hold from this time before they are made, for nodes whose clocks are behind.
const EARLY_NS: i64 = 3_600 * NS_PER_S;
/// Name of the server that admits nodes, in its certificate.
pub(crate) const INVITATION_SERVER: &str = "invitations.barograph";

/// The authority of a cluster.
pub struct Authority {
    dir: PathBuf,
    cluster: String,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes the authority of a new cluster, and the certificate of its first node, at `now_ns`, in
    /// ns since the epoch.
    pub fn create(
        dir: &Path,
        cluster: &str,
        node: &str,
        now_ns: i64,
    ) -> Result<Self, MembershipFault> {
        check_name(cluster)?;
        check_name(node)?;
        if dir.join(AUTHORITY_KEY).exists() || dir.join(NODE_CERTIFICATE).exists() {
            let of = std::fs::read_to_string(dir.join(AUTHORITY_CLUSTER));
            return Err(MembershipFault::Exists {
                dir: dir.to_owned(),
                of: of.map_or_else(|_| String::new(), |name| format!(" of cluster {name}")),
            });
        }
        files::make_dir(dir)?;
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = params(cluster, now_ns, AUTHORITY_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let organisation = format!("barograph cluster {cluster}");
        params
            .distinguished_name
            .push(DnType::OrganizationName, organisation);
        let certificate = params.self_signed(&key)?.pem();
        files::replace(
            &dir.join(AUTHORITY_KEY),
            key.serialize_pem().as_bytes(),
            0o600,
        )?;
        files::replace(&dir.join(AUTHORITY_CLUSTER), cluster.as_bytes(), 0o644)?;
        files::replace(
            &dir.join(AUTHORITY_CERTIFICATE),
            certificate.as_bytes(),
            0o644,
        )?;
        let authority = Self::open(dir)?;
        let node_key = KeyPair::generate_for(&PKCS_ED25519)?;
        let issued = authority.issue(node, &node_key, DAYS_DEFAULT, now_ns)?;
        let both = format!("{}{}", issued.pem(), node_key.serialize_pem());
        files::replace(&dir.join(NODE_CERTIFICATE), both.as_bytes(), 0o600)?;
        Ok(authority)
    }

    /// Opens the authority in this directory.
    pub fn open(dir: &Path) -> Result<Self, MembershipFault> {
        let dir = dir.to_owned();
        if !dir.join(AUTHORITY_KEY).exists() {
            return Err(MembershipFault::NoAuthority { dir });
        }
        let key_path = dir.join(AUTHORITY_KEY);
        let key = KeyPair::from_pem(&files::read(&key_path)?);
        let key = key.map_err(|error| MembershipFault::Damaged {
            path: key_path,
            reason: error.to_string(),
        })?;
        let path = dir.join(AUTHORITY_CERTIFICATE);
        let certificate = files::read(&path)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key);
        let issuer = issuer.map_err(|error| MembershipFault::Damaged {
            path,
            reason: error.to_string(),
        })?;
        let cluster = files::read(&dir.join(AUTHORITY_CLUSTER))?;
        check_name(&cluster)?;
        Ok(Self {
            dir,
            cluster,
            certificate,
            issuer,
        })
    }

    /// Name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The certificate of the authority, PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The certificates that were issued, oldest first.
    pub fn members(&self) -> Result<Vec<Member>, MembershipFault> {
        ledger::members(&self.dir)
    }

    /// Issues a certificate for a request (PEM) to a node. Its name is the one that the node was
    /// invited by, whatever the request says.
    pub(crate) fn admit(
        &self,
        node: &str,
        request: &str,
        days: u32,
        now_ns: i64,
    ) -> Result<String, MembershipFault> {
        let request = CertificateSigningRequestParams::from_pem(request)?;
        let issued = self.issue(node, &request.public_key, days, now_ns)?;
        Ok(issued.pem())
    }

    /// Makes the certificate and the key (both PEM) of the server that admits nodes, for one run of
    /// it.
    pub(crate) fn server(&self, now_ns: i64) -> Result<(String, KeyPair), MembershipFault> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = params("invitations", now_ns, DAYS_DEFAULT)?;
        let name = SanType::DnsName(INVITATION_SERVER.try_into()?);
        params.subject_alt_names.push(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key))
    }

    /// Revokes all certificates of a node that hold. Returns their serial numbers.
    pub fn revoke(&self, node: &str, now_ns: i64) -> Result<Vec<String>, MembershipFault> {
        let members = self.members()?;
        let its = members.iter().filter(|member| member.node == node);
        let holding: Vec<String> = its
            .filter(|member| member.holds(now_ns))
            .map(|member| member.serial.clone())
            .collect();
        if holding.is_empty() {
            let node = node.escape_debug().take(128).collect();
            return Err(MembershipFault::NoMember { node });
        }
        for serial in &holding {
            ledger::revoked(&self.dir, serial, now_ns)?;
        }
        self.write_revocation_list(now_ns)?;
        Ok(holding)
    }

    /// Writes the list of all revoked certificates. Its number is the count of revocations so far,
    /// so that each list has a greater one than the list before.
    fn write_revocation_list(&self, now_ns: i64) -> Result<(), MembershipFault> {
        let members = self.members()?;
        let revoked: Vec<RevokedCertParams> = members
            .iter()
            .filter_map(|member| {
                Some(RevokedCertParams {
                    serial_number: SerialNumber::from_slice(&bytes_of(&member.serial)?),
                    revocation_time: instant(member.revoked_ts?).ok()?,
                    reason_code: None,
                    invalidity_date: None,
                })
            })
            .collect();
        let list = CertificateRevocationListParams {
            this_update: instant(now_ns.saturating_sub(EARLY_NS))?,
            next_update: instant(end_ns(now_ns, AUTHORITY_DAYS))?,
            crl_number: SerialNumber::from(revoked.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer)?;
        files::replace(&self.dir.join(REVOCATION_LIST), list.der(), 0o644)
    }

    /// Issues a certificate, which is in the ledger before anybody has it.
    fn issue(
        &self,
        node: &str,
        key: &impl PublicKeyData,
        days: u32,
        now_ns: i64,
    ) -> Result<Certificate, MembershipFault> {
        check_name(node)?;
        let mut serial = [0; 16];
        let filled = SystemRandom::new().fill(&mut serial);
        filled.map_err(|_| MembershipFault::Random)?;
        // A positive number without a zero in front, so that it is written in one way.
        serial[0] = serial[0] & 0x7f | 0x40;
        let hex: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
        // Access control knows certificates by their common name.
        let mut params = params(&hex, now_ns, days)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let uri = SanType::URI(identity_uri(&self.cluster, node).try_into()?);
        params.subject_alt_names.push(uri);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(key, &self.issuer)?;
        ledger::issued(&self.dir, node, &hex, now_ns, end_ns(now_ns, days))?;
        Ok(certificate)
    }
}

/// Parameters of a certificate that holds for so many days.
fn params(common_name: &str, now_ns: i64, days: u32) -> Result<CertificateParams, MembershipFault> {
    let mut params = CertificateParams::default();
    params.not_before = instant(now_ns.saturating_sub(EARLY_NS))?;
    params.not_after = instant(end_ns(now_ns, days))?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    Ok(params)
}

fn end_ns(now_ns: i64, days: u32) -> i64 {
    now_ns.saturating_add(i64::from(days).saturating_mul(NS_PER_DAY))
}

fn instant(ns: i64) -> Result<OffsetDateTime, MembershipFault> {
    let instant = OffsetDateTime::from_unix_timestamp(ns / NS_PER_S);
    instant.map_err(|error| MembershipFault::Certificate(error.to_string()))
}

/// The bytes of a number in hexadecimal.
fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}
