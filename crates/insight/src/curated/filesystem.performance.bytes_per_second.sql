-- Performance of file systems. Apollo, Table 1, row 3: (compression type, block size, RAID level,
-- #devices, MaxBW).
-- Unit: bytes/s. Meaning: MaxBW, which is the bandwidth of the fastest disk below a mount.
-- Inputs: filesystem.block.bytes, device.bandwidth.max.bytes_per_second
-- Decision: the row is a tuple, but a stream has one value. The other elements could be labels, but
-- the labels of a stream never change and the make-up of a file system can. So the bandwidth is the
-- value, and the other elements are streams of their own. The tuple in SQL:
--   SELECT p.mount, c.value AS compression, b.value AS block_bytes, r.value AS raid, n.value AS devices,
--          p.value AS max_bytes_per_second
--   FROM filesystem_performance_bytes_per_second p
--   LEFT JOIN filesystem_block_bytes b ON b.mount = p.mount AND b.newest
--   LEFT JOIN filesystem_compression_name c ON c.mount = p.mount AND c.newest
--   LEFT JOIN filesystem_raid_name r ON r.mount = p.mount AND r.newest
--   LEFT JOIN filesystem_devices_count n ON n.mount = p.mount AND n.newest
--   WHERE p.newest
-- A shared file system, or one in memory, is on no disk of this node and has no value.
-- No value: while no mount is on a disk of this node with a known bandwidth; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT filesystem.performance.bytes_per_second UNIT 'bytes/s'
HELP 'Greatest bandwidth of the disks below a mount (Apollo, Table 1, row 3; the rest of the tuple: filesystem.block.bytes, .compression.name, .raid.name, .devices.count).'
AS SELECT f.mount, d.value AS value
FROM filesystem_block_bytes f JOIN device_bandwidth_max_bytes_per_second d USING (device)
