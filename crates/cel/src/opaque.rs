//! Values of the libraries' own types. Operators other than `==` do not apply; only their functions
//! read them.

use crate::amount::Quantity;
use crate::authorizer::{Decision, ResourceCheck, Subject};
use std::cmp::Ordering;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A value of a library's type.
#[derive(Debug)]
pub(crate) enum Opaque<'v> {
    Quantity(Quantity),
    Semver(Semver),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Url),
    Format(Format),
    Authorizer(Subject<'v>),
    PathCheck(Subject<'v>, Box<str>),
    GroupCheck(Subject<'v>, Box<str>),
    ResourceCheck(Subject<'v>, ResourceCheck),
    Decision(Decision),
}

impl Opaque<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Evaluates `==` by value. Values that only have functions equal nothing.
    pub(crate) fn equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            _ => self.order(other).is_some_and(Ordering::is_eq),
        }
    }

    /// Returns the text for JSON and messages, if the type has one.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Quantity(quantity) => Some(quantity.text()),
            Self::Ip(address) => Some(address.to_string()),
            Self::Cidr(network) => Some(network.to_string()),
            Self::Semver(_)
            | Self::Url(_)
            | Self::Format(_)
            | Self::Authorizer(_)
            | Self::PathCheck(..)
            | Self::GroupCheck(..)
            | Self::ResourceCheck(..)
            | Self::Decision(_) => None,
        }
    }

    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => Some(a.compare(b)),
            (Self::Semver(a), Self::Semver(b)) => Some(a.compare(b)),
            _ => None,
        }
    }
}

/// An address with a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl Cidr {
    /// Returns the bytes of the prefix, which prices count as its `size`.
    pub(crate) fn prefix_bytes(self) -> u64 {
        u64::from(self.bits.div_ceil(8))
    }

    pub(crate) fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.masked() == Self { address, ..self }.masked()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A named format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

impl Format {
    /// Returns the characters of the pattern by which Kubernetes prices a validation.
    pub(crate) fn pattern_characters(self) -> u64 {
        match self {
            Self::Dns1123Label | Self::Dns1035Label | Self::Dns1123LabelPrefix | Self::Dns1035LabelPrefix => 30,
            Self::Dns1123Subdomain | Self::Dns1123SubdomainPrefix | Self::QualifiedName => 60,
            Self::LabelValue => 40,
            Self::Uri => 1_104,
            Self::Uuid | Self::Date | Self::DateTime => 72,
            Self::Byte => 84,
        }
    }
}

/// A parsed URL. Texts are those of Go's strings, except that bytes that are no UTF-8 become
/// U+FFFD.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    /// The path as written, with its escapes.
    pub(crate) path: String,
    pub(crate) query: String,
}

/// A version without its build metadata, which does not affect precedence.
#[derive(Debug)]
pub(crate) struct Semver {
    pub(crate) numbers: [u64; 3],
    pub(crate) prerelease: Vec<Identifier>,
}

/// A pre-release identifier. Numbers precede words, as the variants' order says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identifier {
    Number(u64),
    Word(Box<str>),
}

impl Semver {
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let release = |v: &Self| v.prerelease.is_empty();
        let numbers = self.numbers.cmp(&other.numbers);
        numbers
            .then_with(|| release(self).cmp(&release(other)))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}
