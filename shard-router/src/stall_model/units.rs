//! The model's units as types, and the divisions between them that mean something.

use std::ops::Div;

/// Makes a newtype over `f64` whose name is its unit.
macro_rules! units {
    ($( $(#[doc = $doc:literal])+ $name:ident, )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
            pub struct $name(pub f64);
        )+
    };
}

units! {
    /// An amount of data, in units of 10^6 bytes.
    Megabytes,
    /// A flow of data, in 10^6 bytes a second.
    MegabytesPerSecond,
    /// A length of time, in seconds; infinite where nothing ends it.
    Seconds,
    /// How often something happens, by the second.
    PerSecond,
}

impl MegabytesPerSecond {
    /// How much faster this flows than `outflow`; nothing where it does not. Two infinite flows are level.
    pub fn excess_over(self, outflow: MegabytesPerSecond) -> MegabytesPerSecond {
        MegabytesPerSecond(if self.0 > outflow.0 { self.0 - outflow.0 } else { 0.0 })
    }

    /// The lesser of two flows.
    pub fn min(self, other: MegabytesPerSecond) -> MegabytesPerSecond {
        MegabytesPerSecond(self.0.min(other.0))
    }

    /// A part, or a multiple, of this flow.
    pub fn times(self, factor: f64) -> MegabytesPerSecond {
        MegabytesPerSecond(self.0 * factor)
    }
}

impl Megabytes {
    /// As many bytes, as megabytes.
    pub fn from_bytes(bytes: f64) -> Megabytes {
        Megabytes(bytes / 1e6)
    }
}

impl Div<MegabytesPerSecond> for Megabytes {
    type Output = Seconds;

    /// The time that the flow takes for this amount.
    fn div(self, flow: MegabytesPerSecond) -> Seconds {
        Seconds(self.0 / flow.0)
    }
}

impl Div<Seconds> for Megabytes {
    type Output = MegabytesPerSecond;

    /// The flow that brings this amount in that time.
    fn div(self, time: Seconds) -> MegabytesPerSecond {
        MegabytesPerSecond(self.0 / time.0)
    }
}

impl Div<Megabytes> for MegabytesPerSecond {
    type Output = PerSecond;

    /// How often this flow brings that amount.
    fn div(self, amount: Megabytes) -> PerSecond {
        PerSecond(self.0 / amount.0)
    }
}
