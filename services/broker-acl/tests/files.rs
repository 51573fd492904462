//! The files for each server: each says the whole table and nothing else. They are read back here as their server would read them, and compared with the grants.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use broker_acl::filter::covers;
use broker_acl::{Action, Broker, Site, allows, configuration, grants, grants_of_host};
use configdb_schema::address::{ClusterName, Organisation};
use sparkplug::HostId;

type Rule = (String, Action, String, Vec<String>);

fn site() -> Site {
    let clusters = ["Paint", "Weld"].map(|name| ClusterName::new(name).unwrap());
    Site::new(Organisation::new("ACME").unwrap(), clusters, [HostId::new("sparkfleet-cli").unwrap()], []).unwrap()
}

fn table() -> BTreeSet<Rule> {
    let site = site();
    let rules_of = |principal| {
        let user = site.user(&principal);
        grants(&site, &principal).into_iter().map(move |grant| (user.clone(), grant.action, grant.filter, grant.except))
    };
    site.principals().into_iter().flat_map(rules_of).collect()
}

/// The table for a server whose rules cannot refuse.
fn table_without_exceptions() -> BTreeSet<Rule> {
    table().into_iter().map(|(user, action, filter, _)| (user, action, filter, Vec::new())).collect()
}

fn file(broker: Broker, name: &str) -> String {
    configuration(broker, &site()).into_iter().find(|file| file.name == name).unwrap().text
}

/// The lines of an access list below `user`, and those that begin with `pattern`.
fn access_list(broker: Broker) -> (BTreeSet<Rule>, Vec<(String, String)>) {
    let mut user = None;
    let (mut rules, mut patterns) = (BTreeSet::new(), Vec::new());
    for line in file(broker, "sparkfleet.acl").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut rule =
            |action, filter: &str| rules.insert((user.clone().unwrap(), action, filter.to_owned(), Vec::new()));
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["user", name] => user = Some(name.to_owned()),
            ["topic", "write", filter] => drop(rule(Action::Publish, filter)),
            ["topic", "read", filter] => drop(rule(Action::Subscribe, filter)),
            ["pattern", verb, filter] => patterns.push((verb.to_owned(), filter.to_owned())),
            _ => panic!("{line}"),
        }
    }
    (rules, patterns)
}

#[test]
fn the_access_list_of_vernemq_is_the_table_but_for_exceptions() {
    assert_eq!(access_list(Broker::VerneMq), (table_without_exceptions(), Vec::new()));
}

/// Read as Mosquitto does: what a user may first, then the patterns in their order.
#[test]
fn the_access_list_of_mosquitto_is_the_table() {
    let (site, (rules, patterns)) = (site(), access_list(Broker::Mosquitto));
    let listed: BTreeSet<Rule> = table().into_iter().filter(|(_, _, _, except)| except.is_empty()).collect();
    assert_eq!(rules, listed);
    let may = |user: &str, topic: &str| {
        let mut own = rules.iter().filter(|rule| rule.0 == user && rule.1 == Action::Publish);
        own.any(|rule| covers(&rule.2, topic)) || {
            let fits = |pattern: &&(String, String)| covers(&pattern.1.replace("%u", user), topic);
            patterns.iter().find(fits).is_some_and(|(verb, _)| verb == "write")
        }
    };
    let users: Vec<String> = site.principals().iter().map(|principal| site.user(principal)).collect();
    let mut written = 0;
    for (user, group) in users.iter().flat_map(|user| users.iter().map(move |group| (user, group))) {
        for node in ["Sync", "Join", "Monitor", "Press"] {
            for topic in [format!("spBv1.0/{group}/NCMD/{node}"), format!("spBv1.0/{group}/DCMD/{node}/x")] {
                let allowed = allows(&site, user, Action::Publish, &topic);
                assert_eq!(may(user, &topic), allowed, "{user} {topic}");
                written += usize::from(allowed);
            }
        }
    }
    assert!(written > 50, "{written}");
}

/// What is refused of a permission, in the order of the table.
fn with_exceptions(refused: &BTreeSet<String>, topic: &str, action: Action) -> Vec<String> {
    let of = |node: &&str| {
        let out = topic.replacen('+', node, 1);
        (action == Action::Publish && refused.contains(&out)).then_some(out)
    };
    ["Sync", "Join", "Monitor"].iter().filter_map(of).collect()
}

