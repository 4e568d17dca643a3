-- Device health. Apollo, Table 1, row 5: 1 - NumBadBlocks / TotalNumBlocks.
-- Unit: ratio. Meaning: the share of a device's blocks that are good; 1 is flawless.
-- Inputs: health.bad.blocks, health.total.blocks
-- Decision: as published. It says little of drives that remap quietly: wear and spare (health.wear.ratio,
-- health.spare.ratio) stand beside it. A device of unknown size gives no value (x / 0).
-- No value: while no device counts its bad blocks; ask for SMART data (see `baro doctor`, source health)
CREATE INSIGHT device.health.ratio UNIT 'ratio'
HELP 'Share of a device''s blocks that are not bad (Apollo, Table 1, row 5).'
AS SELECT device, 1 - b.value * 1.0 / t.value AS value
FROM health_bad_blocks b JOIN health_total_blocks t USING (device)
