-- Bytes written by a job. Apollo, Table 1, row 15: bytes read/written by jobs.
-- Unit: bytes. Meaning: since the job began, by all ways that name jobs.
-- Inputs: job.write.by_path.bytes
-- Decision: the ways are added: what goes to Lustre is not in the control group's count of block devices. What goes
-- to a file system that does not name jobs is not seen.
CREATE INSIGHT job.write.bytes UNIT 'bytes'
HELP 'Bytes written by a job (Apollo, Table 1, row 15).'
AS SELECT job, sum(value) AS value FROM job_write_by_path_bytes GROUP BY job
