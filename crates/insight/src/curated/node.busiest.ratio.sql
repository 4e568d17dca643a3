-- Busy ratio of the busiest device: the greatest disk.busy.ratio of the node.
-- Unit: ratio. Meaning: 1 if some device always had I/O in flight.
-- Inputs: disk.busy.ratio
-- No value: until the disks have been polled twice; wait a second
CREATE INSIGHT node.busiest.ratio UNIT 'ratio'
HELP 'Busy ratio of the busiest device of the node.'
AS SELECT max(value) AS value FROM disk_busy_ratio
