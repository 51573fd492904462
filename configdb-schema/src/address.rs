//! Where things are: organisation, cluster names, groups, node ids, derived UUIDs and names that are safe elsewhere.
//!
//! Ids come out as text; a publisher turns them into the Sparkplug library's types. A cluster name has no hyphen, therefore the group
//! `ORG-<cluster>` can be taken apart again and never meets a quarantine group `ORG-<cluster>-Join`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::known::special::FACTORY_PLUS;

/// Edge node id of ConfigDB in the central group.
pub const CONFIGDB_NODE: &str = "ConfigDB";
/// Edge node id of the cluster manager in the central group.
pub const CLUSTER_MANAGER_NODE: &str = "Cluster-Manager";
/// Edge node id of Identity in the central group, and of the node by which a cluster renews its certificate in its own.
pub const IDENTITY_NODE: &str = "Identity";
/// Edge node id of the git server in the central group.
pub const GIT_NODE: &str = "Git";
/// Edge node id of edge sync in a cluster's group.
pub const SYNC_NODE: &str = "Sync";
/// Edge node id of the monitor, in the central group and in a cluster's group.
pub const MONITOR_NODE: &str = "Monitor";
/// Edge node id of the web console in the central group.
pub const CONSOLE_NODE: &str = "Console";
/// Edge node id of the join service in a cluster's group.
pub const JOIN_NODE: &str = "Join";
/// Edge node id of the keeper of Kerberos keys in a cluster's group.
pub const KEYS_NODE: &str = "Keys";

/// Id of the Host Application that a service is beside its Edge Node. It has no dot, because some MQTT servers take one for a level of the topic `spBv1.0/STATE/<id>`.
#[must_use]
pub fn host_id(group: &str, edge_node: &str) -> String {
    format!("{group}-{edge_node}")
}

/// The same with a dot, as edges have it that are not updated yet.
#[must_use]
pub fn host_id_with_dot(group: &str, edge_node: &str) -> String {
    format!("{group}.{edge_node}")
}

/// Names of the services and programs that can share an environment, in which `SPARKFLEET__<NAME>__` before a key says whose key it is.
pub const SERVICES: &[&str] = &[
    "configdb",
    "cluster-manager",
    "console",
    "identity",
    "git-server",
    "edge-sync",
    "edge-monitor",
    "join-service",
    "krb-keys",
    "monitor",
    "simulator",
    "edge",
    "edge-agent",
    "bootstrapper",
    "sparkfleet",
];

/// Node ids that Sparkfleet's own services have in a cluster's group; no deployment may be called like one of them.
pub const CLUSTER_NODES_RESERVED: &[&str] = &[SYNC_NODE, MONITOR_NODE, JOIN_NODE, KEYS_NODE, IDENTITY_NODE];

/// Last part of the central group.
pub const CENTRAL: &str = "Central";
/// Last part of the group in which clusters enrol.
pub const ENROL: &str = "Enrol";
const JOIN_SUFFIX: &str = "-Join";
const OPERATOR: &str = "Operator";

/// Most characters of an organisation or cluster name.
pub const NAME_CHARACTERS_MAX: usize = 48;

/// The rule that a name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameRule {
    /// Nothing there.
    #[error("{what} is empty; it needs 1 to {NAME_CHARACTERS_MAX} characters")]
    Empty {
        /// `organisation`, `cluster name` or `name of an operator`.
        what: &'static str,
    },
    /// Too many characters.
    #[error("{what} {name:?} has {characters} characters; at most {NAME_CHARACTERS_MAX} are allowed")]
    TooLong {
        /// `organisation`, `cluster name` or `name of an operator`.
        what: &'static str,
        /// The refused name.
        name: String,
        /// Its length.
        characters: usize,
    },
    /// Starts with a digit or an underscore.
    #[error("{what} {name:?} starts with {first:?}; it must start with a letter A-Z or a-z")]
    FirstCharacter {
        /// `organisation`, `cluster name` or `name of an operator`.
        what: &'static str,
        /// The refused name.
        name: String,
        /// What it starts with.
        first: char,
    },
    /// Holds something else than letters, digits and underscores.
    #[error("{what} {name:?} contains {character:?}; only A-Z, a-z, 0-9 and _ are allowed (try {suggestion:?})")]
    Character {
        /// `organisation`, `cluster name` or `name of an operator`.
        what: &'static str,
        /// The refused name.
        name: String,
        /// The first character at fault.
        character: char,
        /// A name that would do.
        suggestion: String,
    },
    /// The name has a meaning of its own.
    #[error("cluster name {name:?} is reserved: the group of that name is not a cluster's; choose another")]
    Reserved {
        /// The refused name.
        name: String,
    },
}

