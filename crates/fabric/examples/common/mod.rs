//! A transport in memory whose sending the examples replace, to count, delay and lose messages.

use barograph_fabric::transport::{
    MemoryTransport, Peer, Refusal, SendFault, Transport, TransportCounts, TransportEvent,
};

/// Sends a message by the transport in memory, now or later, or loses it.
pub(crate) type Send = Box<dyn FnMut(&mut MemoryTransport, &str, Vec<u8>) -> Result<(), SendFault>>;

/// The transport.
pub(crate) struct TappedTransport {
    pub inner: MemoryTransport,
    pub send: Send,
}

impl Transport for TappedTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        (self.send)(&mut self.inner, to, message)
    }

    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent> {
        self.inner.receive(deadline_ns)
    }

    fn peers(&self) -> Vec<Peer> {
        self.inner.peers()
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.inner.refusals()
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }
}
