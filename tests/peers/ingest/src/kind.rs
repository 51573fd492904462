//! What is measured: each way of taking a fleet's messages in.

/// The contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Raw,
    RawVisitor,
    Visitor,
    Ours,
    OursMachine,
    SradNoStore,
    SradStore,
}

impl Kind {
    pub const ALL: [Self; 7] =
        [Self::Raw, Self::RawVisitor, Self::Visitor, Self::Ours, Self::OursMachine, Self::SradNoStore, Self::SradStore];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw rumqttc",
            Self::RawVisitor => "rumqttc and visitor",
            Self::Visitor => "TCP and visitor",
            Self::Ours => "ours",
            Self::OursMachine => "ours, machine",
            Self::SradNoStore => "srad, no store",
            Self::SradStore => "srad, store",
        }
    }

    pub const fn argument(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RawVisitor => "raw-visitor",
            Self::Visitor => "visitor",
            Self::Ours => "ours",
            Self::OursMachine => "ours-machine",
            Self::SradNoStore => "srad-no-store",
            Self::SradStore => "srad-store",
        }
    }

    pub fn of_argument(argument: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.argument() == argument)
    }

    /// srad's client speaks nothing else.
    pub const fn speaks_v5(self) -> bool {
        matches!(self, Self::SradNoStore | Self::SradStore)
    }
}
