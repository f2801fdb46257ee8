"""A project's agents while they live: start, stop, versions, reload, restarts and ports.

``fleet`` is the whole, ``agent`` one of them; all parts share ``context``. ``startup``, ``start_order`` and
``shutdown`` begin and end it; ``versions`` and ``swap`` exchange an agent's version. ``supervisor/`` restarts
what failed, ``reload/`` acts on saved files and judges them, ``takeover`` continues runs of dead fleets.
``ports`` and ``fleet_surfaces`` are what it serves, ``local_port`` what can be asked of it, ``programs`` the
programs of the project, ``worker_process`` its processes.
"""