fn check(what: &'static str, name: &str) -> Result<(), NameRule> {
    let Some(first) = name.chars().next() else { return Err(NameRule::Empty { what }) };
    let characters = name.chars().count();
    if characters > NAME_CHARACTERS_MAX {
        let name = name.chars().take(NAME_CHARACTERS_MAX).chain("...".chars()).collect();
        return Err(NameRule::TooLong { what, name, characters });
    }
    if let Some(character) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_')) {
        return Err(NameRule::Character {
            what,
            name: name.to_owned(),
            character,
            suggestion: sparkplug_safe_name(name),
        });
    }
    if !first.is_ascii_alphabetic() {
        return Err(NameRule::FirstCharacter { what, name: name.to_owned(), first });
    }
    Ok(())
}

/// The prefix of all groups of one organisation, such as `ACME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Organisation(String);

impl Organisation {
    /// Checks the name: 1 to 48 characters of `[A-Za-z0-9_]`, the first a letter.
    ///
    /// # Errors
    /// The [`NameRule`] that it breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, NameRule> {
        let name = name.into();
        check("organisation", &name)?;
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Group of the central services.
    #[must_use]
    pub fn central_group(&self) -> String {
        format!("{self}-{CENTRAL}")
    }

    /// Group in which clusters that are not in yet ask for certificates.
    #[must_use]
    pub fn enrol_group(&self) -> String {
        format!("{self}-{ENROL}")
    }

    /// Group of a cluster.
    #[must_use]
    pub fn cluster_group(&self, cluster: &ClusterName) -> String {
        format!("{self}-{cluster}")
    }

    /// Quarantine group of the hosts that want to join a cluster.
    #[must_use]
    pub fn join_group(&self, cluster: &ClusterName) -> String {
        format!("{self}-{cluster}{JOIN_SUFFIX}")
    }

    /// User of the MQTT server that all operators share.
    #[must_use]
    pub fn operators_user(&self) -> String {
        format!("{}-{OPERATOR}", self.central_group())
    }

    /// User of the MQTT server that is one operator's alone.
    #[must_use]
    pub fn operator_user(&self, operator: &OperatorName) -> String {
        format!("{}-{operator}", self.operators_user())
    }

    /// The operator whose own user that is; None: it is not an operator's own.
    #[must_use]
    pub fn operator_of(&self, user: &str) -> Option<OperatorName> {
        let name = user.strip_prefix(&self.operators_user())?.strip_prefix('-')?;
        OperatorName::new(name).ok()
    }

    /// What the ids of our own Host Applications begin with: those of services (`ORG-...`) and of the command line (`sparkfleet-...`). They may command, so they ask for births themselves.
    #[must_use]
    pub fn own_host_prefixes(&self) -> Vec<String> {
        vec![format!("{self}-"), "sparkfleet-".to_owned()]
    }

    /// The cluster whose group this is; None for the central, enrolment and quarantine groups and for groups of others.
    #[must_use]
    pub fn cluster_of_group(&self, group: &str) -> Option<ClusterName> {
        ClusterName::new(self.rest_of_group(group)?).ok()
    }

    /// Whether a Sparkplug group is one of the organisation, of whatever kind.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.rest_of_group(group).is_some()
    }

    /// What follows the name of the organisation in one of its groups.
    fn rest_of_group<'a>(&self, group: &'a str) -> Option<&'a str> {
        group.strip_prefix(self.as_str())?.strip_prefix('-')
    }
}

/// Name of an edge cluster: 1 to 48 characters of `[A-Za-z0-9_]`, the first a letter, neither `Central` nor `Enrol`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

