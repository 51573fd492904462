//! Reads the revocation lists of a file. Pure.

use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;

use crate::event::RevocationList;

/// The revocation lists in the text of a PEM file of that name; Err: what is wrong with the file, for people. Never empty.
#[must_use]
pub fn read(name: &str, pem: &[u8]) -> Vec<Result<RevocationList, String>> {
    let lists: Vec<_> = Pem::iter_from_buffer(pem)
        .map(|block| {
            let wrong = || format!("{name} holds something else than revocation lists in PEM");
            let block = block.map_err(|_| wrong())?;
            let (_, list) = CertificateRevocationList::from_der(&block.contents).map_err(|_| wrong())?;
            let millis = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1000);
            Ok(RevocationList {
                file: name.to_owned(),
                issuer: list.issuer().to_string(),
                begins: millis(list.last_update()),
                ends: list.next_update().map(millis),
            })
        })
        .collect();
    if lists.is_empty() { vec![Err(format!("{name} holds no revocation list in PEM"))] } else { lists }
}
