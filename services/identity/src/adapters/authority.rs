//! The fleet's authority: its keys on the disk, the certificates that it signs, the list of revoked certificates. It signs what the state asks for; the state decides who gets a certificate.
//!
//! ```text
//! <state_dir>/identity/enrolment.key   seed of the enrolment key, mode 0600
//! <state_dir>/identity/authority.key   private key of the authority, PEM, mode 0600; not there when the site brings its own
//! <state_dir>/identity/authority.pem   its certificate
//! <state_dir>/identity/revoked.json    serial numbers that are revoked, with their ends
//! <state_dir>/identity/revoked.pem     the same as a certificate revocation list, for MQTT servers
//! <state_dir>/identity/issued.jsonl    what was issued: see [`super::ledger`]
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use configdb_schema::document::IssuedCertificate;
use configdb_schema::{Organisation, timestamp};
use enrolment_protocol::cluster::Grant;
use enrolment_protocol::identity::{IdentityKeyPair, Opened};
use enrolment_protocol::metrics::{self, ANSWER};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType, SerialNumber,
    SignatureAlgorithm,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use service_runtime::atomic_file::{self, AtomicFileError, OWNER_ONLY};
use sparkplug::host::HostRequest;
use time::OffsetDateTime;
use x509_parser::extensions::ParsedExtension;
use zeroize::Zeroizing;

use crate::authority::Terms;
use crate::config::Config;
use crate::event::{IssueCertificate, RevocationList};
use crate::revocation_lists;

