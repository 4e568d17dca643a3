//! Observers of the other nodes of the cluster, whose streams the agent mirrors into memory of this
//! node.
//!
//! They are a module of their own because a mirror is read like any other run directory: only
//! finding it is different, and what it means that there is none.

use std::sync::Arc;

use barograph_model::SqlFault;
use barograph_query::QueryError;
use barograph_stream::{StreamError, is_node_name};

use crate::{ClientError, Observer};

impl Observer {
    /// The name of the node whose streams are read.
    pub fn node(&self) -> String {
        match self.run_dir.mirrored_node() {
            Some(node) => node.to_owned(),
            None => self.follower.view().segment().node(),
        }
    }

    /// Whether this reads the mirror of another node.
    pub fn is_mirror(&self) -> bool {
        self.run_dir.mirrored_node().is_some()
    }

    /// The names of the other nodes whose streams are mirrored here, sorted; this node is not among
    /// them. A node that has gone is among them for 10 minutes: its values can be read, and are
    /// marked as stale.
    pub fn nodes(&self) -> Vec<String> {
        let mirrors = self.home().run_dir.mirrors().into_iter();
        mirrors.map(|(node, _)| node).collect()
    }

    /// Returns the observer of a node of the cluster, by its name: of another one, that of its
    /// mirror, which reads the memory of this node; of this node, its own. The same holds for the
    /// observer of a mirror.
    ///
    /// A mirror has the streams that `cluster.mirror` chooses, in the order and with the times and
    /// values of their owner. Ages are measured by the clock of this node, so they are wrong by the
    /// difference of both clocks (`ahead_ns` in the table `peers`). Values are stale as soon as
    /// nothing has been heard of the owner for
    /// [`HEARTBEAT_AGE_NS_MAX`](crate::HEARTBEAT_AGE_NS_MAX), as soon as the agent of this node has
    /// ended, and if the next look is overdue. The observer outlives the mirror: it goes on when
    /// the node is back, or the agent of this node.
    ///
    /// [`ClientError::UnknownNode`] if there is no mirror of that name.
    pub fn of_node(&self, node: &str) -> Result<Self, ClientError> {
        let home = self.home();
        if node == home.node() {
            return Ok(home.clone());
        }
        // A name that no node can have must not become part of a path.
        if !is_node_name(node) {
            return Err(home.unknown_node(node));
        }
        let clock = Arc::clone(home.follower.clock());
        let mut mirror = match Self::open_scopes(home.run_dir.mirror(node), home.scopes, clock) {
            Err(ClientError::NoAgent { .. }) => return Err(home.unknown_node(node)),
            opened => opened?,
        };
        mirror.home = Some(Arc::new(home.clone()));
        Ok(mirror)
    }

    /// The observer of the node on which this runs.
    pub(crate) fn home(&self) -> &Self {
        self.home.as_deref().unwrap_or(self)
    }

    /// The error for a node that is not mirrored.
    fn unknown_node(&self, node: &str) -> ClientError {
        self.run_dir.unknown_node(node, &self.node()).into()
    }

    /// The error as it is meant here: a mirror that is missing is no missing agent.
    pub(crate) fn of_this(&self, error: ClientError) -> ClientError {
        match (error, &self.home) {
            (ClientError::NoAgent { .. }, Some(home)) => home.unknown_node(&self.node()),
            (error, _) => error,
        }
    }

    /// Like [`Self::of_this`], for statements and history.
    pub(crate) fn fault(&self, error: QueryError) -> SqlFault {
        match error {
            QueryError::Stream(error @ StreamError::NoAgent { .. }) if self.home.is_some() => {
                SqlFault {
                    kind: barograph_model::SqlFaultKind::Internal,
                    message: self.of_this(error.into()).to_string(),
                }
            }
            error => error.into(),
        }
    }
}
