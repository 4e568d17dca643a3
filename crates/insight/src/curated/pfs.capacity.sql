-- Remaining capacity of the parallel file systems: the table pfs_capacity of Apollo's resource
-- query (Apollo, Algorithm 4.4.1), which is Table 1, row 10 for one tier.
-- Unit: bytes. Meaning: the same as tier.available.bytes of tier pfs. Without a parallel file
-- system the stream exists and has no sample, so that the query gets an answer.
-- Inputs: filesystem.available.bytes
-- No value: while no parallel file system is mounted; mount one, or name its tier pfs under sources.tiers.rules
CREATE INSIGHT pfs.capacity UNIT 'bytes'
HELP 'Space that users can still use on the parallel file systems that this node mounts.'
AS SELECT sum(value) AS value FROM filesystem_available_bytes WHERE tier = 'pfs'
