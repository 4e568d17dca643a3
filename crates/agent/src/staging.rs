//! The configuration of a server of staging that runs beside the agent. The server is a process of
//! its own, so that its memory and its faults are not the agent's; `baro up` starts and ends it.

use std::ffi::OsString;
use std::path::PathBuf;

use barograph_model::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest time that a stop may take, in seconds: an hour.
const STOP_SECONDS_MAX: u32 = 3_600;

/// A server of staging beside the agent: blocks of data in the memory of this node, and in
/// directories below it. It is `baro stage serve` in a process of its own, which is started with
/// the agent, again when it dies, and stopped with it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StagingConfig {
    /// Whether there is such a server.
    pub enabled: bool,
    /// Memory for blocks, such as `4GiB`.
    pub memory: String,
    /// Tiers below memory, the fastest first, each as `--tier` of `baro stage serve` takes it:
    /// `/nvme/stage=100GB`, `/scratch/stage=10%,sync`.
    pub tiers: Vec<String>,
    /// Most bytes that are on no durable tier yet, such as `1GiB`. Empty: half of the memory.
    pub dirty: String,
    /// Users who are served: `own`, `all`, or numbers such as `1000,1001`.
    pub users: String,
    /// The map of servers that it belongs to, with `server`. Empty: none.
    pub map: String,
    /// Its number in the map, 0 to 1023.
    pub server: u32,
    /// Address and port of TCP, such as `127.0.0.1:7080`. Empty: the unix socket alone.
    pub tcp: String,
    /// Whether the address may be reached from other machines: nothing is encrypted.
    pub network: bool,
    /// Directory with the tokens of the users of TCP.
    pub tokens: PathBuf,
    /// Longest time in seconds that a stop takes, to copy to a durable tier what is on none yet, 0
    /// to 3600.
    pub stop_seconds: u32,
}

impl Default for StagingConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            memory: "256MiB".into(),
            tiers: Vec::new(),
            dirty: String::new(),
            users: "own".into(),
            map: String::new(),
            server: 0,
            tcp: String::new(),
            network: false,
            tokens: PathBuf::new(),
            stop_seconds: 30,
        }
    }
}

impl StagingConfig {
    /// Fails where the keys contradict each other; the values are checked by the server itself.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, value: String, reason: &str| {
            let reason = reason.into();
            Err(ConfigError { key, value, reason })
        };
        if self.stop_seconds > STOP_SECONDS_MAX {
            let value = self.stop_seconds.to_string();
            return refuse("staging.stop_seconds", value, "it must be 0 to 3600");
        }
        if !self.tcp.is_empty() && self.tokens.as_os_str().is_empty() {
            let reason = "users of TCP are known by tokens: name their directory in staging.tokens";
            return refuse("staging.tcp", self.tcp.clone(), reason);
        }
        if self.network && self.tcp.is_empty() {
            let reason = "there is no staging.tcp that it could be about";
            return refuse("staging.network", "true".into(), reason);
        }
        Ok(())
    }

    /// The options of `baro stage serve` that mean the same.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        let mut give = |option: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            if !value.as_ref().is_empty() {
                options.extend([option.into(), value.as_ref().to_owned()]);
            }
        };
        give("--memory", &self.memory);
        self.tiers.iter().for_each(|tier| give("--tier", tier));
        give("--dirty", &self.dirty);
        give("--users", &self.users);
        if !self.map.is_empty() {
            give("--map", &self.map);
            give("--server", &self.server.to_string());
        }
        give("--tcp", &self.tcp);
        give("--tokens", &self.tokens);
        give("--stop-time", &self.stop_seconds.to_string());
        options.extend(self.network.then(|| "--network".into()));
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_options_and_contradictions_are_refused() {
        let config = StagingConfig {
            tiers: vec!["/nvme=1GB".into(), "/scratch,sync".into()],
            map: "scratch".into(),
            server: 3,
            ..StagingConfig::default()
        };
        let options = config.options();
        let options: Vec<&str> = options.iter().filter_map(|it| it.to_str()).collect();
        assert_eq!(
            options.join(" "),
            "--memory 256MiB --tier /nvme=1GB --tier /scratch,sync --users own --map scratch \
             --server 3 --stop-time 30"
        );
        assert!(config.check().is_ok());
        let tcp = || StagingConfig {
            tcp: "127.0.0.1:7080".into(),
            ..StagingConfig::default()
        };
        for (config, key) in [
            (tcp(), "staging.tcp"),
            (
                StagingConfig {
                    network: true,
                    ..StagingConfig::default()
                },
                "staging.network",
            ),
            (
                StagingConfig {
                    stop_seconds: 3_601,
                    ..StagingConfig::default()
                },
                "staging.stop_seconds",
            ),
        ] {
            assert_eq!(config.check().unwrap_err().key, key);
        }
        let whole = StagingConfig {
            tokens: "/etc/tokens".into(),
            network: true,
            ..tcp()
        };
        assert!(whole.check().is_ok());
        assert!(whole.options().contains(&"--network".into()));
    }
}
