//! Delphi, the neural predictor of Apollo (3.4.2): as published, and repaired.

mod adam;
mod features;
mod held_out;
mod published;
mod repaired;
mod train;
mod train_published;
mod weights;

pub use features::{SeriesFamily, SeriesFeature};
pub use held_out::{LEARNED_LEN_MIN, learned_len, relative_errors};
pub use published::{
    PARAMETERS as PUBLISHED_PARAMETERS, PARAMETERS_TRAINABLE as PUBLISHED_PARAMETERS_TRAINABLE,
    PublishedDelphi, PublishedWeights,
};
pub use repaired::RepairedDelphi;
pub use train::{STAGES, TrainingOptions, TrainingProgress, TrainingStopped, train};
pub use train_published::{EPOCHS_MAX, PublishedTraining, train_published};
pub use weights::{HORIZONS, PARAMETERS, TEXT_LEN_MAX, Weights, WeightsError};
