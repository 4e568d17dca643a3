-- Device degradation rate. Apollo, Table 1, row 8: device_health / (total_blocks_read +
-- total_blocks_written).
-- Unit: 1/block. Meaning: remaining health for each block of 512 bytes that the device has
-- transferred in its life. Of two devices of equal health, the one that has transferred more has
-- the lower value.
-- Inputs: device.health.ratio, health.read.blocks, health.write.blocks
-- Decision: as published, with the counters that the device keeps for its whole life and not those
-- since the boot. A device that has transferred nothing has no value, because of the division by 0.
-- No value: while no device of known health counts the blocks of its life; ask for SMART data (see `baro doctor`, source health)
CREATE INSIGHT device.degradation.per_block UNIT '1/block'
HELP 'Health of a device divided by the number of blocks transferred in its life (Apollo, Table 1, row 8).'
AS SELECT device, h.value / (r.value + w.value) AS value
FROM device_health_ratio h JOIN health_read_blocks r USING (device) JOIN health_write_blocks w USING (device)
