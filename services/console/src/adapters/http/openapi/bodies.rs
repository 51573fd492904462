//! The bodies of actions, field by field.

use serde_json::{Map, Value, json};

/// What a field is, and whether it can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Uuid,
    Number,
    Truth,
    Texts,
    Uuids,
    Object,
    Any,
    OneOf(&'static [&'static str]),
}

/// Name, kind, whether it is needed, and what it is.
type Field = (&'static str, Kind, bool, &'static str);

const NEEDED: bool = true;
const CLUSTER: Field = ("cluster", Kind::Uuid, NEEDED, "the cluster");
const DEPLOYMENT: Field = ("deployment", Kind::Uuid, NEEDED, "the deployment");
const NAMESPACE: Field = ("namespace", Kind::Text, !NEEDED, "of the Secret; fplus-edge by default");
const TEMPLATE: Field = ("template", Kind::Uuid, NEEDED, "the chart template");
const NOTE: Field = ("note", Kind::Text, !NEEDED, "why");
const OBJECT: Field = ("object", Kind::Uuid, NEEDED, "the object");
const APPLICATION: Field = ("application", Kind::Text, NEEDED, "its slug, such as EdgeCluster");

/// The fields of each action, in the order of the documentation.
const BODIES: [(&str, &[Field]); 24] = [
    (
        "cluster.create",
        &[
            ("name", Kind::Text, NEEDED, "of the cluster"),
            ("namespace", Kind::Text, !NEEDED, "of its services; fplus-edge by default"),
            ("bare", Kind::Truth, !NEEDED, "its Kubernetes has no Flux yet"),
        ],
    ),
    ("cluster.delete", &[CLUSTER, ("with_deployments", Kind::Truth, !NEEDED, "its deployments are deleted, too")]),
    (
        "cluster.bootstrap",
        &[
            CLUSTER,
            (
                "expires_s",
                Kind::Number,
                !NEEDED,
                "seconds that the command can be used, 60 to 2592000; 3600 by default",
            ),
        ],
    ),
    ("cluster.wave", &[CLUSTER, ("wave", Kind::Number, NEEDED, "1 to 9")]),
    ("cluster.reconcile", &[CLUSTER]),
    (
        "deployment.create",
        &[
            CLUSTER,
            ("name", Kind::Text, NEEDED, "unique in the cluster"),
            ("chart", Kind::Text, NEEDED, "name or UUID of a chart template"),
            ("host", Kind::Text, !NEEDED, "where it runs; floating without"),
            ("values", Kind::Object, !NEEDED, "Helm values"),
        ],
    ),
    ("deployment.move", &[DEPLOYMENT, ("host", Kind::Text, !NEEDED, "null: floating")]),
    ("deployment.suspend", &[DEPLOYMENT, ("withdraw", Kind::Truth, !NEEDED, "it is resumed")]),
    ("deployment.reconcile", &[DEPLOYMENT]),
    ("deployment.delete", &[DEPLOYMENT]),
    (
        "host.move",
        &[CLUSTER, ("host", Kind::Text, NEEDED, "name of the host"), ("to", Kind::Text, !NEEDED, "null: floating")],
    ),
    (
        "secret.put",
        &[
            CLUSTER,
            NAMESPACE,
            ("name", Kind::Text, NEEDED, "of the Secret"),
            ("key", Kind::Text, NEEDED, "in the Secret"),
            ("sealed", Kind::Text, NEEDED, "the sealed value: base64, as kubeseal --raw prints it"),
            ("fingerprint", Kind::Text, !NEEDED, "SHA-256 of the certificate that it is sealed for"),
            (
                "scope",
                Kind::OneOf(&["strict", "namespace-wide", "cluster-wide"]),
                !NEEDED,
                "what it is bound to; strict by default",
            ),
            ("type", Kind::Text, !NEEDED, "of the Secret; Opaque by default"),
        ],
    ),
    (
        "secret.delete",
        &[
            CLUSTER,
            NAMESPACE,
            ("name", Kind::Text, NEEDED, "of the Secret"),
            ("keys", Kind::Texts, NEEDED, "with the last key the Secret goes"),
        ],
    ),
    (
        "token.create",
        &[
            ("name", Kind::Text, NEEDED, "unique in the organisation"),
            ("scope", Kind::OneOf(&["viewer", "operator", "administrator"]), NEEDED, "what its holder may do"),
            ("clusters", Kind::Uuids, !NEEDED, "that it is for; all without"),
            ("expires_s", Kind::Number, !NEEDED, "seconds that it lives; 90 days by default"),
        ],
    ),
    ("token.revoke", &[("name", Kind::Text, NEEDED, "of the token")]),
    ("rollout.hold", &[TEMPLATE, NOTE, ("withdraw", Kind::Truth, !NEEDED, "it is resumed")]),
    (
        "rollout.free",
        &[TEMPLATE, CLUSTER, NOTE, ("withdraw", Kind::Truth, !NEEDED, "later waves wait for the cluster again")],
    ),
    (
        "alert.acknowledge",
        &[
            ("alert", Kind::Text, NEEDED, "its key in table alerts"),
            NOTE,
            ("silence_s", Kind::Number, !NEEDED, "seconds for which it is silenced, 1 to 2592000"),
            ("withdraw", Kind::Truth, !NEEDED, "no user looks after it any more"),
        ],
    ),
    ("node.rebirth", &[("node", Kind::Text, NEEDED, "GROUP/NODE")]),
    (
        "metric.write",
        &[
            ("node", Kind::Text, NEEDED, "GROUP/NODE, of no service of this fleet"),
            ("device", Kind::Text, !NEEDED, "without it a metric of the node itself"),
            ("metric", Kind::Text, NEEDED, "its name"),
            ("value", Kind::Text, NEEDED, "as text; it is read by the datatype that the birth gives"),
        ],
    ),
    (
        "object.create",
        &[
            ("name", Kind::Text, NEEDED, "in its Info entry"),
            ("class", Kind::Uuid, NEEDED, "that it belongs to"),
            ("object", Kind::Uuid, !NEEDED, "its UUID; without it one is made of the key"),
        ],
    ),
    (
        "object.history",
        &[
            OBJECT,
            ("application", Kind::Text, !NEEDED, "only of this one"),
            ("since", Kind::Number, !NEEDED, "from this revision on"),
        ],
    ),
    (
        "entry.put",
        &[
            OBJECT,
            APPLICATION,
            ("value", Kind::Any, NEEDED, "the entry"),
            ("etag", Kind::Uuid, !NEEDED, "of the entry that it replaces; null: there is none yet"),
        ],
    ),
    ("entry.delete", &[OBJECT, APPLICATION, ("etag", Kind::Uuid, NEEDED, "of the entry")]),
];

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Uuid => json!({ "type": "string", "format": "uuid" }),
            Self::Number => json!({ "type": "integer", "minimum": 0 }),
            Self::Truth => json!({ "type": "boolean", "default": false }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Uuids => json!({ "type": "array", "items": { "type": "string", "format": "uuid" } }),
            Self::Object => json!({ "type": "object" }),
            Self::Any => json!({}),
            Self::OneOf(words) => json!({ "enum": words }),
        }
    }
}

