//! Where a desired state comes from, and what its receiver makes of it.
//!
//! A sender derives desired states from a store. The store has an identity, and a revision that grows with every transaction. A revision alone does not say what it holds: a store
//! that was restored from a backup counts the same numbers again for other transactions. So each session of the store's process is a **timeline** of its own, and the store
//! remembers which timelines its revisions belong to. A [`Point`] (timeline and revision) names one state of the store for ever: two stores that contain the same point are equal up
//! to it.
//!
//! A receiver remembers the [`Origin`] of what it accepted. It follows a store that contains that point, and **holds** everything else: it applies nothing and deletes nothing
//! until an operator decides. The decision is a higher **epoch**, which nothing but an operator raises.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// One state of a store: the revision, and the session of the store's process that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Drawn at random for each session.
    pub timeline: u64,
    /// Of the last transaction.
    pub revision: u64,
}

/// Where a desired state comes from. As a text `STORE/EPOCH/TIMELINE/REVISION`, the timeline as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Identity of the store.
    pub store: Uuid,
    /// Raised by an operator only; 0 at first.
    pub epoch: u64,
    /// State of the store.
    pub point: Point,
}

impl Origin {
    /// Whether both are of the same store and epoch.
    #[must_use]
    pub fn is_of(&self, other: Self) -> bool {
        (self.store, self.epoch) == (other.store, other.epoch)
    }
}

/// A text is not an [`Origin`], [`Point`] or [`Timelines`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {0}")]
pub struct OriginError(&'static str);

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}", self.timeline, self.revision)
    }
}

impl FromStr for Point {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let read = || {
            let (timeline, revision) = text.split_once('/')?;
            Some(Self { timeline: timeline_of(timeline)?, revision: revision.parse().ok()? })
        };
        read().ok_or(OriginError("TIMELINE/REVISION, the timeline as 16 hex digits"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.store.hyphenated(), self.epoch, self.point)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let read = || {
            let (store, rest) = text.split_once('/')?;
            let (epoch, point) = rest.split_once('/')?;
            let (store, epoch) = (Uuid::try_parse(store).ok()?, epoch.parse().ok()?);
            Some(Self { store, epoch, point: point.parse().ok()? })
        };
        read().ok_or(OriginError("STORE/EPOCH/TIMELINE/REVISION, the store a UUID, the timeline 16 hex digits"))
    }
}

fn timeline_of(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// The timelines that the revisions of a store belong to, the oldest first. As a text `TIMELINE/FIRST REVISION`, separated by blanks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Timelines(Vec<Point>);

impl Timelines {
    /// The most that are kept. What a receiver accepted from an older one counts as unknown.
    pub const MAX: usize = 1_000;

    /// Whether there is none yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a timeline whose first revision follows `revision`; the first timeline has all revisions before it, too. One that wrote nothing is replaced.
    pub fn begin(&mut self, timeline: u64, revision: u64) {
        let first = if self.0.is_empty() { 0 } else { revision.saturating_add(1) };
        while self.0.last().is_some_and(|last| last.revision >= first) {
            self.0.pop();
        }
        self.0.push(Point { timeline, revision: first });
        let excess = self.0.len().saturating_sub(Self::MAX);
        self.0.drain(..excess);
    }

    /// The state of the store at a revision; None if no timeline is known that wrote it.
    #[must_use]
    pub fn at(&self, revision: u64) -> Option<Point> {
        let begun = self.0.iter().rev().find(|begun| begun.revision <= revision)?;
        Some(Point { timeline: begun.timeline, revision })
    }

    /// The last state of a timeline in this store, which is at `revision`; None: the store knows nothing of that timeline.
    #[must_use]
    pub fn last_of(&self, timeline: u64, revision: u64) -> Option<Point> {
        let position = self.0.iter().position(|begun| begun.timeline == timeline)?;
        let end = self.0.get(position + 1).map_or(revision, |next| revision.min(next.revision.saturating_sub(1)));
        Some(Point { timeline, revision: end })
    }
}

impl Timelines {
    /// Whether a timeline will be forgotten: as many followed it as half of those that are kept. Who accepted a state of it has to accept the same again before.
    #[must_use]
    pub fn is_ageing(&self, timeline: u64) -> bool {
        let position = self.0.iter().position(|begun| begun.timeline == timeline);
        position.is_some_and(|position| self.0.len() - position > Self::MAX / 2)
    }

    /// Whether this store, which is at `revision`, contains that state.
    #[must_use]
    pub fn contain(&self, state: Point, revision: u64) -> bool {
        self.last_of(state.timeline, revision).is_some_and(|last| last.revision >= state.revision)
    }
}

impl fmt::Display for Timelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, begun) in self.0.iter().enumerate() {
            write!(f, "{}{begun}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for Timelines {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let rule = OriginError("TIMELINE/REVISION separated by blanks, at most 1000, with revisions that grow");
        let begun: Vec<Point> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| rule)?;
        let grows = begun.windows(2).all(|pair| pair[0].revision < pair[1].revision);
        if begun.len() > Self::MAX || !grows {
            return Err(rule);
        }
        Ok(Self(begun))
    }
}

