-- Available space of the node's file systems.
-- Unit: bytes. Meaning: the sum of filesystem.available.bytes; a shared file system counts in full.
-- Decision: file systems in memory are not storage and are left out.
-- Inputs: filesystem.available.bytes
-- No value: while every file system is in memory; mount one that is not
CREATE INSIGHT node.storage.available.bytes UNIT 'bytes'
HELP 'Space that users can still use on all file systems of the node, except those in memory.'
AS SELECT sum(value) AS value FROM filesystem_available_bytes
WHERE tier IS NULL OR tier <> 'memory'
