-- Device health. Apollo, Table 1, row 5: 1 - NumBadBlocks / TotalNumBlocks.
-- Unit: ratio. Meaning: the share of a device's blocks that are good; 1 is flawless.
-- Inputs: device.health.by_basis.ratio
-- Decision: as published if the device counts its bad blocks. NVMe drives do not: they replace bad
-- blocks by spare ones and report the share of spare blocks that remain, and that share is used for
-- them (device.health.by_basis.ratio shows which figure it is). It falls sooner than the published
-- ratio, because it is relative to the spare blocks and not to all blocks. A device of unknown size
-- has no value, because of the division by 0.
CREATE INSIGHT device.health.ratio UNIT 'ratio'
HELP 'Share of a device''s blocks that are not bad (Apollo, Table 1, row 5); if bad blocks are not counted, share of spare blocks that remain.'
AS SELECT device, coalesce(max(CASE WHEN basis = 'blocks' THEN value END), max(value)) AS value
FROM device_health_by_basis_ratio GROUP BY device
