//! The page: built in, and compressed once at the start; or read from a directory while it is being developed.

use std::io::{self, Write as _};
use std::path::PathBuf;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

const INDEX: &str = "index.html";
/// What the page loads when it shows the first trend.
const PLOT: &str = "plot.js";

/// The files of the page with their types. Everything else is the page itself, which finds its own way.
const FILES: [(&str, &str, &[u8]); 5] = [
    (INDEX, "text/html; charset=utf-8", include_bytes!("../../assets/index.html")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/app.js")),
    (PLOT, "text/javascript; charset=utf-8", include_bytes!("../../assets/plot.js")),
    ("app.css", "text/css; charset=utf-8", include_bytes!("../../assets/app.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];

/// Where the files come from.
#[derive(Debug, Clone)]
pub struct Assets {
    directory: Option<PathBuf>,
    /// Each built-in file as it is, and compressed.
    built_in: Vec<[Asset; 2]>,
}

/// A file as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Content type.
    pub content_type: &'static str,
    /// Content coding, where it has one.
    pub encoding: Option<&'static str>,
    /// What it holds, encoded.
    pub body: Bytes,
    /// Its ETag, with the quotes: each coding has another.
    pub tag: String,
}

impl Assets {
    /// The built-in files, or those of `directory`.
    ///
    /// # Errors
    /// The files cannot be compressed; in memory that does not happen.
    pub fn new(directory: Option<PathBuf>) -> io::Result<Self> {
        let files = FILES.into_iter();
        let built_in = files.map(|(_, content_type, body)| {
            let plain = Asset { content_type, encoding: None, body: Bytes::from_static(body), tag: tag(body) };
            let body = compressed(body)?;
            let tag = tag(&body);
            Ok([plain, Asset { content_type, encoding: Some("gzip"), body: body.into(), tag }])
        });
        Ok(Self { directory, built_in: built_in.collect::<io::Result<_>>()? })
    }

    /// The file at that path of a URL; the page itself where there is none. `gzip`: it may be compressed.
    ///
    /// # Errors
    /// The directory does not have the file.
    pub async fn get(&self, path: &str, gzip: bool) -> io::Result<Asset> {
        let name = path.trim_start_matches('/');
        // Only names of the list, so that no path leads out of the directory.
        let at = FILES.iter().position(|(file, ..)| *file == name).unwrap_or_default();
        let (file, content_type, _) = FILES[at];
        Ok(match &self.directory {
            None => self.built_in[at][usize::from(gzip)].clone(),
            Some(directory) => {
                let body = tokio::fs::read(directory.join(file)).await?;
                Asset { content_type, encoding: None, tag: tag(&body), body: body.into() }
            }
        })
    }
}

fn compressed(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body)?;
    encoder.finish()
}

fn tag(body: &[u8]) -> String {
    let digest = hex::encode(Sha256::digest(body));
    format!("\"{}\"", &digest[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_other_path_is_the_page() {
        let assets = Assets::new(None).unwrap();
        let page = assets.get("/cluster/Paint_Shop", false).await.unwrap();
        assert_eq!(page, assets.get("/", false).await.unwrap());
        assert!(page.content_type.starts_with("text/html"));
        assert!(assets.get("/app.js", true).await.unwrap().content_type.starts_with("text/javascript"));
    }

    #[tokio::test]
    async fn a_path_does_not_lead_out_of_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(INDEX), "page").unwrap();
        let assets = Assets::new(Some(directory.path().to_owned())).unwrap();
        assert_eq!(assets.get("/../../etc/passwd", false).await.unwrap().body, "page");
        assert!(assets.get("/app.js", true).await.is_err());
    }

    #[tokio::test]
    async fn the_first_load_is_within_its_budget_and_is_what_the_files_hold() {
        let assets = Assets::new(None).unwrap();
        let mut bytes = 0;
        for (name, _, plain) in FILES {
            let asset = assets.get(name, true).await.unwrap();
            bytes += if name == PLOT { 0 } else { asset.body.len() };
            let mut decoder = flate2::read::GzDecoder::new(&*asset.body);
            let mut decoded = Vec::new();
            std::io::Read::read_to_end(&mut decoder, &mut decoded).unwrap();
            assert!(decoded == plain, "{name}");
            assert_ne!(asset.tag, assets.get(name, false).await.unwrap().tag, "{name}");
        }
        assert!(bytes <= 90_000, "{bytes} bytes");
    }
}
