//! Tables of Lustre: the facts, and the lines of `stats` files that they come from. The names of
//! the lines are those of `lustre/llite/lproc_llite.c` (client), `lustre/ptlrpc/lproc_ptlrpc.c`
//! (requests to a target), `lustre/ofd/lproc_ofd.c` and `lustre/mdt/mdt_lproc.c` (servers).

use crate::fact::facts;

use super::flow::{FlowTable, Operations, Way};
use super::stats::{LineKey, LineRole};

facts! {
    /// Facts of the node.
    pub(crate) enum NodeFact in "lustre" {
        Healthy: State Bool "healthy.flag" "flag" "Whether Lustre reports itself healthy.";
        Messages: Gauge Int "lnet.messages.count" "count" "Messages that LNet (Lustre's network) is handling now.";
        Errors: Counter Int "lnet.errors.count" "count" "Errors of LNet.";
        Sent: Counter Int "lnet.send.count" "count" "Messages that LNet has sent.";
        Received: Counter Int "lnet.receive.count" "count" "Messages that LNet has received.";
        Routed: Counter Int "lnet.route.count" "count" "Messages that LNet has routed to another network.";
        Dropped: Counter Int "lnet.drop.count" "count" "Messages that LNet has dropped.";
        SentBytes: Counter Int "lnet.send.bytes" "bytes" "Bytes that LNet has sent.";
        ReceivedBytes: Counter Int "lnet.receive.bytes" "bytes" "Bytes that LNet has received.";
        RoutedBytes: Counter Int "lnet.route.bytes" "bytes" "Bytes that LNet has routed to another network.";
        DroppedBytes: Counter Int "lnet.drop.bytes" "bytes" "Bytes that LNet has dropped.";
        SentRate: Gauge Float "lnet.send.bytes_per_second" "bytes/s" "Bytes that LNet sends per second, averaged since the last poll.";
        ReceivedRate: Gauge Float "lnet.receive.bytes_per_second" "bytes/s" "Bytes that LNet receives per second, averaged since the last poll.";
    }
}

facts! {
    /// Facts of a client's connection to one target.
    pub(crate) enum ImportFact in "lustre.import" {
        State: State Text "state.name" "name" "State of the connection to the target: FULL if it is established, IDLE if it was closed because it was not used.";
        Connected: State Bool "connected.flag" "flag" "Whether the target can be used, which it can if its connection is FULL or IDLE.";
        Inflight: Gauge Int "inflight.requests" "requests" "Requests in flight at the moment of the poll.";
        InflightMax: State Int "inflight.max.requests" "requests" "Greatest number of requests that the client keeps in flight.";
        Timeouts: Counter Int "timeouts.count" "count" "Requests that were not answered in time.";
        Attempts: Counter Int "attempts.count" "count" "Attempts to connect to the target.";
        Estimate: Gauge Float "estimate.seconds" "seconds" "Service time that the client expects of the slowest service of the target.";
        Active: State Bool "active.flag" "flag" "Whether an administrator permits the use of the target.";
    }
}

facts! {
    /// Facts of a target on its server.
    pub(crate) enum TargetFact in "lustre.target" {
        Total: Gauge Int "total.bytes" "bytes" "Size of the target.";
        Free: Gauge Int "free.bytes" "bytes" "Unused space of the target.";
        Available: Gauge Int "available.bytes" "bytes" "Space that is available to clients.";
        Used: Gauge Float "used.ratio" "ratio" "Used space as a share of used and available space.";
        FilesTotal: Gauge Int "files.total.count" "count" "Total number of objects that the target can hold.";
        FilesFree: Gauge Int "files.free.count" "count" "Number of further objects that the target can hold.";
        Exports: Gauge Int "exports.count" "count" "Clients and servers that are connected to the target.";
        Recovery: State Text "recovery.name" "name" "State of recovery: COMPLETE, RECOVERING (clients are reconnecting), WAITING or INACTIVE.";
        Degraded: State Bool "degraded.flag" "flag" "Whether an administrator or the RAID has marked the target as degraded.";
    }
}

