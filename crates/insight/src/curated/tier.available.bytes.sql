-- Tier remaining capacity. Apollo, Table 1, row 10: the sum over a tier's devices of
-- DeviceCapacity - CapacityUsed.
-- Unit: bytes. Meaning: what users can still write on all file systems of a tier, as df's Avail.
-- Decision: what is reserved for root is not remaining for anybody who asks; filesystem.free.bytes has it.
-- Inputs: filesystem.available.bytes
CREATE INSIGHT tier.available.bytes UNIT 'bytes'
HELP 'Bytes that users can still write on all file systems of a tier (Apollo, Table 1, row 10).'
AS SELECT tier, sum(value) AS value FROM filesystem_available_bytes GROUP BY tier
