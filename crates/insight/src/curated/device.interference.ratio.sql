-- Interference factor. Apollo, Table 1, row 2: RealBW / MaxBW.
-- Unit: ratio. Meaning: what part of its bandwidth the device gives away now; the lower, the more
-- I/O it can accept.
-- Decision: RealBW is read plus write; MaxBW is configured, probed or of the disk's link, or what was
-- seen beyond these, so the ratio exceeds 1 for a while at most. No MaxBW, no value.
-- Inputs: disk.read.bytes_per_second, disk.write.bytes_per_second, disk.bandwidth.max.bytes_per_second
-- No value: until the greatest bandwidth of a device is known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.interference.ratio UNIT 'ratio'
HELP 'Present bandwidth of a device over its greatest (Apollo, Table 1, row 2).'
AS SELECT device, (r.value + w.value) * 1.0 / m.value AS value
FROM disk_read_bytes_per_second r JOIN disk_write_bytes_per_second w USING (device)
JOIN disk_bandwidth_max_bytes_per_second m USING (device)
