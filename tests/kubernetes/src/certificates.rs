//! The authority of one control plane, what it has signed, and the key of its service accounts: files for programs that want files.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// The authority, with the directory that all files go to.
pub struct Certificates {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Makes the authority (`ca.crt`, `ca.key`) and the key of service accounts (`sa.key`, `sa.pub`).
    ///
    /// # Panics
    /// The directory cannot be written.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes-tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, generate()).expect("an authority can be made");
        let made = Self { directory: directory.to_owned(), issuer };
        std::fs::create_dir_all(directory).expect("the directory can be made");
        made.write("ca.crt", &made.authority());
        made.write("ca.key", &made.issuer.key().serialize_pem());
        made.service_accounts();
        made
    }

    /// Makes a key of service accounts, in the place of the one before.
    ///
    /// # Panics
    /// The directory cannot be written.
    pub fn service_accounts(&self) {
        let key = generate();
        self.write("sa.key", &key.serialize_pem());
        self.write("sa.pub", &key.public_key_pem());
    }

    /// PEM of the authority's certificate.
    #[must_use]
    pub fn authority(&self) -> String {
        self.issuer.pem()
    }

    /// A file of the directory.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        self.directory.join(file).display().to_string()
    }

    /// Signs a certificate for a client: `<name>.crt`, `<name>.key`. `group` is an organisation, which Kubernetes reads as a group.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn client(&self, name: &str, user: &str, group: Option<&str>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params);
    }

    /// Signs a certificate for a server: `<name>.crt`, `<name>.key`.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn server(&self, name: &str, hostnames: &[&str], addresses: &[IpAddr]) {
        let names = hostnames.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let mut params = CertificateParams::new(names).expect("the names are those of hosts");
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, params);
    }

    fn sign(&self, name: &str, mut params: CertificateParams) {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        let key = generate();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be signed");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.join(file), text).expect("the directory can be written");
    }
}

fn generate() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key can be made")
}
