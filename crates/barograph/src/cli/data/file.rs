//! Files of packed arrays, for `baro data`.

use std::path::Path;

use anyhow::Context as _;
use barograph_client::ArrayBytes;
use barograph_progressive::{ArrayListing, ArraySource, ProgressiveError, WantedArray};

use super::super::Usage;

/// A packed file that is being read.
pub(super) type ArrayFile = ArraySource<ArrayBytes>;

/// Which array of a file is meant; what is not said may be anything.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ArrayName {
    /// Name of the array in the file
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Number of the time step of the array in the file
    #[arg(long, value_name = "N")]
    pub(super) step: Option<u64>,
}

/// Opens a packed file and reads the header of one of its arrays.
pub(super) fn open(path: &Path, name: &ArrayName) -> anyhow::Result<ArrayFile> {
    let context = || format!("cannot read {}", path.display());
    let bytes = ArrayBytes::open(path).with_context(context)?;
    let wanted = WantedArray {
        name: name.name.clone(),
        step: name.step,
    };
    ArraySource::open_one(bytes, &wanted).map_err(|error| match error {
        ProgressiveError::Ambiguous { .. } => {
            Usage(format!("{}: {error} (--name, --step)", path.display())).into()
        }
        error => anyhow::Error::from(error).context(context()),
    })
}

/// Reads the headers of all arrays of a packed file.
pub(super) fn list(path: &Path) -> anyhow::Result<ArrayListing> {
    let context = || format!("cannot read {}", path.display());
    let bytes = ArrayBytes::open(path).with_context(context)?;
    ArrayListing::read(&bytes).with_context(context)
}

/// Refuses to replace a file unless that is forced.
pub(super) fn refuse_existing(path: &Path, is_forced: bool) -> anyhow::Result<()> {
    match path.exists() && !is_forced {
        true => Err(Usage(format!(
            "{} is there already: say --force to replace it",
            path.display()
        ))
        .into()),
        false => Ok(()),
    }
}
