! The smallest program that publishes: gfortran baro.f90 publish.f90 -lbaro
program publish
  use baro
  implicit none
  type(baro_publisher) :: app
  integer(baro_handle) :: step, residual
  integer :: n
  app = baro_open('example')
  step = baro_publication(app, 'example')
  residual = baro_value(step, 'residual', BARO_FLOAT, unit='1', help='distance from the solution')
  do n = 0, 999
    call baro_put(residual, 1d0 / (n + 1))
    call baro_frame(step, n)
  end do
  call baro_close(app)
end program
