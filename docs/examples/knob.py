"""The smallest program that others may tune and end.

    baro knob set solver.tolerance 0.25
    baro call fire finish
"""

import time

import barograph

solver = barograph.publication("solver", {}, application="example")
tolerance = solver.knob("tolerance", 1e-3, min=0, max=1, unit="1", help="where the solver stops")
finished: list[barograph.Call] = []
solver.on("finish", finished.append, help="ends the program after its step")
while not finished:
    time.sleep(0.001)
    solver.frame()  # a good place for knobs
    solver.poll()  # and for calls
print(f"{tolerance.value:g}")
solver.close()
