//! The connection's state machine. Pure: an event and a phase go in, the next phase comes out.

use std::fmt;

use serde::Serialize;

use crate::Error;

/// The state of a server, as users and browsers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ConnectionState {
    /// Stored, without a live connection.
    NotConnected,
    /// The server wants the user to sign in first.
    Authenticating,
    /// Being opened, or waiting for its turn to be opened after a wake.
    Connecting,
    /// The last attempt failed. The next one is planned, or under way.
    Reconnecting,
    /// Open; the catalogue is not loaded.
    Connected,
    /// Open; the catalogue is being loaded.
    Discovering,
    /// The catalogue is known, and requests can be sent: the connection is open, or is opened by the
    /// first of them.
    Ready,
    /// The last attempt failed.
    Failed,
}

impl ConnectionState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::NotConnected,
        Self::Authenticating,
        Self::Connecting,
        Self::Reconnecting,
        Self::Connected,
        Self::Discovering,
        Self::Ready,
        Self::Failed,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotConnected => "not-connected",
            Self::Authenticating => "authenticating",
            Self::Connecting => "connecting",
            Self::Reconnecting => "reconnecting",
            Self::Connected => "connected",
            Self::Discovering => "discovering",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether requests can be sent.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Connected | Self::Discovering | Self::Ready)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a connection stands, with what exists only there.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// As it was stored; nothing has been sent since the object woke. Usable means that the first
    /// request opens it.
    Stored {
        usable: bool,
    },
    /// The user must sign in, or consent to more. Where it is only more, what was consented to
    /// before stays usable.
    Authenticating {
        usable: bool,
    },
    Connecting {
        /// After a failure that is mended by trying again.
        again: bool,
    },
    Connected,
    Discovering,
    Ready,
    Failed(Error),
    /// The last attempt failed, perhaps before the object slept, and the next one is planned.
    Waiting(Option<Error>),
}

/// What happened to a connection.
#[derive(Debug)]
pub(crate) enum Event {
    /// An attempt begins. Legal everywhere: it replaces whatever was.
    Connect,
    /// Transport and handshake are done.
    Opened,
    /// The attempt failed. Legal everywhere.
    Failed(Error),
    /// The next attempt after the one that failed is planned.
    Postponed,
    /// No further attempt is planned.
    GivenUp { usable: bool },
    /// Loading the catalogue begins.
    Discover,
    /// The catalogue is loaded.
    Discovered,
    /// Loading failed; the connection stays usable.
    DiscoveryFailed,
    /// The user must sign in, or consent to more. Legal everywhere.
    SignIn { usable: bool },
    /// The user has come back. Legal everywhere.
    Returned,
    /// The user has consented to more, or has not; what was usable stays so.
    Answered { listed: bool },
}

/// The event does not fit the phase.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IllegalMove;

impl Phase {
    /// The only place that moves a phase.
    pub(crate) fn on(&self, event: Event) -> Result<Self, IllegalMove> {
        match (self, event) {
            (Self::Waiting(_) | Self::Connecting { again: true }, Event::Connect) => {
                Ok(Self::Connecting { again: true })
            }
            (_, Event::Connect | Event::Returned) => Ok(Self::Connecting { again: false }),
            (Self::Failed(error), Event::Postponed) => Ok(Self::Waiting(Some(error.clone()))),
            (Self::Waiting(Some(error)), Event::GivenUp { .. }) => Ok(Self::Failed(error.clone())),
            (Self::Waiting(None), Event::GivenUp { usable }) => Ok(Self::Stored { usable }),
            (_, Event::SignIn { usable }) => Ok(Self::Authenticating { usable }),
            (Self::Authenticating { usable: true }, Event::Answered { listed }) => {
                Ok(if listed { Self::Ready } else { Self::Connected })
            }
            (_, Event::Failed(error)) => Ok(Self::Failed(error)),
            (Self::Connecting { .. }, Event::Opened)
            | (Self::Discovering, Event::DiscoveryFailed) => Ok(Self::Connected),
            (Self::Connected | Self::Ready, Event::Discover) => Ok(Self::Discovering),
            (Self::Discovering, Event::Discovered) => Ok(Self::Ready),
            (
                Self::Stored { .. }
                | Self::Authenticating { .. }
                | Self::Connecting { .. }
                | Self::Connected
                | Self::Discovering
                | Self::Ready
                | Self::Failed(_)
                | Self::Waiting(_),
                Event::Opened
                | Event::Postponed
                | Event::GivenUp { .. }
                | Event::Discover
                | Event::Discovered
                | Event::DiscoveryFailed
                | Event::Answered { .. },
            ) => Err(IllegalMove),
        }
    }

