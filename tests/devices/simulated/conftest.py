from devices.simulated import scheduler

scheduler.install()
