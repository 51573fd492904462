//! What a user of the simulated API may do: everything, but for what a test takes away. It is only said (SelfSubjectAccessReview, as `kubectl auth can-i` asks); requests themselves
//! are refused by [`super::rbac`] alone. Pure.

use serde_json::{Value, json};

/// Path of the reviews below `/apis`.
pub const REVIEWS: [&str; 3] = ["authorization.k8s.io", "v1", "selfsubjectaccessreviews"];

/// Something that a user may not do, in any namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Such as `create`.
    pub verb: String,
    /// Plural, such as `secrets`.
    pub resource: String,
}

/// What comes before a message in Kubernetes' protobuf encoding.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// Reads a review that is encoded as protobuf, which is how newer versions of kubectl ask. None: it is none.
pub fn from_protobuf(body: &[u8]) -> Option<Value> {
    // Unknown.raw, SelfSubjectAccessReview.spec, its resourceAttributes.
    let raw = field(body.strip_prefix(PROTOBUF_MAGIC)?, 2)?;
    let attributes = field(field(raw, 2)?, 1)?;
    let text = |number| String::from_utf8_lossy(field(attributes, number).unwrap_or_default()).into_owned();
    let attributes = json!({ "namespace": text(1), "verb": text(2), "group": text(3), "resource": text(5) });
    Some(json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": { "resourceAttributes": attributes }
    }))
}

/// The first field of that number in a message, if it is one of bytes.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = varint(&mut message)?;
        match key & 7 {
            0 => {}
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                if key >> 3 == number {
                    return Some(bytes);
                }
                message = rest;
            }
            _ => return None,
        }
    }
    None
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub fn review(request: &Value, denied: &[Denied]) -> Value {
    let attribute = |name: &str| request["spec"]["resourceAttributes"][name].as_str().unwrap_or_default();
    let (verb, resource) = (attribute("verb"), attribute("resource"));
    // Who asks for everything is asked about each single thing.
    let covers = |asked: &str, of: &str| asked == "*" || asked == of;
    let refused = denied.iter().any(|denied| covers(verb, &denied.verb) && covers(resource, &denied.resource));
    let mut answer = request.clone();
    answer["status"] = json!({ "allowed": !refused, "reason": if refused { "simulated: taken away" } else { "" } });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubectl_asks_in_protobuf_is_read() {
        // kubectl 1.32: auth can-i '*' '*' --all-namespaces
        let body = b"k8s\0\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x120\n\x10\n\0\x12\0\x1a\0\"\0*\x002\08\0B\0\x12\x12\n\x10\n\0\x12\x01*\x1a\0\"\0*\x01*2\0:\0\x1a\x08\x08\0\x12\0\x1a\0 \0\x1a\0\"\0";
        let attributes = json!({ "namespace": "", "verb": "*", "group": "", "resource": "*" });
        assert_eq!(from_protobuf(body).unwrap()["spec"]["resourceAttributes"], attributes);
        for end in 0..90 {
            // Cut off anywhere it is not a review, and no panic.
            assert!(from_protobuf(&body[..end]).is_none_or(|review| review["kind"].is_string()), "{end}");
        }
        assert_eq!(from_protobuf(b"{}"), None);
    }

    #[test]
    fn everything_is_allowed_but_what_is_taken_away() {
        let denied = [Denied { verb: "create".to_owned(), resource: "jobs".to_owned() }];
        for (verb, resource, allowed) in
            [("create", "jobs", false), ("get", "jobs", true), ("create", "secrets", true), ("*", "*", false)]
        {
            let request = json!({ "spec": { "resourceAttributes": { "verb": verb, "resource": resource } } });
            assert_eq!(review(&request, &denied)["status"]["allowed"], json!(allowed), "{verb} {resource}");
            assert_eq!(review(&request, &[])["status"]["allowed"], json!(true));
        }
    }
}
