//! Revocation lists of a site: no bytes make the reader panic, and each list that is read has an issuer and times.
//!
//! Apart from the other targets, because a test of `identity` includes this file by its path.

use identity::revocation_lists::read;

/// Name of the target and of its folder of seeds.
pub const NAME: &str = "revocation_list";

/// A file as PEM, and the same bytes as the one list in such a file.
pub fn revocation_list(bytes: &[u8]) {
    for text in [bytes.to_vec(), armoured(bytes)] {
        let lists = read("site.pem", &text);
        assert!(!lists.is_empty(), "a file without a list is a problem that is named");
        assert_eq!(read("site.pem", &text), lists);
        for list in lists {
            match list {
                Ok(list) => assert_eq!(list.file, "site.pem"),
                Err(problem) => assert!(problem.contains("site.pem"), "{problem}"),
            }
        }
    }
}

fn armoured(der: &[u8]) -> Vec<u8> {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n", lines.join("\n")).into_bytes()
}
