-- Device load as published. Apollo, Table 1, row 13: (Blk_read/s + Blk_written/s) /
-- (Blk_read + Blk_written).
-- Unit: 1/s. Meaning: what part of all the I/O of its life the device does per second now.
-- Decision: blocks cancel, so bytes serve. It is a rate over a lifetime's count, so a new device
-- looks more loaded than an old one that does the same; device.load.ratio does not. A device that
-- has done nothing yet gives no value (x / 0).
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, disk.read.bytes, disk.write.bytes
-- No value: while no device has done anything yet (x / 0); it comes with the first I/O
CREATE INSIGHT device.load.published.per_second UNIT '1/s'
HELP 'I/O per second over all I/O of the device so far, as in Apollo, Table 1, row 13; device.load.ratio is the usable one.'
AS SELECT device, (rs.value + ws.value) * 1.0 / (r.value + w.value) AS value
FROM disk_read_bytes_per_second rs JOIN disk_write_bytes_per_second ws USING (device)
JOIN disk_read_bytes r USING (device) JOIN disk_write_bytes w USING (device)
