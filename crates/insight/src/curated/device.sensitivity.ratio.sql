-- Medium sensitivity to concurrent access. Apollo, Table 1, row 1:
-- (NumReqs / DevC) * (MaxBW - RealBW) / MaxBW.
-- Unit: ratio. Meaning: requests in flight over what the device takes at once, weighted with the
-- bandwidth that is left; high when many requests get little bandwidth out of it.
-- Decision: RealBW is read plus write. The weight is below 0 while a device does better than its
-- MaxBW; it is left so, since the formula says so. No MaxBW or no DevC, no value.
-- Inputs: disk.inflight.requests, disk.concurrency.max.requests, disk.read.bytes_per_second, disk.write.bytes_per_second, disk.bandwidth.max.bytes_per_second
-- No value: until a device's greatest bandwidth and concurrency are known; run baro probe, or set sources.disk.bandwidth_max
CREATE INSIGHT device.sensitivity.ratio UNIT 'ratio'
HELP 'Requests in flight over the device''s concurrency, times its unused share of bandwidth (Apollo, Table 1, row 1).'
AS SELECT device,
  (q.value * 1.0 / c.value) * ((m.value - (r.value + w.value)) * 1.0 / m.value) AS value
FROM disk_inflight_requests q JOIN disk_concurrency_max_requests c USING (device)
JOIN disk_read_bytes_per_second r USING (device) JOIN disk_write_bytes_per_second w USING (device)
JOIN disk_bandwidth_max_bytes_per_second m USING (device)