/// How long an authority lives that is made here.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long before now a certificate begins to be valid: clocks are not alike.
const BACKDATED: Duration = Duration::from_secs(3600);
/// How long a list of revoked certificates is valid; a new one is made every day.
const LIST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Something about the authority does not work. Holds nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be written.
    #[error(transparent)]
    Write(#[from] AtomicFileError),
    /// A file holds something else.
    #[error("{} {rule}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        rule: &'static str,
    },
    /// A certificate or list cannot be made.
    #[error("{what} cannot be made")]
    Make {
        /// What.
        what: &'static str,
        /// What the library says.
        #[source]
        source: rcgen::Error,
    },
    /// A record says something that no certificate can hold.
    #[error("the record of the certificate has no usable {0}")]
    Record(&'static str),
    /// The login of the cluster's repository cannot be opened, or the answer cannot be sealed.
    #[error(transparent)]
    Seal(#[from] enrolment_protocol::MessageError),
}

fn make(what: &'static str) -> impl FnOnce(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError::Make { what, source }
}

/// The authority.
pub struct Authority {
    directory: PathBuf,
    organisation: Organisation,
    issuer: Issuer<'static, KeyPair>,
    /// Certificates from the one that signs up to the root.
    chain: Vec<CertificateDer<'static>>,
    /// How the authority's certificate names its key: readers find the list's authority by it.
    key_identifier: KeyIdMethod,
    key_pair: Arc<IdentityKeyPair>,
    terms: Arc<Terms>,
    /// Revocation lists that are watched beside the own one.
    watched: Vec<PathBuf>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Authority {
    /// Reads the keys, or makes them at the first start. Blocks. `now_ms`: UTC.
    ///
    /// # Errors
    /// [`AuthorityError`] names the file.
    // long: one file after the other is read and compared.
    pub fn load(config: &Config, organisation: &Organisation, now_ms: u64) -> Result<Self, AuthorityError> {
        let directory = config.state_dir.join("identity");
        fs::create_dir_all(&directory).map_err(|source| AuthorityError::Read { path: directory.clone(), source })?;
        let key_pair = Arc::new(IdentityKeyPair::new(*seed(&directory.join("enrolment.key"))?));
        let own = (directory.join("authority.pem"), directory.join("authority.key"));
        let (certificate_file, key_file) = match (&config.authority_cert_file, &config.authority_key_file) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            _ => {
                found_authority(&own.0, &own.1, organisation, now_ms)?;
                own
            }
        };
        let content = |path: &Path, rule| AuthorityError::Content { path: path.to_owned(), rule };
        let key = Zeroizing::new(read(&key_file)?);
        let key = KeyPair::from_pem(&key)
            .map_err(|_| content(&key_file, "must hold a private key in PEM that certificates can be signed with"))?;
        let pem = read(&certificate_file)?;
        let rule = "must hold the authority's certificate in PEM, and then those that lead to the root";
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| content(&certificate_file, rule))?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&chain[0]).map_err(|_| content(&certificate_file, rule))?;
        if !parsed.is_ca() {
            return Err(content(&certificate_file, "must be the certificate of an authority"));
        }
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(content(&certificate_file, "must be the certificate of the configured key"));
        }
        let ends = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0).saturating_mul(1000);
        let named = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(KeyIdMethod::PreSpecified(identifier.0.to_vec())),
            _ => None,
        });
        let key_identifier = named.unwrap_or(KeyIdMethod::Sha256);
        let issuer = Issuer::from_ca_cert_der(&chain[0], key).map_err(make("the authority"))?;
        let terms = Arc::new(Terms {
            key: key_pair.public().to_string(),
            authority: pem,
            authority_ends_ms: ends,
            lifetime: Duration::from_secs(config.lifetime_s),
        });
        let watched = config.crl_files.clone();
        Ok(Self {
            directory,
            organisation: organisation.clone(),
            issuer,
            chain,
            key_identifier,
            key_pair,
            terms,
            watched,
        })
    }

    /// The private enrolment key.
    #[must_use]
    pub fn key_pair(&self) -> Arc<IdentityKeyPair> {
        Arc::clone(&self.key_pair)
    }

    /// What the state goes by.
    #[must_use]
    pub fn terms(&self) -> Arc<Terms> {
        Arc::clone(&self.terms)
    }

    /// Where the keys are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the answer to a cluster: signs the certificate, opens the login of the cluster's repository, seals both, and says what is to be sent.
    ///
    /// # Errors
    /// [`AuthorityError`]; the cluster asks again.
    pub fn answer(&self, order: &IssueCertificate) -> Result<HostRequest, AuthorityError> {
        let answer = match &order.answer {
            Ok((certificate, login)) => {
                let login = self.key_pair.open_login(order.opened.cluster, login)?;
                Ok(Grant {
                    certificate: self.sign(certificate, &order.group, &order.opened)?,
                    authorities: self.chain.iter().map(|one| one.to_vec()).collect(),
                    git_username: login.username,
                    git_password: login.password,
                })
            }
            Err(refusal) => Err(refusal.clone()),
        };
        let bytes = self.key_pair.answer(&order.opened, &answer)?;
        Ok(HostRequest::Command {
            node: order.node.clone(),
            device: None,
            metrics: vec![metrics::metric(ANSWER, &bytes)],
        })
    }

    fn sign(&self, record: &IssuedCertificate, group: &str, opened: &Opened) -> Result<Vec<u8>, AuthorityError> {
        let at = |text: &str, what| timestamp::from_text(text).and_then(moment).ok_or(AuthorityError::Record(what));
        let serial = hex::decode(&record.serial).map_err(|_| AuthorityError::Record("serial number"))?;
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let (issued, expires) = (at(&record.issued, "time")?, at(&record.expires, "end")?);
        // Its life is counted from there: what lives for minutes must not seem to be old.
        params.not_before = issued - (expires - issued).unsigned_abs().div_f32(10.0).min(BACKDATED);
        params.not_after = expires;
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, group);
        params.distinguished_name.push(DnType::OrganizationalUnitName, record.node.as_str());
        // SPIFFE writes trust domains in lower case.
        let domain = self.organisation.as_str().to_ascii_lowercase();
        let uri = format!("spiffe://{domain}/{group}/{}", record.node);
        params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(make("the name"))?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&EnrolledKey(&opened.public_key), &self.issuer).map_err(make("a certificate"))?;
        Ok(signed.der().to_vec())
    }

    /// Writes the list of revoked certificates, with all that was on it before and has not ended. Blocks.
    ///
    /// # Errors
    /// The files.
    pub fn revoke(&self, revoked: BTreeMap<String, String>, now_ms: u64) -> Result<(), AuthorityError> {
        let path = self.directory.join("revoked.json");
        let mut all: BTreeMap<String, String> = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|_| AuthorityError::Content {
                path: path.clone(),
                rule: "must map serial numbers to the ends of their certificates; if it is damaged, move it away",
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(AuthorityError::Read { path, source }),
        };
        all.extend(revoked);
        all.retain(|_, ends| timestamp::from_text(ends).is_none_or(|ends| ends > now_ms));
        let now = moment(now_ms).ok_or(AuthorityError::Record("time"))?;
        let revoked_certs = all.keys().filter_map(|serial| hex::decode(serial).ok()).map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now - BACKDATED,
            next_update: now + LIST_LIFETIME,
            crl_number: SerialNumber::from(now_ms),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: self.key_identifier.clone(),
        };
        let what = "the list of revoked certificates";
        let pem = params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(make(what))?;
        let text = serde_json::to_vec(&all).unwrap_or_default();
        atomic_file::write(&path, &text, None)?;
        atomic_file::write(&self.directory.join("revoked.pem"), pem.as_bytes(), None)?;
        tracing::info!(certificates = all.len(), "the list of revoked certificates is written");
        Ok(())
    }

    /// The own revocation list, if it was ever written, and the watched ones; Err: what is wrong with a file, for people. Blocks.
    #[must_use]
    pub fn lists(&self) -> Vec<Result<RevocationList, String>> {
        let own = self.directory.join("revoked.pem");
        let own = Some(&own).filter(|own| own.exists());
        own.into_iter().chain(&self.watched).flat_map(|file| read_lists(file)).collect()
    }
}

