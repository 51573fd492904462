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

use crate::api::{ApiError, Credential, SessionHash};
use crate::kept::{KeptHolder, KeptSession};

/// A session that is not used ends after this.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// And in any case after this.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(12 * 3600);

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
    /// When it began in this process, and its age then.
    began: (Duration, Duration),
    /// When it was used last in this process, and how long it had rested then.
    used: (Duration, Duration),
}

impl Session {
    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began.0) + self.began.1
    }

    fn rest(&self, now: Duration) -> Duration {
        now.saturating_sub(self.used.0) + self.used.1
    }

    fn is_alive(&self, now: Duration) -> bool {
        self.rest(now) < IDLE_MAX && self.age(now) < AGE_MAX
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Users {
    tokens: Tokens,
    sessions: BTreeMap<SessionHash, Session>,
    /// Something of the sessions is to be kept at once; false: only when they were used.
    is_changed: bool,
    is_used: bool,
    wrong: Limiter<String>,
    acting: Limiter<String>,
}

impl Users {
    /// No user is known yet.
    pub(super) const fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            sessions: BTreeMap::new(),
            is_changed: false,
            is_used: false,
            wrong: Limiter::new(WRONG, REMEMBERED_MAX),
            acting: Limiter::new(ACTIONS, REMEMBERED_MAX),
        }
    }

    /// Takes over what changed in ConfigDB.
    pub(super) fn on_change(&mut self, change: &Change, config: &ConfigReplica) {
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

    /// Who shows this. `is_use`: a session is used by it; who only continues to look does not use it, and may do so until its age ends it.
    ///
    /// # Errors
    /// An unknown caller, or too many wrong tokens came from that address.
    pub(super) fn principal(
        &mut self,
        credential: Credential,
        from: &str,
        is_use: bool,
        now: Now,
    ) -> Result<Principal, ApiError> {
        match credential {
            Credential::None => {
                let reason = "sign in, or show a token: Authorization: Bearer ...";
                Err(ApiError::Unauthenticated(reason.to_owned()))
            }
            Credential::Token(hash) => match self.tokens.authenticate(&hash, now.wall) {
                Ok(principal) => Ok(principal.clone()),
                Err(error) => {
                    self.wrong.take(from.to_owned(), now.mono)?;
                    Err(ApiError::Unauthenticated(error.to_string()))
                }
            },
            Credential::Session(hash) => {
                let over = || ApiError::Unauthenticated("the session has ended; sign in again".to_owned());
                let session = self.sessions.get_mut(&hash).ok_or_else(over)?;
                let is_alive = if is_use { session.is_alive(now.mono) } else { session.age(now.mono) < AGE_MAX };
                let known = match &session.holder {
                    Holder::Token(token) => self.tokens.authenticate(token, now.wall).ok(),
                    Holder::Person(principal) => Some(principal),
                };
                match known.filter(|_| is_alive) {
                    Some(principal) => {
                        if is_use {
                            session.used = (now.mono, Duration::ZERO);
                            self.is_used = true;
                        }
                        Ok(principal.clone())
                    }
                    None => {
                        self.sessions.remove(&hash);
                        self.is_changed = true;
                        Err(over())
                    }
                }
            }
        }
    }

    /// Whether a user shows a session that began at the identity provider.
    #[must_use]
    pub(super) fn is_person(&self, credential: Credential) -> bool {
        let Credential::Session(hash) = credential else { return false };
        self.sessions.get(&hash).is_some_and(|session| matches!(session.holder, Holder::Person(_)))
    }

    /// Begins a session of the holder of a token that was found good.
    pub(super) fn begin(&mut self, session: SessionHash, token: TokenHash, now: Now) {
        self.begin_of(session, Holder::Token(token), now);
    }

    /// Begins a session of a user whom the identity provider vouches for.
    pub(super) fn begin_as(&mut self, session: SessionHash, principal: Principal, now: Now) {
        self.begin_of(session, Holder::Person(principal), now);
    }

    fn begin_of(&mut self, session: SessionHash, holder: Holder, now: Now) {
        self.sessions.retain(|_, known| known.is_alive(now.mono));
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().max_by_key(|(_, known)| known.rest(now.mono)).map(|(hash, _)| *hash);
            oldest.map(|hash| self.sessions.remove(&hash));
        }
        let new = (now.mono, Duration::ZERO);
        self.sessions.insert(session, Session { holder, began: new, used: new });
        self.is_changed = true;
    }

    /// Ends a session.
    pub(super) fn end(&mut self, session: SessionHash) {
        self.is_changed |= self.sessions.remove(&session).is_some();
    }

    /// What is to be kept of the sessions for a later process, if that is other than when it was asked for last. `is_time`: also when they were only used.
    pub(super) fn take_kept(&mut self, is_time: bool, now: Now) -> Option<Vec<KeptSession>> {
        let is_due = self.is_changed || (is_time && self.is_used);
        if !is_due {
            return None;
        }
        (self.is_changed, self.is_used) = (false, false);
        let ms = |ago: Duration| now.wall.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
        let alive = self.sessions.iter().filter(|(_, session)| session.is_alive(now.mono));
        Some(
            alive
                .map(|(hash, session)| KeptSession {
                    hash: *hash,
                    holder: match &session.holder {
                        Holder::Token(token) => KeptHolder::Token(*token),
                        Holder::Person(person) => KeptHolder::Person(person.clone()),
                    },
                    began: ms(session.age(now.mono)),
                    used: ms(session.rest(now.mono)),
                })
                .collect(),
        )
    }

    /// Takes over what an earlier process has kept. What would have ended meanwhile has, and so has what begins in the future.
    pub(super) fn restore(&mut self, kept: Vec<KeptSession>, now: Now) {
        for KeptSession { hash, holder, began, used } in kept.into_iter().take(SESSIONS_MAX) {
            let (Some(age), Some(rest)) = (now.wall.checked_sub(began), now.wall.checked_sub(used)) else { continue };
            let holder = match holder {
                KeptHolder::Token(token) => Holder::Token(token),
                KeptHolder::Person(person) => Holder::Person(person),
            };
            let since = |ms| (now.mono, Duration::from_millis(ms));
            let session = Session { holder, began: since(age), used: since(rest) };
            if session.is_alive(now.mono) {
                self.sessions.insert(hash, session);
            }
        }
        self.is_changed = true;
    }

    /// Counts an action of a user.
    ///
    /// # Errors
    /// It is one too many.
    pub(super) fn count_action(&mut self, name: &str, now: Now) -> Result<(), ApiError> {
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
        users.principal(Credential::Session(session), "a", true, at(s)).is_ok()
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
    fn a_session_continues_in_the_next_process_until_it_would_have_ended_in_the_first() {
        let (mut first, session, over) = (users(), SessionHash::of("s"), SessionHash::of("over"));
        first.begin(session, hash(1), at(1));
        first.begin(over, hash(1), at(1));
        assert!(is_in(&mut first, session, 1_000));
        first.end(over);
        let kept = first.take_kept(false, at(1_200)).unwrap();
        assert_eq!(first.take_kept(true, at(1_200)), None, "nothing is new");
        // The clock of a process begins at its start.
        let restarted = |s: u64| Now::new(Duration::from_secs(s), at(2_000 + s).wall);
        let is_in = |users: &mut Users, session, s| {
            users.principal(Credential::Session(session), "a", true, restarted(s)).is_ok()
        };
        let restored = || {
            let mut users = users();
            users.restore(kept.clone(), restarted(0));
            users
        };
        assert!(is_in(&mut restored(), session, 0));
        assert!(!is_in(&mut restored(), over, 0), "it had ended");
        assert!(is_in(&mut restored(), session, 799) && !is_in(&mut restored(), session, 801), "it rests since 1,000");
        let mut used = restored();
        for s in (0..12 * 3600 - 2_000).step_by(1_000) {
            assert!(is_in(&mut used, session, s), "{s}");
        }
        assert!(!is_in(&mut used, session, 12 * 3600 - 1_999), "12 hours are over since it began");
        let mut later = users();
        later.restore(kept.clone(), at(100_000));
        assert!(later.sessions.is_empty(), "an old file revives nothing");
        later.restore(kept, Now::new(Duration::ZERO, at(0).wall));
        assert!(later.sessions.is_empty(), "nor one from the future");
    }

    #[test]
    fn who_only_looks_does_not_use_a_session_and_may_look_on_until_it_is_old() {
        let (mut users, session) = (users(), SessionHash::of("s"));
        users.begin(session, hash(1), at(0));
        users.take_kept(false, at(0));
        let looks = |users: &mut Users, s| users.principal(Credential::Session(session), "a", false, at(s)).is_ok();
        assert!(looks(&mut users, 3_600) && users.take_kept(true, at(3_600)).is_none());
        assert!(!looks(&mut users, 12 * 3600));
        users.begin(session, hash(1), at(0));
        assert!(!is_in(&mut users, session, 3_600), "it has rested");
    }

    #[test]
    fn of_a_hundred_wrong_tokens_ten_are_looked_into_and_a_good_one_is_taken_all_the_same() {
        let mut users = users();
        let wrong =
            |users: &mut Users| users.principal(Credential::Token(hash(9)), "192.0.2.1", true, at(1)).unwrap_err();
        let all: Vec<ApiError> = (0..100).map(|_| wrong(&mut users)).collect();
        let unknown = all.iter().filter(|refusal| matches!(refusal, ApiError::Unauthenticated(_))).count();
        assert_eq!(unknown, 10);
        assert!(matches!(all[99], ApiError::TooOften(_)));
        assert_eq!(users.principal(Credential::Token(hash(1)), "192.0.2.1", true, at(1)).unwrap().name, "token:ada");
        let other = users.principal(Credential::Token(hash(9)), "192.0.2.2", true, at(1)).unwrap_err();
        assert!(matches!(other, ApiError::Unauthenticated(_)));
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
