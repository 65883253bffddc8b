"""The actors that use a cluster: producers, consumers, load generators, replayers."""
