-- Read rate of the node's storage: the sum over its physical devices.
-- Unit: bytes/s. Meaning: the rate over the last poll interval.
-- Decision: devices that pass their I/O on to others (device mapper, md, loop) are left out,
-- because their I/O would count twice. zram and ram disks are left out, because they are memory.
-- Inputs: disk.read.bytes_per_second
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT node.read.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second read from all physical devices of the node.'
AS SELECT sum(value) AS value FROM disk_read_bytes_per_second
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