#[test]
fn dynamic_security_has_a_client_and_a_role_for_each_user_and_refuses_by_default() {
    let text = file(Broker::MosquittoDynamicSecurity, "sparkfleet-dynamic-security.json");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    for access in ["publishClientSend", "publishClientReceive", "subscribe"] {
        assert_eq!(document["defaultACLAccess"][access], false, "{access}");
    }
    let mut rules = BTreeSet::new();
    for role in document["roles"].as_array().unwrap() {
        let name = role["rolename"].as_str().unwrap();
        let client = document["clients"].as_array().unwrap().iter().find(|client| client["username"] == name).unwrap();
        assert_eq!(client["roles"][0]["rolename"], name);
        let topics = |kind: &str, allow: bool| {
            let acls = role["acls"].as_array().unwrap().iter();
            acls.filter(|acl| acl["acltype"] == kind && acl["allow"] == allow)
                .inspect(|acl| assert_eq!(acl["priority"], i32::from(!allow), "a refusal is looked at first"))
                .map(|acl| acl["topic"].as_str().unwrap().to_owned())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(topics("subscribePattern", true), topics("publishClientReceive", true), "{name}");
        let refused = topics("publishClientSend", false);
        assert!(topics("subscribePattern", false).is_empty() && topics("publishClientReceive", false).is_empty());
        for (action, kind) in [(Action::Publish, "publishClientSend"), (Action::Subscribe, "subscribePattern")] {
            let rule = |topic: String| {
                let except = with_exceptions(&refused, &topic, action);
                (name.to_owned(), action, topic, except)
            };
            rules.extend(topics(kind, true).into_iter().map(rule));
        }
    }
    assert_eq!(rules, table());
}

#[test]
fn emqx_reads_the_table_and_then_refuses() {
    let text = file(Broker::Emqx, "sparkfleet-acl.conf");
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('%')).rev();
    assert_eq!(lines.next(), Some("{deny, all}."));
    let mut refused = BTreeSet::new();
    let rule = |line: &str| -> Option<Rule> {
        if let Some(inner) = line.strip_prefix("{deny, {username, \"") {
            let (_, topic) = inner.strip_suffix("\"]}.").unwrap().split_once("\"}, publish, [\"").unwrap();
            refused.insert(topic.to_owned());
            return None;
        }
        let inner = line.strip_prefix("{allow, {username, \"").unwrap().strip_suffix("\"]}.").unwrap();
        let (user, rest) = inner.split_once("\"}, ").unwrap();
        let (verb, topic) = rest.split_once(", [\"").unwrap();
        let action = if verb == "publish" { Action::Publish } else { Action::Subscribe };
        assert!(["publish", "subscribe"].contains(&verb), "{line}");
        let except = with_exceptions(&refused, topic, action);
        Some((user.to_owned(), action, topic.to_owned(), except))
    };
    // From top to bottom: a refusal stands before what it is an exception of.
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.into_iter().rev().filter_map(rule).collect::<BTreeSet<_>>(), table());
    assert!(file(Broker::Emqx, "sparkfleet-listener.conf").contains("no_match = deny"));
}

#[test]
fn hivemq_has_the_table_as_roles_and_no_user_until_the_site_adds_some() {
    let text = file(Broker::HiveMq, "credentials.xml");
    let mut rules = BTreeSet::new();
    for role in text.split("<role>").skip(1) {
        let between = |text: &str, open: &str, close: &str| {
            text.split_once(open)
                .and_then(|(_, rest)| rest.split_once(close))
                .map(|(inner, _)| inner.to_owned())
                .unwrap()
        };
        let user = between(role, "<id>", "</id>");
        for permission in role.split("<permission>").skip(1) {
            let action = match between(permission, "<activity>", "</activity>").as_str() {
                "PUBLISH" => Action::Publish,
                "SUBSCRIBE" => Action::Subscribe,
                other => panic!("{other}"),
            };
            rules.insert((user.clone(), action, between(permission, "<topic>", "</topic>"), Vec::new()));
        }
    }
    assert_eq!(rules, table_without_exceptions());
    let users = text.split_once("<users>").unwrap().1.split_once("</users>").unwrap().0;
    assert!(users.trim().is_empty(), "no password is invented");
}

