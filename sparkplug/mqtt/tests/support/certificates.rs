//! A certificate authority for one test, made with the openssl program.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes `ca.pem`, `ca.key` and, signed by it, `server.pem`, `server.key` (for localhost) and `client.pem`, `client.key`.
pub fn write(directory: &Path) {
    write_with(directory, "localhost", 2);
}

/// The same with a server certificate for that name, which lasts so many days from now on; it has expired if that is negative.
pub fn write_with(directory: &Path, server: &str, days: i32) {
    let at = |name: &str| directory.join(name).display().to_string();
    openssl(
        &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            .map(str::to_owned)
            .into_iter()
            .chain([
                "-subj".into(),
                "/CN=test authority".into(),
                "-keyout".into(),
                at("ca.key"),
                "-out".into(),
                at("ca.pem"),
            ])
            .collect::<Vec<_>>(),
    );
    let of_server = format!("subjectAltName=DNS:{server}\nextendedKeyUsage=serverAuth\n");
    issue(directory, "server", "/CN=server", &of_server, days);
    write_client(directory, "client");
}

/// Writes `<name>.pem` and `<name>.key`, signed by the authority that is there.
pub fn write_client(directory: &Path, name: &str) {
    issue(directory, name, "/CN=edge", "extendedKeyUsage=clientAuth\n", 2);
}

fn issue(directory: &Path, name: &str, subject: &str, extensions: &str, days: i32) {
    let at = |name: &str| directory.join(name).display().to_string();
    let (key, csr, pem, ext) =
        (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"), format!("{name}.ext"));
    fs::write(directory.join(&ext), extensions).unwrap();
    openssl(
        &["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject]
            .map(str::to_owned)
            .into_iter()
            .chain(["-keyout".into(), at(&key), "-out".into(), at(&csr)])
            .collect::<Vec<_>>(),
    );
    openssl(&[
        "x509".into(),
        "-req".into(),
        "-days".into(),
        days.to_string(),
        "-CAcreateserial".into(),
        "-in".into(),
        at(&csr),
        "-CA".into(),
        at("ca.pem"),
        "-CAkey".into(),
        at("ca.key"),
        "-extfile".into(),
        at(&ext),
        "-out".into(),
        at(&pem),
    ]);
}

fn openssl(arguments: &[String]) {
    let done = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}
