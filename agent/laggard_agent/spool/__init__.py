"""The bounded disk spool: batches wait in it until the aggregator acknowledges them."""