/// In the words of each server, with what stands for the user's name; and no one has the name that hosts shared.
#[test]
fn hosts_with_credentials_of_their_own_have_one_rule_in_every_file() {
    let own = site().with_own_hosts();
    let rules = |placeholder: &str, line: &dyn Fn(&str, &str) -> String| {
        let grants = grants_of_host(&own, placeholder);
        assert_eq!(grants.len(), 10);
        let lines = grants
            .iter()
            .map(|grant| line(if grant.action == Action::Publish { "write" } else { "read" }, &grant.filter));
        lines.collect::<Vec<_>>()
    };
    let pattern = |verb: &str, filter: &str| format!("\npattern {verb} {filter}\n");
    let regex = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
    let emqx = |verb: &str, filter: &str| {
        let verb = if verb == "write" { "publish" } else { "subscribe" };
        format!("{{allow, {{username, {{re, \"{regex}\"}}}}, {verb}, [\"{filter}\"]}}.\n")
    };
    let hivemq = |verb: &str, filter: &str| {
        let activity = if verb == "write" { "PUBLISH" } else { "SUBSCRIBE" };
        format!("<topic>{filter}</topic><activity>{activity}</activity>")
    };
    for (broker, name, lines) in [
        (Broker::Mosquitto, "sparkfleet.acl", rules("%u", &pattern)),
        (Broker::VerneMq, "sparkfleet.acl", rules("%u", &pattern)),
        (Broker::Emqx, "sparkfleet-acl.conf", rules("${username}", &emqx)),
        (Broker::HiveMq, "credentials.xml", rules("${{username}}", &hivemq)),
        (
            Broker::MosquittoDynamicSecurity,
            "sparkfleet-dynamic-security.json",
            rules("%u", &|_, filter| format!("\"{filter}\"")),
        ),
    ] {
        let files = configuration(broker, &own);
        let text = &files.iter().find(|file| file.name == name).unwrap().text;
        let shared = file(broker, name);
        for line in lines {
            assert!(text.contains(&line), "{broker:?}: {line}");
            assert!(!shared.contains(&line), "{broker:?}: {line}");
        }
        assert!(
            shared.contains("spBv1.0/ACME-Paint-Join/NBIRTH/+") && !text.contains("spBv1.0/ACME-Paint-Join/NBIRTH/+")
        );
    }
}

#[test]
fn every_server_gets_limits() {
    let has = |broker, name: &str, wanted: &[&str]| {
        let text = file(broker, name);
        for line in wanted {
            assert!(text.contains(line), "{name}: {line}");
        }
    };
    let mosquitto = [
        "\nmax_connections 10000\n",
        "\nmax_packet_size 1048576\n",
        "\nmessage_size_limit 1048576\n",
        "\nmax_queued_messages 100000\n",
        "\nmax_queued_bytes 33554432\n",
        "\npersistent_client_expiration 1h\n",
        "\nmemory_limit 1073741824\n",
    ];
    has(Broker::Mosquitto, "sparkfleet.conf", &mosquitto);
    has(Broker::MosquittoDynamicSecurity, "sparkfleet.conf", &mosquitto);
    let emqx = ["sparkfleet.max_connections = 10000", "max_packet_size = 1048576B", "max_heap_size = 33554432B"];
    has(Broker::Emqx, "sparkfleet-listener.conf", &emqx);
    has(Broker::VerneMq, "sparkfleet.conf", &["max_message_size = 1048576", "sparkfleet.max_connections = 10000"]);
    let hivemq = ["<max-connections>10000<", "<max-packet-size>1048576<", "<max-interval>3600<"];
    has(Broker::HiveMq, "sparkfleet-limits.xml", &hivemq);
    // The file that is shipped says the same.
    let shipped = include_str!("../../../compose/mosquitto.conf");
    assert!(shipped.ends_with(&broker_acl::broker::mosquitto::limits()), "{shipped}");
}

#[test]
fn every_listener_asks_for_a_certificate_and_takes_its_name() {
    for (broker, name, lines) in [
        (Broker::Mosquitto, "sparkfleet.conf", ["require_certificate true", "use_identity_as_username true"]),
        (
            Broker::MosquittoDynamicSecurity,
            "sparkfleet.conf",
            ["require_certificate true", "use_identity_as_username true"],
        ),
        (Broker::Emqx, "sparkfleet-listener.conf", ["fail_if_no_peer_cert = true", "peer_cert_as_username = cn"]),
        (
            Broker::Emqx,
            "sparkfleet-listener.conf",
            ["mqtt.clientid_override = \"concat([username, '-', clientid])\"", "no_match = deny"],
        ),
        (Broker::VerneMq, "sparkfleet.conf", ["require_certificate = on", "use_identity_as_username = on"]),
    ] {
        let text = file(broker, name);
        assert!(lines.iter().all(|line| text.contains(line)), "{broker:?}");
    }
}
