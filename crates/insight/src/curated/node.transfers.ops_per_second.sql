-- What the node's storage does: TransfersPerSec of Apollo, Table 1, rows 11 and 14.
-- Unit: ops/s. Meaning: reads and writes per second over the last poll interval, of all physical devices.
-- Inputs: disk.read.ops_per_second, disk.write.ops_per_second
-- Decision: as in node.read.bytes_per_second, devices that pass their I/O on are left out.
-- No value: until the disks have been looked at twice; wait a second
CREATE INSIGHT node.transfers.ops_per_second UNIT 'ops/s'
HELP 'Reads and writes per second of all physical devices of the node.'
AS SELECT sum(r.value + w.value) AS value
FROM disk_read_ops_per_second r JOIN disk_write_ops_per_second w USING (device)
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
