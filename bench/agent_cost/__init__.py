"""What the whole agent costs beside sadc, node_exporter and collectd: `python -m bench.agent_cost`."""
