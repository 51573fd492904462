//! What a KerberosKey or LocalSecret resource asks for: raw fields in, a validated [`Spec`] or a named problem out.

use std::fmt;
use std::str::FromStr;

use kerberos_client::{Principal, PrincipalError};
use krb_keys_contract::{AccountError, AccountRequest};
use serde::{Deserialize, Serialize};

use crate::account::{ACES_IGNORED, AccountFields};

/// Principals of one resource, with the first.
const PRINCIPALS_MAX: usize = 64;
/// Characters of the name of a Secret.
const SECRET_CHARACTERS_MAX: usize = 253;

/// The two kinds of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A key in the KDC, and mostly in a Secret.
    KerberosKey,
    /// A random value in a Secret; no KDC knows it.
    LocalSecret,
}

/// A resource of the own namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId {
    pub kind: Kind,
    pub name: String,
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

/// One key of one Secret of the own namespace, written `secret/key`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretKey {
    /// Name of the Secret.
    pub secret: String,
    /// Key in its data.
    pub key: String,
}

impl FromStr for SecretKey {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (secret, key) = name_and_key("secret", text)?;
        Ok(Self { secret, key })
    }
}

/// Reads `name/key` of the field.
fn name_and_key(field: &'static str, text: &str) -> Result<(String, String), SpecError> {
    let broken = || SpecError::Place { field, text: text.chars().take(SECRET_CHARACTERS_MAX).collect() };
    let (name, key) = text.split_once('/').ok_or_else(broken)?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let within = |part: &str| (1..=SECRET_CHARACTERS_MAX).contains(&part.len());
    if !within(name) || !within(key) || !name.chars().all(is_name) || !key.chars().all(is_key) {
        return Err(broken());
    }
    Ok((name.to_owned(), key.to_owned()))
}

/// One key of one ConfigMap of the own namespace, written `name/key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    pub config_map: String,
    /// Key in its data.
    pub key: String,
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.secret, self.key)
    }
}

impl TryFrom<String> for SecretKey {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<SecretKey> for String {
    fn from(key: SecretKey) -> Self {
        key.to_string()
    }
}

/// What kind of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// A keytab with random keys.
    Random,
    Password,
    /// The password that is in the Secret, by any author.
    PresetPassword,
    /// The key of a trust between realms, made here.
    Trust,
    /// The key of a trust between realms that is in the Secret, by any author.
    PresetTrust,
    /// The principals get no tickets.
    Disabled,
    /// A random value that no KDC knows.
    Local,
}

impl KeyType {
    /// Whether the content of the Secret counts, by any author.
    #[must_use]
    pub const fn is_preset(self) -> bool {
        matches!(self, Self::PresetPassword | Self::PresetTrust)
    }

    /// Whether it is the key of a trust between realms.
    #[must_use]
    pub const fn is_trust(self) -> bool {
        matches!(self, Self::Trust | Self::PresetTrust)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// What kind of key.
    pub key_type: KeyType,
    /// Its principals; none for [`KeyType::Local`].
    pub principals: Vec<Principal>,
    /// Where it is kept. None: nowhere, the principals only exist.
    pub secret: Option<SecretKey>,
    /// The place of the certificate that the key is sealed for. None: it is not sealed.
    pub seal_with: Option<ConfigMapKey>,
    /// The keys before the newest stay in the keytab for a while.
    pub keep_old_keys: bool,
    /// The account of the first principal.
    pub account: Option<Box<AccountRequest>>,
    /// What of the resource is not acted on, for people.
    pub remark: Option<&'static str>,
}

/// `spec` of a KerberosKey, as it is in the resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KerberosKeyFields {
    /// `type`
    pub key_type: String,
    /// `principal`
    pub principal: String,
    /// `additionalPrincipals`
    pub additional_principals: Vec<String>,
    /// `keepOldKeys`
    pub keep_old_keys: bool,
    /// `secret`
    pub secret: Option<String>,
    /// `sealWith`
    pub seal_with: Option<String>,
    /// There is a `cluster`.
    pub has_cluster: bool,
    /// `account`
    pub account: Option<AccountFields>,
}

