//! How large messages and fields may be. A message is measured before anything else is done with it.

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// Bytes of a hello.
pub const HELLO_BYTES_MAX: usize = 20 * 1024;
/// Bytes of a challenge.
pub const CHALLENGE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of an evidence message: quote with event log, hello and challenge.
pub const EVIDENCE_BYTES_MAX: usize = 160 * 1024;
/// Bytes of a ticket message: the padded content of a control plane, key, certificates and signature.
pub const TICKET_BYTES_MAX: usize = 40 * 1024;
/// Bytes of a clear refusal.
pub const CLEAR_REFUSAL_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a progress message.
pub const PROGRESS_BYTES_MAX: usize = 1024;
/// Bytes of an acknowledgement: a quote without event log, and the sealed result of an init.
pub const ACKNOWLEDGEMENT_BYTES_MAX: usize = 80 * 1024;

/// Bytes of a request id and of a boot id.
pub const ID_BYTES: usize = 16;
/// Bytes of nonces, keys, hashes and message authentication codes.
pub const HASH_BYTES: usize = 32;
/// Bytes of an Ed25519 signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Bytes of a public attestation or endorsement key.
pub const PUBLIC_KEY_BYTES_MAX: usize = 1024;
/// Certificates of an endorsement key.
pub const ENDORSEMENT_CERTIFICATES_MAX: usize = 4;
/// Bytes of one of them.
pub const ENDORSEMENT_CERTIFICATE_BYTES_MAX: usize = 4 * 1024;
/// Suites and variants that a host may offer, each.
pub const OFFERS_MAX: usize = 8;
/// Bytes of the name of a variant.
pub const VARIANT_BYTES_MAX: usize = 32;
/// Bytes of a credential.
pub const CREDENTIAL_BYTES_MAX: usize = 2 * 1024;
/// Bytes of the public key of an issuer, of any suite.
pub const ISSUER_KEY_BYTES_MAX: usize = 2 * 1024;
/// Certificates from the issuer up to the root, the root left out.
pub const ISSUER_CERTIFICATES_MAX: usize = 3;
/// Bytes of one of them.
pub const ISSUER_CERTIFICATE_BYTES_MAX: usize = 512;

/// Bytes of an event log. Firmware reserves 64 KiB for it.
pub const EVENT_LOG_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a quote with its event log.
pub const QUOTE_BYTES_MAX: usize = 96 * 1024;
/// Bytes of the quote of an acknowledgement.
pub const SECOND_QUOTE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a certificate request.
pub const CERTIFICATE_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// Bytes of an SSH host key.
pub const SSH_HOST_KEY_BYTES_MAX: usize = 1024;
/// Names and addresses of an SSH host certificate.
pub const PRINCIPALS_MAX: usize = 16;
/// Bytes of a node name, a principal, a label or a taint.
pub const NAME_BYTES_MAX: usize = 253;
/// Bytes of the text for people in a refusal or a progress.
pub const DETAIL_BYTES_MAX: usize = 512;
/// Bytes of the result of an init.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// Signed values of PCRs that a second key of a disk is sealed to: with the rest they fit into a worker's ticket, and into the header of the disk.
pub const UNLOCK_VALUES_MAX: usize = 32;

/// To how many bytes the content of a worker's ticket or refusal is padded.
pub const WORKER_CONTENT_BYTES: usize = 8 * 1024;
/// To how many bytes the content of a control plane's ticket or refusal is padded.
pub const CONTROL_PLANE_CONTENT_BYTES: usize = 32 * 1024;

/// How long a challenge is good, ms.
pub const CHALLENGE_LIFETIME_MS: u64 = 60_000;
/// How much longer a host repeats its evidence after the challenge ended, ms: the ticket may have been lost.
pub const EVIDENCE_GRACE_MS: u64 = 60_000;
/// How long an attempt may take from its first hello until a ticket is opened, ms.
pub const ATTEMPT_LIFETIME_MS: u64 = 300_000;
