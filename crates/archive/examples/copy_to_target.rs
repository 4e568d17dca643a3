//! Copies files to an object store as the agent does, for tests of what arrives: `copy_to_target
//! URL [OPTION=VALUE]... -- LOCAL RELATIVE [LOCAL RELATIVE]...`

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use barograph_archive::{CopyTarget as _, ObjectTarget};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let (Some([url, options @ ..]), Some(files)) = (parts.next(), parts.next()) else {
        return Err("URL [OPTION=VALUE]... -- LOCAL RELATIVE...".into());
    };
    let options: BTreeMap<String, String> = options
        .iter()
        .filter_map(|option| option.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut target = ObjectTarget::open(url, &options).map_err(|e| e.to_string())?;
    let stop = AtomicBool::new(false);
    for pair in files.chunks_exact(2) {
        target.copy(Path::new(&pair[0]), Path::new(&pair[1]), &stop)?;
    }
    Ok(())
}
