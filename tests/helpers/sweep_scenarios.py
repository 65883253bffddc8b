"""A scenario of three virtual seconds, for sweeps."""

SERVICE = 'service = { kind = "exponential", per_record = "8ms" }'
TINY = f"""
name = "tiny"
duration = "3s"
cluster = {{ settings = {{ group_initial_rebalance_delay_ms = 200 }} }}
topics = [{{ name = "orders", partitions = 4 }}]
objectives = [{{ max_lag = "1100ms" }}]

[[producers]]
name = "shop"
topic = "orders"
arrivals = {{ kind = "poisson", rate = 200 }}
partitioner = "random"

[[groups]]
name = "billing"
topics = ["orders"]
{SERVICE}
settings = {{ auto_commit_interval_ms = 200, max_poll_records = 20 }}
"""