/// The rule that a resource breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not the form of the kind.
    #[error("the resource is not readable: {reason}")]
    Unreadable { reason: String },
    /// `type`
    #[error("spec.type {key_type:?} is none of Random, Password, PresetPassword, Trust, PresetTrust and Disabled")]
    Type { key_type: String },
    /// `principal`, `additionalPrincipals`
    #[error("spec.{field}: {rule}")]
    Principal { field: &'static str, rule: PrincipalError },
    /// `secret`, `sealWith`, or the parts of one.
    #[error(
        "spec.{field} {text:?} must have the form name/key: a-z, 0-9, `.` and `-` before the `/`, letters, digits, `.`, `_` and `-` after it"
    )]
    Place { field: &'static str, text: String },
    /// `account`
    #[error("spec.account.{0}")]
    Account(#[from] AccountError),
    /// A field that another one needs.
    #[error("spec.{field} {rule}")]
    Field { field: &'static str, rule: &'static str },
}

impl KerberosKeyFields {
    /// Checks the resource.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn validate(&self) -> Result<Spec, SpecError> {
        let broken = |field, rule| Err(SpecError::Field { field, rule });
        let key_type = match self.key_type.as_str() {
            "Random" => KeyType::Random,
            "Password" => KeyType::Password,
            "PresetPassword" => KeyType::PresetPassword,
            "Disabled" => KeyType::Disabled,
            "Trust" => KeyType::Trust,
            "PresetTrust" => KeyType::PresetTrust,
            _ => return Err(SpecError::Type { key_type: self.key_type.chars().take(64).collect() }),
        };
        if self.has_cluster {
            return broken(
                "cluster",
                "is not supported: put the resource into that cluster, whose own krb-keys makes the key there",
            );
        }
        if self.seal_with.is_some() && self.secret.is_none() {
            return broken("sealWith", "needs secret, which says where the sealed key goes");
        }
        if self.seal_with.is_some() && key_type.is_preset() {
            return broken("sealWith", "needs a type whose key is made here: Random, Password or Trust");
        }
        if self.seal_with.is_some() && self.keep_old_keys {
            return broken("keepOldKeys", "excludes sealWith: what is sealed cannot be read, so nothing of it is kept");
        }
        let may_be_many = matches!(key_type, KeyType::Random | KeyType::Disabled);
        if !may_be_many && !self.additional_principals.is_empty() {
            return broken("additionalPrincipals", "needs the type Random or Disabled");
        }
        if !may_be_many && self.keep_old_keys {
            return broken("keepOldKeys", "needs the type Random or Disabled");
        }
        if key_type == KeyType::PresetPassword && self.secret.is_none() {
            return broken("secret", "is missing; with the type PresetPassword it says where the password stands");
        }
        if key_type.is_trust() && self.secret.is_none() {
            return broken("secret", "is missing; with a type of trust it says where the key for both realms stands");
        }
        if self.account.is_some() && !self.additional_principals.is_empty() {
            return broken("account", "excludes additionalPrincipals: it is the account of one principal");
        }
        if self.additional_principals.len() >= PRINCIPALS_MAX {
            return broken("additionalPrincipals", "has more than 63 items");
        }
        let first: Principal =
            self.principal.parse().map_err(|rule| SpecError::Principal { field: "principal", rule })?;
        let account = self.account.as_ref().map(|account| account.validate(&first)).transpose()?.map(Box::new);
        let remark = self.account.as_ref().filter(|account| account.has_aces).map(|_| ACES_IGNORED);
        let mut principals = vec![first];
        for name in &self.additional_principals {
            let rule = |rule| SpecError::Principal { field: "additionalPrincipals", rule };
            let principal = name.parse().map_err(rule)?;
            if !principals.contains(&principal) {
                principals.push(principal);
            }
        }
        if key_type.is_trust() && !principals.iter().all(Principal::is_trust) {
            return broken("principal", "must be krbtgt/OTHER.REALM@REALM with a type of trust");
        }
        if !key_type.is_trust() && key_type != KeyType::Disabled && principals.iter().any(Principal::is_trust) {
            return broken("principal", "is a trust between realms; it needs the type Trust, PresetTrust or Disabled");
        }
        let secret = self.secret.as_deref().map(str::parse).transpose()?;
        let seal_with = self.seal_with.as_deref().map(|text| name_and_key("sealWith", text)).transpose()?;
        let seal_with = seal_with.map(|(config_map, key)| ConfigMapKey { config_map, key });
        Ok(Spec { key_type, principals, secret, seal_with, keep_old_keys: self.keep_old_keys, account, remark })
    }
}

