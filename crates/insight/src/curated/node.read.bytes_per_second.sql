-- What the node's storage reads: the sum over its devices.
-- Unit: bytes/s. Meaning: the rate over the last poll interval.
-- Decision: devices that pass their I/O on to others (device mapper, md, loop) would count it
-- twice, and zram and ram disks are memory; they are left out.
-- Inputs: disk.read.bytes_per_second
-- No value: until the disks have been looked at twice; wait a second
CREATE INSIGHT node.read.bytes_per_second UNIT 'bytes/s'
HELP 'Bytes per second read from all physical devices of the node.'
AS SELECT sum(value) AS value FROM disk_read_bytes_per_second
WHERE NOT (device GLOB 'dm-*' OR device GLOB 'md[0-9]*' OR device GLOB 'loop*'
           OR device GLOB 'zram*' OR device GLOB 'ram*')