facts! {
    /// Facts of a mounted file system.
    pub(crate) enum ClientFact in "lustre.client" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by programs, those from the cache included.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by programs.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by programs.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by programs.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes since the last poll; 0 if there were none.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Metadata operations: those on names and attributes.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Metadata operations per second, averaged since the last poll.";
        MetadataLatency: Gauge Float "metadata.latency.seconds" "seconds" "Mean latency of the metadata operations since the last poll; 0 if there were none.";
        Open: Counter Int "open.ops" "ops" "Files opened.";
        Close: Counter Int "close.ops" "ops" "Files closed.";
        Mmap: Counter Int "mmap.ops" "ops" "Mappings of files into memory.";
        Sync: Counter Int "sync.ops" "ops" "Syncs of files.";
        Readdir: Counter Int "readdir.ops" "ops" "Reads of directories.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Truncate: Counter Int "truncate.ops" "ops" "Truncations of files.";
        Flock: Counter Int "flock.ops" "ops" "File lock operations.";
        Getattr: Counter Int "getattr.ops" "ops" "Reads of attributes.";
        Create: Counter Int "create.ops" "ops" "Files created.";
        Link: Counter Int "link.ops" "ops" "Hard links created.";
        Unlink: Counter Int "unlink.ops" "ops" "Files removed.";
        Symlink: Counter Int "symlink.ops" "ops" "Symbolic links created.";
        Mkdir: Counter Int "mkdir.ops" "ops" "Directories created.";
        Rmdir: Counter Int "rmdir.ops" "ops" "Directories removed.";
        Mknod: Counter Int "mknod.ops" "ops" "Files and special files created.";
        Rename: Counter Int "rename.ops" "ops" "Files and directories renamed.";
        Statfs: Counter Int "statfs.ops" "ops" "Queries of free space (statfs).";
        Setxattr: Counter Int "setxattr.ops" "ops" "Changes of extended attributes.";
        Getxattr: Counter Int "getxattr.ops" "ops" "Reads of extended attributes.";
    }
}

facts! {
    /// Facts of the requests of a client to an object target.
    pub(crate) enum OscFact in "lustre.osc" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from the target.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written to the target.";
        ReadOps: Counter Int "read.ops" "ops" "Read requests sent to the target.";
        WriteOps: Counter Int "write.ops" "ops" "Write requests sent to the target.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes since the last poll; 0 if there were none.";
        RequestOps: Counter Int "request.ops" "ops" "Requests of all kinds that were answered.";
        RequestRate: Gauge Float "request.ops_per_second" "ops/s" "Requests answered per second, averaged since the last poll.";
        RequestLatency: Gauge Float "request.latency.seconds" "seconds" "Mean time from sending a request to its answer, since the last poll; 0 if there were none.";
        Dirty: Gauge Int "dirty.bytes" "bytes" "Bytes that programs have written and that have not reached the target yet.";
        Grant: Gauge Int "grant.bytes" "bytes" "Space that the target has reserved (granted) for this client.";
    }
}

facts! {
    /// Facts of the requests of a client to a metadata target.
    pub(crate) enum MdcFact in "lustre.mdc" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from the target.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written to the target.";
        ReadOps: Counter Int "read.ops" "ops" "Read requests sent to the target.";
        WriteOps: Counter Int "write.ops" "ops" "Write requests sent to the target.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes since the last poll; 0 if there were none.";
        RequestOps: Counter Int "request.ops" "ops" "Requests of all kinds that were answered.";
        RequestRate: Gauge Float "request.ops_per_second" "ops/s" "Requests answered per second, averaged since the last poll.";
        RequestLatency: Gauge Float "request.latency.seconds" "seconds" "Mean time from sending a request to its answer, since the last poll; 0 if there were none.";
    }
}

facts! {
    /// Facts of an object target on its server.
    pub(crate) enum OstFact in "lustre.ost" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by clients.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by clients.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by clients.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by clients.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes since the last poll; 0 if there were none.";
        Getattr: Counter Int "getattr.ops" "ops" "Reads of attributes.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Punch: Counter Int "punch.ops" "ops" "Truncations of objects, and holes made in them.";
        Sync: Counter Int "sync.ops" "ops" "Syncs of objects.";
        Destroy: Counter Int "destroy.ops" "ops" "Objects removed.";
        Create: Counter Int "create.ops" "ops" "Files created.";
        Statfs: Counter Int "statfs.ops" "ops" "Queries of free space (statfs).";
    }
}

