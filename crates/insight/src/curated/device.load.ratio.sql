-- Device load in a usable form. Apollo, Table 1, row 13: (Blk_read/s + Blk_written/s) / (Blk_read +
-- Blk_written).
-- Unit: ratio. Meaning: the device's share of the present I/O of the node's storage. The shares of
-- all physical devices add up to 1, and are 0 while there is no I/O. A low share means that other
-- devices are more loaded.
-- Decision: the published formula divides a rate by a count since the boot, so at equal load it
-- falls as the count grows. Here the numerator and the denominator are rates over the same
-- interval, and the denominator is that of all devices, since the purpose of the row is to find
-- devices with "less stress than others". A stacked device (dm, md, loop) is also divided by the
-- sum of the physical ones. device.load.published.per_second is the formula as published.
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, node.read.bytes_per_second, node.write.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT device.load.ratio UNIT 'ratio'
HELP 'Share of a device in the present I/O of the node''s storage (Apollo, Table 1, row 13, with rates in the denominator).'
AS SELECT device,
  iif(nr.value + nw.value > 0, (r.value + w.value) * 1.0 / (nr.value + nw.value), 0.0) AS value
FROM disk_read_bytes_per_second r JOIN disk_write_bytes_per_second w USING (device)
CROSS JOIN node_read_bytes_per_second nr CROSS JOIN node_write_bytes_per_second nw
