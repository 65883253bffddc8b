"""The actors of a cluster: controller, brokers, coordinators, partitions, the payload store."""