facts! {
    /// Facts of a metadata target on its server.
    pub(crate) enum MdtFact in "lustre.mdt" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read by clients.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by clients.";
        ReadOps: Counter Int "read.ops" "ops" "Reads by clients.";
        WriteOps: Counter Int "write.ops" "ops" "Writes by clients.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes since the last poll; 0 if there were none.";
        MetadataOps: Counter Int "metadata.ops" "ops" "Metadata operations: those on names and attributes.";
        MetadataRate: Gauge Float "metadata.ops_per_second" "ops/s" "Metadata operations per second, averaged since the last poll.";
        MetadataLatency: Gauge Float "metadata.latency.seconds" "seconds" "Mean latency of the metadata operations since the last poll; 0 if there were none.";
        Open: Counter Int "open.ops" "ops" "Files opened.";
        Close: Counter Int "close.ops" "ops" "Files closed.";
        Mknod: Counter Int "mknod.ops" "ops" "Files and special files created.";
        Link: Counter Int "link.ops" "ops" "Hard links created.";
        Unlink: Counter Int "unlink.ops" "ops" "Files removed.";
        Mkdir: Counter Int "mkdir.ops" "ops" "Directories created.";
        Rmdir: Counter Int "rmdir.ops" "ops" "Directories removed.";
        Rename: Counter Int "rename.ops" "ops" "Files and directories renamed.";
        Getattr: Counter Int "getattr.ops" "ops" "Reads of attributes.";
        Setattr: Counter Int "setattr.ops" "ops" "Changes of attributes.";
        Getxattr: Counter Int "getxattr.ops" "ops" "Reads of extended attributes.";
        Setxattr: Counter Int "setxattr.ops" "ops" "Changes of extended attributes.";
        Statfs: Counter Int "statfs.ops" "ops" "Queries of free space (statfs).";
        Sync: Counter Int "sync.ops" "ops" "Syncs of files.";
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

const fn key<T>(name: &'static [u8], role: LineRole) -> LineKey<T> {
    let fact = None;
    LineKey { name, role, fact }
}

const fn counted<T>(name: &'static [u8], role: LineRole, fact: T) -> LineKey<T> {
    let fact = Some(fact);
    LineKey { name, role, fact }
}

// Not counted as metadata: `inode_permission` and `seek`, which ask no server, and lines that count
// the same operation again (`opencount`, `getxattr_hits`).
impl FlowTable for ClientFact {
    #[rustfmt::skip]
    const KEYS: &'static [LineKey<Self>] = &[
        key(b"read_bytes", LineRole::ReadBytes),
        key(b"write_bytes", LineRole::WriteBytes),
        key(b"read", LineRole::ReadTime),
        key(b"write", LineRole::WriteTime),
        counted(b"open", LineRole::Metadata, Self::Open),
        counted(b"close", LineRole::Metadata, Self::Close),
        counted(b"mmap", LineRole::Other, Self::Mmap),
        counted(b"fsync", LineRole::Other, Self::Sync),
        counted(b"readdir", LineRole::Metadata, Self::Readdir),
        counted(b"setattr", LineRole::Metadata, Self::Setattr),
        counted(b"truncate", LineRole::Metadata, Self::Truncate),
        counted(b"flock", LineRole::Other, Self::Flock),
        counted(b"getattr", LineRole::Metadata, Self::Getattr),
        counted(b"create", LineRole::Metadata, Self::Create),
        counted(b"link", LineRole::Metadata, Self::Link),
        counted(b"unlink", LineRole::Metadata, Self::Unlink),
        counted(b"symlink", LineRole::Metadata, Self::Symlink),
        counted(b"mkdir", LineRole::Metadata, Self::Mkdir),
        counted(b"rmdir", LineRole::Metadata, Self::Rmdir),
        counted(b"mknod", LineRole::Metadata, Self::Mknod),
        counted(b"rename", LineRole::Metadata, Self::Rename),
        counted(b"statfs", LineRole::Metadata, Self::Statfs),
        counted(b"setxattr", LineRole::Metadata, Self::Setxattr),
        counted(b"getxattr", LineRole::Metadata, Self::Getxattr),
        key(b"listxattr", LineRole::Metadata),
        key(b"removexattr", LineRole::Metadata),
    ];
    ways!();
    operations!(MetadataOps MetadataRate MetadataLatency);
}

