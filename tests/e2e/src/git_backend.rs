//! Another git server than the cluster manager's: git's own `http-backend`, with one request a connection. It asks for no login.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

/// The server. It ends with this value.
#[derive(Debug)]
pub struct GitBackend {
    addr: SocketAddr,
    root: TempDir,
    task: JoinHandle<()>,
}

impl GitBackend {
    /// Starts it, without any repository.
    ///
    /// # Panics
    /// There is no free port or no temporary directory.
    pub async fn start() -> Self {
        let root = tempfile::tempdir().expect("the temporary directory can be written");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let addr = listener.local_addr().expect("it listens");
        let served = root.path().to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move {
                    // A client may close the connection before the end of the response: it has what it wanted.
                    let _ = answer(stream, served).await;
                });
            }
        });
        Self { addr, root, task }
    }

    /// Where a repository is on the disk.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Where it is served.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.addr)
    }
}

impl Drop for GitBackend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request as CGI (RFC 3875), and its answer.
async fn answer(stream: TcpStream, root: PathBuf) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut command = Command::new("git");
    command
        .args(["-c", "safe.directory=*", "http-backend"])
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .envs([("REQUEST_METHOD", method.as_str()), ("PATH_INFO", path), ("QUERY_STRING", query)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).await?;
        let Some((name, value)) = field.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or_default(),
            "content-type" => drop(command.env("CONTENT_TYPE", value)),
            "content-encoding" => drop(command.env("HTTP_CONTENT_ENCODING", value)),
            "git-protocol" => drop(command.env("GIT_PROTOCOL", value)),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let mut child = command.env("CONTENT_LENGTH", length.to_string()).spawn()?;
    let mut stdin = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    stdin.write_all(&body).await?;
    drop(stdin);
    let output = child.wait_with_output().await?.stdout;
    let status = output.strip_prefix(b"Status: ").and_then(|rest| rest.split(|byte| *byte == b'\r').next());
    writer.write_all(&[b"HTTP/1.1 ", status.unwrap_or(b"200 OK"), b"\r\nConnection: close\r\n"].concat()).await?;
    writer.write_all(&output).await?;
    writer.shutdown().await
}
