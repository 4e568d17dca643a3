-- Device fault tolerance. Apollo, Table 1, row 7: ReplicationLevel (x or /) DeviceHealth; the operator is lost in print.
-- Unit: count. Meaning: copies of the data, each worth what the worst disk below is worth: 1 for a flawless plain disk,
-- 2 for a flawless mirror, less with bad blocks.
-- Inputs: device.replication.count, device.worst.health.ratio
-- Decision: the product. "DPEs can place important data on more fault-tolerant devices": the value must rise with
-- the copies and with the health; the quotient would call a failing disk safer than a sound one, and a dead one
-- infinitely safe.
-- No value: while no disk's health is known; see what source health lacks with `baro doctor`
CREATE INSIGHT device.fault_tolerance.count UNIT 'count'
HELP 'Copies of the data times the health of the worst disk (Apollo, Table 1, row 7).'
AS SELECT device, r.value * h.value AS value
FROM device_replication_count r JOIN device_worst_health_ratio h USING (device)
