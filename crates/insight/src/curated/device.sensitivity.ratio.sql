-- Sensitivity of a medium to concurrent access. Apollo, Table 1, row 1: (NumReqs / DevC) * (MaxBW -
-- RealBW) / MaxBW.
-- Unit: ratio. Meaning: requests in flight divided by the number that the device accepts at once,
-- multiplied by the share of bandwidth that is unused. It is high if many requests together achieve
-- little bandwidth.
-- Decision: RealBW is reads plus writes. The unused share, and with it the value, is negative while
-- a device is faster than its MaxBW; this is what the formula gives. A device without MaxBW or DevC
-- has no value.
-- Inputs: disk.inflight.requests, disk.concurrency.max.requests, disk.read.bytes_per_second, disk.write.bytes_per_second, disk.bandwidth.max.bytes_per_second
-- No value: until a device's greatest bandwidth and concurrency are known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.sensitivity.ratio UNIT 'ratio'
HELP 'Requests in flight divided by the device''s concurrency, multiplied by its unused share of bandwidth (Apollo, Table 1, row 1).'
AS SELECT device,
  (q.value * 1.0 / c.value) * ((m.value - (r.value + w.value)) * 1.0 / m.value) AS value
FROM disk_inflight_requests q JOIN disk_concurrency_max_requests c USING (device)
JOIN disk_read_bytes_per_second r USING (device) JOIN disk_write_bytes_per_second w USING (device)
JOIN disk_bandwidth_max_bytes_per_second m USING (device)
