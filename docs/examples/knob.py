"""The smallest program that others may tune and end.

    baro knob set solver.tolerance 0.25
    baro trigger fire finish
"""

import time

import barograph

with barograph.publication("solver", {}, application="example") as solver:
    tolerance = solver.knob("tolerance", 1e-3, min=0, max=1, unit="1", help="where the solver stops")
    finished = []
    solver.on("finish", finished.append, help="ends the program after its step")
    while not finished:
        time.sleep(0.001)
        solver.frame()  # a good place for knobs
        solver.poll()  # and for triggers
print(f"{tolerance.value:g}")
