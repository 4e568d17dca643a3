! Prints the samples of a subscription, one per line; goes on when it gets a command.
program subscribe
  use baro
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: output_unit
  implicit none
  integer(c_int64_t), parameter :: minute_ns = 60000000000_c_int64_t
  type(baro_node) :: node
  type(baro_subscription) :: values
  type(baro_update) :: update
  character(len=100) :: shown
  integer :: status, at
  node = baro_node_open()
  values = baro_subscribe(node, '{')
  if (baro_subscription_next(values, 0_c_int64_t, update) >= 0) error stop 1
  values = baro_subscribe(node, 'value.*')
  call baro_node_close(node)
  do
    if (baro_subscription_next(values, minute_ns, update) /= BARO_OK) error stop 2
    if (update%ts <= 0) error stop 3
    shown = ''
    select case (update%type)
    case (BARO_FLOAT)
      write (shown, '(f0.2)') update%number
    case (BARO_INT, BARO_BOOL)
      write (shown, '(i0)') nint(update%number)
    case (BARO_FLOATS)
      write (shown, '(*(f0.2, ";"))') (update%numbers(at), at=1, size(update%numbers))
    case default
      shown = update%text
    end select
    write (output_unit, '(a, "{", a, "} ", a, " ", i0)') update%name, update%labels, trim(shown), update%missed
    flush (output_unit)
    read (*, '(a)', iostat=status) shown
    if (status /= 0) exit
  end do
  if (baro_subscription_next(values, 0_c_int64_t, update) /= BARO_NOTHING) error stop 4
  call baro_subscription_close(values)
  call baro_subscription_close(values)
end program
