//! Who asks: holders of tokens, and sessions that began with one. A session is as good as its token: it ends when that is revoked or over. One of a user whom an identity provider vouched for ends by its age alone.

use std::collections::BTreeMap;
use std::time::Duration;

use access::Principal;
use access::rate::{Limiter, Rate};
use access::token::Tokens;
use cluster_manager_contract::api_token::TokenHash;
use configdb_contract::{Change, ConfigReplica};
use configdb_schema::Document as _;
use configdb_schema::document::ApiToken;
use sparkplug::Now;
use uuid::Uuid;

use crate::question::{Credential, Refusal, SessionHash};

/// A session that is not used ends after this.
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// And in any case after this.
pub const AGE_MAX: Duration = Duration::from_secs(12 * 3600);

/// Sessions at the same time, some 100 bytes each; the one that was used longest ago goes first.
const SESSIONS_MAX: usize = 1_000;

/// Wrong tokens of one address that are looked into and recorded.
const WRONG: Rate = Rate { per_minute: 10, burst: 10 };

/// Actions of one user.
const ACTIONS: Rate = Rate { per_minute: 120, burst: 60 };

/// Addresses, and users, whose rate is remembered.
const REMEMBERED_MAX: usize = 16_384;

/// Who has a session.
#[derive(Debug)]
enum Holder {
    /// The holder of this token, as long as it counts.
    Token(TokenHash),
    /// A user whom the identity provider has vouched for.
    Person(Principal),
}

