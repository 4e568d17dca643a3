-- What the node draws, by who measures it.
-- Unit: watts. Meaning: `bmc`: the whole node as its management controller measures it; `node`: what the processors'
-- and sensors' own counters add up to, which is less than the whole.
-- Inputs: bmc.draw.watts, power.node.watts
-- No value: while nothing measures this node's power; see what sources bmc and power lack with `baro doctor`
CREATE INSIGHT node.power.metered.watts UNIT 'watts'
HELP 'Power that the node draws, by who measures it.'
AS SELECT 'bmc' AS meter, sum(value) AS value FROM bmc_draw_watts
UNION ALL SELECT 'node' AS meter, value FROM power_node_watts
