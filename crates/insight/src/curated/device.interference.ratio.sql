-- Interference factor. Apollo, Table 1, row 2: RealBW / MaxBW.
-- Unit: ratio. Meaning: the share of its bandwidth that the device uses now. The lower it is, the
-- more I/O the device can accept.
-- Decision: RealBW is reads plus writes. MaxBW is configured, probed, taken from the type of the
-- disk's link, or observed if the disk was faster than that, so the ratio exceeds 1 only for a
-- short time. A device without MaxBW has no value.
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, disk.bandwidth.max.bytes_per_second
-- No value: until the greatest bandwidth of a device is known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.interference.ratio UNIT 'ratio'
HELP 'Present bandwidth of a device divided by its greatest (Apollo, Table 1, row 2).'
AS SELECT device, (r.value + w.value) * 1.0 / m.value AS value
FROM disk_read_bytes_per_second r JOIN disk_write_bytes_per_second w USING (device)
JOIN disk_bandwidth_max_bytes_per_second m USING (device)