/// The key of a cluster that enrols: a point of P-256.
struct EnrolledKey<'a>(&'a [u8]);

impl PublicKeyData for EnrolledKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn moment(wall_ms: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(wall_ms / 1000).ok()?).ok()
}

/// The revocation lists in a PEM file.
fn read_lists(file: &Path) -> Vec<Result<RevocationList, String>> {
    let name = file.display().to_string();
    match fs::read(file) {
        Ok(pem) => revocation_lists::read(&name, &pem),
        Err(error) => vec![Err(format!("the revocation list {name} cannot be read: {error}"))],
    }
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    fs::read_to_string(path).map_err(|source| AuthorityError::Read { path: path.to_owned(), source })
}

/// The seed of the enrolment key; made when there is none.
fn seed(path: &Path) -> Result<Zeroizing<[u8; 32]>, AuthorityError> {
    let content = |rule| AuthorityError::Content { path: path.to_owned(), rule };
    if !path.exists() {
        let mut seed = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(seed.as_mut())
            .map_err(|_| content("cannot be made: the system yields no random numbers"))?;
        let text = Zeroizing::new(hex::encode(*seed));
        create(path, text.as_bytes(), Some(OWNER_ONLY))?;
    }
    let text = Zeroizing::new(read(path)?);
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim(), seed.as_mut()).map_err(|_| content("must hold 64 hexadecimal digits"))?;
    Ok(seed)
}

/// Makes the authority's key and then its certificate, whichever is missing: a start that was killed between the two is finished.
fn found_authority(
    certificate: &Path,
    key: &Path,
    organisation: &Organisation,
    now_ms: u64,
) -> Result<(), AuthorityError> {
    if certificate.exists() {
        return Ok(());
    }
    if !key.exists() {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(make("the authority's key"))?;
        create(key, Zeroizing::new(pair.serialize_pem()).as_bytes(), Some(OWNER_ONLY))?;
    }
    let pair = KeyPair::from_pem(&Zeroizing::new(read(key)?)).map_err(make("the authority"))?;
    let now = moment(now_ms).ok_or(AuthorityError::Record("time"))?;
    let mut params = CertificateParams::default();
    params.not_before = now - BACKDATED;
    params.not_after = now + AUTHORITY_LIFETIME;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, format!("{organisation} Sparkfleet authority"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let own = params.self_signed(&pair).map_err(make("the authority's certificate"))?;
    tracing::info!(file = %certificate.display(), "the fleet's authority is made");
    create(certificate, own.pem().as_bytes(), None)
}

/// Creates a file; one that another start has made meanwhile stays.
fn create(path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), AuthorityError> {
    match atomic_file::create(path, bytes, mode) {
        Err(error) if !error.is_taken() => Err(error.into()),
        _ => Ok(()),
    }
}
