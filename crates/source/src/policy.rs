//! When a stream wants to be looked at again: the policies of `barograph_forecast` that know values alone.

pub use barograph_forecast::interval::{
    Aimd, INTERVAL_NS_MAX, INTERVAL_NS_MIN, IntervalPolicy, PolicyState, WINDOW,
};
