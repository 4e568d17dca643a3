-- Device health. Apollo, Table 1, row 5: 1 - NumBadBlocks / TotalNumBlocks.
-- Unit: ratio. Meaning: the share of a device's blocks that are good; 1 is flawless.
-- Inputs: device.health.by_basis.ratio
-- Decision: as published where the device counts its bad blocks. NVMe drives do not: they put spare blocks in the
-- place of bad ones and tell what share of the spares is left, which stands for it there (device.health.by_basis.ratio
-- tells which it is). It falls sooner than the published ratio, since it is of the spares and not of all blocks.
-- A device of unknown size gives no value (x / 0).
CREATE INSIGHT device.health.ratio UNIT 'ratio'
HELP 'Share of a device''s blocks that are not bad (Apollo, Table 1, row 5); of spare blocks left, where bad ones are not counted.'
AS SELECT device, coalesce(max(CASE WHEN basis = 'blocks' THEN value END), max(value)) AS value
FROM device_health_by_basis_ratio GROUP BY device
