//! Tables of Lustre: the facts, and the lines of `stats` files that they come from. The names of
//! the lines are those of `lustre/llite/lproc_llite.c` (client), `lustre/ptlrpc/lproc_ptlrpc.c`
//! (requests to a target), `lustre/ofd/lproc_ofd.c` and `lustre/mdt/mdt_lproc.c` (servers).

use crate::fact::facts;

use super::flow::{FlowTable, Operations, Way};
use super::stats::{Key, Role};

facts! {
    /// Facts of the node.
    pub(crate) enum Node in "lustre" {
        Healthy: State Bool "healthy.flag" "flag" "Whether Lustre holds itself to be healthy.";
        Messages: Gauge Int "lnet.messages.count" "count" "Messages in the hands of LNet, Lustre's network.";
        Errors: Counter Int "lnet.errors.count" "count" "Errors of LNet.";
        Sent: Counter Int "lnet.send.count" "count" "Messages sent.";
        Received: Counter Int "lnet.receive.count" "count" "Messages received.";
        Routed: Counter Int "lnet.route.count" "count" "Messages passed on to another network.";
        Dropped: Counter Int "lnet.drop.count" "count" "Messages dropped.";
        SentBytes: Counter Int "lnet.send.bytes" "bytes" "Sent.";
        ReceivedBytes: Counter Int "lnet.receive.bytes" "bytes" "Received.";
        RoutedBytes: Counter Int "lnet.route.bytes" "bytes" "Passed on to another network.";
        DroppedBytes: Counter Int "lnet.drop.bytes" "bytes" "Dropped.";
        SentRate: Gauge Float "lnet.send.bytes_per_second" "bytes/s" "Sent per second, since the last read.";
        ReceivedRate: Gauge Float "lnet.receive.bytes_per_second" "bytes/s" "Received per second, since the last read.";
    }
}

facts! {
    /// Facts of a client's connection to one target.
    pub(crate) enum Import in "lustre.import" {
        State: State Text "state.name" "name" "State of the connection: FULL when it is whole, IDLE when it was closed for want of use.";
        Connected: State Bool "connected.flag" "flag" "Whether the target can be used: its connection is FULL, or IDLE.";
        Inflight: Gauge Int "inflight.requests" "requests" "Requests in flight at the moment of the read.";
        InflightMax: State Int "inflight.max.requests" "requests" "Most requests that the client has in flight.";
        Timeouts: Counter Int "timeouts.count" "count" "Requests that got no answer in time.";
        Attempts: Counter Int "attempts.count" "count" "Attempts to connect.";
        Estimate: Gauge Float "estimate.seconds" "seconds" "How long the client expects the target's slowest service to take.";
        Active: State Bool "active.flag" "flag" "Whether an administrator lets the target be used.";
    }
}

facts! {
    /// Facts of a target on its server.
    pub(crate) enum Target in "lustre.target" {
        Total: Gauge Int "total.bytes" "bytes" "Size of the target.";
        Free: Gauge Int "free.bytes" "bytes" "Space that nothing uses.";
        Available: Gauge Int "available.bytes" "bytes" "Space that clients may still use.";
        Used: Gauge Float "used.ratio" "ratio" "Used space as a share of used and available space.";
        FilesTotal: Gauge Int "files.total.count" "count" "Objects that the target can hold.";
        FilesFree: Gauge Int "files.free.count" "count" "Objects that it can still take.";
        Exports: Gauge Int "exports.count" "count" "Clients and servers that are connected to the target.";
        Recovery: State Text "recovery.name" "name" "State of recovery: COMPLETE, RECOVERING while clients return, WAITING, INACTIVE.";
        Degraded: State Bool "degraded.flag" "flag" "Whether an administrator or the RAID has marked the target as degraded.";
    }
}

