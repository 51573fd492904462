//! Makes the kubelet's key and the request for its certificate (PKCS#10, RFC 2986).

use std::net::IpAddr;
use std::str::FromStr as _;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use der::asn1::{Any, BitString, Ia5String, OctetString, SetOfVec};
use der::oid::{AssociatedOid as _, ObjectIdentifier};
use der::{Encode as _, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::{AlgorithmIdentifier, SubjectPublicKeyInfo};
use zeroize::Zeroizing;

use crate::platform::{Outcome, PlatformError};

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");

fn failed(error: impl std::fmt::Display) -> PlatformError {
    PlatformError::new("the kubelet's certificate request cannot be made", error)
}

/// A P-256 key (PKCS#8, PEM) and a request (DER) for the certificate of the kubelet of this name: subject as Kubernetes wants it, name and addresses as alternative names. The key is
/// `known`, if that can be used, else a fresh one.
///
/// # Errors
/// No randomness, or a name that cannot be written.
pub fn certificate_request(
    node_name: &str,
    addresses: &[IpAddr],
    known: Option<&Zeroizing<String>>,
) -> Outcome<(Vec<u8>, Zeroizing<String>)> {
    let random = SystemRandom::new();
    let (pair, pem) = match known.and_then(|pem| Some((pair_of(pem)?, pem.clone()))) {
        Some(known) => known,
        None => {
            let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(failed)?;
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref()).map_err(failed)?;
            (pair, pem_of_key(key.as_ref()))
        }
    };
    let info = info(node_name, addresses, pair.public_key().as_ref()).map_err(failed)?;
    let signed = info.to_der().map_err(failed)?;
    let signature = pair.sign(&random, &signed).map_err(failed)?;
    let request = CertReq {
        info,
        algorithm: AlgorithmIdentifier { oid: ECDSA_SHA256, parameters: None },
        signature: BitString::from_bytes(signature.as_ref()).map_err(failed)?,
    };
    Ok((request.to_der().map_err(failed)?, pem))
}

fn pair_of(pem: &str) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der_of(pem)?).ok()
}

/// What a text in PEM with one block holds, whatever it is.
pub(super) fn der_of(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text: Zeroizing<String> = Zeroizing::new(pem.lines().filter(|line| !line.starts_with('-')).collect());
    STANDARD.decode(text.as_bytes()).ok().map(Zeroizing::new)
}

fn info(node_name: &str, addresses: &[IpAddr], point: &[u8]) -> der::Result<CertReqInfo> {
    let octets = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let name = |address: &IpAddr| OctetString::new(octets(address)).map(GeneralName::IpAddress);
    let own_name = Ia5String::new(node_name).map(GeneralName::DnsName);
    let names = [own_name].into_iter().chain(addresses.iter().map(name)).collect::<Result<_, _>>()?;
    let extn_value = OctetString::new(SubjectAltName(names).to_der()?)?;
    let extension = Extension { extn_id: SubjectAltName::OID, critical: false, extn_value };
    let mut attributes = SetOfVec::new();
    attributes.insert(ExtensionReq(vec![extension]).try_into()?)?;
    Ok(CertReqInfo {
        version: Version::V1,
        // RFC 4514 writes the last part first.
        subject: Name::from_str(&format!("CN=system:node:{node_name},O=system:nodes"))?,
        public_key: SubjectPublicKeyInfo {
            algorithm: AlgorithmIdentifier {
                oid: EC_PUBLIC_KEY,
                parameters: Some(Any::new(Tag::ObjectIdentifier, P256.as_bytes())?),
            },
            subject_public_key: BitString::from_bytes(point)?,
        },
        attributes,
    })
}

fn pem_of_key(der: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(STANDARD.encode(der));
    let lines = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok());
    let mut pem = Zeroizing::new(String::with_capacity(text.len() + 128));
    pem.push_str("-----BEGIN PRIVATE KEY-----\n");
    for line in lines {
        pem.push_str(line);
        pem.push('\n');
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_tickets::request::{Allowed, KubeletRequest};
    use std::collections::BTreeSet;

    #[test]
    fn the_request_is_one_that_the_issuer_accepts() {
        let addresses: Vec<IpAddr> = ["10.2.0.7", "fd00::7"].iter().map(|text| text.parse().unwrap()).collect();
        let allowed: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        for asked in [&addresses[..], &[]] {
            let (request, key) = certificate_request("press-shop-2.plant.example", asked, None).unwrap();
            let allowed = Allowed { node_name: "press-shop-2.plant.example", addresses: &allowed };
            KubeletRequest::check(&request, &allowed).unwrap();
            let der = STANDARD.decode(key.lines().filter(|line| !line.starts_with('-')).collect::<String>()).unwrap();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der).unwrap();
            let (again, same) = certificate_request("press-shop-2.plant.example", asked, Some(&key)).unwrap();
            assert_eq!(same, key, "a member keeps its key");
            KubeletRequest::check(&again, &allowed).unwrap();
            let fresh = certificate_request("a", asked, Some(&Zeroizing::new("no key".to_owned()))).unwrap().1;
            assert_ne!(fresh, key);
        }
    }
}
