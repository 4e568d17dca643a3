//! Policies over a segment, and with a poller.