/// What a receiver judges a desired state by; `D` is the digest of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp<D> {
    /// Where it comes from; None: the sender does not say.
    pub origin: Option<Origin>,
    /// The last state, in the sender's store, of the timeline that the receiver reported; None: the store knows nothing of that timeline, or the receiver reported none.
    pub follows: Option<Point>,
    /// Digest of what the receiver had accepted when the operator decided for the epoch of `origin`; None: the decision does not say.
    pub decided_for: Option<D>,
    /// Grows with every change.
    pub version: u64,
    /// Of the value.
    pub digest: D,
}

/// Why a desired state is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The store lacks so many revisions that the receiver has seen.
    Older {
        /// How many.
        revisions: u64,
    },
    /// The store has the same identity, but does not know the state that the receiver accepted.
    Forked,
    /// It is another store.
    OtherStore {
        /// Of the sender.
        store: Uuid,
        /// That the receiver follows.
        followed: Uuid,
    },
    /// An operator has decided for a later epoch.
    OldEpoch {
        /// Of the sender.
        epoch: u64,
        /// That the receiver accepted.
        accepted: u64,
    },
    /// An operator has decided, but for another state than the receiver has accepted since.
    OtherDecision,
    /// The sender does not say from which store it derives what it wants.
    NoOrigin,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Older { revisions } => {
                write!(f, "the control plane is older than this cluster by {revisions} revisions")
            }
            Self::Forked => f.write_str("the control plane does not know the state that this cluster follows; it was restored from an older one"),
            Self::OtherStore { store, followed } => {
                write!(f, "the control plane has another store ({store}) than this cluster follows ({followed})")
            }
            Self::OldEpoch { epoch, accepted } => {
                write!(f, "the control plane is at epoch {epoch}, this cluster was released to epoch {accepted}")
            }
            Self::OtherDecision => f.write_str("this cluster has accepted something since the operator's decision was made; compare and decide again"),
            Self::NoOrigin => f.write_str("the control plane does not say from which store it comes"),
        }
    }
}

/// What a receiver makes of a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is to be taken over.
    Accepted,
    /// It is what was accepted last: the report is to be repeated.
    Duplicate,
    /// It is older than what was accepted: ignored.
    Stale,
    /// Its version was given before with another digest: refused.
    Conflict,
    /// Nothing of it is applied until an operator decides.
    Held(Hold),
}

impl<D: PartialEq> Stamp<D> {
    /// What a receiver that accepted `self` last makes of `given`.
    #[must_use]
    pub fn judge(&self, given: &Self) -> Outcome {
        // A repetition that was overtaken says nothing about the sender of today.
        if given.version < self.version {
            return Outcome::Stale;
        }
        let is_same = given.version == self.version && given.digest == self.digest;
        // Of the same store, and what is accepted: nothing would change.
        let is_here = is_same && self.origin.is_some_and(|accepted| given.origin.is_some_and(|o| accepted.is_of(o)));
        let moves = match followed(self.origin, given.origin, given.follows) {
            Ok(true) if !self.is_decided(given) => return Outcome::Held(Hold::OtherDecision),
            Ok(moves) => moves,
            Err(_) if is_here => false,
            Err(hold) => return Outcome::Held(hold),
        };
        match (is_same, moves) {
            (true, false) => Outcome::Duplicate,
            (false, _) if given.version == self.version => Outcome::Conflict,
            _ => Outcome::Accepted,
        }
    }
}

