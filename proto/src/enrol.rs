//! The enrolment of edge clusters: proto3, package `sparkfleet.enrol.v1`, schema in `enrol.proto` beside this package's manifest.
//!
//! Sizes, meanings and what is hashed: `docs/enrolment.md`. Several messages hold secrets, therefore their `Debug` tells only their names.

use std::fmt;

use prost::Message;

/// A cluster wants in. Only the manager can open it.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Request {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "2")]
    pub encapsulated_key: Vec<u8>,
    /// A sealed `RequestBody`.
    #[prost(bytes = "vec", tag = "3")]
    pub ciphertext: Vec<u8>,
}

/// What is sealed in a request.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct RequestBody {
    /// UUID of the cluster, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub cluster: Vec<u8>,
    /// The one-time token; absent in a renewal.
    #[prost(string, tag = "2")]
    pub token: String,
    /// The key that shall be certified: a point of P-256, uncompressed, 65 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub public_key: Vec<u8>,
    /// HPKE public key that the answer is sealed to.
    #[prost(bytes = "vec", tag = "4")]
    pub answer_key: Vec<u8>,
    /// 32 secret bytes that the answer is sealed with, too.
    #[prost(bytes = "vec", tag = "5")]
    pub answer_secret: Vec<u8>,
    /// By the key that shall be certified, ECDSA with SHA-256, 64 bytes.
    #[prost(bytes = "vec", tag = "6")]
    pub signature: Vec<u8>,
    /// In place of a token.
    #[prost(message, optional, tag = "7")]
    pub renewal: Option<Renewal>,
}

/// In place of a token: the certificate that the cluster has.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Renewal {
    /// Its serial number, 1 to 20 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub serial: Vec<u8>,
    /// Its key: a point of P-256, uncompressed, 65 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub public_key: Vec<u8>,
    /// By that key, ECDSA with SHA-256, 64 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub signature: Vec<u8>,
}

/// The manager's answer. Only who made the request can open it.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Answer {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Hash of the request.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "3")]
    pub encapsulated_key: Vec<u8>,
    /// A sealed `AnswerBody`.
    #[prost(bytes = "vec", tag = "4")]
    pub ciphertext: Vec<u8>,
}

/// What is sealed in an answer: a grant or a refusal.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct AnswerBody {
    /// The cluster is in.
    #[prost(message, optional, tag = "1")]
    pub grant: Option<Grant>,
    /// It is not.
    #[prost(message, optional, tag = "2")]
    pub refusal: Option<Refusal>,
}

/// The cluster is in.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Grant {
    /// Its certificate, DER.
    #[prost(bytes = "vec", tag = "1")]
    pub certificate: Vec<u8>,
    /// The authority's certificates, DER: the one that signed first.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub authorities: Vec<Vec<u8>>,
    /// User at the git server.
    #[prost(string, tag = "3")]
    pub git_username: String,
    /// Its password.
    #[prost(string, tag = "4")]
    pub git_password: String,
}

/// The cluster is not in.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Refusal {
    /// Why.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// For people.
    #[prost(string, tag = "2")]
    pub text: String,
}

macro_rules! names_only {
    ($($message:ident)+) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })+
    };
}
names_only!(Request RequestBody Renewal Answer AnswerBody Grant Refusal);