/// The schema of each action's body, by the action's name.
pub(super) fn schemas() -> Map<String, Value> {
    BODIES.iter().map(|(name, fields)| ((*name).to_owned(), schema(name, fields))).collect()
}

fn schema(name: &str, fields: &[Field]) -> Value {
    let property = |(name, kind, _, description): &Field| {
        let mut schema = kind.schema();
        schema["description"] = json!(description);
        ((*name).to_owned(), schema)
    };
    let properties: Map<String, Value> = fields.iter().map(property).collect();
    let required: Vec<&str> = fields.iter().filter(|(_, _, is_needed, _)| *is_needed).map(|(name, ..)| *name).collect();
    json!({ "type": "object", "title": name, "additionalProperties": false, "required": required, "properties": properties })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::action::{ACTIONS, Action};

    fn example(kind: Kind) -> Value {
        match kind {
            Kind::Text | Kind::Any => json!("a"),
            Kind::Uuid => json!("00000000-0000-4000-8000-00000000000a"),
            Kind::Number => json!(1),
            Kind::Truth => json!(true),
            Kind::Texts => json!(["a"]),
            Kind::Uuids => json!([]),
            Kind::Object => json!({}),
            Kind::OneOf(words) => json!(words[0]),
        }
    }

    fn body(fields: &[Field]) -> Map<String, Value> {
        fields.iter().map(|(name, kind, ..)| ((*name).to_owned(), example(*kind))).collect()
    }

    fn parse(name: &str, body: &Map<String, Value>) -> Result<Action, String> {
        Action::parse(name, &serde_json::to_vec(body).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_action_has_exactly_the_fields_that_it_is_read_from() {
        let names = BODIES.map(|(name, _)| name);
        assert_eq!(names.to_vec(), ACTIONS.map(|(name, _)| name).to_vec());
        for (name, fields) in BODIES {
            parse(name, &body(fields)).unwrap_or_else(|error| panic!("{name}: {error}"));
            // The refusal of a field that there is not names all that there are.
            let error = parse(name, &[("?".to_owned(), Value::Null)].into_iter().collect()).unwrap_err();
            let known: BTreeSet<&str> = error.split('`').skip(3).step_by(2).collect();
            assert_eq!(known, fields.iter().map(|(field, ..)| *field).collect(), "{name}: {error}");
        }
    }

    #[test]
    fn a_field_that_is_needed_cannot_be_left_out_and_every_other_one_can() {
        for (name, fields) in BODIES {
            for (field, _, is_needed, _) in fields {
                let mut body = body(fields);
                body.remove(*field);
                assert_eq!(parse(name, &body).is_err(), *is_needed, "{name}: {field}");
            }
        }
    }

    #[test]
    fn a_choice_has_the_words_that_are_taken() {
        for (name, fields) in BODIES {
            for (field, kind, ..) in fields {
                let Kind::OneOf(words) = kind else { continue };
                for word in *words {
                    let mut body = body(fields);
                    body.insert((*field).to_owned(), json!(word));
                    parse(name, &body).unwrap_or_else(|error| panic!("{name}: {field}: {error}"));
                }
            }
        }
    }
}
