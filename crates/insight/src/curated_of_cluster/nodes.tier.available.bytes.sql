-- Remaining capacity of a tier over all nodes of the cluster. Apollo, Table 1, row 10, and the
-- insights of Apollo, Figure 2.
-- Unit: bytes. Meaning: the sum of tier.available.bytes of all nodes that are mirrored here, and of
-- this one.
-- Decision: a parallel or network file system (tier pfs) is the same on all nodes that mount it, so
-- it must not be counted once for each of them. The greatest value of a node stands for all: it is
-- right if some node mounts all of them, and otherwise too low.
-- Inputs: cluster.tier.available.bytes
-- No value: until this node has a tier; mount a file system
CREATE INSIGHT nodes.tier.available.bytes UNIT 'bytes'
HELP 'Space that users can still use on a tier, over all nodes of the cluster (Apollo, Table 1, row 10); the tier pfs is counted once.'
AS SELECT tier, iif(tier = 'pfs', max(value), sum(value)) AS value
FROM cluster_tier_available_bytes GROUP BY tier
