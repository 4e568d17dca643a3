-- Greatest bandwidth of each disk, with the disk's name in the label `disk` instead of `device`.
-- Devices can then be joined to the disks below them (device.on.flag has both labels).
-- Unit: bytes/s. Meaning: as disk.bandwidth.max.bytes_per_second.
-- Inputs: disk.bandwidth.max.bytes_per_second
-- No value: until the greatest bandwidth of a disk is known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT disk.peak.bytes_per_second UNIT 'bytes/s'
HELP 'Greatest bandwidth of a disk: disk.bandwidth.max.bytes_per_second with the label disk instead of device.'
AS SELECT device AS disk, value FROM disk_bandwidth_max_bytes_per_second
