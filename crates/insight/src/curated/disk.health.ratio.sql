-- Health of each disk, with the disk's name in the label `disk` instead of `device`. Devices can
-- then be joined to the disks below them (device.on.flag has both labels).
-- Unit: ratio. Meaning: as device.health.ratio.
-- Inputs: device.health.ratio
CREATE INSIGHT disk.health.ratio UNIT 'ratio'
HELP 'Health of a disk: device.health.ratio with the label disk instead of device.'
AS SELECT device AS disk, value FROM device_health_ratio
