-- Remaining capacity of the parallel file systems: the table pfs_capacity of Apollo's resource
-- query (Apollo, Algorithm 4.4.1), Table 1, row 10 for one tier.
-- Unit: bytes. Meaning: as tier.available.bytes of tier pfs; without a parallel file system the stream
-- is there and has no sample, so that the query is answered.
-- Inputs: filesystem.available.bytes
-- No value: while no parallel file system is mounted; mount one, or name its tier pfs under sources.tiers.rules
CREATE INSIGHT pfs.capacity UNIT 'bytes'
HELP 'Bytes that users can still write on the parallel file systems seen here.'
AS SELECT sum(value) AS value FROM filesystem_available_bytes WHERE tier = 'pfs'
