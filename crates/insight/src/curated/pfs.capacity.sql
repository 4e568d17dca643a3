-- Remaining capacity of the parallel file systems: the table pfs_capacity of Apollo's resource
-- query (Apollo, Algorithm 4.4.1), Table 1, row 10 for one tier.
-- Unit: bytes. Meaning: as tier.free.bytes of tier pfs; without a parallel file system the stream
-- is there and has no sample, so that the query is answered.
-- Inputs: filesystem.free.bytes
-- No value: while no parallel file system is mounted; mount one, or name its tier pfs under sources.tiers.rules
CREATE INSIGHT pfs.capacity UNIT 'bytes'
HELP 'Bytes not in use on the parallel file systems seen here.'
AS SELECT sum(value) AS value FROM filesystem_free_bytes WHERE tier = 'pfs'
