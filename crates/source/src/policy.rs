//! The interval policies of `barograph_forecast` that depend on values alone.

pub use barograph_forecast::interval::{
    Aimd, INTERVAL_NS_MAX, INTERVAL_NS_MIN, IntervalPolicy, PolicyState, WINDOW,
};
