//! Where on earth an object lives.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// Where a new object should be made: a wish. One that exists stays where it is.
///
/// Read from text as the platform writes it: `"enam".parse()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocationHint {
    /// Western North America, `wnam`.
    WesternNorthAmerica,
    /// Eastern North America, `enam`.
    EasternNorthAmerica,
    /// South America, `sam`.
    SouthAmerica,
    /// Western Europe, `weur`.
    WesternEurope,
    /// Eastern Europe, `eeur`.
    EasternEurope,
    /// Asia and the Pacific, `apac`.
    AsiaPacific,
    /// Oceania, `oc`.
    Oceania,
    /// Africa, `afr`.
    Africa,
    /// The Middle East, `me`.
    MiddleEast,
}

impl LocationHint {
    const ALL: [Self; 9] = [
        Self::WesternNorthAmerica,
        Self::EasternNorthAmerica,
        Self::SouthAmerica,
        Self::WesternEurope,
        Self::EasternEurope,
        Self::AsiaPacific,
        Self::Oceania,
        Self::Africa,
        Self::MiddleEast,
    ];

    /// As the platform writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WesternNorthAmerica => "wnam",
            Self::EasternNorthAmerica => "enam",
            Self::SouthAmerica => "sam",
            Self::WesternEurope => "weur",
            Self::EasternEurope => "eeur",
            Self::AsiaPacific => "apac",
            Self::Oceania => "oc",
            Self::Africa => "afr",
            Self::MiddleEast => "me",
        }
    }
}

/// Where an object may live and keep its data: a guarantee.
///
/// It is part of the object's identity: the same name in another jurisdiction, or in none, is another
/// object. The local runtime has none of them and refuses such requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jurisdiction {
    /// The European Union, `eu`.
    Eu,
    /// Data centres that comply with `FedRAMP`, `fedramp`.
    FedRamp,
    /// Data centres that comply with `FedRAMP` High, `fedramp-high`.
    FedRampHigh,
}

impl Jurisdiction {
    const ALL: [Self; 3] = [Self::Eu, Self::FedRamp, Self::FedRampHigh];

    /// As the platform writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eu => "eu",
            Self::FedRamp => "fedramp",
            Self::FedRampHigh => "fedramp-high",
        }
    }
}

impl FromStr for LocationHint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        one_of("location hint", &Self::ALL, Self::as_str, text)
    }
}

impl FromStr for Jurisdiction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        one_of("jurisdiction", &Self::ALL, Self::as_str, text)
    }
}

impl fmt::Display for LocationHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Jurisdiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn one_of<T: Copy>(what: &str, all: &[T], as_str: fn(T) -> &'static str, text: &str) -> Result<T> {
    let known = all.iter().copied().find(|value| as_str(*value) == text);
    known.ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|value| as_str(*value)).collect();
        Error::InvalidOption(format!("the {what} is none of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for hint in LocationHint::ALL {
            assert_eq!(hint.to_string().parse::<LocationHint>().unwrap(), hint);
        }
        for jurisdiction in Jurisdiction::ALL {
            let read: Jurisdiction = jurisdiction.to_string().parse().unwrap();
            assert_eq!(read, jurisdiction);
        }
    }

    #[test]
    fn other_places_are_refused_with_those_that_are_known() {
        for text in ["", "ENAM", "mars", "eu"] {
            let error = text.parse::<LocationHint>().unwrap_err().to_string();
            assert!(
                error.ends_with("wnam, enam, sam, weur, eeur, apac, oc, afr, me"),
                "{error}"
            );
        }
        assert!("enam".parse::<Jurisdiction>().is_err());
    }
}
