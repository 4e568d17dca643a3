-- Device load, made usable. Apollo, Table 1, row 13: (Blk_read/s + Blk_written/s) /
-- (Blk_read + Blk_written).
-- Unit: ratio. Meaning: the device's share of what the node's storage does now; the shares of all
-- physical devices add up to 1, and are 0 while nothing is done. Low means less loaded than others.
-- Decision: the published formula divides a rate by a lifetime's count, so it falls with the age
-- of the device at equal load. Here numerator and denominator are rates over the same interval, and
-- the denominator is that of all devices: "less stress than others" is what the row is for.
-- A stacked device (dm, md, loop) is measured against the physical ones too.
-- The formula as published is device.load.published.per_second.
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, node.read.bytes_per_second, node.write.bytes_per_second
-- No value: until the disks have been looked at twice; wait a second
CREATE INSIGHT device.load.ratio UNIT 'ratio'
HELP 'Share of a device in the I/O that the node''s storage does now (Apollo, Table 1, row 13, with rates in the denominator).'
AS SELECT device,
  iif(nr.value + nw.value > 0, (r.value + w.value) * 1.0 / (nr.value + nw.value), 0.0) AS value
FROM disk_read_bytes_per_second r JOIN disk_write_bytes_per_second w USING (device)
CROSS JOIN node_read_bytes_per_second nr CROSS JOIN node_write_bytes_per_second nw
