-- Capacity of a tier over all nodes of the cluster, to which nodes.tier.available.bytes can be
-- compared.
-- Unit: bytes. Meaning: the sum of tier.total.bytes of all nodes that are mirrored here, and of this
-- one.
-- Decision: the tier pfs is counted as in nodes.tier.available.bytes.
-- Inputs: cluster.tier.total.bytes
-- No value: until this node has a tier; mount a file system
CREATE INSIGHT nodes.tier.total.bytes UNIT 'bytes'
HELP 'Size of a tier over all nodes of the cluster; the tier pfs is counted once.'
AS SELECT tier, iif(tier = 'pfs', max(value), sum(value)) AS value
FROM cluster_tier_total_bytes GROUP BY tier
