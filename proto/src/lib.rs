//! Protobuf messages that travel over the wire, as plain data. One module a schema, made by prost from the `.proto` file beside this package's manifest; no logic and no opinion about which
//! fields a message must have.
//!
//! Several messages of [`join`] and [`enrol`] hold secrets, therefore their `Debug` shows only their names.

#![warn(missing_docs)]

/// `Debug` that shows no field.
macro_rules! names_only {
    ($($message:ident),+ $(,)?) => {
        $(impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })+
    };
}

#[allow(clippy::pedantic, clippy::nursery, reason = "generated")]
pub mod sparkplug_b {
    //! Sparkplug B payloads (Sparkplug 3.0, 6.4).
    include!(concat!(env!("OUT_DIR"), "/sparkplug_b.rs"));
}

#[allow(clippy::pedantic, clippy::nursery, reason = "generated")]
pub mod join {
    //! The attested join protocol AJP/1. Sizes, meanings and what is hashed: `docs/join-protocol.md`.
    include!(concat!(env!("OUT_DIR"), "/sparkfleet.join.v1.rs"));
    names_only!(
        Hello,
        Challenge,
        ChallengeBody,
        Evidence,
        EvidenceContent,
        EvidenceBody,
        Ticket,
        TicketBody,
        TicketContent,
        Renewal,
        Grant,
        LocalUnlock,
        UnlockPcr,
        UnlockValue,
        Membership,
        Component,
        File,
        Refusal,
        ClearRefusal,
        ClearRefusalBody,
        Authenticated,
        Progress,
        Acknowledgement,
        IssuerCertificate,
        IssuerCertificateBody,
        SimulatedCredential,
        SimulatedQuote,
        SimulatedQuoteBody,
        SimulatedPcr
    );
}

#[allow(clippy::pedantic, clippy::nursery, reason = "generated")]
pub mod enrol {
    //! The enrolment of edge clusters. Sizes, meanings and what is hashed: `docs/enrolment.md`.
    include!(concat!(env!("OUT_DIR"), "/sparkfleet.enrol.v1.rs"));
    names_only!(Request, RequestBody, Renewal, Answer, AnswerBody, Grant, Refusal);
}

#[cfg(test)]
mod tests {
    #[test]
    fn debug_does_not_show_what_a_message_holds() {
        let grant = crate::join::Grant { disk_key: vec![7; 32], ..Default::default() };
        assert_eq!(format!("{grant:?}"), "Grant { .. }");
        let request = crate::enrol::RequestBody { token: "open sesame".to_owned(), ..Default::default() };
        assert_eq!(format!("{request:?}"), "RequestBody { .. }");
    }
}
