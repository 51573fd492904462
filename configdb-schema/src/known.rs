//! Well-known UUIDs of Factory+, as constants, and as a table of the objects that every store holds.
//!
//! Ranks: 0 individuals, 1 classes of individuals, 2 classes of classes, 3 top. A member is one rank below its class; a subclass
//! has the rank of its superclass. [`class::R3_CLASS`] is the one object that is its own class.
//!
//! Principals, permissions, roles and grants are not here: Sparkfleet has none of its own. Those that a Factory+ dump brings are ordinary objects.

use uuid::{Uuid, uuid};

/// An object that every store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownObject {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name, for people.
    pub name: &'static str,
    /// Its primary class.
    pub class: Uuid,
    /// Its rank, 0 to 3.
    pub rank: u8,
    /// Its direct superclasses.
    pub subclass_of: &'static [Uuid],
}

macro_rules! known {
    ($(#[$doc:meta])* class $class:expr, rank $rank:literal; $($name:ident $uuid:literal $text:literal,)*) => {
        $(
            #[doc = $text]
            pub const $name: Uuid = uuid!($uuid);
        )*
        $(#[$doc])*
        pub const OBJECTS: &[KnownObject] = &[
            $(KnownObject { uuid: $name, name: $text, class: $class, rank: $rank, subclass_of: &[] },)*
        ];
    };
}

/// Applications: what an object can have an entry for. Those with a slug are in [`crate::APPLICATIONS`].
pub mod application {
    use super::{KnownObject, Uuid, class, uuid};
    known! {
        /// Every application of this module; rank 1, class Application.
        class class::APPLICATION, rank 1;
        REGISTRATION "cb40bed5-49ad-4443-a7f5-08c75009da8f" "Object registration",
        INFO "64a8bfa9-7772-45c4-9d1a-9e6290690957" "General object information",
        SPARKPLUG_ADDRESS "8e32801b-f35a-4cbf-a5c3-2af64d3debd7" "Sparkplug address information",
        CONFIG_SCHEMA "dbd8a535-52ba-4f6e-b4f8-9b71aefe09d3" "App config schema",
        SERVICE_CONFIG "5b47881c-b012-4040-945c-eacafca539b2" "Service setup",
        EDGE_CLUSTER "bdb13634-0b3d-4e38-a065-9d88c12ee78d" "Edge cluster configuration",
        EDGE_CLUSTER_SETUP "f6c67e6f-e48e-4f69-b4bb-bfbddcc2a517" "Edge cluster setup status",
        EDGE_CLUSTER_STATUS "747a62c9-1b66-4a2e-8dd9-0b70a91b6b75" "Edge cluster status",
        EDGE_CLUSTER_ENROLMENT "ddc8f8c4-4836-42b7-89b2-803e71533f27" "Edge cluster enrolment",
        EDGE_CLUSTER_IDENTITY "0e32053f-4c6a-4575-8668-0c5a0fb86528" "Edge cluster identity",
        EDGE_CLUSTER_ROLLOUT "6d1f5b0e-93c4-4c57-9d0a-5c2b7f1f8ea3" "Edge cluster rollout",
        CHART_ROLLOUT "5d0f9f64-2c3e-4f0e-9a0b-6f4f7b1f6c52" "Chart rollout",
        EDGE_CLUSTER_RECOVERY "0b8f3a5e-6a57-4f0c-8a35-2f6f1f6f7d21" "Edge cluster recovery",
        FLUX_TEMPLATE "72804a19-636b-4836-b62b-7ad1476f2b86" "Flux template",
        HELM_CHART_TEMPLATE "729fe070-5e67-4bc7-94b5-afd75cb42b03" "Helm chart template",
        K8S_TEMPLATE "88436128-09a3-4c9c-b7f4-b0e495137265" "K8s resource template",
        BOOTSTRAP_SCRIPT "a807d8fc-63ff-48bb-85c7-82b93beb606e" "Bootstrap script",
        EDGE_DEPLOYMENT "f2b9417a-ef7f-421f-b387-bb8183a48cdb" "Edge deployment",
        AGENT_CONFIG "aac6f843-cfee-4683-b121-6943bfdf9173" "Edge Agent config",
        GIT_CONFIG "38d62a93-b6b4-4f63-bad4-d433e3eaff29" "Git repository configuration",
        ATTESTATION_POLICY "b7d6770a-3902-4722-8891-ff56e695c64a" "Attestation policy",
        API_TOKEN "8940397a-6f43-4911-9883-1248400c5cce" "API token",
        ALERT_ACKNOWLEDGEMENTS "e13b8da8-636f-4a27-9cc5-20eb46ca8686" "Alert acknowledgements",
        EDGE_ACCOUNT "7ce9220e-754f-496b-901d-ced0156aa2af" "Edge account",
        SEALED_SECRET "2623eb6d-3f9d-47a1-b881-bc3093bc2e84" "Sealed secret",
    }

    /// Connection configuration; no entry of it is read here.
    pub const CONNECTION: Uuid = uuid!("fa8b429c-de3e-11ef-87fd-6382f0eac944");
    /// Driver definition; no entry of it is read here.
    pub const DRIVER: Uuid = uuid!("454e5bec-de4a-11ef-bfea-4bc400f636a5");
    /// Device information; no entry of it is read here.
    pub const DEVICE_INFORMATION: Uuid = uuid!("a98ffed5-c613-4e70-bfd3-efeee250ade5");
    /// Edge scout results; no entry of it is read here.
    pub const EDGE_SCOUT_RESULTS: Uuid = uuid!("f8c1b13b-ebaf-45c9-b712-9cd712695513");
    /// MQTT permission template; no entry of it is read here.
    pub const MQTT_PERMISSION: Uuid = uuid!("1266ddf1-156c-4266-9808-d6949418b185");
    /// Command escalation definition; no entry of it is read here.
    pub const COMMAND_ESCALATION: Uuid = uuid!("60e99f28-67fe-4344-a6ab-b1edb8b8e810");
    /// JSON schema of a Sparkplug schema; no entry of it is read here.
    pub const JSON_SCHEMA: Uuid = uuid!("b16e85fb-53c2-49f9-8d83-cdf6763304ba");
    /// Schema information; no entry of it is read here.
    pub const SCHEMA_INFORMATION: Uuid = uuid!("32093857-9d29-470e-a897-d2b56d5aa978");
    /// Files config; no entry of it is read here.
    pub const FILES_CONFIG: Uuid = uuid!("731cb924-71bb-49fa-8cb8-1584bd1ebad3");
}

/// Classes.
pub mod class {
    use super::{KnownObject, Uuid, uuid};

    macro_rules! classes {
        ($($name:ident $uuid:literal rank $rank:literal $(of $class:ident)? $(below $super:ident)?, $text:literal;)*) => {
            $(
                #[doc = $text]
                pub const $name: Uuid = uuid!($uuid);
            )*
            /// Every class of this module, each after the classes that it needs.
            pub const OBJECTS: &[KnownObject] = &[
                $(KnownObject {
                    uuid: $name,
                    name: $text,
                    class: [$($class,)? class_of_rank($rank)][0],
                    rank: $rank,
                    subclass_of: &[$($super)?],
                },)*
            ];
        };
    }

    /// The top class for objects of that rank; None above 3.
    #[must_use]
    pub const fn top(rank: u8) -> Option<Uuid> {
        match rank {
            0 => Some(INDIVIDUAL),
            1 => Some(R1_CLASS),
            2 => Some(R2_CLASS),
            3 => Some(R3_CLASS),
            _ => None,
        }
    }

    const fn class_of_rank(rank: u8) -> Uuid {
        match rank {
            0 => INDIVIDUAL,
            1 => R1_CLASS,
            2 => R2_CLASS,
            _ => R3_CLASS,
        }
    }

    classes! {
        R3_CLASS "52b80183-6998-4bf9-9b30-132755e7dede" rank 3, "R3Class";
        R2_CLASS "705888ce-53fa-434d-afee-274b331d4642" rank 3, "R2Class";
        R1_CLASS "04a1c90d-2295-4cbe-b33a-74eded62cbf1" rank 2, "R1Class";
        INDIVIDUAL "2494ae9b-cd87-4c01-98db-437a303b43e9" rank 1, "Individual";
        APPLICATION "d319bd87-f42b-4b66-be4f-f82ff48b93f0" rank 2, "Application";
        DEVICE "18773d6d-a70d-443a-b29a-3f1583195290" rank 1, "Device";
        SCHEMA "83ee28d4-023e-4c2c-ab86-12c24e86372c" rank 1, "Schema";
        SERVICE_FUNCTION "265d481f-87a7-4f93-8fc6-53fa64dc11bb" rank 1, "Service function";
        SPECIAL "ddb132e4-5cdd-49c8-b9b1-2f35879eab6d" rank 1, "Special UUID";
        EDGE_CLUSTER "f24d354d-abc1-4e32-98e1-0667b3e40b61" rank 1, "Edge cluster";
        EDGE_AGENT "00da3c0b-f62b-4761-a689-39ad0c33f864" rank 1, "Edge Agent";
        EDGE_SERVICE_ACCOUNT "97756c9a-38e6-4238-b78c-3df6f227a6c9" rank 1, "Edge service account";
        EDGE_GROUP "9ba0de4b-056f-4b5e-b966-2d5d85d07767" rank 2, "Edge group";
        EDGE_DEPLOYMENT "e6f6a6e6-f6b2-422a-bc86-2dcb417a362a" rank 1, "Edge deployment";
        SEALED_SECRET "194a26d6-5f64-4057-b482-e1f1cc1891e2" rank 1, "Sealed secrets";
        UNS_BRIDGE "178506d2-af52-4c79-8e5d-4958ae7ddfa9" rank 1 below EDGE_DEPLOYMENT, "UNS bridge";
        EDGE_CONNECTION "f371cbfc-de3e-11ef-b361-7b31622bc42f" rank 1, "Edge connection";
        EDGE_DRIVER "3874e06c-de4a-11ef-a68c-0f1c2d4d555c" rank 1, "Edge driver";
        HELM_CHART "f9be0334-0ff7-43d3-9d8a-188d3e4d472b" rank 1, "Helm chart";
        SYSTEM_HELM_CHART "a5c54a2e-8f7b-4b2a-9e8d-3f7c9e7d1c6a" rank 1, "System Helm chart";
        K8S_RESOURCE_KIND "487c20bc-d4d8-11f0-b591-7fa91b119c9d" rank 2, "K8s resource kind";
        KIND_GIT_REPOSITORY "03827afc-d4dc-11f0-9645-dfc5bcb16bc6" rank 1 of K8S_RESOURCE_KIND, "GitRepository";
        KIND_HELM_RELEASE "0c92f608-d4dc-11f0-b2a0-1bc42be2ebc8" rank 1 of K8S_RESOURCE_KIND, "HelmRelease";
        CLUSTERS_MANAGED_GROUP "979f7fd9-bbc7-4810-a774-6082c7394db6" rank 2, "Clusters-managed group";
        GIT_REPOSITORY "d25f2afc-1ab8-4d27-b51b-d02314624e3e" rank 1, "Git repository";
        GIT_REPOSITORY_GROUP "b03d4dfe-7e78-4252-8e62-af594cf316c9" rank 2, "Git repository group";
        EDGE_CLUSTER_REPOSITORIES "3a58340c-d4ec-453d-99c3-0cf6ab7d8fa9" rank 1, "Edge cluster repositories";
        API_TOKEN "632d4c88-5333-4bb3-9f40-a3c011992a32" rank 1, "API tokens";
        ALERT_TYPE "ddb853fc-262a-4a10-888a-816a961d37c5" rank 1, "Alert type";
        LINK_RELATION "2bce9142-6b5b-4a5e-8e2f-f8a8d51d6c15" rank 1, "Link relation";
        REPO_GROUP_SHARED "b57a9588-c674-5858-b4b3-6ec0d9894abc" rank 1 of GIT_REPOSITORY_GROUP, "Shared repositories";
        REPO_GROUP_CLUSTER "59a4967a-5cba-59c8-a807-5657d227d42b" rank 1 of GIT_REPOSITORY_GROUP, "Repositories of edge clusters";
    }
}

/// Service functions.
pub mod service {
    use super::{KnownObject, Uuid, class, uuid};
    known! {
        /// Every service function of this module; rank 0.
        class class::SERVICE_FUNCTION, rank 0;
        DIRECTORY "af4a1d66-e6f7-43c4-8a67-0fa3be2b1cf9" "Directory",
        CONFIGDB "af15f175-78a0-4e05-97c0-2a0bb82b9f3b" "ConfigDB",
        AUTH "cab2642a-f7d9-42e5-8845-8f35affe1fd4" "Auth",
        COMMAND_ESCALATION "78ea7071-24ac-4916-8351-aa3e549d8ccd" "Command escalation",
        MQTT "feb27ba3-bd2c-4916-9269-79a61ebc4a47" "MQTT",
        GIT "7adf4db0-2e7b-4a68-ab9d-376f4c5ce14b" "Git",
        CLUSTER_MANAGER "2706aa43-a826-441e-9cec-cd3d4ce623c2" "Cluster manager",
        MANAGER "619eecab-742d-4824-8b97-bcae472e5c04" "Manager",
        FILES "a2a6efc5-9793-4486-9fd9-7caf9e3b5451" "Files",
    }
}

/// Sparkplug schemas: what `Schema_UUID` metrics say.
pub mod schema {
    use super::{KnownObject, Uuid, class, uuid};
    known! {
        /// Every schema of this module; rank 0.
        class class::SCHEMA, rank 0;
        EDGE_MONITOR "e3ef732b-ee69-46f0-8d1d-8a9cec432d83" "Edge Monitor v1",
        EDGE_MONITOR_DEVICE "ab6c58b0-efe9-4e55-bde5-eaa4fd7c95b0" "Edge Monitor Device",
        LINK "b3c4b273-9528-45de-8842-9f77c9ef272a" "Link",
        ALERT "8853aa15-2228-4309-b98e-e086cefbc72c" "Alert",
        EDGE_AGENT "15360868-2f35-4b52-990b-49329fb246fe" "Edge Agent",
        SERVICE "05688a03-730e-4cda-9932-172e2c62e45c" "Service",
        DEVICE_INFORMATION "2dd093e9-1450-44c5-be8c-c0d78e48219b" "Device Information",
        GIT_SERVER "ee115c26-2ad6-4846-a771-da0cf6401399" "Git server",
        GIT_REPO "1bc8b1c1-e5e6-4777-814b-67bc58aaad62" "Git repo",
    }
}

/// Link relations.
pub mod link {
    use super::{KnownObject, Uuid, class, uuid};
    known! {
        /// Every link relation of this module; rank 0.
        class class::LINK_RELATION, rank 0;
        MONITORED_CLUSTER "422d47e0-8761-43da-abd4-4f2adaef0d4a" "Monitored cluster",
        MONITORED_NODE "ec916189-f4f9-4fc7-af7e-724cc216e9e9" "Monitored node",
    }
}

/// Alert types.
pub mod alert {
    use super::{KnownObject, Uuid, class, uuid};
    known! {
        /// Every alert type of this module; rank 0.
        class class::ALERT_TYPE, rank 0;
        NODE_OFFLINE "e6eff8b6-7b16-4827-9136-ac5202c0df59" "Monitor: node offline",
        NODE_WILL_NOT_RELOAD "bfa87a28-9788-45ab-922f-c4cb9eb9e742" "Monitor: node will not reload config",
        AGENT_CONNECTION "633a7da3-ea2a-4e3f-8e84-35691a07465f" "Edge Agent: connection problem",
        AGENT_CONFIG_INVALID "99c54cb2-2bb9-45c8-88f9-c1a0f792cfd6" "Edge Agent: config invalid",
        AGENT_CONFIG_UNAVAILABLE "c414c68b-5014-4e46-a0b4-d5f7f8df1d9f" "Edge Agent: config unavailable",
    }
}

/// Special UUIDs.
pub mod special {
    use super::{KnownObject, Uuid, class, uuid};

    /// Nothing, or anything: the wildcard target of a grant. Not an object.
    pub const NULL: Uuid = Uuid::nil();

    known! {
        /// Every special of this module; rank 0.
        class class::SPECIAL, rank 0;
        FACTORY_PLUS "11ad7b32-1d32-4c4a-b0c9-fa049208939a" "FactoryPlus: payload marker and namespace of derived UUIDs",
        SELF "5855a1cc-46d8-4b16-84f8-ab3916ecb230" "Self",
        MINE "724c0316-4cfd-11f0-b355-0b70840faae8" "Mine: owned objects",
        UNOWNED "091e796a-65c0-4080-adff-c3ce01a65b2e" "Unowned",
        V5_METRIC "8a4dc2f4-2f9f-45fc-b2e9-ed7b9cda6145" "V5Metric: derivation tag",
        V5_MONITOR "87f304b9-77c2-4dee-aaef-9652ed2d7741" "V5Monitor: derivation tag",
    }
}

/// The chart templates of [`crate::defaults`].
pub mod chart {
    use super::{Uuid, uuid};

    /// Chart of an edge cluster's own services; the default of `EdgeCluster.chart`.
    pub const CLUSTER: Uuid = uuid!("585aee52-838c-5d3c-aa46-ad9517487b54");
    /// Edge agent.
    pub const EDGE_AGENT: Uuid = uuid!("3e369413-c7c9-5304-8459-af006cdcf218");
}

/// Repositories of [`crate::defaults`].
pub mod repository {
    use super::{Uuid, uuid};

    /// The shared repository of charts, at path `shared/helm`.
    pub const HELM_CHARTS: Uuid = uuid!("40482587-01bf-543c-b814-07607c3682c6");
}

/// All well-known objects, each after the classes that it needs.
pub fn objects() -> impl Iterator<Item = &'static KnownObject> {
    [
        class::OBJECTS,
        application::OBJECTS,
        service::OBJECTS,
        schema::OBJECTS,
        link::OBJECTS,
        alert::OBJECTS,
        special::OBJECTS,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::address::v5;

    #[test]
    fn every_object_follows_its_class_and_obeys_the_rank_rule() {
        let mut seen: BTreeMap<Uuid, u8> = BTreeMap::new();
        for object in objects() {
            assert!(object.rank <= 3);
            assert_eq!(seen.insert(object.uuid, object.rank), None, "{} is listed twice", object.name);
        }
        for object in objects() {
            if object.uuid != class::R3_CLASS {
                let class_rank = if object.class == class::R3_CLASS { 4 } else { seen[&object.class] };
                assert_eq!(object.rank + 1, class_rank, "{}", object.name);
            }
            for superclass in object.subclass_of {
                assert_eq!(object.rank, seen[superclass], "{}", object.name);
            }
        }
    }

    #[test]
    fn classes_are_listed_after_the_classes_they_need() {
        let mut seen = vec![class::R3_CLASS];
        for object in objects() {
            assert!(seen.contains(&object.class), "{}", object.name);
            assert!(object.subclass_of.iter().all(|c| seen.contains(c)), "{}", object.name);
            seen.push(object.uuid);
        }
    }

    #[test]
    fn the_uuids_of_our_own_are_derived_from_their_names() {
        for (uuid, name) in [
            (chart::CLUSTER, "Chart:Cluster"),
            (chart::EDGE_AGENT, "Chart:EdgeAgent"),
            (repository::HELM_CHARTS, "Repository:Helm"),
            (class::REPO_GROUP_SHARED, "Repository group:Shared"),
            (class::REPO_GROUP_CLUSTER, "Repository group:Cluster"),
        ] {
            assert_eq!(uuid, v5(&["Sparkfleet", name]));
        }
    }
}
