//! Delphi, the neural predictor of Apollo (3.4.2): as published, and repaired.

mod adam;
mod features;
mod held_out;
mod published;
mod repaired;
mod train;
mod train_published;
mod weights;

pub use features::{Family, Feature};
pub use held_out::{LEARNED_LEN_MIN, learned_len, relative_errors};
pub use published::{
    PARAMETERS as PUBLISHED_PARAMETERS, PARAMETERS_TRAINABLE as PUBLISHED_PARAMETERS_TRAINABLE,
    Published, Weights as PublishedWeights,
};
pub use repaired::Repaired;
pub use train::{Progress, STAGES, Stopped, TrainingOptions, train};
pub use train_published::{EPOCHS_MAX, PublishedTraining, train_published};
pub use weights::{HORIZONS, PARAMETERS, TEXT_LEN_MAX, Weights, WeightsError};
