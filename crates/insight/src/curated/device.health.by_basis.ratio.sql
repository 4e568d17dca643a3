-- What is known of a device's health, by what it is told from.
-- Unit: ratio. Meaning: `blocks`: the share of blocks that are not bad; `spare`: the share of its spare blocks that
-- the device has left.
-- Inputs: health.bad.blocks, health.total.blocks, health.spare.ratio
-- No value: while no device tells of bad or spare blocks; ask for SMART data (see `baro doctor`, source health)
CREATE INSIGHT device.health.by_basis.ratio UNIT 'ratio'
HELP 'Health of a device, by what it is told from: its bad blocks or the spare ones it has left.'
AS SELECT device, 'blocks' AS basis, 1 - b.value * 1.0 / t.value AS value
FROM health_bad_blocks b JOIN health_total_blocks t USING (device)
UNION ALL SELECT device, 'spare' AS basis, value FROM health_spare_ratio
