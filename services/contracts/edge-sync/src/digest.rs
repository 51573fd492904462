//! Canonical JSON and the SHA-256 digests made of it: how two sides agree on "the same manifests" without comparing them.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// JSON without white space, the keys of every object sorted by their UTF-8 bytes.
///
/// Strings and numbers are printed as `serde_json` prints them: minimal escapes, integers in decimal, other numbers in the
/// shortest form that reads back as the same number. `1` and `1.0` are different.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
            text.push('{');
            for (i, (key, member)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// A SHA-256 digest of canonical JSON; on the wire 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be the 64 lower-case hex digits of a SHA-256 digest")]
pub struct DigestError;

impl Digest {
    /// Digest of the canonical form of `value`.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        Self(Sha256::digest(canonical_json(value).as_bytes()).into())
    }

    /// Digest of the manifests of one deployment, in their order.
    #[must_use]
    pub fn of_manifests(manifests: &[Value]) -> Self {
        // The same text as for `Value::Array`, without copying the manifests.
        let mut text = String::from("[");
        for (i, manifest) in manifests.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            write_canonical(manifest, &mut text);
        }
        text.push(']');
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| DigestError)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_json_is_sorted_at_every_level_and_without_white_space() {
        let value: Value =
            serde_json::from_str(r#" { "b" : [ 1 , {"z":null, "a":true} ], "a\"" : "é\n", "B": 1.0 } "#).unwrap();
        assert_eq!(canonical_json(&value), r#"{"B":1.0,"a\"":"é\n","b":[1,{"a":true,"z":null}]}"#);
    }

    #[test]
    fn a_digest_is_the_one_that_sha256sum_prints() {
        // printf '{"a":1}' | sha256sum
        let known = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(Digest::of(&json!({"a": 1})).to_string(), known);
        assert_eq!(known.parse::<Digest>().unwrap(), Digest::of(&json!({"a": 1})));
    }

    #[test]
    fn manifests_have_the_digest_of_their_array() {
        let manifests = [json!({"kind": "A", "apiVersion": "v1"}), json!([]), json!(1.5)];
        assert_eq!(Digest::of_manifests(&manifests), Digest::of(&Value::Array(manifests.to_vec())));
        assert_eq!(Digest::of_manifests(&[]), Digest::of(&json!([])));
    }

    #[test]
    fn a_digest_survives_the_trip_as_text_whatever_the_numbers() {
        for bits in [
            0x3FB9_9999_9999_999A_u64,
            0x0010_0000_0000_0001,
            0x7FEF_FFFF_FFFF_FFFF,
            0x4415_AF1D_78B5_8C41,
            0x8000_0000_0000_0000,
        ] {
            let value = json!({"n": f64::from_bits(bits), "u": u64::MAX, "i": i64::MIN});
            let read: Value = serde_json::from_str(&value.to_string()).unwrap();
            assert_eq!(Digest::of(&read), Digest::of(&value), "{value}");
        }
    }

    #[test]
    fn only_64_lower_case_hex_digits_are_a_digest() {
        let known = Digest::of(&json!(null)).to_string();
        for text in [known.to_uppercase(), known[1..].to_owned(), format!("{known}0"), "x".repeat(64), String::new()] {
            assert_eq!(text.parse::<Digest>(), Err(DigestError), "{text}");
        }
    }
}
