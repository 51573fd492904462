//! A pack: commits, each with the one that it was made on, and those that the receiver must have. As text, with blanks at its end.

use std::collections::{BTreeMap, BTreeSet};

use git_server_contract::pack::Pack;

/// What is in a pack. Commits are numbers; 0: none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// What the receiver must have.
    pub base: BTreeSet<u32>,
    /// The commits, with those that they were made on.
    pub commits: BTreeMap<u32, u32>,
}

impl Content {
    /// The pack, of at least so many bytes.
    #[must_use]
    pub fn write(&self, bytes: usize) -> Pack {
        let base = self.base.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let commits = self.commits.iter().map(|(commit, parent)| format!("{commit}:{parent}")).collect::<Vec<_>>();
        let mut text = format!("{base}|{}", commits.join(" ")).into_bytes();
        text.resize(bytes.max(text.len()), b' ');
        Pack::new(text.into())
    }

    /// What is in a pack; None: it is damaged.
    #[must_use]
    pub fn read(pack: &Pack) -> Option<Self> {
        let (base, commits) = std::str::from_utf8(pack.bytes()).ok()?.split_once('|')?;
        let base = base.split_whitespace().map(|commit| commit.parse().ok());
        let commits = commits.split_whitespace().map(|pair| {
            let (commit, parent) = pair.split_once(':')?;
            Some((commit.parse().ok()?, parent.parse().ok()?))
        });
        Some(Self { base: base.collect::<Option<_>>()?, commits: commits.collect::<Option<_>>()? })
    }
}
