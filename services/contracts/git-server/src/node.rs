//! Metrics of the node.

use sparkplug::typed::form;

use crate::names;

/// What the git server says of itself. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitNode {
    /// Version of the program.
    pub version: String,
    /// Base URL under which clients reach the repositories, without a slash at its end.
    pub url: String,
    /// Devices of repositories.
    pub repositories: u32,
    /// Devices of pushes.
    pub pushes: u32,
}

sparkplug::typed_metrics! {
    GitNode {
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        #[optional]
        version => names::PROPERTIES_VERSION,
        /// What stands behind the node is a simulator.
        (|_| false.into()) => names::PROPERTIES_SIMULATED,
        /// Base URL under which clusters and users reach the repositories.
        url => names::GIT_URL,
        /// Repositories that it has a copy of.
        repositories as form::Count => names::REPOSITORIES_TOTAL,
        /// Pushes under way.
        pushes as form::Count => names::PUSHES_TOTAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn what_was_written_is_read() {
        let node = GitNode { version: "1.2.3".to_owned(), url: "http://git".to_owned(), repositories: 7, pushes: 1 };
        assert_eq!(GitNode::from_metrics(&node.to_metrics()), Ok(node));
    }
}
