-- Device fault tolerance. Apollo, Table 1, row 7: ReplicationLevel and DeviceHealth, either
-- multiplied or divided (the operator is missing in the printed paper).
-- Unit: count. Meaning: copies of the data, each weighted with the health of the worst disk below
-- the device: 1 for a flawless plain disk, 2 for a flawless mirror, less with bad blocks.
-- Inputs: device.replication.count, device.worst.health.ratio
-- Decision: the product. The paper says: "DPEs can place important data on more fault-tolerant
-- devices", so the value must grow with the copies and with the health. The quotient would rate a
-- failing disk as safer than a sound one, and a dead disk as infinitely safe.
-- No value: while no disk's health is known; see what source health lacks with `baro doctor`
CREATE INSIGHT device.fault_tolerance.count UNIT 'count'
HELP 'Copies of the data multiplied by the health of the worst disk (Apollo, Table 1, row 7).'
AS SELECT device, r.value * h.value AS value
FROM device_replication_count r JOIN device_worst_health_ratio h USING (device)
