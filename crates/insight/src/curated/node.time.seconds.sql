-- System time. Apollo, Table 1, row 12: (NodeID, system time).
-- Unit: seconds. Meaning: the node's clock at the last poll (column `ts`), in seconds since 1970.
-- The column `node` is NodeID, and the column `error` the greatest difference from true time.
-- Inputs: clock.time.seconds
-- Decision: a time without its error cannot be compared across nodes, so the sample has the error
-- that the kernel knows: it is large or infinite while the clock is not synchronised.
-- clock.offset.seconds is the newest estimate of the offset.
-- No value: until the clock has been polled; wait for the next poll of source clock
CREATE INSIGHT node.time.seconds UNIT 'seconds'
HELP 'Time of the node''s clock, in seconds since 1970; the error of the sample is the greatest difference from true time (Apollo, Table 1, row 12).'
AS SELECT value FROM clock_time_seconds
