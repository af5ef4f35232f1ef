"""Publishing over MQTT: live batches first, the backlog behind them."""