facts! {
    /// Facts of a mounted file system.
    pub(crate) enum Client in "lustre.client" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read by programs, from the cache too.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written by programs.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by programs.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by programs.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes since the last read-out; 0 if there were none.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Operations on names and attributes.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Operations on names and attributes per second, since the last read-out.";
        MetadataLatency: Gauge Float "metadata.latency.seconds" "seconds" "Mean time of the operations on names and attributes since the last read-out; 0 if there were none.";
        Open: Counter Int "open.ops" "ops" "Opens.";
        Close: Counter Int "close.ops" "ops" "Closes.";
        Mmap: Counter Int "mmap.ops" "ops" "Mappings into memory.";
        Sync: Counter Int "sync.ops" "ops" "Syncs.";
        Readdir: Counter Int "readdir.ops" "ops" "Reads of directories.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Truncate: Counter Int "truncate.ops" "ops" "Truncations.";
        Flock: Counter Int "flock.ops" "ops" "File locks.";
        Getattr: Counter Int "getattr.ops" "ops" "Looks at attributes.";
        Create: Counter Int "create.ops" "ops" "Files created.";
        Link: Counter Int "link.ops" "ops" "Hard links made.";
        Unlink: Counter Int "unlink.ops" "ops" "Files removed.";
        Symlink: Counter Int "symlink.ops" "ops" "Symbolic links made.";
        Mkdir: Counter Int "mkdir.ops" "ops" "Directories made.";
        Rmdir: Counter Int "rmdir.ops" "ops" "Directories removed.";
        Mknod: Counter Int "mknod.ops" "ops" "Files and special files made.";
        Rename: Counter Int "rename.ops" "ops" "Files and directories renamed.";
        Statfs: Counter Int "statfs.ops" "ops" "Questions for space.";
        Setxattr: Counter Int "setxattr.ops" "ops" "Changes of extended attributes.";
        Getxattr: Counter Int "getxattr.ops" "ops" "Reads of extended attributes.";
    }
}

facts! {
    /// Facts of the requests of a client to an object target.
    pub(crate) enum Osc in "lustre.osc" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read from the target.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written to the target.";
        ReadOps: Counter Int "read.ops" "ops" "Read requests to the target.";
        WriteOps: Counter Int "write.ops" "ops" "Write requests to the target.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes since the last read-out; 0 if there were none.";
        RequestOps: Counter Int "request.ops" "ops" "Requests of every kind that were answered.";
        RequestRate: Gauge Float "request.ops_per_second" "ops/s" "Requests answered per second, since the last read-out.";
        RequestLatency: Gauge Float "request.latency.seconds" "seconds" "Mean time from sending a request to its answer, since the last read-out; 0 if there were none.";
        Dirty: Gauge Int "dirty.bytes" "bytes" "Written by programs and not yet by the target.";
        Grant: Gauge Int "grant.bytes" "bytes" "Space that the target has promised to this client.";
    }
}

facts! {
    /// Facts of the requests of a client to a metadata target.
    pub(crate) enum Mdc in "lustre.mdc" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read from the target.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written to the target.";
        ReadOps: Counter Int "read.ops" "ops" "Read requests to the target.";
        WriteOps: Counter Int "write.ops" "ops" "Write requests to the target.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes since the last read-out; 0 if there were none.";
        RequestOps: Counter Int "request.ops" "ops" "Requests of every kind that were answered.";
        RequestRate: Gauge Float "request.ops_per_second" "ops/s" "Requests answered per second, since the last read-out.";
        RequestLatency: Gauge Float "request.latency.seconds" "seconds" "Mean time from sending a request to its answer, since the last read-out; 0 if there were none.";
    }
}

facts! {
    /// Facts of an object target on its server.
    pub(crate) enum Ost in "lustre.ost" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read by clients.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written by clients.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by clients.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by clients.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes since the last read-out; 0 if there were none.";
        Getattr: Counter Int "getattr.ops" "ops" "Looks at attributes.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Punch: Counter Int "punch.ops" "ops" "Truncations and holes made.";
        Sync: Counter Int "sync.ops" "ops" "Syncs.";
        Destroy: Counter Int "destroy.ops" "ops" "Objects removed.";
        Create: Counter Int "create.ops" "ops" "Files created.";
        Statfs: Counter Int "statfs.ops" "ops" "Questions for space.";
    }
}

