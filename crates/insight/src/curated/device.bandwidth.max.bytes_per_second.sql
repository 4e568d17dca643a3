-- The greatest bandwidth of the disks below each block device: Apollo, Table 1, row 3, MaxBW.
-- Unit: bytes/s. Meaning: what the fastest disk below a disk, partition, array or logical volume can move.
-- Inputs: device.on.flag, disk.peak.bytes_per_second
-- Decision: the greatest, not the sum: how many disks work at once depends on the level of the array and on the
-- access, and the number of disks stands beside it (device.disks.count).
-- No value: while no disk below a block device has a known bandwidth; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.bandwidth.max.bytes_per_second UNIT 'bytes/s'
HELP 'Greatest bandwidth of the disks below a block device.'
AS SELECT o.device, max(p.value) AS value
FROM device_on_flag o JOIN disk_peak_bytes_per_second p USING (disk)
WHERE o.value GROUP BY o.device
