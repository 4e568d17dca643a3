-- Power that the node draws: PowerPerSec of Apollo, Table 1, rows 11 and 14.
-- Unit: watts. Meaning: the present power; PowerPerSec is understood as energy per second.
-- Inputs: node.power.metered.watts
-- Decision: the figure of the management controller (BMC) if there is one, because it includes
-- disks, fans and losses; else the counters of processors and memory.
-- No value: while nothing measures this node's power; see what sources bmc and power lack with `baro doctor`
CREATE INSIGHT node.power.watts UNIT 'watts'
HELP 'Power that the node draws, as its management controller measures it, or else its own counters.'
AS SELECT coalesce(max(CASE WHEN meter = 'bmc' THEN value END), max(value)) AS value
FROM node_power_metered_watts