impl ClusterName {
    /// Checks the name.
    ///
    /// # Errors
    /// The [`NameRule`] that it breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, NameRule> {
        let name = name.into();
        check("cluster name", &name)?;
        if name == CENTRAL || name == ENROL {
            return Err(NameRule::Reserved { name });
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Name of an operator who has a user of their own: 1 to 48 characters of `[A-Za-z0-9_]`, the first a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperatorName(String);

impl OperatorName {
    /// Checks the name.
    ///
    /// # Errors
    /// The [`NameRule`] that it breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, NameRule> {
        let name = name.into();
        check("name of an operator", &name)?;
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = NameRule;
            fn from_str(name: &str) -> Result<Self, NameRule> {
                Self::new(name)
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameRule;
            fn try_from(name: String) -> Result<Self, NameRule> {
                Self::new(name)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}
text!(Organisation, ClusterName, OperatorName);

/// The UUID derived from `parts`: version 5, namespace [`FACTORY_PLUS`], name = the parts joined with `:`. Give UUIDs in lower-case hyphenated form.
///
/// ```
/// use configdb_schema::address::v5;
/// assert_eq!(v5(&["Sparkfleet", "Chart:Cluster"]), configdb_schema::known::chart::CLUSTER);
/// ```
#[must_use]
pub fn v5(parts: &[&str]) -> Uuid {
    Uuid::new_v5(&FACTORY_PLUS, parts.join(":").as_bytes())
}

/// A name that is allowed in Sparkplug groups, made from what a person typed. Words are capitalised and joined with `_`; a change from lower to upper case begins a
/// word. Everything but letters, digits and `_` is dropped. Empty when nothing is left.
///
/// ```
/// use configdb_schema::address::sparkplug_safe_name;
/// assert_eq!(sparkplug_safe_name("paint shop #2"), "Paint_Shop_2");
/// assert_eq!(sparkplug_safe_name("robotCell"), "Robot_Cell");
/// ```
#[must_use]
pub fn sparkplug_safe_name(name: &str) -> String {
    let mut out = String::new();
    let mut word_begins = true;
    let mut lower_before = false;
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            let camel = lower_before && c.is_ascii_uppercase();
            if (word_begins || camel) && !out.is_empty() && !out.ends_with('_') {
                out.push('_');
            }
            out.push(if word_begins { c.to_ascii_uppercase() } else { c });
            lower_before = c.is_ascii_lowercase() || c.is_ascii_digit();
            word_begins = false;
        } else if c == '_' || c == '-' || c.is_whitespace() {
            word_begins = true;
            lower_before = false;
        }
    }
    out
}

/// URL of a repository on the git server of the site, whose URLs have `{name}` for the name of a repository.
/// A name there has no slash, so `path` has hyphens instead.
///
/// ```
/// use configdb_schema::address::external_repository;
/// let url = external_repository("https://gitea.example/f/{name}.git", "cluster/Paint_Shop");
/// assert_eq!(url, "https://gitea.example/f/cluster-Paint_Shop.git");
/// ```
#[must_use]
pub fn external_repository(url: &str, path: &str) -> String {
    url.replace("{name}", &path.replace('/', "-"))
}

/// Factory+'s name for Kubernetes: parts joined with `-`, lower case, each run of other characters than `[a-z0-9-]` becomes one `-`, none at the ends.
#[must_use]
pub fn k8s_name(parts: &[&str]) -> String {
    let mut out = String::new();
    for c in parts.join("-").to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' | '-' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    out.trim_matches('-').to_owned()
}

/// Like [`k8s_name`], at most `characters_max` long (at least 16). A longer name is cut and gets eight digits of a hash of the whole. So two long names that begin alike stay different.
#[must_use]
pub fn k8s_name_capped(parts: &[&str], characters_max: usize) -> String {
    let name = k8s_name(parts);
    let characters_max = characters_max.max(16);
    if name.len() <= characters_max {
        return name;
    }
    let hash = v5(&[&name]).simple().to_string();
    let kept = name[..characters_max - 9].trim_end_matches('-');
    format!("{kept}-{}", &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn organisation() -> Organisation {
        Organisation::new("ACME").unwrap()
    }

    #[test]
    fn groups_are_made_of_organisation_and_cluster() {
        let cluster = ClusterName::new("Paint_Shop").unwrap();
        assert_eq!(organisation().central_group(), "ACME-Central");
        assert_eq!(organisation().enrol_group(), "ACME-Enrol");
        assert_eq!(organisation().cluster_group(&cluster), "ACME-Paint_Shop");
        assert_eq!(organisation().join_group(&cluster), "ACME-Paint_Shop-Join");
    }

    #[test]
    fn an_operators_own_user_leads_back_to_the_operator_and_the_shared_one_to_none() {
        let ada = OperatorName::new("ada").unwrap();
        let user = organisation().operator_user(&ada);
        assert_eq!((&*user, organisation().operator_of(&user)), ("ACME-Central-Operator-ada", Some(ada)));
        for user in ["ACME-Central-Operator", "ACME-Central-Operator-", "ACME-Central-Operator-a/b", "ACME-Central"] {
            assert_eq!(organisation().operator_of(user), None, "{user}");
        }
        assert!(OperatorName::new("a-b").unwrap_err().to_string().starts_with("name of an operator \"a-b\" contains"));
    }

    #[test]
    fn only_a_clusters_own_group_leads_back_to_the_cluster() {
        let cluster_of = |group: &str| organisation().cluster_of_group(group).map(String::from);
        assert_eq!(cluster_of("ACME-Paint_Shop").as_deref(), Some("Paint_Shop"));
        for group in
            ["ACME-Central", "ACME-Enrol", "ACME-Paint_Shop-Join", "ACME", "ACME-", "ACMEPaint", "EMCA-Paint_Shop", ""]
        {
            assert_eq!(cluster_of(group), None, "{group}");
        }
    }

    #[test]
    fn a_refused_cluster_name_gets_the_rule() {
        let rule = |name: &str| ClusterName::new(name).unwrap_err().to_string();
        assert_eq!(rule(""), "cluster name is empty; it needs 1 to 48 characters");
        assert_eq!(
            rule("Paint-Shop"),
            r#"cluster name "Paint-Shop" contains '-'; only A-Z, a-z, 0-9 and _ are allowed (try "Paint_Shop")"#
        );
        assert_eq!(rule("1st"), r#"cluster name "1st" starts with '1'; it must start with a letter A-Z or a-z"#);
        assert!(rule(&"x".repeat(49)).contains("49 characters; at most 48"));
        assert!(rule("Central").contains("reserved"));
        assert!(rule("Enrol").contains("reserved"));
        assert!(ClusterName::new("x".repeat(48)).is_ok());
        assert!(ClusterName::new("Halle_Süd").is_err());
    }

    #[test]
    fn names_are_checked_when_they_are_read() {
        assert_eq!(serde_json::from_str::<ClusterName>("\"A_1\"").unwrap().as_str(), "A_1");
        assert!(serde_json::from_str::<ClusterName>("\"a/b\"").is_err());
        assert!(serde_json::from_str::<Organisation>("\"a-b\"").is_err());
    }

    #[test]
    fn kubernetes_names_are_lower_case_without_hyphens_at_the_ends() {
        assert_eq!(k8s_name(&["edge-agent", "Robot_Cell 3"]), "edge-agent-robot-cell-3");
        assert_eq!(k8s_name(&["/charts//x/"]), "charts-x");
        assert_eq!(k8s_name(&["Ü"]), "");
    }

    #[test]
    fn long_kubernetes_names_are_cut_and_stay_different() {
        let a = k8s_name_capped(&[&"a".repeat(80), "1"], 53);
        let b = k8s_name_capped(&[&"a".repeat(80), "2"], 53);
        assert_eq!((a.len(), b.len()), (53, 53));
        assert_ne!(a, b);
        assert_eq!(k8s_name_capped(&["edge-agent", "x"], 53), "edge-agent-x");
    }

    #[test]
    fn safe_names_are_accepted_as_cluster_names() {
        for name in ["paint shop", "robotCell", "a-b-c", "Zelle 7", "already_Safe"] {
            let safe = sparkplug_safe_name(name);
            assert!(ClusterName::new(&*safe).is_ok(), "{name} -> {safe}");
            assert_eq!(sparkplug_safe_name(&safe), safe);
        }
    }
}
