! Control events in Fortran: prints what comes, in the way that it is told.
module handlers
  use baro
  use, intrinsic :: iso_c_binding
  implicit none
contains
  subroutine show(how, event)
    character(len=*), intent(in) :: how
    type(baro_control_event), intent(in) :: event
    character(len=:), allocatable :: policy
    integer :: at
    policy = '-'
    do at = 1, size(event%properties)
      if (event%properties(at)%name == 'policy') policy = event%properties(at)%text
    end do
    print '(a, 1x, a, 1x, a, 1x, i0, 1x, a)', how, event%kind, event%subject, &
      merge(nint(event%number), -1, event%has_number), policy
    flush (6)
  end subroutine

  function handle(given, data) bind(C) result(status)
    type(c_ptr), value :: given, data
    integer(c_int) :: status
    call show('callback', baro_control_read(given))
    status = 0
    if (c_associated(data)) status = 1
  end function
end module

program control
  use baro
  use handlers
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int64_t), parameter :: minute_ns = 60000000000_c_int64_t
  type(baro_publisher) :: app
  type(baro_node) :: node
  type(baro_control_subscription) :: events
  type(baro_control_event) :: event
  type(baro_property) :: properties(2)
  character(len=16) :: line
  integer(c_int) :: handled
  app = baro_open('teller')
  properties(1)%name = 'name'
  properties(1)%text = 'text '
  properties(2)%name = 'other'
  properties(2)%text = ''
  if (baro_control_publish(app, 'a.b', 'c', number=1d0, confidence=0.5d0, properties=properties) /= BARO_OK) &
    error stop 1
  if (baro_control_publish(app, 'a b') == BARO_OK) error stop 2
  if (baro_control_publish(app, 'plain') /= BARO_OK) error stop 3
  node = baro_node_open()
  events = baro_control_subscribe(node, kind='io.*', exclude_own=.true.)
  if (baro_control_check(events, event) /= BARO_NOTHING) error stop 4
  print '(a)', 'ready'
  flush (6)
  read '(a)', line
  if (baro_control_wait(events, minute_ns, event) /= BARO_OK) error stop 5
  call show('wait', event)
  if (baro_control_on(events, handle) /= BARO_OK) error stop 6
  read '(a)', line
  ! Not within the statement: the handler prints as well.
  handled = baro_control_dispatch(events, minute_ns)
  print '(i0)', handled
  flush (6)
  read '(a)', line
  if (baro_control_wait(events, minute_ns, event) /= BARO_OK) error stop 7
  print '(a, 1x, i0)', 'thrown', baro_control_missed(events)
  flush (6)
  ! Until its input ends.
  read (*, '(a)', iostat=handled) line
  call baro_control_close(events)
  call baro_close(app)
end program