impl<D: PartialEq> Stamp<D> {
    /// Whether a higher epoch was decided for what a receiver has that accepted `self`. A store that contains what was accepted needs no decision.
    fn is_decided(&self, given: &Self) -> bool {
        let is_for_this = given.decided_for.as_ref().is_none_or(|digest| *digest == self.digest);
        let contains = |accepted: Origin, from: Origin| {
            accepted.store == from.store && lacks(accepted.point, from.point, given.follows).is_none()
        };
        is_for_this || self.origin.zip(given.origin).is_none_or(|(accepted, from)| contains(accepted, from))
    }
}

/// Whether a receiver that accepted something of `accepted` follows what comes from `from`, and whether that is another store or epoch than before.
fn followed(accepted: Option<Origin>, from: Option<Origin>, follows: Option<Point>) -> Result<bool, Hold> {
    match (accepted, from) {
        (None, None) => Ok(false),
        // Accepted before stores were named: the first one that arrives is followed.
        (None, Some(_)) => Ok(true),
        (Some(_), None) => Err(Hold::NoOrigin),
        (Some(accepted), Some(from)) if from.epoch > accepted.epoch => Ok(true),
        (Some(accepted), Some(from)) if from.epoch < accepted.epoch => {
            Err(Hold::OldEpoch { epoch: from.epoch, accepted: accepted.epoch })
        }
        (Some(accepted), Some(from)) if from.store != accepted.store => {
            Err(Hold::OtherStore { store: from.store, followed: accepted.store })
        }
        (Some(accepted), Some(from)) => lacks(accepted.point, from.point, follows).map_or(Ok(false), Err),
    }
}

impl Hold {
    /// Why what comes from `from` is held by one that accepted something of `accepted`; `follows` is the last state of its timeline in the store of `from`. None: it is followed.
    #[must_use]
    pub fn of(accepted: Option<Origin>, from: Option<Origin>, follows: Option<Point>) -> Option<Self> {
        followed(accepted, from, follows).err()
    }
}

/// What a store lacks of the state `accepted`; None: it contains it. The store is at `from`; `follows` is its last state of some timeline.
fn lacks(accepted: Point, from: Point, follows: Option<Point>) -> Option<Hold> {
    let known = [Some(from), follows].into_iter().flatten().find(|point| point.timeline == accepted.timeline);
    match known {
        None => Some(Hold::Forked),
        Some(end) if end.revision < accepted.revision => {
            Some(Hold::Older { revisions: accepted.revision - end.revision })
        }
        Some(_) => None,
    }
}

/// A receiver: what it took over last, and whether it holds what it is sent since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredReceiver<D> {
    accepted: Option<Stamp<D>>,
    held: Option<Hold>,
}

impl<D> Default for DesiredReceiver<D> {
    fn default() -> Self {
        Self { accepted: None, held: None }
    }
}

impl<D: PartialEq> DesiredReceiver<D> {
    /// What was accepted last, as far as it is known: what the record says, or what is being recorded.
    pub fn set_accepted(&mut self, accepted: Option<Stamp<D>>) {
        self.accepted = accepted;
    }

    /// Why what is sent is held; None: it is not.
    #[must_use]
    pub const fn held(&self) -> Option<Hold> {
        self.held
    }

    /// Why something beside the value would be held that comes from there, and is not recorded itself.
    #[must_use]
    pub fn hold_of(&self, origin: Option<Origin>, follows: Option<Point>) -> Option<Hold> {
        Hold::of(self.accepted.as_ref()?.origin, origin, follows)
    }

    /// Judges a desired state. What is accepted, or accepted already, ends the hold; what is held begins it.
    pub fn receive(&mut self, given: &Stamp<D>) -> Outcome {
        let outcome = self.accepted.as_ref().map_or(Outcome::Accepted, |accepted| accepted.judge(given));
        match outcome {
            Outcome::Held(hold) => self.held = Some(hold),
            Outcome::Accepted | Outcome::Duplicate => self.held = None,
            Outcome::Stale | Outcome::Conflict => {}
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
