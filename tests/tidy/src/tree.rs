//! The text files of the repository, read once. The only module that touches the disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A text file and where it lies.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl SourceFile {
    /// For samples.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// True if the file's extension is `extension`.
    #[must_use]
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// The repository as the checks see it.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Text files that some check reads: Rust, Markdown, TOML, JSON, TypeScript, protobuf, tables of ids.
    pub files: Vec<SourceFile>,
    /// Every file and folder, so that links can be followed.
    pub paths: BTreeSet<String>,
}

/// Extensions of the files whose text is read.
const READ: &[&str] = &["rs", "md", "toml", "lock", "tsv", "txt", "csv", "json", "ts", "tsx", "mjs", "proto"];

/// Folders that are made, not written.
const MADE: &[&str] = &["target", "node_modules"];

/// The root of this repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Tree {
    /// Reads the repository below `root`, without hidden and made folders.
    ///
    /// # Errors
    /// A folder or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = entry.path();
                let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                tree.paths.insert(relative.clone());
                if entry.file_type()?.is_dir() {
                    if !name.starts_with('.') && !MADE.contains(&name.as_str()) {
                        folders.push(path);
                    }
                } else if READ.iter().any(|extension| name.ends_with(&format!(".{extension}"))) {
                    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
                    tree.files.push(SourceFile { path: relative, text });
                }
            }
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// The files with this extension.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| file.is(extension))
    }

    /// The text of one file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}
