-- The health of each disk under the label `disk`, so that what stands on disks can be joined to them.
-- Unit: ratio. Meaning: device.health.ratio, which calls its label `device`.
-- Inputs: device.health.ratio
CREATE INSIGHT disk.health.ratio UNIT 'ratio'
HELP 'Health of a disk, by the label that names what stands on it.'
AS SELECT device AS disk, value FROM device_health_ratio
