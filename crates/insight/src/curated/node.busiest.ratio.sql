-- The busiest device: the greatest disk.busy.ratio of the node.
-- Unit: ratio. Meaning: 1 when some device had I/O in flight all the time.
-- Inputs: disk.busy.ratio
-- No value: until the disks have been looked at twice; wait a second
CREATE INSIGHT node.busiest.ratio UNIT 'ratio'
HELP 'Busy share of the busiest device of the node.'
AS SELECT max(value) AS value FROM disk_busy_ratio
