//! The page: built in, or read from a directory while it is being developed.

use std::path::PathBuf;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

const INDEX: &str = "index.html";

/// The files of the page with their types. Everything else is the page itself, which finds its own way.
const FILES: [(&str, &str, &[u8]); 4] = [
    (INDEX, "text/html; charset=utf-8", include_bytes!("../../assets/index.html")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/app.js")),
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../assets/app.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];

/// Where the files come from.
#[derive(Debug, Clone)]
pub struct Assets {
    directory: Option<PathBuf>,
    tags: [String; FILES.len()],
}

/// A file as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Content type.
    pub content_type: &'static str,
    /// What it holds.
    pub body: Bytes,
    /// Its ETag, with the quotes.
    pub tag: String,
}

impl Assets {
    /// The built-in files, or those of `directory`.
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, tags: FILES.map(|(_, _, body)| tag(body)) }
    }

    /// The file at that path of a URL; the page itself where there is none.
    ///
    /// # Errors
    /// The directory does not have the file.
    pub async fn get(&self, path: &str) -> std::io::Result<Asset> {
        let name = path.trim_start_matches('/');
        // Only names of the list, so that no path leads out of the directory.
        let at = FILES.iter().position(|(file, ..)| *file == name).unwrap_or_default();
        let (file, content_type, body) = FILES[at];
        Ok(match &self.directory {
            None => Asset { content_type, body: Bytes::from_static(body), tag: self.tags[at].clone() },
            Some(directory) => {
                let body = tokio::fs::read(directory.join(file)).await?;
                Asset { content_type, tag: tag(&body), body: body.into() }
            }
        })
    }
}

fn tag(body: &[u8]) -> String {
    let digest = hex::encode(Sha256::digest(body));
    format!("\"{}\"", &digest[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_file_is_the_page() {
        let assets = Assets::new(None);
        let page = assets.get("/cluster/Paint_Shop").await.unwrap();
        assert_eq!(page, assets.get("/").await.unwrap());
        assert!(page.content_type.starts_with("text/html"));
        assert!(assets.get("/app.js").await.unwrap().content_type.starts_with("text/javascript"));
    }

    #[tokio::test]
    async fn a_path_does_not_lead_out_of_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(INDEX), "page").unwrap();
        let assets = Assets::new(Some(directory.path().to_owned()));
        assert_eq!(assets.get("/../../etc/passwd").await.unwrap().body, "page");
        assert!(assets.get("/app.js").await.is_err());
    }
}
