"""How fast it is: measurements that name their hardware, and a roofline that none of them can beat.

Every theme (roofline, speed, scale, peer, ci, fleet) is a file here and a command, `python -m
benchmarks.speed THEME`. A result file names hardware, versions, study and revision; a figure without them is
an anecdote.
"""
