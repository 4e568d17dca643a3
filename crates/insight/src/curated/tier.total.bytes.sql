-- Capacity of a tier: DeviceCapacity of Apollo, Table 1, row 10, to which the remaining capacity
-- can be compared.
-- Unit: bytes. Meaning: the size of all file systems of a tier.
-- Inputs: filesystem.total.bytes
CREATE INSIGHT tier.total.bytes UNIT 'bytes'
HELP 'Size of all file systems of a tier.'
AS SELECT tier, sum(value) AS value FROM filesystem_total_bytes GROUP BY tier
