"""Workers: `redisched worker` is a supervisor and its worker processes.

fetcher     claims jobs when there is room
runner      runs one handler to an outcome
finisher    sends outcomes back, in batches
ledger      what a process holds, in memory its supervisor can read
renewer     keeps the leases in ledgers alive
process     one worker process: the four above on one loop
supervisor  starts, watches and replaces processes; renews and gives back for them
inline      a worker for one call, for tests
"""
