-- Reads and writes per second of the node's storage: TransfersPerSec of Apollo, Table 1, rows 11
-- and 14.
-- Unit: ops/s. Meaning: the rate over the last poll interval, of all physical devices.
-- Inputs: disk.read.ops_per_second, disk.write.ops_per_second
-- Decision: the same devices are left out as in node.read.bytes_per_second.
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT node.transfers.ops_per_second UNIT 'ops/s'
HELP 'Reads and writes per second of all physical devices of the node.'
AS SELECT sum(r.value + w.value) AS value
FROM disk_read_ops_per_second r JOIN disk_write_ops_per_second w USING (device)
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
