-- Write rate of the node's storage: the sum over its physical devices.
-- Unit: bytes/s. Meaning: the rate over the last poll interval.
-- Decision: the same devices are left out as in node.read.bytes_per_second.
-- Inputs: disk.write.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT node.write.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second written to all physical devices of the node.'
AS SELECT sum(value) AS value FROM disk_write_bytes_per_second
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
