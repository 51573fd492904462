//! The terms that hello and challenge settle: kind of the request, role, suite, variant, ids. Numbers and names are those of the wire.

use std::fmt;

use uuid::Uuid;

use crate::limits::ID_BYTES;

macro_rules! numbered {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $name:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// From its number on the wire.
            #[must_use]
            pub const fn from_wire(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn to_wire(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)+
                }
            }

            /// Its name, in logs and metrics; stable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use numbered;

numbered! {
    /// What a host wants.
    Kind {
        /// Become a member.
        Join = 1, "join";
        /// Open the disk of a member again, after a reboot.
        Rejoin = 2, "rejoin";
        /// The same when no join service is left; the issuer is an administrator.
        Recover = 3, "recover";
        /// Become the first member; the issuer is an administrator.
        Init = 4, "init";
        /// Other certificates for a member that is locked to its cluster, and nothing else.
        Renew = 5, "renew";
    }
}

numbered! {
    /// What a host is in its cluster.
    Role {
        /// A worker.
        Worker = 1, "worker";
        /// A control plane.
        ControlPlane = 2, "control-plane";
    }
}

numbered! {
    /// How messages are sealed: HPKE (RFC 9180) with HKDF-SHA256 and AES-256-GCM.
    Suite {
        /// X-Wing (ML-KEM-768 and X25519): a recording of today stays closed for a quantum computer of tomorrow.
        XWing = 1, "x-wing";
        /// X25519 alone: messages are 1 KiB smaller.
        X25519 = 2, "x25519";
    }
}

numbered! {
    /// The form of keys, credential and quote. Its name, not its number, travels.
    Variant {
        /// A TPM 2.0 with endorsement key and restricted attestation key.
        Tpm2 = 1, "tpm2";
        /// A software stand-in that proves nothing about a machine; refused unless the policy names it.
        Simulated = 2, "simulated";
        /// The same as `tpm2`, and the quote of evidence comes with the event log of firmware.
        Tpm2EventLog = 3, "tpm2-event-log";
    }
}

impl Variant {
    /// From its name on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|variant| variant.name() == name)
    }

    /// What a host with keys of this form offers, the preferred first. The issuer chooses; one that does not know a name passes over it.
    #[must_use]
    pub const fn offers(self) -> &'static [Self] {
        match self {
            Self::Tpm2 | Self::Tpm2EventLog => &[Self::Tpm2EventLog, Self::Tpm2],
            Self::Simulated => &[Self::Simulated],
        }
    }
}

impl Kind {
    /// What the certificate of an issuer of this kind must say.
    #[must_use]
    pub const fn issuer_purpose(self) -> Purpose {
        match self {
            Self::Join | Self::Rejoin | Self::Renew => Purpose::JoinIssuer,
            Self::Recover | Self::Init => Purpose::ClusterAdmin,
        }
    }
}

numbered! {
    /// What the key of an issuer certificate may do.
    Purpose {
        /// Sign other certificates.
        Authority = 1, "authority";
        /// Answer to join, rejoin and renew.
        JoinIssuer = 2, "join-issuer";
        /// Answer to recover and init.
        ClusterAdmin = 3, "cluster-admin";
        /// Sign the attestation policy of the cluster.
        PolicySigner = 4, "policy-signer";
    }
}

/// Id of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub [u8; ID_BYTES]);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a host speaks: its group and Edge Node id. Every sealed message is bound to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Quarantine group, `ORG-<cluster>-Join`.
    pub group: String,
    /// Edge Node id: the UUID of the state disk, lower-case with hyphens.
    pub node: String,
}

impl Address {
    /// The address of the host with this state disk.
    #[must_use]
    pub fn of_disk(group: impl Into<String>, disk: Uuid) -> Self {
        Self { group: group.into(), node: disk.hyphenated().to_string() }
    }

    /// True if the Edge Node id is that of this state disk.
    #[must_use]
    pub fn is_of_disk(&self, disk: Uuid) -> bool {
        self.node == disk.hyphenated().to_string()
    }
}

/// The wall clock of a host, which may be wrong by years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostClock {
    /// Believed; UTC ms.
    Trusted(u64),
    /// Not set: what certificates say about time is skipped, their epoch is not.
    Unset,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_both_ways_and_nothing_else_is_taken() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_wire(kind.to_wire()), Some(*kind));
        }
        for variant in Variant::ALL {
            assert_eq!(Variant::from_name(variant.name()), Some(*variant));
        }
        assert_eq!((Kind::from_wire(0), Role::from_wire(3), Suite::from_wire(99)), (None, None, None));
        assert_eq!(
            Variant::Tpm2.offers(),
            [Variant::Tpm2EventLog, Variant::Tpm2],
            "with the log, where the issuer wants it"
        );
        assert_eq!(Variant::Simulated.offers(), [Variant::Simulated]);
        assert_eq!((Variant::from_name("TPM2"), Variant::from_name("dummy")), (None, None));
    }

    #[test]
    fn an_address_is_of_one_disk() {
        let address = Address::of_disk("ACME-Cell-Join", Uuid::from_u128(0xAB));
        assert_eq!(address.node, "00000000-0000-0000-0000-0000000000ab");
        assert!(address.is_of_disk(Uuid::from_u128(0xAB)) && !address.is_of_disk(Uuid::from_u128(0xAC)));
    }
}
