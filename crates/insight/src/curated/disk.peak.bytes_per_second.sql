-- The greatest bandwidth of each disk under the label `disk`, so that what stands on disks can be joined to them.
-- Unit: bytes/s. Meaning: disk.bandwidth.max.bytes_per_second, which calls its label `device`.
-- Inputs: disk.bandwidth.max.bytes_per_second
-- No value: until the greatest bandwidth of a disk is known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT disk.peak.bytes_per_second UNIT 'bytes/s'
HELP 'Greatest bandwidth of a disk, by the label that names what stands on it.'
AS SELECT device AS disk, value FROM disk_bandwidth_max_bytes_per_second
