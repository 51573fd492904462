//! `sparkfleet acl crl`: one file with the revocation list of every authority that signs client certificates, as MQTT servers want it.
//!
//! OpenSSL, and so Mosquitto, refuses every certificate whose authority has no list among those that it has. A file with one authority's list would lock out all certificates of the others, so such a file
//! is not written.

use anyhow::{Context as _, anyhow};
use service_runtime::{atomic_file, exit};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::arguments::AclCrlArguments;
use crate::output;

/// Lists that belong together.
#[derive(Debug, PartialEq, Eq)]
struct Bundle {
    /// PEM.
    text: String,
    /// Issuers whose list is past half of its time.
    due: Vec<String>,
}

/// Carries out the command.
///
/// # Errors
/// With [`exit::CONFIG`] if a file cannot be read, and with [`exit::REFUSED`] if an authority has no list that is still valid. With [`exit::FAILURE`] if the file was written and a
/// list is past half of its time.
pub fn run(arguments: &AclCrlArguments) -> anyhow::Result<()> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let read = |file: &std::path::PathBuf| {
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display())).map_err(wrong)
    };
    let authorities = read(&arguments.ca)?;
    let lists = arguments.list.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let bundle = bundle(&authorities, &lists, jiff::Timestamp::now().as_second())
        .map_err(|error| exit::with_code(exit::REFUSED, error))?;
    atomic_file::write(&arguments.out, bundle.text.as_bytes(), Some(0o644)).map_err(|error| wrong(error.into()))?;
    output::print_text(&arguments.out.display().to_string())?;
    if bundle.due.is_empty() {
        return Ok(());
    }
    let error = anyhow!("past half of its time, make it again: {}", bundle.due.join("; "));
    Err(exit::with_code(exit::FAILURE, error))
}

/// The lists in one, if every authority has one that counts at `now` (UTC s).
fn bundle(authorities: &[u8], lists: &[Vec<u8>], now: i64) -> anyhow::Result<Bundle> {
    let mut bundle = Bundle { text: String::new(), due: Vec::new() };
    let mut issuers = Vec::new();
    for pem in lists.iter().flat_map(|list| Pem::iter_from_buffer(list)) {
        let pem = pem.context("a list is not PEM")?;
        let (_, list) = CertificateRevocationList::from_der(&pem.contents)
            .map_err(|_| anyhow!("a PEM block {} is not a revocation list", pem.label))?;
        let issuer = list.issuer().to_string();
        let next =
            list.next_update().with_context(|| format!("the list of {issuer} does not say when the next comes"))?;
        let (begin, end) = (list.last_update().timestamp(), next.timestamp());
        if end <= now {
            return Err(anyhow!("the list of {issuer} ended at {next}; servers refuse every certificate by it"));
        }
        if now - begin > (end - begin) / 2 {
            bundle.due.push(issuer);
        }
        issuers.push(list.issuer().as_raw().to_vec());
        bundle.text.push_str(&armoured(&pem.contents));
    }
    for pem in Pem::iter_from_buffer(authorities) {
        let pem = pem.context("--ca is not PEM")?;
        let authority =
            pem.parse_x509().map_err(|_| anyhow!("--ca: a PEM block {} is not a certificate", pem.label))?;
        if !issuers.iter().any(|issuer| issuer == authority.subject().as_raw()) {
            return Err(anyhow!(
                "{} has no list: servers would refuse every certificate that it signed; add one with --list, an empty one if it has revoked nothing",
                authority.subject()
            ));
        }
    }
    if issuers.is_empty() {
        return Err(anyhow!("the files hold no list"));
    }
    Ok(bundle)
}

fn armoured(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn openssl(directory: &Path, arguments: &str) {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Certificate and empty list of an authority, PEM.
    fn authority(directory: &Path, name: &str) -> (Vec<u8>, Vec<u8>) {
        let file = |end: &str| directory.join(format!("{name}.{end}"));
        openssl(
            directory,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
            ),
        );
        let config = format!(
            "[ca]\ndefault_ca=a\n[a]\ndatabase={0}.txt\ndefault_md=sha256\ndefault_crl_days=10\n",
            file("db").display()
        );
        std::fs::write(file("cnf"), config).unwrap();
        std::fs::write(format!("{}.txt", file("db").display()), "").unwrap();
        openssl(
            directory,
            &format!("ca -gencrl -config {name}.cnf -keyfile {name}.key -cert {name}.pem -out {name}.crl"),
        );
        (std::fs::read(file("pem")).unwrap(), std::fs::read(file("crl")).unwrap())
    }

    #[test]
    fn a_file_is_written_only_with_a_list_in_time_of_every_authority() {
        let directory = tempfile::tempdir().unwrap();
        let (clusters, revoked) = authority(directory.path(), "clusters");
        let (site, empty) = authority(directory.path(), "site");
        let both = [clusters, site].concat();
        let now = jiff::Timestamp::now().as_second();
        let whole = bundle(&both, &[revoked.clone(), empty.clone()], now).unwrap();
        assert_eq!((whole.text.matches("BEGIN X509 CRL").count(), whole.due.len()), (2, 0));
        assert_eq!(bundle(&both, &[whole.text.clone().into_bytes()], now).unwrap(), whole);
        // What locks out all for whom the site's authority has signed.
        let alone = bundle(&both, std::slice::from_ref(&revoked), now).unwrap_err().to_string();
        assert!(alone.starts_with("CN=site has no list"), "{alone}");
        let half = bundle(&both, &[revoked.clone(), empty.clone()], now + 6 * 86_400).unwrap();
        assert_eq!(half.due, ["CN=clusters", "CN=site"]);
        let ended = bundle(&both, &[revoked, empty], now + 11 * 86_400).unwrap_err().to_string();
        assert!(ended.starts_with("the list of CN=clusters ended"), "{ended}");
        assert!(
            bundle(&both, std::slice::from_ref(&both), now)
                .unwrap_err()
                .to_string()
                .contains("is not a revocation list")
        );
        assert!(bundle(b"", &[], now).is_err());
    }
}
