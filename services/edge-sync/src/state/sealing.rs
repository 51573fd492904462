//! The certificate with which secrets for this cluster are sealed: when it is fetched, and whether it is one.

use std::time::Duration;

use sparkplug::backoff::Backoff;

use crate::event::Effect;

/// A certificate of RSA 4096 has some 2 KiB.
const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificate, kept when a later fetch fails.
#[derive(Debug)]
pub struct Sealing {
    refresh: Duration,
    retry: Backoff,
    fetch_at: Option<Duration>,
    certificate: Option<String>,
    error: Option<String>,
}

impl Sealing {
    /// To be fetched at once and then each `refresh`; never if there is no controller.
    pub fn new(enabled: bool, refresh: Duration, retry: Backoff) -> Self {
        let fetch_at = enabled.then_some(Duration::ZERO);
        Self { refresh, retry, fetch_at, certificate: None, error: None }
    }

    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Why the last fetch failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes the answer of a fetch.
    pub fn on_answer(&mut self, answer: Result<String, String>, now: Duration) {
        match answer.and_then(|text| checked(&text)) {
            Ok(certificate) => {
                self.certificate = Some(certificate);
                self.error = None;
                self.retry.reset();
                self.fetch_at = Some(now + self.refresh);
            }
            Err(error) => {
                self.error = Some(error);
                self.fetch_at = Some(now + self.retry.next_delay());
            }
        }
    }

    /// Fetches, if it is time.
    pub fn next_effect(&mut self, now: Duration) -> Option<Effect> {
        self.fetch_at.filter(|at| *at <= now)?;
        self.fetch_at = None;
        Some(Effect::FetchCertificate)
    }

    /// When [`Sealing::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.fetch_at
    }
}

/// PEM text of one or more certificates, without white space around it. Whether a certificate is trustworthy is for its users.
fn checked(text: &str) -> Result<String, String> {
    let problem = |rule: &str| Err(format!("the sealed secrets controller gave no certificate: {rule}"));
    let text = text.trim();
    if text.len() > CERTIFICATE_BYTES_MAX {
        return problem("the answer has more than 64 KiB");
    }
    let mut rest = text;
    if rest.is_empty() {
        return problem("the answer is empty");
    }
    while !rest.is_empty() {
        let Some((body, after)) = rest.strip_prefix(BEGIN).and_then(|rest| rest.split_once(END)) else {
            return problem("the answer is not PEM of the type CERTIFICATE");
        };
        let body: String = body.split_ascii_whitespace().collect();
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        // DER of a certificate begins with a SEQUENCE of a long length, which base64 writes as "MI".
        let is_der =
            body.starts_with("MI") && body.len().is_multiple_of(4) && body.trim_end_matches('=').chars().all(is_base64);
        if !is_der {
            return problem("the body between BEGIN and END is not the base64 of a certificate");
        }
        rest = after.trim_start();
    }
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(body: &str) -> String {
        format!("{BEGIN}\n{body}\n{END}\n")
    }

    #[test]
    fn pem_of_certificates_is_taken_and_anything_else_is_refused() {
        assert_eq!(checked(&format!("\n {}", pem("MIIB\nAbc="))), Ok(pem("MIIB\nAbc=")));
        assert!(checked(&(pem("MIIB") + &pem("MIIC"))).is_ok());
        let key = pem("MIIB").replace("CERTIFICATE", "PRIVATE KEY");
        for text in
            ["", "<html>", &pem(""), &pem("MIIB?AAA"), &pem("MIIBA"), &key, &(pem("MIIB") + "x"), &"x".repeat(70_000)]
        {
            let error = checked(text).unwrap_err();
            assert!(error.starts_with("the sealed secrets controller gave no certificate"), "{error}");
        }
    }

    #[test]
    fn it_is_fetched_at_once_refreshed_and_kept_while_a_fetch_fails() {
        let minute = Duration::from_secs(60);
        let mut sealing = Sealing::new(true, 60 * minute, Backoff::new((Duration::from_secs(5), 60 * minute), 1));
        assert_eq!(sealing.next_effect(Duration::ZERO), Some(Effect::FetchCertificate));
        assert_eq!((sealing.next_effect(minute), sealing.next_deadline()), (None, None), "one fetch at a time");
        sealing.on_answer(Ok(pem("MIIB")), minute);
        assert_eq!(sealing.next_deadline(), Some(61 * minute));
        assert_eq!(sealing.next_effect(61 * minute), Some(Effect::FetchCertificate));
        sealing.on_answer(Err("503".to_owned()), 61 * minute);
        assert_eq!((sealing.certificate(), sealing.error()), (Some(&*pem("MIIB")), Some("503")));
        let mut wait = Duration::ZERO;
        for _ in 0..20 {
            let at = sealing.next_deadline().unwrap();
            assert!(sealing.next_effect(at).is_some());
            sealing.on_answer(Err("503".to_owned()), at);
            wait = sealing.next_deadline().unwrap() - at;
        }
        assert!(wait >= 30 * minute && wait <= 60 * minute, "{wait:?}");
    }

    #[test]
    fn without_a_controller_nothing_is_fetched() {
        let mut sealing = Sealing::new(false, Duration::ZERO, Backoff::new((Duration::ZERO, Duration::ZERO), 1));
        assert_eq!((sealing.next_effect(Duration::MAX), sealing.next_deadline()), (None, None));
    }
}
