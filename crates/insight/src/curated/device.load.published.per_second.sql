-- Device load as published. Apollo, Table 1, row 13: (Blk_read/s + Blk_written/s) / (Blk_read +
-- Blk_written).
-- Unit: 1/s. Meaning: the I/O per second that the device does now, as a share of all its I/O so
-- far.
-- Decision: the size of a block cancels out, so bytes are used. A rate is divided by a count since
-- the boot, so a device that has done little appears more loaded than another one with the same
-- rate. device.load.ratio does not have this defect. A device that has done nothing yet has no
-- value, because of the division by 0.
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, disk.read.bytes, disk.write.bytes
-- No value: while no device has done anything yet (x / 0); it comes with the first I/O
CREATE INSIGHT device.load.published.per_second UNIT '1/s'
HELP 'I/O per second divided by all I/O of the device so far, as published (Apollo, Table 1, row 13); device.load.ratio is more useful.'
AS SELECT device, (rs.value + ws.value) * 1.0 / (r.value + w.value) AS value
FROM disk_read_bytes_per_second rs JOIN disk_write_bytes_per_second ws USING (device)
JOIN disk_read_bytes r USING (device) JOIN disk_write_bytes w USING (device)
