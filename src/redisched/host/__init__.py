"""A host's processes: `redisched worker` is one supervisor and its worker processes.

application  finds the Scheduler that `app:sched` names
orders       what a child is told at its start
child        a worker process
brood        one child as the supervisor sees it: its process, socket and ledger
supervisor   starts, watches and replaces children; renews and gives back for them; runs the roles
"""
