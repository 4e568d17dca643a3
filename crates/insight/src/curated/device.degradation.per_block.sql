-- Device degradation rate. Apollo, Table 1, row 8: device_health / (total_blocks_read + total_blocks_written).
-- Unit: 1/block. Meaning: health left for each block of 512 bytes that the device moved in its life; of two devices of
-- equal health the one that moved more has the lower value.
-- Inputs: device.health.ratio, health.read.blocks, health.write.blocks
-- Decision: as published, over the counters of the device's life that it keeps itself, not those since the boot.
-- A device that has moved nothing has no value (x / 0).
-- No value: while no device of known health counts what it moved in its life; ask for SMART data (see `baro doctor`, source health)
CREATE INSIGHT device.degradation.per_block UNIT '1/block'
HELP 'Health of a device over the blocks it moved in its life (Apollo, Table 1, row 8).'
AS SELECT device, h.value / (r.value + w.value) AS value
FROM device_health_ratio h JOIN health_read_blocks r USING (device) JOIN health_write_blocks w USING (device)
