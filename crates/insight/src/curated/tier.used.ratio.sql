-- Share of a tier that is used; it puts the remaining capacity of Apollo, Table 1, row 10 into
-- relation.
-- Unit: ratio. Meaning: used / (used + available) over all file systems of a tier, as df's Use%. It
-- is 1 when users can write no more, even if space is reserved for root.
-- Inputs: filesystem.total.bytes, filesystem.free.bytes, filesystem.available.bytes
-- No value: while all file systems of a tier have no size; a tier without size has nothing that could be full
CREATE INSIGHT tier.used.ratio UNIT 'ratio'
HELP 'Share of a tier''s space that is used: used / (used + available), as df shows it.'
AS SELECT t.tier AS tier,
       sum(t.value - f.value) * 1.0 / nullif(sum(t.value - f.value + a.value), 0) AS value
FROM filesystem_total_bytes t
JOIN filesystem_free_bytes f USING (mount, device)
JOIN filesystem_available_bytes a USING (mount, device)
GROUP BY t.tier
