//! The configuration of actions.

use std::path::PathBuf;

use barograph_action::WebhookConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Actions of rules on file events and on schedules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActionConfig {
    /// Hosts to which rules may post, each as `host`, which allows every port, or `host:port`.
    /// None: no rule may post.
    pub webhook_hosts: Vec<String>,
    /// File with the certificates by which these hosts are known (PEM), in place of the usual ones.
    /// Empty: the usual ones.
    pub webhook_ca_file: PathBuf,
    /// Address of a proxy, such as `http://proxy:3128`. Empty: none.
    pub webhook_proxy: String,
}

impl ActionConfig {
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
