//! An HTTP server of tests: answers each path as a test says, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A path without its query, the status and the body of its answer.
pub(crate) type ServedResponse = (&'static str, u16, String);

/// See the module. It ends with the test's runtime.
pub(crate) struct Served {
    /// `http://127.0.0.1:PORT`
    pub address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// Answers in turn: of several with one path the first is used up before the second; the last stays.
    pub(crate) async fn start(answers: Vec<ServedResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (remembered, mut answers) = (Arc::clone(&asked), answers);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = request(&mut stream).await;
                let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let path = target.split('?').next().unwrap_or_default();
                let fitting: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].0 == path).collect();
                let (status, body) = match fitting[..] {
                    [] => (404, r#"{"error":"there is no such resource"}"#.to_owned()),
                    [only] => (answers[only].1, answers[only].2.clone()),
                    [first, ..] => {
                        let (_, status, body) = answers.remove(first);
                        (status, body)
                    }
                };
                remembered.lock().unwrap().push(request);
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { address, asked }
    }

    /// Head and body of all requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Their paths with queries.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().iter().map(|request| request.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
    }
}

/// Head and body.
async fn request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    // What has not been read when the connection is closed would reset it.
    let head = String::from_utf8(request).unwrap();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    stream.read_exact(&mut body).await.unwrap();
    head + &String::from_utf8(body).unwrap()
}
