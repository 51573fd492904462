//! Where clusters reach repositories: on our server, or on the site's.

use configdb_schema::address::external_repository;
use configdb_schema::known;
use uuid::Uuid;

/// Path of the shared repository that every cluster takes its charts from.
pub const HELM_PATH: &str = "shared/helm";

/// Both servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitAddress {
    /// Base URL of ours, without a slash at its end; empty: not known yet.
    pub own: String,
    /// URL of a repository on the site's, with `{name}` for its name. None: clusters read ours.
    pub external: Option<String>,
}

impl GitAddress {
    /// Addresses can be given out.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        !self.own.is_empty()
    }

    /// Of a repository that the cluster manager writes, by its path: `cluster/Paint_Shop`, `shared/helm`.
    #[must_use]
    pub fn written(&self, path: &str) -> String {
        match &self.external {
            Some(url) => external_repository(url, path),
            None => format!("{}/git/{path}", self.own),
        }
    }

    /// Of a shared repository, by its object.
    #[must_use]
    pub fn shared(&self, repository: Uuid) -> String {
        match &self.external {
            Some(url) if repository == known::repository::HELM_CHARTS => external_repository(url, HELM_PATH),
            _ => format!("{}/uuid/{repository}", self.own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_is_where_clusters_follow_it_and_other_shared_repositories_stay_ours() {
        let (charts, other) = (known::repository::HELM_CHARTS, Uuid::from_u128(7));
        let own = GitAddress { own: "https://git.acme.example".to_owned(), external: None };
        assert_eq!(own.written("cluster/Paint_Shop"), "https://git.acme.example/git/cluster/Paint_Shop");
        assert_eq!(own.shared(charts), format!("https://git.acme.example/uuid/{charts}"));
        let site = GitAddress { external: Some("https://gitea.example/f/{name}.git".to_owned()), ..own.clone() };
        assert_eq!(site.written("cluster/Paint_Shop"), "https://gitea.example/f/cluster-Paint_Shop.git");
        assert_eq!(site.shared(charts), "https://gitea.example/f/shared-helm.git");
        assert_eq!(site.shared(other), own.shared(other));
    }
}
