-- What the node draws: PowerPerSec of Apollo, Table 1, rows 11 and 14.
-- Unit: watts. Meaning: power now; PowerPerSec is read as energy per second.
-- Inputs: node.power.metered.watts
-- Decision: the management controller's word where there is one, since it sees disks, fans and losses too; else the
-- counters of processors and memory.
-- No value: while nothing measures this node's power; see what sources bmc and power lack with `baro doctor`
CREATE INSIGHT node.power.watts UNIT 'watts'
HELP 'Power that the node draws, by its management controller or else by its own counters.'
AS SELECT coalesce(max(CASE WHEN meter = 'bmc' THEN value END), max(value)) AS value
FROM node_power_metered_watts
