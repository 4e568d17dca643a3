-- Bytes written by a job. Apollo, Table 1, row 15: bytes read/written by jobs.
-- Unit: bytes. Meaning: bytes since the job began, by all paths that count bytes by job.
-- Inputs: job.write.by_path.bytes
-- Decision: the paths are added, because the control group counts only block devices and so does
-- not count I/O to Lustre. I/O to a file system that does not count by job is not seen.
CREATE INSIGHT job.write.bytes UNIT 'bytes'
HELP 'Bytes written by a job (Apollo, Table 1, row 15).'
AS SELECT job, sum(value) AS value FROM job_write_by_path_bytes GROUP BY job
