-- What the node's storage writes: the sum over its devices.
-- Unit: bytes/s. Meaning: the rate over the last poll interval.
-- Decision: as in node.read.bytes_per_second, devices that pass their I/O on are left out.
-- Inputs: disk.write.bytes_per_second
-- No value: until the disks have been looked at twice; wait a second
CREATE INSIGHT node.write.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second written to all physical devices of the node.'
AS SELECT sum(value) AS value FROM disk_write_bytes_per_second
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
