//! The configuration of actions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use barograph_action::{
    ContainerRuntime, MailConfig, PlaceTemplate, StoreConfig, TransferConfig, WebhookConfig,
    is_store_name,
};
use barograph_model::ConfigError;
use barograph_rule::RuleWork;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::work::address;

/// Most workers.
const WORKERS_MAX: usize = 64;

/// Actions of rules.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActionConfig {
    /// Most actions that run at the same time, 1 to 64.
    pub workers: usize,
    /// Hosts to which rules may post, each as `host`, which allows every port, or `host:port`.
    /// None: no rule may post.
    pub webhook_hosts: Vec<String>,
    /// File with the certificates by which these hosts are known (PEM), in place of the usual ones.
    /// Empty: the usual ones.
    pub webhook_ca_file: PathBuf,
    /// Address of a proxy, such as `http://proxy:3128`. Empty: none.
    pub webhook_proxy: String,
    /// Stores to which rules may copy files, and from which they may take them, by name:
    /// `[action.stores.lab]`.
    pub stores: BTreeMap<String, StoreConfig>,
    /// How rules send e-mails.
    pub mail: ActionMailConfig,
    /// Program that runs containers: podman, docker, apptainer or singularity, as a path or a name.
    /// Empty: no rule may run one.
    pub container_runtime: PathBuf,
    /// Nodes of the cluster whose actions are taken in and done here, as patterns such as `login*`.
    /// They get all that the agent's user can do. None: no node's.
    pub accept_from: Vec<String>,
}

/// How rules send e-mails.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActionMailConfig {
    /// Server: `smtp://host:25` (encrypted if the server offers it), `smtp+starttls://host:587` or
    /// `smtps://host:465` (always encrypted). Empty: no rule may send mail.
    pub server: String,
    /// Address of the sender.
    pub from: String,
    /// Addresses to which rules may send.
    pub to: Vec<String>,
    /// File with the lines `username: …` and `password: …`, which only its owner may read. Empty:
    /// no log-in.
    pub secret_file: PathBuf,
    /// File with the certificates by which the server is known (PEM), beside the usual ones.
    pub ca_file: PathBuf,
}

impl Default for ActionConfig {
    fn default() -> Self {
        Self {
            workers: 4,
            webhook_hosts: Vec::new(),
            webhook_ca_file: PathBuf::new(),
            webhook_proxy: String::new(),
            stores: BTreeMap::new(),
            mail: ActionMailConfig::default(),
            container_runtime: PathBuf::new(),
            accept_from: Vec::new(),
        }
    }
}

impl ActionMailConfig {
    /// The configuration of the mailer.
    pub(super) fn mailer(&self) -> MailConfig {
        MailConfig {
            server: self.server.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            secret_file: self.secret_file.clone(),
            ca_file: self.ca_file.clone(),
        }
    }
}

impl ActionConfig {
    /// Checks whether rules may do this.
    ///
    /// # Errors
    ///
    /// They may not, for this reason.
    pub fn check(&self, work: &RuleWork) -> Result<(), String> {
        let place = |text: &str| self.check_place(text);
        match work {
            RuleWork::Run {
                container: Some(_), ..
            } => match self.containers()? {
                Some(_) => Ok(()),
                None => Err("no container runtime is named: `container_runtime` of `[action]` in barograph.toml".into()),
            },
            RuleWork::Run { .. } | RuleWork::Call { .. } | RuleWork::Mark { .. } => Ok(()),
            RuleWork::Post { .. } => {
                let url = address(work).unwrap_or_default();
                self.webhooks().check(&url).map_err(|reason| {
                    format!("{reason}: `webhook_hosts` of `[action]` in barograph.toml has those to which rules may post")
                })
            }
            RuleWork::Copy { from, to } | RuleWork::Move { from, to } => {
                place(from).and_then(|()| place(to))
            }
            RuleWork::Delete { file } => place(file),
            RuleWork::Mail { to, .. } => self.mail.mailer().check(to).map_err(|reason| {
                format!("{reason}: `[action.mail]` in barograph.toml has the server and the addresses to which rules may send")
            }),
        }
    }

    fn check_place(&self, text: &str) -> Result<(), String> {
        let place = PlaceTemplate::parse(text).map_err(|fault| fault.to_string())?;
        match place.store() {
            Some(store) if !self.stores.contains_key(store) => Err(format!(
                "there is no store {store}: name it as [action.stores.{store}] in barograph.toml"
            )),
            _ => Ok(()),
        }
    }

    /// Checks the number of workers, the names of stores and the runtime of containers.
    ///
    /// # Errors
    ///
    /// One of them is wrong.
    pub(crate) fn check_values(&self) -> Result<(), ConfigError> {
        let refused = |key, value: &dyn ToString, reason: &str| {
            Err(ConfigError {
                key,
                value: value.to_string(),
                reason: reason.to_owned(),
            })
        };
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return refused("action.workers", &self.workers, "it must be 1 to 64");
        }
        if let Some(name) = self.stores.keys().find(|name| !is_store_name(name)) {
            let reason = "a name has up to 64 letters, digits, - and _";
            return refused("action.stores", name, reason);
        }
        match self.containers() {
            Ok(_) => Ok(()),
            Err(reason) => {
                let program = self.container_runtime.display();
                refused("action.container_runtime", &program, &reason)
            }
        }
    }

    /// What runs containers, if anything does.
    pub(super) fn containers(&self) -> Result<Option<ContainerRuntime>, String> {
        match self.container_runtime.as_os_str().is_empty() {
            true => Ok(None),
            false => ContainerRuntime::of(&self.container_runtime).map(Some),
        }
    }

    /// How files are transferred: by this program, in a process of its own.
    pub(super) fn transfers(&self) -> TransferConfig {
        let words = ["/proc/self/exe", "transfer", "task"];
        TransferConfig {
            argv: words.map(|word| word.as_bytes().to_vec()).to_vec(),
            stores: self.stores.clone(),
        }
    }

    /// The configuration of the sender of webhooks.
    pub(super) fn webhooks(&self) -> WebhookConfig {
        let (file, proxy) = (&self.webhook_ca_file, &self.webhook_proxy);
        WebhookConfig {
            hosts: self.webhook_hosts.clone(),
            ca_file: (!file.as_os_str().is_empty()).then(|| file.clone()),
            proxy: (!proxy.is_empty()).then(|| proxy.clone()),
            ..WebhookConfig::default()
        }
    }
}
