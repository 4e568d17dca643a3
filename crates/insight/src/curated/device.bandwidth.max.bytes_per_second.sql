-- Greatest bandwidth of the disks below each block device: MaxBW of Apollo, Table 1, row 3.
-- Unit: bytes/s. Meaning: bandwidth of the fastest disk below a disk, partition, array or logical
-- volume.
-- Inputs: device.on.flag, disk.peak.bytes_per_second
-- Decision: the greatest and not the sum, because the level of the array and the access pattern
-- decide how many disks work at once. The number of disks is another stream, device.disks.count.
-- No value: while no disk below a block device has a known bandwidth; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.bandwidth.max.bytes_per_second UNIT 'bytes/s'
HELP 'Greatest bandwidth of the disks below a block device (Apollo, Table 1, row 3).'
AS SELECT o.device, max(p.value) AS value
FROM device_on_flag o JOIN disk_peak_bytes_per_second p USING (disk)
WHERE o.value GROUP BY o.device
