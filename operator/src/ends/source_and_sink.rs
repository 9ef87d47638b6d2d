//! What both ends of a run have, each its own. Pure.

use std::array;

use contract::Side;

/// Something of each end of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends<T> {
    /// That of the end that sends.
    pub source: T,
    /// That of the end that receives.
    pub sink: T,
}

impl<T> Ends<T> {
    /// Makes both, the source's first.
    pub fn each(mut make: impl FnMut(Side) -> T) -> Self {
        Self { source: make(Side::Source), sink: make(Side::Sink) }
    }

    /// Returns that of one end.
    pub fn of(&self, side: Side) -> &T {
        match side {
            Side::Source => &self.source,
            Side::Sink => &self.sink,
        }
    }

    /// Returns that of one end, to change it.
    pub fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Source => &mut self.source,
            Side::Sink => &mut self.sink,
        }
    }

    /// Returns both, the source's first.
    pub fn iter(&self) -> array::IntoIter<&T, 2> {
        [&self.source, &self.sink].into_iter()
    }

    /// Returns what `change` makes of both.
    pub fn map<U>(&self, mut change: impl FnMut(&T) -> U) -> Ends<U> {
        Ends::each(|side| change(self.of(side)))
    }
}
