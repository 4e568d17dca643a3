-- Remaining capacity of a tier. Apollo, Table 1, row 10: the sum over a tier's devices of
-- DeviceCapacity - CapacityUsed.
-- Unit: bytes. Meaning: space that users can still use on all file systems of a tier, as df's
-- Avail.
-- Decision: space that is reserved for root is left out, because users cannot use it;
-- filesystem.free.bytes includes it.
-- Inputs: filesystem.available.bytes
CREATE INSIGHT tier.available.bytes UNIT 'bytes'
HELP 'Space that users can still use on all file systems of a tier (Apollo, Table 1, row 10).'
AS SELECT tier, sum(value) AS value FROM filesystem_available_bytes GROUP BY tier