#[derive(Debug)]
struct Session {
    holder: Holder,
    began: Duration,
    used: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Users {
    tokens: Tokens,
    sessions: BTreeMap<SessionHash, Session>,
    wrong: Limiter<String>,
    acting: Limiter<String>,
}

impl Users {
    /// No user is known yet.
    pub const fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            sessions: BTreeMap::new(),
            wrong: Limiter::new(WRONG, REMEMBERED_MAX),
            acting: Limiter::new(ACTIONS, REMEMBERED_MAX),
        }
    }

    /// Takes over what changed in ConfigDB.
    pub fn on_change(&mut self, change: &Change, config: &ConfigReplica) {
        match change {
            Change::Entry { object, slug, new, .. } if **slug == *ApiToken::slug() => {
                self.set(*object, new.as_ref().map(|entry| &*entry.json));
            }
            // What was known of another store, or from before, is not accepted any more.
            Change::BecameComplete { .. } => {
                self.tokens = Tokens::default();
                for (object, entry) in config.entries(ApiToken::slug()) {
                    self.set(object, Some(&entry.json));
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, object: Uuid, json: Option<&str>) {
        if let Err(reason) = self.tokens.set(object, json) {
            tracing::warn!(object = %object, reason, "an ApiToken entry cannot be read; its token is not accepted");
        }
    }

    /// Who shows this.
    ///
    /// # Errors
    /// An unknown caller, or too many wrong tokens came from that address.
    pub fn principal(&mut self, credential: Credential, from: &str, now: Now) -> Result<Principal, Refusal> {
        match credential {
            Credential::None => {
                let reason = "sign in, or show a token: Authorization: Bearer ...";
                Err(Refusal::Unauthenticated(reason.to_owned()))
            }
            Credential::Token(hash) => match self.tokens.authenticate(&hash, now.wall) {
                Ok(principal) => Ok(principal.clone()),
                Err(error) => {
                    self.wrong.take(from.to_owned(), now.mono)?;
                    Err(Refusal::Unauthenticated(error.to_string()))
                }
            },
            Credential::Session(hash) => {
                let over = || Refusal::Unauthenticated("the session has ended; sign in again".to_owned());
                let session = self.sessions.get_mut(&hash).ok_or_else(over)?;
                let is_alive = now.mono < session.used + IDLE_MAX && now.mono < session.began + AGE_MAX;
                let known = match &session.holder {
                    Holder::Token(token) => self.tokens.authenticate(token, now.wall).ok(),
                    Holder::Person(principal) => Some(principal),
                };
                match known.filter(|_| is_alive) {
                    Some(principal) => {
                        session.used = now.mono;
                        Ok(principal.clone())
                    }
                    None => {
                        self.sessions.remove(&hash);
                        Err(over())
                    }
                }
            }
        }
    }

    /// Whether a user shows a session that began at the identity provider.
    #[must_use]
    pub fn is_person(&self, credential: Credential) -> bool {
        let Credential::Session(hash) = credential else { return false };
        self.sessions.get(&hash).is_some_and(|session| matches!(session.holder, Holder::Person(_)))
    }

    /// Begins a session of the holder of a token that was found good.
    pub fn begin(&mut self, session: SessionHash, token: TokenHash, now: Now) {
        self.begin_of(session, Holder::Token(token), now);
    }

    /// Begins a session of a user whom the identity provider vouches for.
    pub fn begin_as(&mut self, session: SessionHash, principal: Principal, now: Now) {
        self.begin_of(session, Holder::Person(principal), now);
    }

    fn begin_of(&mut self, session: SessionHash, holder: Holder, now: Now) {
        self.sessions.retain(|_, known| now.mono < known.used + IDLE_MAX && now.mono < known.began + AGE_MAX);
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, known)| known.used).map(|(hash, _)| *hash);
            oldest.map(|hash| self.sessions.remove(&hash));
        }
        self.sessions.insert(session, Session { holder, began: now.mono, used: now.mono });
    }

    /// Ends a session.
    pub fn end(&mut self, session: SessionHash) {
        self.sessions.remove(&session);
    }

    /// Counts an action of a user.
    ///
    /// # Errors
    /// It is one too many.
    pub fn count_action(&mut self, name: &str, now: Now) -> Result<(), Refusal> {
        Ok(self.acting.take(name.to_owned(), now.mono)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_manager_contract::api_token::{RANDOM_BYTES, text};
    use serde_json::json;
    use service_runtime::config::ExposeSecret as _;

    const OBJECT: Uuid = Uuid::from_u128(1);

    fn at(s: u64) -> Now {
        Now::new(Duration::from_secs(s), 1_000_000_000_000 + s * 1_000)
    }

    fn hash(seed: u8) -> TokenHash {
        TokenHash::of(text(&[seed; RANDOM_BYTES]).expose_secret()).unwrap()
    }

    fn users() -> Users {
        let mut tokens = Tokens::default();
        let entry = json!({ "name": "ada", "hash": hash(1).to_hex(), "scope": "operator",
            "issued": "2001-01-01T00:00:00Z", "expires": "2001-09-10T00:00:00Z", "by": "x" });
        tokens.set(OBJECT, Some(&entry.to_string())).unwrap();
        Users::new(tokens)
    }

    fn is_in(users: &mut Users, session: SessionHash, s: u64) -> bool {
        users.principal(Credential::Session(session), "a", at(s)).is_ok()
    }

    #[test]
    fn a_session_ends_when_it_rests_when_it_is_old_and_with_its_token() {
        let (mut users, session) = (users(), SessionHash::of("s"));
        assert!(!is_in(&mut users, session, 1));
        users.begin(session, hash(1), at(1));
        for minutes in (0..12 * 60).step_by(29) {
            assert!(is_in(&mut users, session, 1 + minutes * 60), "{minutes}");
        }
        assert!(!is_in(&mut users, session, 12 * 3600 + 1), "12 hours are over");
        users.begin(session, hash(1), at(1));
        assert!(!is_in(&mut users, session, 30 * 60 + 1), "it has rested");
        users.begin(session, hash(1), at(1));
        users.tokens.set(OBJECT, None).unwrap();
        assert!(!is_in(&mut users, session, 2), "its token is revoked");
        users.end(session);
        let ben = Principal { name: "oidc:ben".to_owned(), grants: Vec::new() };
        users.begin_as(session, ben, at(1));
        assert!(is_in(&mut users, session, 2), "no token is behind it");
        assert!(!is_in(&mut users, session, 2 + 30 * 60), "it rests like any other");
    }

    #[test]
    fn of_a_hundred_wrong_tokens_ten_are_looked_into_and_a_good_one_is_taken_all_the_same() {
        let mut users = users();
        let wrong = |users: &mut Users| users.principal(Credential::Token(hash(9)), "192.0.2.1", at(1)).unwrap_err();
        let all: Vec<Refusal> = (0..100).map(|_| wrong(&mut users)).collect();
        let unknown = all.iter().filter(|refusal| matches!(refusal, Refusal::Unauthenticated(_))).count();
        assert_eq!(unknown, 10);
        assert!(matches!(all[99], Refusal::TooOften(_)));
        assert_eq!(users.principal(Credential::Token(hash(1)), "192.0.2.1", at(1)).unwrap().name, "token:ada");
        let other = users.principal(Credential::Token(hash(9)), "192.0.2.2", at(1)).unwrap_err();
        assert!(matches!(other, Refusal::Unauthenticated(_)));
    }

    #[test]
    fn sessions_are_bounded_and_the_one_that_rests_longest_goes() {
        let mut users = users();
        let session = |n: u64| SessionHash::of(&n.to_string());
        for n in 0..=SESSIONS_MAX as u64 {
            users.begin(session(n), hash(1), at(1 + n / 100));
        }
        assert_eq!(users.sessions.len(), SESSIONS_MAX);
        assert!(is_in(&mut users, session(SESSIONS_MAX as u64), 20));
    }
}
