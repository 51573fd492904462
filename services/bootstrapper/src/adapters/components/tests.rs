//! Downloads from a server of their own, hashes, and hostile archives.

use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().unwrap()
}

fn component(url: &str, content: &[u8], path: &str) -> Component {
    Component { url: url.to_owned(), sha256: sha256(content), path: path.to_owned() }
}

fn components(root: &Path) -> Components {
    Components::new(root.to_owned(), 100_000, None)
}

fn activity() -> Activity {
    Activity::new(mpsc::channel(1).0)
}

/// A server that gives these answers, one a connection, and its address.
async fn server(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            socket.write_all(&answer).await.unwrap();
            let _ = socket.shutdown().await;
        }
    });
    format!("http://{address}")
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// What is in a folder, hidden files included.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).map(|entries| entries.collect::<Vec<_>>()).unwrap_or_default();
    let mut names: Vec<_> =
        entries.into_iter().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_component_is_downloaded_over_failures_and_redirects_and_put_in_its_place() {
    let root = tempfile::tempdir().unwrap();
    let url = server(vec![
        answer("503 Service Unavailable", "", b""),
        answer("302 Found", "Location: /elsewhere\r\n", b""),
        answer("200 OK", "", b"#!kubelet"),
    ])
    .await;
    let wanted = component(&format!("{url}/kubelet"), b"#!kubelet", "/opt/bin/kubelet");
    components(root.path()).install(std::slice::from_ref(&wanted), &activity()).await.unwrap();
    let path = root.path().join("opt/bin/kubelet");
    assert_eq!(fs::read(&path).unwrap(), b"#!kubelet");
    assert_eq!(super::super::files::mode_of(&path), Ok(0o755));
    assert_eq!(names(&root.path().join("opt/bin")), ["kubelet"], "nothing else is left");
    // It is there already: no server is asked.
    components(root.path()).install(&[wanted], &activity()).await.unwrap();
}

#[tokio::test]
async fn what_has_another_hash_or_is_too_large_is_not_installed() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("opt/bin")).unwrap();
    fs::write(root.path().join("opt/bin/kubelet"), "old").unwrap();
    let url = server(vec![answer("200 OK", "", b"evil"), answer("200 OK", "", &vec![b'x'; 100_001])]).await;
    let wanted = component(&url, b"good", "/opt/bin/kubelet");
    let error = components(root.path()).install(std::slice::from_ref(&wanted), &activity()).await.unwrap_err().0;
    assert!(error.contains("its SHA-256 is 4b") || error.contains("its SHA-256 is"), "{error}");
    let error = components(root.path()).install(&[wanted], &activity()).await.unwrap_err().0;
    assert!(error.ends_with("cannot be downloaded: it has more than 100000 bytes"), "{error}");
    assert_eq!(names(&root.path().join("opt/bin")), ["kubelet"]);
    assert_eq!(fs::read(root.path().join("opt/bin/kubelet")).unwrap(), b"old");
}

#[tokio::test]
async fn an_answer_that_will_not_change_is_not_asked_for_again() {
    let root = tempfile::tempdir().unwrap();
    let url = server(vec![answer("404 Not Found", "", b"")]).await;
    let error = components(root.path()).install(&[component(&url, b"", "/opt/x")], &activity()).await.unwrap_err().0;
    assert!(error.ends_with("cannot be downloaded: 404 Not Found"), "{error}");
}

/// An archive with these entries: type, name, content or target.
fn archive(entries: &[(tar::EntryType, &str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (kind, name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o4777);
        let bytes = if kind.is_file() { content.as_bytes() } else { b"" };
        header.set_size(bytes.len() as u64);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name_literal(content).unwrap();
        }
        // The library's own way to set a name refuses what is tried here.
        let field = &mut header.as_gnu_mut().unwrap().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, bytes).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

async fn install_archive(root: &Path, bytes: &[u8]) -> Outcome<()> {
    fs::write(root.join("cni.tgz"), bytes).unwrap();
    let wanted = component("file:///cni.tgz", bytes, "/opt/cni/bin");
    components(root).install(&[wanted], &activity()).await
}

#[tokio::test]
async fn an_archive_is_unpacked_below_its_path_as_often_as_wanted() {
    use tar::EntryType::{Directory, Regular, Symlink};
    let root = tempfile::tempdir().unwrap();
    let bytes = archive(&[
        (Directory, "./", ""),
        (Regular, "./bridge", "one"),
        (Symlink, "br", "bridge"),
        (Regular, "a/b", "two"),
    ]);
    for _ in 0..2 {
        install_archive(root.path(), &bytes).await.unwrap();
    }
    let folder = root.path().join("opt/cni/bin");
    assert_eq!(names(&folder), ["a", "br", "bridge"]);
    assert_eq!(fs::read(folder.join("br")).unwrap(), b"one");
    assert_eq!(
        fs::read_link(folder.join("br")).unwrap(),
        Path::new("bridge"),
        "the link is named and leads as it says"
    );
    assert_eq!(super::super::files::mode_of(&folder.join("bridge")), Ok(0o755), "without set-user-id");
}

#[tokio::test]
async fn an_archive_that_wants_out_of_its_folder_is_refused() {
    use tar::EntryType::{Fifo, Link, Regular, Symlink};
    let cases = [
        (archive(&[(Regular, "../../etc/passwd", "x")]), "leaves its folder"),
        (archive(&[(Regular, "/etc/passwd", "x")]), "leaves its folder"),
        (archive(&[(Symlink, "up", "../../../etc")]), "leads to ../../../etc"),
        (archive(&[(Symlink, "etc", "/etc")]), "leads to /etc"),
        (
            archive(&[(Regular, "dir/x", "x"), (Symlink, "here", "dir"), (Regular, "here/y", "y")]),
            "goes through a link",
        ),
        (archive(&[(Link, "hard", "/etc/passwd")]), "is neither file, folder nor link"),
        (archive(&[(Fifo, "pipe", "")]), "is neither file, folder nor link"),
    ];
    for (bytes, message) in cases {
        let root = tempfile::tempdir().unwrap();
        let error = install_archive(root.path(), &bytes).await.unwrap_err().0;
        assert!(error.contains(message), "{error} is not {message}");
        assert!(!root.path().join("etc").exists());
    }
}
