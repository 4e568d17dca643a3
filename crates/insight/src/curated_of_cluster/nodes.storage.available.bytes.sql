-- Total available space of the cluster: the final vertex of Apollo, Figure 2, which combines the
-- insights below it.
-- Unit: bytes. Meaning: the sum of nodes.tier.available.bytes over all tiers.
-- Decision: file systems in memory are not storage and are left out.
-- Inputs: nodes.tier.available.bytes
-- No value: while every file system is in memory; mount one that is not
CREATE INSIGHT nodes.storage.available.bytes UNIT 'bytes'
HELP 'Space that users can still use on all file systems of the cluster, except those in memory (Apollo, Figure 2).'
AS SELECT sum(value) AS value FROM nodes_tier_available_bytes
WHERE tier IS NULL OR tier <> 'memory'
