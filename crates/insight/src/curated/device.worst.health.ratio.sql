-- Health of the worst disk below each block device: DeviceHealth of an array in Apollo, Table 1,
-- row 7.
-- Unit: ratio. Meaning: as device.health.ratio; the value of a disk is its own health.
-- Inputs: device.on.flag, disk.health.ratio
-- No value: while no disk below a block device has a known health; see what source health lacks with `baro doctor`
CREATE INSIGHT device.worst.health.ratio UNIT 'ratio'
HELP 'Health of the worst disk below a block device.'
AS SELECT o.device, min(h.value) AS value
FROM device_on_flag o JOIN disk_health_ratio h USING (disk)
WHERE o.value GROUP BY o.device
