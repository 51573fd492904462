//! How a service keeps principals in a Kerberos KDC: the `[kerberos]` table of its configuration, names of principals, and a client of the administration server made of them.
//! Knows neither whose principals they are nor where keys are kept.
//!
//! The client runs the programs of MIT Kerberos (`kadmin`, `kinit`), so nothing of libkrb5 is linked. A call that hangs is killed. An error of the library cannot take the
//! service with it. Passwords go in by standard input. Keys come out by a file of mode 0600 in a directory of the service's own. Neither is in an argument, an error or a log.
#![warn(missing_docs, unreachable_pub)]

mod answer;
mod encryption;
mod kdc;
mod principal;
mod program;

use std::path::PathBuf;

use service_runtime::config::{ConfigTable as _, RangeError};
use service_runtime::config_table;

pub use encryption::{EncryptionType, EncryptionTypeError};
pub use kdc::{Kdc, KeyInfo, Presence, check_password};
pub use principal::{Principal, PrincipalError};

config_table! {
    /// The KDC, and the principal that administers it.
    pub struct KerberosConfig {
        /// Principal that administers those of the cluster, such as op1krbkeys/Paint@ACME.EXAMPLE.
        admin_principal: String;
        /// Keytab of kerberos.admin_principal.
        keytab_file: PathBuf;
        /// Configuration of the Kerberos library; absent: the system's.
        krb5_conf: Option<PathBuf>;
        /// Longest time that one call of the KDC may take.
        timeout_s: u64 = 30, in 1..=600;
    }
}

/// What is wrong with a [`KerberosConfig`]. Messages name the key within the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KerberosConfigError {
    /// `admin_principal`
    #[error("admin_principal: {0}")]
    AdminPrincipal(PrincipalError),
    /// `keytab_file`
    #[error("keytab_file is missing; it must be the keytab of admin_principal")]
    KeytabFile,
    /// A number that is out of range.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl KerberosConfig {
    /// Checks every key; does not look at files.
    ///
    /// # Errors
    /// The first key at fault.
    pub fn validate(&self) -> Result<Principal, KerberosConfigError> {
        let admin = self.admin_principal.parse().map_err(KerberosConfigError::AdminPrincipal)?;
        if self.keytab_file.as_os_str().is_empty() {
            return Err(KerberosConfigError::KeytabFile);
        }
        self.check_ranges()?;
        Ok(admin)
    }
}

/// A call of the KDC failed. Messages hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KdcError {
    /// It was not reached, or did not answer in time: says nothing about any key.
    #[error("the KDC is not reachable: {0}")]
    Unreachable(String),
    /// It answered, and did not do it.
    #[error("the KDC refused: {0}")]
    Refused(String),
    /// The programs cannot read such a password.
    #[error("the password {0}")]
    Password(&'static str),
    /// A program or a file on this machine.
    #[error("{0}")]
    Local(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_key() {
        let good = KerberosConfig {
            admin_principal: "op1krbkeys/Paint@ACME.EXAMPLE".to_owned(),
            keytab_file: "client.keytab".into(),
            ..KerberosConfig::default()
        };
        assert_eq!(good.validate().unwrap().to_string(), good.admin_principal);
        let table = [
            (KerberosConfig { admin_principal: "op1krbkeys".to_owned(), ..good.clone() }, "admin_principal: "),
            (KerberosConfig { keytab_file: PathBuf::new(), ..good.clone() }, "keytab_file is missing"),
            (KerberosConfig { timeout_s: 0, ..good.clone() }, "timeout_s is 0"),
        ];
        for (config, part) in table {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
