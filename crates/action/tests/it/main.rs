//! Integration tests: the queue against a model, crashes, full disks, and hostile actions.

mod damage;
mod model;
mod support;