facts! {
    /// Facts of a metadata target on its server.
    pub(crate) enum Mdt in "lustre.mdt" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read by clients.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written by clients.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by clients.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by clients.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes since the last read-out; 0 if there were none.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Operations on names and attributes.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Operations on names and attributes per second, since the last read-out.";
        MetadataLatency: Gauge Float "metadata.latency.seconds" "seconds" "Mean time of the operations on names and attributes since the last read-out; 0 if there were none.";
        Open: Counter Int "open.ops" "ops" "Opens.";
        Close: Counter Int "close.ops" "ops" "Closes.";
        Mknod: Counter Int "mknod.ops" "ops" "Files and special files made.";
        Link: Counter Int "link.ops" "ops" "Hard links made.";
        Unlink: Counter Int "unlink.ops" "ops" "Files removed.";
        Mkdir: Counter Int "mkdir.ops" "ops" "Directories made.";
        Rmdir: Counter Int "rmdir.ops" "ops" "Directories removed.";
        Rename: Counter Int "rename.ops" "ops" "Files and directories renamed.";
        Getattr: Counter Int "getattr.ops" "ops" "Looks at attributes.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Getxattr: Counter Int "getxattr.ops" "ops" "Reads of extended attributes.";
        Setxattr: Counter Int "setxattr.ops" "ops" "Changes of extended attributes.";
        Statfs: Counter Int "statfs.ops" "ops" "Questions for space.";
        Sync: Counter Int "sync.ops" "ops" "Syncs.";
    }
}

/// The facts of reads and writes, which have the same names in every table.
macro_rules! ways {
    () => {
        const READ: Option<Way<Self>> = Some(Way {
            bytes: Self::ReadBytes,
            ops: Self::ReadOps,
            seconds: Self::ReadSeconds,
            bytes_rate: Self::ReadRate,
            latency: Self::ReadLatency,
        });
        const WRITE: Option<Way<Self>> = Some(Way {
            bytes: Self::WriteBytes,
            ops: Self::WriteOps,
            seconds: Self::WriteSeconds,
            bytes_rate: Self::WriteRate,
            latency: Self::WriteLatency,
        });
    };
}

/// The facts of operations, by the names that they have in the table.
macro_rules! operations {
    ($ops:ident $rate:ident $latency:ident) => {
        const OPERATIONS: Option<Operations<Self>> = Some(Operations {
            ops: Self::$ops,
            rate: Self::$rate,
            latency: Self::$latency,
        });
    };
}

const fn key<T>(name: &'static [u8], role: Role) -> Key<T> {
    let fact = None;
    Key { name, role, fact }
}

const fn counted<T>(name: &'static [u8], role: Role, fact: T) -> Key<T> {
    let fact = Some(fact);
    Key { name, role, fact }
}

// Not counted as metadata: `inode_permission` and `seek`, which ask no server, and lines that count
// the same operation again (`opencount`, `getxattr_hits`).
impl FlowTable for Client {
    #[rustfmt::skip]
    const KEYS: &'static [Key<Self>] = &[
        key(b"read_bytes", Role::ReadBytes),
        key(b"write_bytes", Role::WriteBytes),
        key(b"read", Role::ReadTime),
        key(b"write", Role::WriteTime),
        counted(b"open", Role::Metadata, Self::Open),
        counted(b"close", Role::Metadata, Self::Close),
        counted(b"mmap", Role::Other, Self::Mmap),
        counted(b"fsync", Role::Other, Self::Sync),
        counted(b"readdir", Role::Metadata, Self::Readdir),
        counted(b"setattr", Role::Metadata, Self::Setattr),
        counted(b"truncate", Role::Metadata, Self::Truncate),
        counted(b"flock", Role::Other, Self::Flock),
        counted(b"getattr", Role::Metadata, Self::Getattr),
        counted(b"create", Role::Metadata, Self::Create),
        counted(b"link", Role::Metadata, Self::Link),
        counted(b"unlink", Role::Metadata, Self::Unlink),
        counted(b"symlink", Role::Metadata, Self::Symlink),
        counted(b"mkdir", Role::Metadata, Self::Mkdir),
        counted(b"rmdir", Role::Metadata, Self::Rmdir),
        counted(b"mknod", Role::Metadata, Self::Mknod),
        counted(b"rename", Role::Metadata, Self::Rename),
        counted(b"statfs", Role::Metadata, Self::Statfs),
        counted(b"setxattr", Role::Metadata, Self::Setxattr),
        counted(b"getxattr", Role::Metadata, Self::Getxattr),
        key(b"listxattr", Role::Metadata),
        key(b"removexattr", Role::Metadata),
    ];
    ways!();
    operations!(MetadataOps MetadataRate MetadataLatency);
}

