-- Tier remaining capacity. Apollo, Table 1, row 10: the sum over a tier's devices of
-- DeviceCapacity - CapacityUsed.
-- Unit: bytes. Meaning: what is not used of all file systems of a tier.
-- Decision: capacity minus used is what statvfs calls free, which counts the blocks reserved for
-- root; filesystem.available.bytes is less, and is what an unprivileged writer gets.
-- Inputs: filesystem.free.bytes
CREATE INSIGHT tier.free.bytes UNIT 'bytes'
HELP 'Bytes not in use on all file systems of a tier (Apollo, Table 1, row 10).'
AS SELECT tier, sum(value) AS value FROM filesystem_free_bytes GROUP BY tier