/// Checks a LocalSecret: `secret`, `key` and `format`, as they are in it.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate_local(secret: &str, key: &str, format: &str) -> Result<Spec, SpecError> {
    if format != "Password" {
        return Err(SpecError::Field { field: "format", rule: "must be Password, the only format there is" });
    }
    let secret = format!("{secret}/{key}").parse()?;
    let (principals, secret) = (Vec::new(), Some(secret));
    let key_type = KeyType::Local;
    Ok(Spec { key_type, principals, secret, seal_with: None, keep_old_keys: false, account: None, remark: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(key_type: &str) -> KerberosKeyFields {
        KerberosKeyFields {
            key_type: key_type.to_owned(),
            principal: "nd1/Paint/Robot@ACME.EXAMPLE".to_owned(),
            secret: Some("edge-agent-secrets.robot/keytab".to_owned()),
            ..KerberosKeyFields::default()
        }
    }

    fn sealed(key_type: &str, with: &str) -> KerberosKeyFields {
        KerberosKeyFields { seal_with: Some(with.to_owned()), ..fields(key_type) }
    }

    fn trust(key_type: &str) -> KerberosKeyFields {
        KerberosKeyFields { principal: "krbtgt/B.EXAMPLE@ACME.EXAMPLE".to_owned(), ..fields(key_type) }
    }

    #[test]
    fn the_supported_types_are_read() {
        for (name, key_type) in [
            ("Random", KeyType::Random),
            ("Password", KeyType::Password),
            ("PresetPassword", KeyType::PresetPassword),
            ("Disabled", KeyType::Disabled),
        ] {
            let spec = fields(name).validate().unwrap();
            assert_eq!(spec.key_type, key_type);
            assert_eq!(spec.secret.unwrap().to_string(), "edge-agent-secrets.robot/keytab");
        }
        let many = ["a/Paint@A".to_owned(), "a/Paint@A".to_owned(), "b/Paint@A".to_owned()];
        let many = KerberosKeyFields { additional_principals: many.into(), keep_old_keys: true, ..fields("Random") };
        assert_eq!(many.validate().unwrap().principals.len(), 3, "each once");
        for (name, key_type) in
            [("Trust", KeyType::Trust), ("PresetTrust", KeyType::PresetTrust), ("Disabled", KeyType::Disabled)]
        {
            assert_eq!(trust(name).validate().unwrap().key_type, key_type);
        }
        let with = sealed("Password", "seal.edge/cert.pem").validate().unwrap().seal_with.unwrap();
        assert_eq!((with.config_map.as_str(), with.key.as_str()), ("seal.edge", "cert.pem"));
        assert!(validate_local("a", "b", "Password").unwrap().secret.is_some());
    }

    #[test]
    fn an_account_is_that_of_the_principal_and_its_aces_are_only_remarked() {
        let account =
            AccountFields { class: Some(uuid::Uuid::nil().to_string()), has_aces: true, ..AccountFields::default() };
        let spec = KerberosKeyFields { account: Some(account), ..fields("Random") }.validate().unwrap();
        assert_eq!(spec.account.unwrap().principal, "nd1/Paint/Robot@ACME.EXAMPLE");
        assert_eq!(spec.remark, Some(ACES_IGNORED));
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_field() {
        let many = vec!["a@A".to_owned()];
        let table = [
            (fields("Trust"), "spec.principal must be krbtgt/"),
            (fields("PresetTrust"), "spec.principal must be krbtgt/"),
            (KerberosKeyFields { secret: None, ..trust("Trust") }, "spec.secret is missing"),
            (KerberosKeyFields { secret: None, ..trust("PresetTrust") }, "spec.secret is missing"),
            (KerberosKeyFields { keep_old_keys: true, ..trust("Trust") }, "spec.keepOldKeys needs"),
            (trust("Random"), "spec.principal is a trust"),
            (trust("PresetPassword"), "spec.principal is a trust"),
            (KerberosKeyFields { principal: "krbtgt/A@A".to_owned(), ..trust("Trust") }, "belongs to the KDC itself"),
            (
                KerberosKeyFields { additional_principals: many.clone(), ..trust("PresetTrust") },
                "spec.additionalPrincipals needs",
            ),
            (fields("random"), "spec.type \"random\" is none of"),
            (KerberosKeyFields { secret: None, ..sealed("Random", "seal/cert.pem") }, "spec.sealWith needs secret"),
            (sealed("PresetPassword", "seal/cert.pem"), "spec.sealWith needs a type"),
            (sealed("Random", "seal"), "spec.sealWith \"seal\" must have the form name/key"),
            (
                KerberosKeyFields { keep_old_keys: true, ..sealed("Random", "seal/cert.pem") },
                "spec.keepOldKeys excludes sealWith",
            ),
            (KerberosKeyFields { has_cluster: true, ..fields("Random") }, "spec.cluster is not supported"),
            (
                KerberosKeyFields { additional_principals: many, ..fields("Password") },
                "spec.additionalPrincipals needs",
            ),
            (KerberosKeyFields { keep_old_keys: true, ..fields("Password") }, "spec.keepOldKeys needs"),
            (KerberosKeyFields { secret: None, ..fields("PresetPassword") }, "spec.secret is missing"),
            (
                KerberosKeyFields { account: Some(AccountFields::default()), ..fields("Random") },
                "spec.account.uuid is missing",
            ),
            (
                KerberosKeyFields {
                    account: Some(AccountFields::default()),
                    additional_principals: vec!["b/Paint@A".to_owned()],
                    ..fields("Random")
                },
                "spec.account excludes additionalPrincipals",
            ),
            (KerberosKeyFields { principal: "-x".to_owned(), ..fields("Random") }, "spec.principal: "),
            (
                KerberosKeyFields { secret: Some("Upper/key".to_owned()), ..fields("Random") },
                "spec.secret \"Upper/key\"",
            ),
            (KerberosKeyFields { secret: Some("a".to_owned()), ..fields("Random") }, "spec.secret \"a\""),
        ];
        for (fields, part) in table {
            let error = fields.validate().unwrap_err().to_string();
            assert!(error.contains(part), "{error} should say {part}");
        }
        assert!(validate_local("a", "b", "Hex").is_err());
        assert!(validate_local("a", "b/c", "Password").is_err());
    }
}