impl FlowTable for OscFact {
    #[rustfmt::skip]
    const KEYS: &'static [LineKey<Self>] = &[
        key(b"req_waittime", LineRole::Request),
        key(b"read_bytes", LineRole::ReadBytes),
        key(b"write_bytes", LineRole::WriteBytes),
        key(b"ost_read", LineRole::ReadTime),
        key(b"ost_write", LineRole::WriteTime),
    ];
    ways!();
    operations!(RequestOps RequestRate RequestLatency);
}

// A metadata target can be set up to hold the data of small files; it is then read like an object
// target.
impl FlowTable for MdcFact {
    #[rustfmt::skip]
    const KEYS: &'static [LineKey<Self>] = &[
        key(b"req_waittime", LineRole::Request),
        key(b"read_bytes", LineRole::ReadBytes),
        key(b"write_bytes", LineRole::WriteBytes),
        key(b"ost_read", LineRole::ReadTime),
        key(b"ost_write", LineRole::WriteTime),
    ];
    ways!();
    operations!(RequestOps RequestRate RequestLatency);
}

impl FlowTable for OstFact {
    #[rustfmt::skip]
    const KEYS: &'static [LineKey<Self>] = &[
        key(b"read_bytes", LineRole::ReadBytes),
        key(b"write_bytes", LineRole::WriteBytes),
        key(b"read", LineRole::ReadTime),
        key(b"write", LineRole::WriteTime),
        counted(b"getattr", LineRole::Other, Self::Getattr),
        counted(b"setattr", LineRole::Other, Self::Setattr),
        counted(b"punch", LineRole::Other, Self::Punch),
        counted(b"sync", LineRole::Other, Self::Sync),
        counted(b"destroy", LineRole::Other, Self::Destroy),
        counted(b"create", LineRole::Other, Self::Create),
        counted(b"statfs", LineRole::Other, Self::Statfs),
    ];
    ways!();
    const OPERATIONS: Option<Operations<Self>> = None;
}

// Not counted: `samedir_rename`, `crossdir_rename` and the like, which count renames again.
impl FlowTable for MdtFact {
    #[rustfmt::skip]
    const KEYS: &'static [LineKey<Self>] = &[
        counted(b"open", LineRole::Metadata, Self::Open),
        counted(b"close", LineRole::Metadata, Self::Close),
        counted(b"mknod", LineRole::Metadata, Self::Mknod),
        counted(b"link", LineRole::Metadata, Self::Link),
        counted(b"unlink", LineRole::Metadata, Self::Unlink),
        counted(b"mkdir", LineRole::Metadata, Self::Mkdir),
        counted(b"rmdir", LineRole::Metadata, Self::Rmdir),
        counted(b"rename", LineRole::Metadata, Self::Rename),
        counted(b"getattr", LineRole::Metadata, Self::Getattr),
        counted(b"setattr", LineRole::Metadata, Self::Setattr),
        counted(b"getxattr", LineRole::Metadata, Self::Getxattr),
        counted(b"setxattr", LineRole::Metadata, Self::Setxattr),
        counted(b"statfs", LineRole::Metadata, Self::Statfs),
        counted(b"sync", LineRole::Metadata, Self::Sync),
        key(b"migrate", LineRole::Metadata),
        key(b"read_bytes", LineRole::ReadBytes),
        key(b"write_bytes", LineRole::WriteBytes),
        key(b"read", LineRole::ReadTime),
        key(b"write", LineRole::WriteTime),
    ];
    ways!();
    operations!(MetadataOps MetadataRate MetadataLatency);
}
