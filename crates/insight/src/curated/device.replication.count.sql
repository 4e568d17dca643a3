-- Number of copies of the data: ReplicationLevel of Apollo, Table 1, row 7.
-- Unit: count. Meaning: 1 for a plain disk, raid.replication.count for an array.
-- Inputs: raid.replication.count, device.kind.name
-- Decision: disks and arrays only, because a partition or a logical volume is as safe as the array
-- below it.
-- No value: while neither a disk nor an array is seen; see what sources device and raid lack with `baro doctor`
CREATE INSIGHT device.replication.count UNIT 'count'
HELP 'Copies of its data that a disk (1) or an array keeps.'
AS SELECT device, value FROM raid_replication_count
UNION ALL SELECT device, 1 AS value FROM device_kind_name WHERE value = 'disk'
