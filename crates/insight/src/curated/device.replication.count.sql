-- ReplicationLevel of Apollo, Table 1, row 7.
-- Unit: count. Meaning: how many copies of the data there are, as raid.replication.count has it; 1 for a plain disk.
-- Inputs: raid.replication.count, device.kind.name
-- Decision: disks and arrays only: what stands on an array (partition, logical volume) is as safe as the array.
-- No value: while neither a disk nor an array is seen; see what sources device and raid lack with `baro doctor`
CREATE INSIGHT device.replication.count UNIT 'count'
HELP 'Copies that a disk (1) or an array keeps of its data.'
AS SELECT device, value FROM raid_replication_count
UNION ALL SELECT device, 1 AS value FROM device_kind_name WHERE value = 'disk'
