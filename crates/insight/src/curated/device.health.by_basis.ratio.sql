-- Health of each device, by the basis of the figure.
-- Unit: ratio. Meaning: with the label basis=blocks, the share of blocks that are not bad; with the
-- label basis=spare, the share of the device's spare blocks that remain.
-- Inputs: health.bad.blocks, health.total.blocks, health.spare.ratio
-- No value: while no device reports bad or spare blocks; ask for SMART data (see `baro doctor`, source health)
CREATE INSIGHT device.health.by_basis.ratio UNIT 'ratio'
HELP 'Health of a device, by basis: blocks (the share that is not bad) or spare (the share of spare blocks that remain).'
AS SELECT device, 'blocks' AS basis, 1 - b.value * 1.0 / t.value AS value
FROM health_bad_blocks b JOIN health_total_blocks t USING (device)
UNION ALL SELECT device, 'spare' AS basis, value FROM health_spare_ratio