    /// The view without data.
    pub(crate) fn state(&self) -> ConnectionState {
        match self {
            Self::Stored { usable: false } => ConnectionState::NotConnected,
            Self::Authenticating { .. } => ConnectionState::Authenticating,
            Self::Connecting { again: false } => ConnectionState::Connecting,
            Self::Connecting { again: true } | Self::Waiting(_) => ConnectionState::Reconnecting,
            Self::Connected => ConnectionState::Connected,
            Self::Discovering => ConnectionState::Discovering,
            Self::Ready | Self::Stored { usable: true } => ConnectionState::Ready,
            Self::Failed(_) => ConnectionState::Failed,
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Self::Failed(error) | Self::Waiting(Some(error)) => Some(error),
            Self::Stored { .. }
            | Self::Waiting(None)
            | Self::Authenticating { .. }
            | Self::Connecting { .. }
            | Self::Connected
            | Self::Discovering
            | Self::Ready => None,
        }
    }

    /// Whether the connection is open.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Connected | Self::Discovering | Self::Ready)
    }

    /// Whether requests can be sent.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_open() || matches!(self, Self::Authenticating { usable: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState as S;

    /// A phase of each kind.
    fn phases() -> [Phase; 9] {
        [
            Phase::Stored { usable: true },
            Phase::Authenticating { usable: true },
            Phase::Connecting { again: false },
            Phase::Connecting { again: true },
            Phase::Connected,
            Phase::Discovering,
            Phase::Ready,
            Phase::Failed(Error::Closed),
            Phase::Waiting(None),
        ]
    }

    /// An event, and where it leads from each phase, in the order of `phases`. `None` is illegal.
    type Row = (fn() -> Event, [Option<S>; 9]);

    fn only(at: &[usize], state: S) -> [Option<S>; 9] {
        std::array::from_fn(|index| at.contains(&index).then_some(state))
    }

    #[test]
    fn every_pair_of_phase_and_event_leads_where_the_table_says() {
        let connect = std::array::from_fn(|index| {
            Some(if matches!(index, 3 | 8) {
                S::Reconnecting
            } else {
                S::Connecting
            })
        });
        let table: [Row; 10] = [
            (|| Event::Connect, connect),
            (|| Event::Returned, [Some(S::Connecting); 9]),
            (
                || Event::SignIn { usable: false },
                [Some(S::Authenticating); 9],
            ),
            (|| Event::Answered { listed: true }, only(&[1], S::Ready)),
            (|| Event::Failed(Error::Closed), [Some(S::Failed); 9]),
            (|| Event::Postponed, only(&[7], S::Reconnecting)),
            (|| Event::Opened, only(&[2, 3], S::Connected)),
            (|| Event::Discover, only(&[4, 6], S::Discovering)),
            (|| Event::Discovered, only(&[5], S::Ready)),
            (|| Event::DiscoveryFailed, only(&[5], S::Connected)),
        ];
        for (event, outcomes) in table {
            for (from, to) in phases().into_iter().zip(outcomes) {
                let found = from.on(event()).ok().map(|phase| phase.state());
                assert_eq!(found, to, "{from:?} on {:?}", event());
            }
        }
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for state in S::ALL {
            assert_eq!(S::parse(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(S::parse("nope"), None);
    }
}
