! Phases of I/O in Fortran, without an agent.
program phases
  use baro
  use, intrinsic :: iso_c_binding
  implicit none
  type(baro_publisher) :: app
  type(baro_volume) :: scratch
  integer(baro_handle) :: phase
  integer(c_int) :: grant
  integer(c_int64_t), parameter :: bytes = 4096
  app = baro_open('phases')
  scratch = baro_io_volume(app, '/scratch ')
  phase = baro_io_begin(scratch, bytes, grant=grant)
  if (phase /= 1 .or. grant == BARO_IO_GRANTED) error stop 1
  if (baro_io_step(scratch, phase, 10_c_int64_t) == BARO_IO_GRANTED) error stop 2
  call baro_io_end(scratch, phase, bytes)
  phase = baro_io_begin(scratch, wait_ms=1_c_int64_t, priority=10_c_int)
  call baro_io_end(scratch, phase, 0_c_int64_t)
  call baro_io_volume_close(scratch)
  call baro_close(app)
end program