impl FlowTable for Osc {
    #[rustfmt::skip]
    const KEYS: &'static [Key<Self>] = &[
        key(b"req_waittime", Role::Request),
        key(b"read_bytes", Role::ReadBytes),
        key(b"write_bytes", Role::WriteBytes),
        key(b"ost_read", Role::ReadTime),
        key(b"ost_write", Role::WriteTime),
    ];
    ways!();
    operations!(RequestOps RequestRate RequestLatency);
}

// A metadata target can be set up to hold the data of small files; it is then read like an object
// target.
impl FlowTable for Mdc {
    #[rustfmt::skip]
    const KEYS: &'static [Key<Self>] = &[
        key(b"req_waittime", Role::Request),
        key(b"read_bytes", Role::ReadBytes),
        key(b"write_bytes", Role::WriteBytes),
        key(b"ost_read", Role::ReadTime),
        key(b"ost_write", Role::WriteTime),
    ];
    ways!();
    operations!(RequestOps RequestRate RequestLatency);
}

impl FlowTable for Ost {
    #[rustfmt::skip]
    const KEYS: &'static [Key<Self>] = &[
        key(b"read_bytes", Role::ReadBytes),
        key(b"write_bytes", Role::WriteBytes),
        key(b"read", Role::ReadTime),
        key(b"write", Role::WriteTime),
        counted(b"getattr", Role::Other, Self::Getattr),
        counted(b"setattr", Role::Other, Self::Setattr),
        counted(b"punch", Role::Other, Self::Punch),
        counted(b"sync", Role::Other, Self::Sync),
        counted(b"destroy", Role::Other, Self::Destroy),
        counted(b"create", Role::Other, Self::Create),
        counted(b"statfs", Role::Other, Self::Statfs),
    ];
    ways!();
    const OPERATIONS: Option<Operations<Self>> = None;
}

// Not counted: `samedir_rename`, `crossdir_rename` and the like, which count renames again.
impl FlowTable for Mdt {
    #[rustfmt::skip]
    const KEYS: &'static [Key<Self>] = &[
        counted(b"open", Role::Metadata, Self::Open),
        counted(b"close", Role::Metadata, Self::Close),
        counted(b"mknod", Role::Metadata, Self::Mknod),
        counted(b"link", Role::Metadata, Self::Link),
        counted(b"unlink", Role::Metadata, Self::Unlink),
        counted(b"mkdir", Role::Metadata, Self::Mkdir),
        counted(b"rmdir", Role::Metadata, Self::Rmdir),
        counted(b"rename", Role::Metadata, Self::Rename),
        counted(b"getattr", Role::Metadata, Self::Getattr),
        counted(b"setattr", Role::Metadata, Self::Setattr),
        counted(b"getxattr", Role::Metadata, Self::Getxattr),
        counted(b"setxattr", Role::Metadata, Self::Setxattr),
        counted(b"statfs", Role::Metadata, Self::Statfs),
        counted(b"sync", Role::Metadata, Self::Sync),
        key(b"migrate", Role::Metadata),
        key(b"read_bytes", Role::ReadBytes),
        key(b"write_bytes", Role::WriteBytes),
        key(b"read", Role::ReadTime),
        key(b"write", Role::WriteTime),
    ];
    ways!();
    operations!(MetadataOps MetadataRate MetadataLatency);
}
